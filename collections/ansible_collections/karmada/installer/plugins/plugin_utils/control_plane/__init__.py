# SPDX-License-Identifier: Apache-2.0
"""The objects inside a control plane, the stages by which it comes, its probes, its removal.

Imports kube, components, document, pki, render, run, etcd.

Order of the stages
-------------------

``rights`` (namespaces, RBAC) before any component starts that needs them; ``foundation`` (CRDs, where aggregated APIs
are) while they start; ``withdrawal`` of what optional components had that are off now; ``aggregation`` once the
aggregated API server answers, because an API without a server stalls garbage collection; ``admission`` once the webhook
answers, because it fails closed; ``discovery``; ``addons`` last.
``karmada-search`` becomes ready only when its API is registered, so its Service leads to it before that.

Order of an uninstall
---------------------

Every component but etcd stops first: then nothing acts on members any more, and nothing writes into an etcd. The
members are cleaned next, and etcd goes only when they are clean, because with its pods the data may go. A cluster
takes 5 s for a namespace, however empty, so that ours is asked to go as soon as it holds nothing but state and lock;
those of the members, in which nothing was found that could hold them, are seen to go meanwhile. A namespace that is
going admits no lock: a run that finds one does without, since what is left to do there is to wait.
"""
