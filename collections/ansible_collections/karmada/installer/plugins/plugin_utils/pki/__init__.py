# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates: issue, reasons to reissue, the files that components read.

Imports components.

Authorities and leaves
----------------------

Four authorities, each trusted for one thing: ``karmada-ca`` (serving certificates and component identities),
``client-signing-ca`` (what kube-controller-manager signs for certificate requests; the only CA key that a pod holds),
``front-proxy-ca``, ``etcd-ca``. Their keys are in the state. Leaves are in one Secret per file set, mounted by their
component only. A leaf is reissued for a reason (missing, unreadable, other names or subject, other authority, near
its end) and otherwise left alone. An agent's certificate is asked for and approved by the installer; what lets
bearers of bootstrap tokens get one is there with ``registration.karmadactl`` only. Components are in the group
``system:karmada:components``, which RBAC binds to its rights; people are in ``system:karmada:administrators``, with a
number for each generation. A step of a run works with a certificate of its own in ``system:masters`` that it makes
from the keys in the state, for hours, and keeps nowhere: so the first step works in an empty control plane, and lost
rights are mended by a run.

Peers of etcd dial with a certificate that has no names: etcd compares names of a client certificate with the remote
address by DNS, which is not there yet when members find each other. What a peer proves is its common name
(``allowed-cn``).
"""
