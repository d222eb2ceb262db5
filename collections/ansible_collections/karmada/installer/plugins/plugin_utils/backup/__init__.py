# SPDX-License-Identifier: Apache-2.0
"""Backups of a control plane: when one is due, what it consists of, where it lies, and whether it can be restored.

Imports kube, components, document, pki, artifacts, render, run, etcd.

A backup is a verified one
--------------------------

A backup has a name of its own, ``<deployment>-<start in UTC>-<six random digits>``, and is a folder of the target::

    <prefix>/<deployment>/<name>/snapshot.age     etcd's data, encrypted
    <prefix>/<deployment>/<name>/keys.age         the installer's state, encrypted
    <prefix>/<deployment>/<name>/manifest.json    its ``Record``: sizes, hashes, revision, versions; no secret; signed

The record comes last, when all else has been read back, and no name is overwritten. So what has no record does not
exist: a run that was killed leaves files that no list shows. The record is signed (Ed25519) with a key of the state,
because anybody can encrypt to a public recipient: whoever may write to the target must not be able to hand us a control
plane of theirs.

``due`` and ``retention`` are pure: of starts and a schedule follows what is due, missed, and to be deleted. The series
(the name of its EtcdBackup) and the owner (the UUID of the instance) of a backup are in its record; a run deletes
backups of its own series and owner only.
"""
