# SPDX-License-Identifier: Apache-2.0
"""The parts of a control plane: releases, the table, flags, plain hosts, the instance and its state.

Imports the files beside it only.

Per-member components
---------------------

A row of the component table may exist once per member (``per_member``: karmada-scheduler-estimator, and the agent on
a host). ``Component.for_member`` makes the component of one member from it, with its own names, certificates and file
sets, so that renderers, certificates, checks and the report see one component for each member. On hosts each member
has a place, a number that the state keeps; its ports are those of the row plus the place times the row's number of
ports. Such a component needs objects in the control plane that exist only once the member has joined, so it is made
after joining and not with the other components.

Endpoint
--------

Beside the Service, the types Ingress and Route need an object that passes TLS through. The type is noted in the
state before such an object is made, so that a later run with another type finds and removes it, and no run looks for
(and needs permissions on) kinds that its endpoint never had. The host is recorded with its type: an address that a
load balancer or a router gave is kept while it gives none, and forgotten when the type changes.
"""
