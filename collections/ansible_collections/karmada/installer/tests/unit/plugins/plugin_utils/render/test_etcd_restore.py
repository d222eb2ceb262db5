# SPDX-License-Identifier: Apache-2.0
"""The pod beside a member of etcd that makes its new data."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import raft_snapshot
from ansible_collections.karmada.installer.plugins.plugin_utils.render import cluster_layout, etcd_restore
from ansible_collections.karmada.installer.tests.unit.support import samples

NAMES = [f"prod-etcd-{number}" for number in range(3)]


def pod(node: str = "n1", **settings: Any) -> Any:
    instance = samples.rendered(samples.etcd(replicas=3, **settings)).instance
    members = [cluster_layout.etcd_pod(instance, name) for name in NAMES]
    new = etcd_restore.NewData("t0ken", 4, 10**9, members)
    return etcd_restore.pod(instance, members[1], new, raft_snapshot.FILE, node)


def test_it_has_the_claim_of_the_member_on_its_node_and_is_no_pod_of_etcd() -> None:
    found = pod()
    assert found["metadata"]["name"] == "prod-etcd-1-gen-4"
    assert found["metadata"]["labels"]["app.kubernetes.io/name"] != ETCD.name
    claims = [each for each in found["spec"]["volumes"] if "persistentVolumeClaim" in each]
    assert [each["persistentVolumeClaim"]["claimName"] for each in claims] == ["data-prod-etcd-1"]
    (term,) = found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"][0]["values"] == ["n1"]
    # Where the member has no pod, its volume knows the node.
    assert "affinity" not in pod(node="")["spec"]
    assert "topologySpreadConstraints" not in found["spec"]


def test_what_receives_has_nothing_but_a_folder_of_its_own_and_listens_on_loopback() -> None:
    (receiver,) = pod()["spec"]["initContainers"]
    flags = dict(word[2:].split("=", 1) for word in receiver["command"][1:])
    assert {value for key, value in flags.items() if key.endswith("urls")} == {
        "https://127.0.0.1:2379",
        "https://127.0.0.1:2380",
    }
    assert flags["client-cert-auth"] == flags["peer-client-cert-auth"] == "true"
    assert flags["peer-cert-allowed-cn"] == "system:karmada:etcd-peer"
    mounted = {each["mountPath"] for each in receiver["volumeMounts"]}
    assert cluster_layout.ETCD_DATA not in mounted
    assert flags["data-dir"].startswith(f"{etcd_restore.SCRATCH}/")
    assert receiver["restartPolicy"] == "Always"


def test_what_restores_waits_for_the_file_and_reads_that() -> None:
    found = pod()["spec"]
    (receiver,), (restorer,) = found["initContainers"], found["containers"]
    path = receiver["startupProbe"]["exec"]["command"][-1]
    assert path.endswith(raft_snapshot.FILE)
    assert restorer["command"][:4] == [etcd_restore.ETCDUTL, "snapshot", "restore", path]
    words = dict(word[2:].split("=", 1) for word in restorer["command"][4:] if "=" in word)
    assert words["name"] == "prod-etcd-1"
    assert words["data-dir"] == f"{cluster_layout.ETCD_DATA}/gen-4"
    assert words["initial-cluster-token"] == "t0ken"
    assert words["bump-revision"] == "1000000000"
    assert [each.split("=")[0] for each in words["initial-cluster"].split(",")] == NAMES
    assert "--mark-compacted" in restorer["command"]
    assert not any("skip-hash-check" in each for each in restorer["command"])
    assert found["restartPolicy"] == "Never"


def test_both_are_restricted_and_have_the_image_and_the_place_of_etcd() -> None:
    found = pod(nodeSelector={"disk": "fast"}, tolerations=[{"key": "x", "operator": "Exists"}])["spec"]
    for each in (*found["initContainers"], *found["containers"]):
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert "etcd:" in each["image"]
        assert not {"sh", "/bin/sh", "bash"} & set(each["command"])
    assert found["nodeSelector"] == {"disk": "fast"}
    assert found["tolerations"] == [{"key": "x", "operator": "Exists"}]
    assert found["securityContext"]["runAsNonRoot"] is True
