# SPDX-License-Identifier: Apache-2.0
"""Names of hosts and groups in the inventory by which steps find their targets; the inventory plugin makes them."""

from __future__ import annotations

#: Host that has the document in its variables.
CONTROL = "karmada_control"
#: Groups of all plain hosts of the document and of all members.
HOSTS, MEMBERS = "karmada_hosts", "karmada_members"
#: Host of an inventory without a document; no play asks for it.
NO_DOCUMENT = "karmada_no_document"
