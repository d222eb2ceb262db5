# SPDX-License-Identifier: Apache-2.0
"""Which digest an image has to have, what is on record of those that nothing pins, and what is told of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import preflight, report
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import source as artifact_source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Images, Settings
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    COMPONENTS,
    ETCD,
    KARMADA_SCHEDULER,
    PROGRAMS,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest, overlay
from ansible_collections.karmada.installer.plugins.plugin_utils.members.agent import ROW as AGENT
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import reach_probe
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.findings import Findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render.pods import pod_template
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe, observe_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.report.html.page import page
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Target
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import FULL_SPEC, NOW, OWNER, document, state
from hypothesis import given
from hypothesis import strategies as st

RELEASE = releases.newest()
ONE, TWO, THREE = (f"sha256:{character * 64}" for character in "123")
SCHEDULER = f"docker.io/karmada/karmada-scheduler:{RELEASE.karmada}"
#: A lock file with a digest for every image of the table.
FULL_LOCK: dict[str, Any] = {}
for _number, _component in enumerate(PROGRAMS):
    _versions = FULL_LOCK.setdefault(_component.image.release, {})
    _recorded = _versions.setdefault(getattr(RELEASE, _component.image.release), {"images": {}})
    _recorded["images"][_component.image.repository] = f"sha256:{_number:064}"

DIGESTS = st.from_regex("sha256:[0-9a-f]{64}", fullmatch=True)


def instance(spec: dict[str, Any] | None = None, lock: dict[str, Any] | None = None) -> Instance:
    pins = image_pins.of_release(RELEASE, lock or {})
    return Instance.of(document(spec), RELEASE, OWNER, "10.96.0.0/12", pins=pins)


def image_of(component: Any, of: Instance) -> str:
    found: str = pod_template(of, component, "", [])["spec"]["containers"][0]["image"]
    return found


# -- what is known beforehand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [{}, {"mirrorCountry": "cn"}, {"karmadaRegistry": "docker.io/karmada"}])
def test_pods_of_every_component_name_the_digest_that_the_lock_file_has(images: dict[str, Any]) -> None:
    plain, locked = instance({"images": images}), instance({"images": images}, FULL_LOCK)
    for number, component in enumerate(PROGRAMS):
        assert image_of(component, locked) == f"{image_of(component, plain)}@sha256:{number:064}"
    target = Target("member m1", "https://192.0.2.1:6443", "192.0.2.1", 6443, tls=False)
    (probe,) = reach_probe.pod(locked, AGENT, "karmada", [target], 1)["spec"]["containers"]
    assert probe["image"] == image_of(ETCD, locked)


def test_a_registry_of_ones_own_is_not_measured_by_what_publishers_have() -> None:
    own = {"images": {"karmadaRegistry": "registry.example.com/karmada"}}
    assert image_of(KARMADA_SCHEDULER, instance(own, FULL_LOCK)).endswith(f"/karmada-scheduler:{RELEASE.karmada}")
    of_one = {"components": {"karmadaScheduler": {"imageRepository": "registry.example.com/scheduler"}}}
    assert "@" not in image_of(KARMADA_SCHEDULER, instance(of_one, FULL_LOCK))
    other_tag = {"components": {"karmadaScheduler": {"imageTag": "v1.18.2-patched"}}}
    assert "@" not in image_of(KARMADA_SCHEDULER, instance(other_tag, FULL_LOCK))


def test_a_digest_of_the_document_is_passed_on_as_it_is() -> None:
    spec = {"components": {"karmadaScheduler": {"imageTag": f"{RELEASE.karmada}@{ONE}"}}}
    for lock in ({}, FULL_LOCK):
        assert image_of(KARMADA_SCHEDULER, instance(spec, lock)) == f"{SCHEDULER}@{ONE}"


def test_an_overlay_that_names_an_image_has_the_last_word() -> None:
    own = f"registry.example.com/scheduler@{ONE}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "prod-scheduler"}}
    template = pod_template(instance(None, FULL_LOCK), KARMADA_SCHEDULER, "", [])
    patch = {"template": {"spec": {"containers": [{"name": "karmada-scheduler", "image": own}]}}}
    (found,) = overlay.laid_over(
        [{**target, "spec": {"template": template}}], [overlay.Overlay({**target, "spec": patch}, "here")]
    )
    assert [each["image"] for each in found["spec"]["template"]["spec"]["containers"]] == [own]


@pytest.mark.parametrize("digest", ["", "sha256:abc", 7, ONE.upper()])
def test_a_lock_file_with_something_else_is_refused(digest: Any) -> None:
    lock = {"karmada": {RELEASE.karmada: {"images": {"karmada-scheduler": digest}}}}
    with pytest.raises(ValueError, match="where the digest of karmada-scheduler"):
        image_pins.of_release(RELEASE, lock)


def test_the_lock_file_of_the_collection_can_be_read_for_every_release() -> None:
    for release in releases.RELEASES:
        assert all(
            releases.is_digest(each) for each in image_pins.of_release(release, artifact_source.read_lock()).values()
        )


@pytest.mark.parametrize(
    ("tag", "right"),
    [
        ("v1.18.2", True),
        (f"v1.18.2@{ONE}", True),
        (f"@{ONE}", False),
        ("v1.18.2@", False),
        ("v1.18.2@sha256:1234", False),
        (f"v1.18.2@{ONE}0", False),
        (f"v1.18.2@{ONE.upper()}", False),
        ("v" * 129, False),
    ],
)
def test_what_a_tag_may_be(tag: str, right: bool) -> None:
    spec = {"components": {"karmadaScheduler": {"imageTag": tag}}}
    if right:
        assert document(spec)
        return
    with pytest.raises(manifest.ProblemsError, match="imageTag"):
        document(spec)


# -- what was seen first ---------------------------------------------------------------------------------------------


@given(DIGESTS, DIGESTS, st.booleans(), st.booleans())
def test_a_tag_that_leads_elsewhere_is_refused_unless_it_is_accepted_by_name(
    before: str, now: str, known: bool, accepted: bool
) -> None:
    held = Held({SCHEDULER: before} if known else {}, {SCHEDULER} if accepted else {"another"})
    refusal = held.refusal(SCHEDULER, now)
    assert (refusal is not None) == (known and before != now and not accepted)
    if refusal:
        assert before in refusal.what
        assert now in refusal.what
        assert f"karmada_confirm_images={SCHEDULER} " in refusal.remedy
        assert f"imageTag: {RELEASE.karmada}@{before}" in refusal.remedy


def test_a_registry_with_a_port_does_not_end_the_tag() -> None:
    refusal = Held({"registry:5000/x:v1": ONE}).refusal("registry:5000/x:v1", TWO)
    assert refusal
    assert f"imageTag: v1@{ONE}" in refusal.remedy


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, set()),
        ("", set()),
        ("a:1", {"a:1"}),
        ("a:1, b:2,", {"a:1", "b:2"}),
        (["a:1", " b:2"], {"a:1", "b:2"}),
    ],
)
def test_images_are_confirmed_by_a_text_or_a_list(given: Any, names: set[str]) -> None:
    assert image_pins.confirmed({} if given is None else {"karmada_confirm_images": given}) == names


# -- what nodes say --------------------------------------------------------------------------------------------------


def pod(image: str, image_id: str, node: str = "node1", name: str = "karmada-scheduler") -> dict[str, Any]:
    statuses = [{"name": name, "image": "whatever the node calls it", "imageID": image_id}]
    return {
        "spec": {"containers": [{"name": name, "image": image}], "nodeName": node},
        "status": {"containerStatuses": statuses},
    }


def test_what_pods_run_by_image_and_digest() -> None:
    found = image_pins.running(
        [
            pod("a:1", f"docker.io/library/a@{ONE}"),
            pod("a:1", f"docker.io/library/a@{ONE}", "node2"),
            pod("a:1", f"docker.io/library/a@{TWO}", "node3"),
            pod("b:1", f"docker-pullable://b@{THREE}"),
            # Loaded into the node, pinned, not pulled yet, not started yet.
            pod("c:1", ONE),
            pod(f"d:1@{ONE}", f"d@{ONE}"),
            pod("e:1", ""),
            {"spec": {"containers": [{"name": "x", "image": "f:1"}]}, "status": {}},
            {"spec": {"containers": [{"name": "x", "image": "f:1"}]}},
        ]
    )
    assert found == {"a:1": {ONE: ["node1", "node2"], TWO: ["node3"]}, "b:1": {THREE: ["node1"]}}
    assert image_pins.agreed(found) == {"b:1": THREE}
    (first, second) = image_pins.differences(found, {"a:1": ONE, "b:1": TWO})
    assert f"under the name a:1: {ONE} on node1, node2, {TWO} on node3." in first
    assert f"b:1 runs as {THREE}, and ran as {TWO} when it was first used here" in second
    assert "karmada_confirm_images=b:1" in second
    assert image_pins.differences({"b:1": {THREE: ["node1"]}}, {"b:1": THREE, "gone:1": ONE}) == []


# -- the notice ------------------------------------------------------------------------------------------------------


def test_what_nothing_pins_is_told_in_one_line() -> None:
    found = image_pins.notice(instance({"artifacts": {"source": "URL"}}))
    assert "\n" not in found
    assert found.startswith("no digest is known beforehand for the images of etcd, karmada-aggregated-apiserver, ")
    assert "hosts" not in found
    every = {"components": FULL_SPEC["components"], "members": FULL_SPEC["members"]}
    assert image_pins.notice(instance(every, FULL_LOCK)) == ""


def test_the_notice_names_what_the_lock_file_lacks_and_agents_of_members() -> None:
    lock = {**FULL_LOCK, "etcd": {}}
    assert image_pins.notice(instance(None, lock)).startswith("no digest is known beforehand for the images of etcd (")
    pulled = {
        "endpoint": {"type": "External", "host": "karmada.example.com"},
        "members": [{"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}}],
    }
    assert "karmada-agent" in image_pins.notice(instance(pulled))
    assert "karmada-agent" not in image_pins.notice(instance())


HOSTS = [
    {"name": f"h{number}", "address": f"192.0.2.{number}", "roles": ["etcd", "controlPlane"]} for number in (1, 2, 3)
]
BINARY = {"mode": "Binary", "hosts": HOSTS, "endpoint": {"type": "External", "host": "karmada.example.com"}}


@pytest.mark.parametrize(
    ("source", "told"), [("Image", True), ("URL", False), ("Directory", False), ("GoModules", False)]
)
def test_programs_of_hosts_are_unpinned_only_out_of_images(source: str, told: bool) -> None:
    found = image_pins.notice(instance({**BINARY, "artifacts": {"source": source}}))
    assert bool(found) is told
    if told:
        assert "programs of hosts are held to what the tag led to first" in found
        assert "nodes run" not in found


def test_agents_are_told_of_by_where_they_run() -> None:
    members = [
        {"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}},
        {"name": "m2", "mode": "Pull", "secretRef": {"name": "m2"}, "agentHosts": ["gw1"]},
    ]
    hosts = [*HOSTS, {"name": "gw1", "address": "192.0.2.9", "roles": ["agent"]}]
    for source, told in (("GoModules", "karmada-agent (nodes run"), ("Image", "; of karmada-agent (nodes run")):
        spec = {**BINARY, "hosts": hosts, "members": members, "artifacts": {"source": source}}
        found = image_pins.notice(instance(spec))
        assert told in found
        assert ("karmada-agent, karmada-aggregated-apiserver" in found) == (source == "Image")


def test_of_etcd_on_hosts_beneath_pods_both_are_told() -> None:
    hosts = [{**host, "roles": ["etcd"]} for host in HOSTS]
    found = image_pins.notice(instance({"hosts": hosts, "artifacts": {"source": "Image"}}))
    assert "for the images of etcd (programs of hosts are held to what the tag led to first); of karmada-" in found
    found = image_pins.notice(instance({"hosts": hosts, "artifacts": {"source": "GoModules"}}))
    assert "etcd" not in found


@pytest.mark.parametrize("lock", [{}, FULL_LOCK], ids=["empty", "full"])
def test_it_is_told_once_and_before_the_first_change(lock: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_source, "read_lock", lambda: lock)
    monkeypatch.setattr(preflight, "findings", lambda *_: Findings([]))
    said: list[str] = []
    run = fake_run(document({"endpoint": {"type": "ClusterIP"}}), host(), stored=state())
    run.say = said.append
    arguments = {
        "scope": "install",
        "abandon_hosts": [],
        "confirm_host_cluster": "",
        "pull_images": False,
        "reach_members": False,
        "confirm_etcd_members": 0,
        "etcd_replace": [],
        "etcd_abandon_nodes": [],
        "document_seen": {},
        "on_broken_member": "fail",
    }
    action: Any = preflight.ActionModule
    action.perform(None, run, arguments)
    found = reported(run)
    told = [line for line in (*said, *found["summary"]) if "no digest is known beforehand" in line]
    assert [line.split()[0] for line in told] == ([] if lock else ["hint:"])


def reported(run: Run) -> dict[str, Any]:
    """Result of the step that reports."""
    action: Any = report.ActionModule
    found: dict[str, Any] = action.perform(
        None, run, {"broken_members": [], "form": "json", "fail_on_drift": False, "backups": []}
    )
    return found


PODS = {"endpoint": {"type": "ClusterIP"}}


@pytest.mark.parametrize("lock", [{}, FULL_LOCK], ids=["empty", "full"])
@pytest.mark.parametrize("spec", [PODS, BINARY], ids=["pods", "hosts"])
def test_every_report_names_them(
    spec: dict[str, Any], lock: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a problem for programs and pages after any run; where nothing but the report is shown, for people, too."""
    monkeypatch.setattr(artifact_source, "read_lock", lambda: lock)
    for module in (observe, observe_hosts):
        monkeypatch.setattr(module, "control_plane_answers", lambda _run: {})
    monkeypatch.setattr(observe, "etcd_health", lambda _run: observe.NO_ETCD)
    for operation in ("install", "report"):
        if spec is PODS:
            labels = {"app.kubernetes.io/name": ETCD.name, "app.kubernetes.io/instance": "prod"}
            cluster = host()
            run = fake_run(document(spec), cluster, stored=state(), operation=operation)
            metadata = {"name": "prod-etcd", "namespace": run.namespace, "labels": labels}
            cluster.put({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": 1}})
        else:
            runs = Runs(tmp_path / operation)
            known = remembered(document=document(spec), hosts={each["name"]: each for each in HOSTS})
            runs.see(**dict.fromkeys(("h1", "h2", "h3"), seen(Stored(4).after(known))))
            run = runs.step(document(spec), operation=operation)
        found = reported(run)
        problems = [each for each in found["status"]["problems"] if each["reason"] == Reason.IMAGE_NOT_PINNED]
        assert [each["severity"] for each in problems] == ([] if lock else ["hint"])
        assert all("the images of etcd" in each["what"] for each in problems)
        shown = [line for line in found["summary"] if "no digest is known beforehand" in line]
        assert len(shown) == (0 if lock or operation == "install" else 1)
        if problems:
            assert problems[0]["what"] in page("prod", "karmada-prod", found["status"], NOW)


def test_every_component_of_the_table_has_an_image_that_can_be_pinned() -> None:
    pins = image_pins.of_release(RELEASE, FULL_LOCK)
    for component in (*COMPONENTS, AGENT, ETCD):
        assert component.image.reference(Images({}), RELEASE, Settings({})) in pins
