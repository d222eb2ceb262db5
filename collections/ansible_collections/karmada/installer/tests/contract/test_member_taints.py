# SPDX-License-Identifier: Apache-2.0
"""Taints of Clusters at Karmada's own API server of them: each keeps its owner, whoever writes what and how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Conflict
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import scheduling as member_scheduling
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.tests.contract.conftest import binary, free_ports, started, wait_until
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of

REGISTRATION = registration.Registration("id-1", "https://192.0.2.1:6443")
OURS = {"key": "example.com/reserved", "value": "batch", "effect": "NoSchedule"}
THEIRS = {"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def control_plane(api_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """karmada-aggregated-apiserver, asked without the API server before it."""
    directory: Path = tmp_path_factory.mktemp("aggregated-apiserver")
    (port,) = free_ports(1)
    of_api_server = api_server.kubeconfig
    config = yaml.safe_load(of_api_server.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    with ExitStack() as processes:
        process = started(
            processes,
            directory / "karmada-aggregated-apiserver.log",
            [
                binary("karmada-aggregated-apiserver", "TEST_KARMADA_AGGREGATED_APISERVER"),
                f"--kubeconfig={of_api_server}",
                f"--authentication-kubeconfig={of_api_server}",
                f"--authorization-kubeconfig={of_api_server}",
                f"--etcd-servers={api_server.etcd_url}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={api_server.directory / 'server.crt'}",
                f"--tls-private-key-file={api_server.directory / 'server.key'}",
            ],
        )
        found = processes.enter_context(cluster_of(config, name="control plane"))

        def answers() -> bool:
            try:
                found.with_patience(retry_seconds=0).list(registration.CLUSTER_API, "Cluster")
            except ApiError:
                return False
            return True

        wait_until(answers, (process,), directory)
        yield found


def entry(name: str, *taints: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "mode": "Push", "taints": list(taints), **more}


def bring(control_plane: Cluster, wanted: dict[str, Any]) -> list[str]:
    """As a run does it."""
    changes = apply_all(control_plane, [registration.cluster(MemberEntry(wanted), "me", REGISTRATION)])
    changes += member_taints.change(
        control_plane, wanted["name"], lambda live: member_taints.patch_for(live, MemberEntry(wanted))
    )
    return [change.action for change in changes if change.action != "unchanged"]


def live(control_plane: Cluster, name: str) -> dict[str, Any]:
    found = control_plane.get(registration.CLUSTER_API, "Cluster", name)
    assert found
    return found


def names(control_plane: Cluster, name: str) -> list[str]:
    return [member_taints.name_of(each) for each in live(control_plane, name)["spec"].get("taints") or []]


def write_as_others(control_plane: Cluster, name: str, add: dict[str, str]) -> None:
    """As controllers do: the whole object that they have read."""
    found = live(control_plane, name)
    found["spec"]["taints"] = [*(found["spec"].get("taints") or []), add]
    control_plane.replace(found)


def test_taints_of_the_document_and_of_others_live_side_by_side(control_plane: Cluster) -> None:
    assert bring(control_plane, entry("m1", OURS)) == ["created", "changed"]
    assert bring(control_plane, entry("m1", OURS)) == []
    write_as_others(control_plane, "m1", THEIRS)
    assert bring(control_plane, entry("m1", OURS)) == []
    # An apply of other fields takes none away.
    assert bring(control_plane, entry("m1", OURS, region="eu")) == ["changed"]
    assert names(control_plane, "m1") == ["example.com/reserved:NoSchedule", "cluster.karmada.io/not-ready:NoSchedule"]
    assert bring(control_plane, entry("m1")) == ["changed", "changed"]
    assert names(control_plane, "m1") == ["cluster.karmada.io/not-ready:NoSchedule"]
    assert bring(control_plane, entry("m1")) == []


def test_the_time_that_the_api_server_adds_is_no_difference(control_plane: Cluster) -> None:
    wanted = entry("m2", {"key": "away", "effect": "NoExecute"})
    assert bring(control_plane, wanted) == ["created", "changed"]
    assert live(control_plane, "m2")["spec"]["taints"][0]["timeAdded"]
    assert bring(control_plane, wanted) == []


def test_a_list_that_somebody_has_changed_meanwhile_is_not_written_over(control_plane: Cluster) -> None:
    bring(control_plane, entry("m3"))
    old = live(control_plane, "m3")["metadata"]["resourceVersion"]
    write_as_others(control_plane, "m3", THEIRS)
    with pytest.raises(Conflict):
        control_plane.patch_merge(
            registration.CLUSTER_API,
            "Cluster",
            "m3",
            None,
            {"metadata": {"resourceVersion": old}, "spec": {"taints": [OURS]}},
        )
    assert names(control_plane, "m3") == ["cluster.karmada.io/not-ready:NoSchedule"]


def test_cordon_drain_and_uncordon(control_plane: Cluster) -> None:
    bring(control_plane, entry("m4", OURS))
    for state, expected in (
        ("cordoned", ["cluster.karmada.io/unschedulable:NoSchedule"]),
        ("drained", ["cluster.karmada.io/unschedulable:NoSchedule", "installer.karmada.io/drain:NoExecute"]),
        ("uncordoned", []),
    ):
        add, remove = member_scheduling.TAINTS[state]
        for changes in (1, 0):
            made = member_taints.change(
                control_plane,
                "m4",
                lambda found, add=add, remove=remove: member_taints.patch_of(found, add, remove),  # type: ignore[misc]
            )
            assert len(made) == changes
        assert names(control_plane, "m4") == ["example.com/reserved:NoSchedule", *expected]
        assert bring(control_plane, entry("m4", OURS)) == []


def test_a_member_is_made_to_look_at_by_an_annotation_also_while_it_goes(control_plane: Cluster) -> None:
    """What wakes the controller of a Cluster is admitted when its deletion was asked for."""
    bring(control_plane, entry("m5"))
    control_plane.patch_merge(
        registration.CLUSTER_API, "Cluster", "m5", None, {"metadata": {"finalizers": ["karmada.io/x"]}}
    )
    control_plane.delete(registration.CLUSTER_API, "Cluster", "m5")
    before = live(control_plane, "m5")["metadata"]
    control_plane.patch_merge(
        registration.CLUSTER_API,
        "Cluster",
        "m5",
        None,
        {"metadata": {"annotations": {"installer.karmada.io/looked-at": "1"}}},
    )
    after = live(control_plane, "m5")["metadata"]
    assert before["deletionTimestamp"] == after["deletionTimestamp"]
    assert before["resourceVersion"] != after["resourceVersion"]
    control_plane.patch_merge(registration.CLUSTER_API, "Cluster", "m5", None, {"metadata": {"finalizers": None}})
    assert control_plane.get(registration.CLUSTER_API, "Cluster", "m5") is None
