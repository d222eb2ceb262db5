# SPDX-License-Identifier: Apache-2.0
"""etcd as a service: its client, a prefix in an external one, the rollout of its members.

Imports kube, components, pki, render, run.

Members, storage, an external etcd
----------------------------------

A StatefulSet with ``OnDelete``, a configuration file for each member, its own client and peer URLs for each member, TLS
on both ports, a cluster token of its own, data in ``gen-<n>``. ``initial-cluster-state`` is ``new`` for the bootstrap
only; once all members have been healthy it is ``existing`` for ever, and a member names nobody but itself, so that one
that lost its disk neither founds an empty cluster nor comes back with an empty log.

**Storage** is chosen once and recorded. With ``hostPath`` each member has two PersistentVolumes in one directory of its
node: one of kind hostPath, which creates the directory but as root, and one of kind local, which sets its group to that
of the pod but does not create it. Their node affinity brings a member back to its data, and the pods stay *restricted*,
which they would not with a hostPath of their own. The nodes are in the state; the owner's UUID is in the path.

**An external etcd** is accessed by its JSON API, with the standard library only, from where Ansible runs. A control
plane's pods may have another network, so an endpoint that cannot be reached from there is a warning, and only proven
errors are refused. The prefix is claimed by one key, in a transaction that also checks that nothing is below it, and
released in one that compares the key. There is no etcd authority then; the user's client certificate is copied into a
Secret of ours, so that the hash over a pod's files replaces the pods when it changes.

Settings reach running members by ``rollout``: a member that works, by its pod or by its own words, is replaced alone
and only while all others are present and work; one that does not may be replaced while others do not; one whose data is
in its pod (emptyDir) never is.
A renewed certificate replaces no member, because etcd reads it for every connection.
"""
