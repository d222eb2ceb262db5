# SPDX-License-Identifier: Apache-2.0
"""Member clusters: plan, join, leave, agents, taints, rights.

Imports kube, components, document, pki, render, run, control_plane.

Failure of one member
---------------------

**A failing member must not stop the others.** Work on a member runs inside ``one_member.apart``, which turns *any*
error into a problem of that member with the name of the error's type, and shows the traceback at ``-vvv``. Only a lost
lock ends the whole run. Content from a member is read with limits: ``yaml_document.documents_of`` for YAML,
``registration.filled`` for tokens.

Push and pull
-------------

Karmada's controllers look at the mode of a Cluster when something happens to a Work, and their watches of a member end
only with the Cluster. So a change of ``syncMode`` alone would leave karmada-controller-manager at work beside the
agent, with its lease and status, or without watches of what exists already. ``mode`` has the order: the component that
works on the member stops before the next one starts, so for some seconds none works on it. An agent is stopped by
deleting its Deployment or token and its rights. This stops an agent on a host, too, before any step comes to its host.

Until the change is finished, the record of the member has ``formerMode``. It is written before the first change and
removed after the last one. It says that a change is unfinished and which mode may have left objects on the member, also
when the change was reverted. A member that leaves is treated by the mode of its Cluster; if that is Pull and there is
no agent, it is set to Push first.

Components with a connection to a member whose address, credentials or mode changed must restart
(``former_connections``). The state counts this for each component, before the connection changes. The count is rendered
as an annotation of the pods or into the hash of a unit, so that it is a difference like any other; ``restartsDue``
lists the restarts that no run has completed yet. On hosts a state exists once ``journal`` has written it, so there
``registration`` runs twice: first it only records which members are about to change, and what must restart
(``to_note``); once the hosts have the record, it runs again and changes things; then come the restarts, host after
host, and the stage ``agents``. The second time it leaves a member alone that is not on record by then.

Order of leaving
----------------

A member that leaves is no longer in the document, so everything that is needed then is recorded before joining creates
anything on it: how to reach it, and what leaving means. Workloads that stay need three things in this order. A policy
in the API server refuses Works of members that leave unless they preserve their resources: controllers write the whole
spec of a Work whenever its template changes, and would revert the field. It is tried by dry run until it is in force,
then the Works are changed, then the Cluster is deleted. The member is cleaned up when its Cluster is gone, because
until then Karmada works there with the accounts that are to be deleted. The record is removed last.

Without help the rest is mostly pauses: an API server begins to empty a namespace 5 s after its deletion and checks for
remaining finalizers in steps of 8 s, and Karmada checks every 10 s whether the Cluster may go. So the run deletes the
Works itself as soon as their namespace is terminating, when no controller can create them again, and changes an
annotation of the Cluster when the namespace is gone, upon which its controller reconciles at once. Requests to a member
that leaves are retried only until its deadline.

Karmada never stops trying to take its labels off an object that no longer exists on the member. Finalizers of Works
that hang like this are removed after our own look at the member has shown that nothing is left to do. All other
finalizers are left alone, unless the member was given up by name.
"""
