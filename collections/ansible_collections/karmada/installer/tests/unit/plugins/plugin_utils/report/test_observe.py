# SPDX-License-Identifier: Apache-2.0
"""What is looked at for the report: versions of what works, and authorities that near their end."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import (
    EtcdMemberState,
    EtcdState,
    LeftFolder,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import INSTANCE_LABEL, NAME_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.members import scheduling
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe, report
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, document, state


def pod(component: str, image: str, *, ready: bool = True, name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"prod-{component}",
            "namespace": "karmada",
            "labels": {INSTANCE_LABEL: "prod", NAME_LABEL: component},
        },
        "spec": {"containers": [{"name": component, "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("docker.io/karmada/karmada-scheduler:v1.18.2", {"karmada-scheduler": "v1.18.2"}),
        ("registry:5000/karmada-scheduler:v1.19.0-rc.1", {"karmada-scheduler": "v1.19.0-rc.1"}),
        ("registry:5000/x:v1.18.2@sha256:" + "0" * 64, {"karmada-scheduler": "v1.18.2"}),
        ("registry:5000/x@sha256:" + "0" * 64, {}),
        ("registry:5000/x:latest", {}),
    ],
)
def test_the_image_tells_the_version(image: str, version: dict[str, str]) -> None:
    assert observe.running_versions([pod("karmada-scheduler", image)]) == version


def test_only_karmadas_own_pods_that_work_tell_its_version_and_the_oldest_counts() -> None:
    pods = [
        pod("karmada-apiserver", "registry.k8s.io/kube-apiserver:v1.35.4"),
        pod("karmada-webhook", "karmada-webhook:v1.18.2", ready=False),
        pod("karmada-scheduler", "karmada-scheduler:v1.18.10", name="a"),
        pod("karmada-scheduler", "karmada-scheduler:v1.18.9", name="b"),
    ]
    assert observe.running_versions(pods) == {"karmada-scheduler": "v1.18.9"}


def host_with(*objects: dict[str, Any]) -> Run:
    return fake_run(
        document({"endpoint": {"type": "ClusterIP"}}), FakeCluster("host cluster", *objects), stored=state()
    )


def test_different_versions_at_work_are_told() -> None:
    found = observe.observe(
        host_with(
            pod("karmada-scheduler", "karmada-scheduler:v1.18.1"), pod("karmada-webhook", "karmada-webhook:v1.18.2")
        )
    )
    assert found.karmada_version == "v1.18.1"
    (note,) = [each for each in map(str, report.warnings(found)) if "versions" in each]
    assert note.endswith("karmada-scheduler v1.18.1, karmada-webhook v1.18.2")


def test_two_nodes_with_two_images_of_one_name_are_told_and_so_is_another_than_at_first() -> None:
    image, digests = "docker.io/karmada/karmada-scheduler:v1.18.2", [f"sha256:{number:064}" for number in (1, 2)]
    pods = [pod("karmada-scheduler", image, name=f"pod{number}") for number in (1, 2)]
    for number, each in enumerate(pods):
        each["spec"]["nodeName"] = f"node{number}"
        status = {"name": "karmada-scheduler", "imageID": f"docker.io/karmada/karmada-scheduler@{digests[number]}"}
        each["status"]["containerStatuses"] = [status]
    (note,) = [each for each in map(str, report.warnings(observe.observe(host_with(*pods)))) if "sha256" in each]
    assert f"{digests[0]} on node0, {digests[1]} on node1" in note
    run = fake_run(
        document({"endpoint": {"type": "ClusterIP"}}),
        FakeCluster("host cluster", pods[1]),
        stored=state(digests={image: digests[0]}),
    )
    (note,) = [each for each in map(str, report.warnings(observe.observe(run))) if "sha256" in each]
    assert note.startswith(f"{image} runs as {digests[1]}, and ran as {digests[0]} when it was first used here")


def test_nothing_at_work_has_no_version() -> None:
    assert observe.observe(host_with()).karmada_version == ""


@pytest.mark.parametrize("carried_out", [None, document()])
def test_the_status_says_whether_the_first_installation_has_come_to_its_end(carried_out: Any) -> None:
    """Only then does an API server hold settings that data hangs on to what they were."""
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(document=carried_out))
    assert report.status(observe.observe(run))["installed"] is (carried_out is not None)


def test_an_authority_near_its_end_is_told() -> None:
    """By the report of every run, since nothing replaces an authority unasked."""
    run = host_with()
    assert observe.observe(run).notes == []
    run.now = NOW + timedelta(days=9 * 365)
    notes = observe.observe(run).notes
    assert len(notes) == len(run.state.authorities)
    assert all("rotate it" in note.what for note in notes)
    assert set(notes) <= set(report.warnings(observe.observe(run)))


def test_what_a_member_has_left_in_its_volume_is_hinted_at_with_the_step_that_removes_it() -> None:
    run = host_with()
    etcd = EtcdState(
        "t",
        bootstrapped=True,
        storage="volumeClaim",
        members=(EtcdMemberState("prod-etcd-0", "a1", "1-1"), EtcdMemberState("prod-etcd-1", "a4", "1-2", added=True)),
        left=(LeftFolder("prod-etcd-1", "gen-1", "1-2"), LeftFolder("prod-etcd-0", "gen-1-a9", "1-0")),
    )
    run = fake_run(run.deployment, FakeCluster("host cluster"), stored=state(etcd=etcd))
    (hint,) = [each for each in observe.observe(run).notes if each.reason is Reason.OLD_DATA_LEFT]
    assert hint.severity is Severity.HINT
    assert hint.what == "data of etcd that no member uses: gen-1 in the volume of prod-etcd-1"
    assert hint.remedy.endswith("karmada.installer.restore_cleanup -e restore_cleanup_confirm=prod")


def test_a_member_that_has_not_left_is_told() -> None:
    listed = document({"members": [{"name": "m1", "secretRef": {"name": "m1"}}]})
    joined = {name: {"mode": "Push", "secretRef": {"name": name}} for name in ("m1", "m2")}
    run = fake_run(listed, FakeCluster("host cluster"), stored=state(members=joined))
    (note,) = observe._leaving(run)
    assert str(note).startswith("member m2 is no longer listed and has not left")


def test_the_words_of_a_member_are_shown_without_what_a_terminal_obeys() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Cluster\x1b[2JReady", "message": ""}
    cluster = {
        "metadata": {"name": "m1"},
        "spec": {"syncMode": "Push"},
        "status": {"kubernetesVersion": "v1.35\x1b]0;owned\x07\n" + "9" * 1000, "conditions": [ready]},
    }
    found = observe._member(cluster)
    assert found.reason == "ClusterReady"
    assert found.version.startswith("v1.35 9")
    assert found.version.isprintable()
    assert len(found.version) == 100


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        # An agent may write both, with an offset; these are what an API server makes of them.
        ("0000-12-31T10:00:00Z", "2026-01-01T00:00:00Z"),
        ("10000-01-01T13:59:59Z", "2026-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00Z"),
        ("2026-02-31T25:61:61Z", "2026-01-01T00:00:00Z"),
        ("2026-01-02T03:04:05", "2026-01-01T00:00:00Z"),
        (None, "2026-01-01T00:00:00Z"),
        ("\x1b[2J", "2026-01-01T00:00:00Z"),
    ],
)
def test_a_time_of_a_member_that_does_not_exist_is_not_in_the_status_of_all(said: Any, told: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "ClusterReady", "lastTransitionTime": said}
    cluster = {
        "metadata": {"name": "m1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"syncMode": "Pull"},
        "status": {"kubernetesVersion": "v1.35.4", "conditions": [ready]},
    }
    run = fake_run(document(), FakeCluster("host cluster"), stored=state())
    observed = replace(observe.observe(run), members=[observe._member(cluster)])
    (member,) = report.status(observed)["members"]
    assert member["lastTransitionTime"] == told
    assert datetime.fromisoformat(member["lastTransitionTime"]).tzinfo


def test_taints_of_cordon_and_drain_are_seen_and_no_others() -> None:
    def member(*taints: Any) -> report.MemberStatus:
        return observe._member({"metadata": {"name": "m1"}, "spec": {"taints": list(taints)}})

    cordon, drain = map(dict, (scheduling.CORDON, scheduling.DRAIN))
    found = [member(), member({**cordon, "effect": "NoExecute"}), member(cordon), member(cordon, drain)]
    assert [(each.cordoned, each.draining) for each in found] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]


def test_an_application_that_a_member_does_not_take_is_told() -> None:
    """A member that has left and come back still has it, and it is not Karmada's."""
    said = {"clusterName": "m1", "appliedMessage": "Deployment shop/web already exist in the cluster"}
    run = host_with()
    run.__dict__["control_plane"] = FakeCluster(
        "control plane",
        {
            "apiVersion": scheduling.BINDING_API,
            "kind": "ResourceBinding",
            "metadata": {"name": "web-deployment", "namespace": "shop"},
            "spec": {"resource": {"kind": "Deployment", "namespace": "shop", "name": "web"}},
            "status": {"aggregatedStatus": [said]},
        },
    )
    (note,) = observe.control_plane_answers(run)["notes"]
    assert "Deployment shop/web on m1" in str(note)
    seen = replace(observe.look(run), api={"notes": [note]})
    assert note in report.warnings(observe.observation(run, seen))
