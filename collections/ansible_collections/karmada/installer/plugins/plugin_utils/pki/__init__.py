# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates: issue, reasons to reissue, the files that components read.

Imports components.

Authorities and leaves
----------------------

Four authorities, each trusted for one purpose: ``karmada-ca`` (serving certificates and component identities),
``client-signing-ca`` (certificates that kube-controller-manager signs on request; the only CA key that a pod holds),
``front-proxy-ca``, ``etcd-ca``. Their keys are in the state. Leaves are in one Secret for each file set, mounted only
by their component. A leaf is reissued for a reason (missing, unreadable, other names or subject, other authority, near
its expiry) and otherwise left alone. An agent's certificate is requested and approved by the installer; RBAC that lets
bearers of bootstrap tokens get one exists only with ``registration.karmadactl``. Components are in the group
``system:karmada:components``, which RBAC binds to its rights; people are in ``system:karmada:administrators``, with a
number for each generation. Each step of a run uses a certificate of its own in ``system:masters``, which it issues from
the keys in the state for some hours and stores nowhere: so the first step works in an empty control plane, and a run
mends lost rights.

Peers of etcd connect with a certificate without names: etcd compares names in a client certificate with the remote
address by DNS, which does not resolve yet when members first find each other. A peer is identified by its common name
(``allowed-cn``).
"""
