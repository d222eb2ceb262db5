# SPDX-License-Identifier: Apache-2.0
"""The parts of a control plane: releases, the table, flags, plain hosts of a document, the instance, its state.

Imports the files beside it only.

Per-member components
---------------------

A row of the component table may be there for each member (``per_member``: karmada-scheduler-estimator, and the agent
on a host). ``Component.for_member`` makes the component of one member from it, with names, certificates and file sets
of its own, so that renderers, certificates, checks and the report see as many components as there are members. On
hosts each has a place, which the state keeps: its ports are those of the row, moved by as many as the row has for
each place. What such a component needs of its member is in the control plane once the member has joined; so these
components are made after joining and not with the others.

Endpoint
--------

Beside the Service, the types Ingress and Route need an object that passes TLS through. What a run may have made for a
type is noted in the state before it is made, so that a later run with another type finds and removes it, and no run
has to look for (and needs rights for) kinds that its endpoint never had. The host is recorded with its type: an
address that a load balancer or a router gave is kept while it gives none, and forgotten with the type.
"""
