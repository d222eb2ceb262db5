# SPDX-License-Identifier: Apache-2.0
"""etcd as a service: its client, a prefix in one of the site's, the rollout of its members.

Imports kube, components, pki, render, run.

Members, storage, an external etcd
----------------------------------

A StatefulSet with ``OnDelete``, a configuration file per member, client and peer URLs that are the member's own, TLS
on both ports, a token of its own, data in ``gen-<n>``. ``initial-cluster-state`` is ``new`` for the bootstrap only;
once all members have been healthy it is ``existing`` for ever, so that a member that lost its disk cannot found an
empty cluster.

**Storage** is chosen once and recorded. With ``hostPath`` two PersistentVolumes for each member lead to one directory
of its node: one of kind hostPath, which makes the directory but leaves it to root, and one of kind local, which gives
it to the pod's group but does not make it. Their node affinity brings a member back to its data, and the pods stay
*restricted*, which a hostPath in the pod would not be. The nodes are in the state; the owner's UUID is in the path.

**An external etcd** is spoken to by its JSON API with nothing but the standard library, from where Ansible runs; a
control plane's pods may stand elsewhere, so what cannot be reached from there is a warning and only what is proved
wrong is refused. The prefix is claimed by one key in one transaction with the proof that nothing is below it, and
released in one transaction that compares the key. There is no etcd authority then; the user's client certificate is
copied into a Secret of ours, so that the hash over a pod's files replaces the pods when it changes.

Settings reach running members by ``rollout``: one that is ready is replaced alone and only while all others are there
and ready; one that is not ready may go while others are not; one that holds its member's data (emptyDir) never goes.
A renewed certificate replaces nobody, because etcd reads it for every connection.
"""
