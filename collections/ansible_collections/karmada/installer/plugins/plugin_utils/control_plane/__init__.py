# SPDX-License-Identifier: Apache-2.0
"""Objects inside a control plane, the stages in which they are applied, its probes, its removal.

Imports kube, components, document, pki, render, run, etcd.

Order of the stages
-------------------

``rights`` (namespaces, RBAC) before the components that need them start; ``foundation`` (CRDs, Services of aggregated
APIs) while they start; ``withdrawal`` of objects of optional components that are now disabled; ``aggregation`` once the
aggregated API server answers, because an API without a server stalls garbage collection; ``admission`` once the webhook
answers, because it fails closed; ``discovery``; ``addons`` last. ``karmada-search`` becomes ready only once its API is
registered, so its Service also publishes an address that is not ready.

Order of an uninstall
---------------------

Every component but etcd stops first: then nothing acts on members any more, and nothing writes to an etcd. The members
are cleaned up next, and etcd is removed only once they are clean, because its data may go with its pods. A cluster
takes 5 s to delete a namespace, however empty, so ours is deleted as soon as it holds nothing but state and lock;
meanwhile the run waits for those of the members, in which nothing was found that could block their deletion. A
terminating namespace admits no lock: a run that finds one does without, since all that is left to do there is to wait.
"""
