# SPDX-License-Identifier: Apache-2.0
"""Whether members have their data is told by the volumes that are on record for them."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import access
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

NAMES = ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")


@pytest.mark.parametrize(("storage", "kind"), [("volumeClaim", "PersistentVolumeClaim"), ("emptyDir", "Pod")])
def test_another_volume_than_on_record_has_no_data_of_the_member(storage: str, kind: str) -> None:
    host = FakeCluster("host cluster")
    prefix = "data-" if kind == "PersistentVolumeClaim" else ""
    uids = ("11111111-0000", "22222222-0000", "33333333-0000")
    for name, uid in zip(NAMES, uids, strict=True):
        metadata = {"name": f"{prefix}{name}", "namespace": "karmada", "uid": uid}
        host.put({"apiVersion": "v1", "kind": kind, "metadata": metadata, "status": {"phase": "Bound"}})
    records = (
        EtcdMemberState(NAMES[0], volume=uids[0]),
        EtcdMemberState(NAMES[1], volume="44444444-0000"),
        EtcdMemberState(NAMES[2]),
    )
    etcd = EtcdState(token="t", bootstrapped=True, storage=storage, members=records)
    document = samples.document({"components": {"etcd": {"local": {"replicas": 3}}}})
    run = fake_run(document, host, stored=samples.state(etcd=etcd))
    by_name = {access.names(run)[url]: there for url, there in access.disks(run).items()}
    assert by_name == dict(zip(NAMES, (True, False, True), strict=True))
    host.delete("v1", kind, f"{prefix}{NAMES[0]}", "karmada")
    assert list(access.disks(run).values()) == [False, False, True]
