# SPDX-License-Identifier: Apache-2.0
"""Member clusters: plan, join, leave, agents, taints, rights.

Imports kube, components, document, pki, render, run, control_plane.

One bad member
--------------

**One bad member is one member's problem.** What members are asked goes through ``one_member.apart``, which turns
*any* error into a problem of that member with the name of its type, and shows the traceback at ``-vvv``. Only a lost
lock is of the whole run. What a member holds is read by readers with limits: ``yaml_document.documents_of`` for YAML,
``registration.filled`` for tokens.

Push and pull
-------------

Karmada's controllers look at the mode of a Cluster when something happens to a Work, and their watches of a member
end with the Cluster only. So a change of ``syncMode`` alone would leave karmada-controller-manager at work beside the
agent, with its lease and status, or leave it without watches of what is there already. ``mode`` has the order: who
works on the member is stopped before the next one starts, so for some seconds nobody works on it. An agent is ended
by taking what it acts by and its rights, so that one on a host is ended by that, too, before any step comes to its
host.

Until the end the record of the member has ``formerMode``. It is written before the first change and taken away after
the last one, says that there is something to finish, and in which mode the member may have left something: also when
the change was taken back. A member that leaves goes by what its Cluster says; where that says Pull and there is no
agent, it is set to Push first.

What holds a connection to a member that is not what it was has to start again (``former_connections``). The state
counts that for each component, before the connection changes. The count is part of what is rendered, as an annotation
of the pods or in the hash of a unit, so that it is a difference like any other; ``restartsDue`` is what a run has not
seen through. On hosts a state is there when ``journal`` has written it, so there ``registration`` runs twice:
first it only notes what must restart (``to_note``); once the hosts have the note, it runs again and changes things;
then come the restarts, host after host, and the stage ``agents``.

Order of leaving
----------------

The document has forgotten a member that leaves, so what is needed then is recorded before joining makes anything on
it: how it is reached, and what leaving means. Workloads that stay need three things in this order. A policy in the
API server refuses Works of members that leave unless they preserve what they stand for: controllers write the whole
spec of a Work whenever its template changes, and would take the field back. It is tried by a dry run until it is in
force, then the Works are changed, then the Cluster is deleted. The member is touched when its Cluster is gone,
because until then Karmada works there with the accounts that go. The record goes last.

Left to itself the rest is mostly pauses: an API server begins to empty a namespace 5 s after it is to go and looks at
what is held in steps of 8 s, and Karmada looks every 10 s whether the Cluster may go. So the run deletes the Works
itself as soon as their namespace is going, when nobody can make them anew, and changes an annotation of the Cluster
when the namespace is gone, upon which its controller looks at once. Requests to a member that leaves are tried again
for as long as it has time, and no longer.

Karmada tries for ever to take its labels off an object that is not on the member. Works that hang like this are let
go after our own look at the member has shown that nothing is left to do. All other finalizers are left alone, unless
the member was given up by name.
"""
