# SPDX-License-Identifier: Apache-2.0
"""Backups in a volume claim: its pod is made, reached, and goes; and each reason for which there is none is told.

The host cluster is a stub whose kubelet runs the command of the pod for real, with a folder in the place of the volume.
"""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import claim, remote_folder, series
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, RECORD, SNAPSHOT
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import transport
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import backup_claim
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import backup_series, samples, served_folder
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

NAMESPACE = "karmada"
PODS, CLAIMS = "api/v1/pods", "api/v1/persistentvolumeclaims"
NAME = "prod-20261125t120000z-1f3a9c"
IMAGE = "registry.example.com/python:3.12"
TARGET = {"persistentVolumeClaim": {"claimName": "backups", "prefix": "site-a", "image": IMAGE}}


class Host:
    """Host cluster with the claim `backups`. ``status`` is what its kubelet says of a pod instead of running it."""

    def __init__(self, api: StubApi, volume: Path) -> None:
        self.api, self.volume = api, volume
        self.status: dict[str, Any] | None = None
        self.running: dict[str, served_folder.Served] = {}
        self.seen: list[dict[str, Any]] = []
        self._over = threading.Event()
        api.on_request = self._forwarding
        api.put("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        api.put("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
        owner = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": samples.OWNER}
        data = {key: base64.b64encode(content).decode() for key, content in to_files(samples.state()).items()}
        self.put("api/v1/secrets", "Secret", "prod-installer-state", labels=owner, data=data)
        self.claim()
        self._kubelet = threading.Thread(target=self._watch, daemon=True)
        self._kubelet.start()

    def put(self, prefix: str, kind: str, name: str, labels: dict[str, str] | None = None, **more: Any) -> Any:
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels or {}}
        version = "apps/v1" if prefix.startswith("apis/apps") else "v1"
        return self.api.put(prefix, {"apiVersion": version, "kind": kind, "metadata": metadata, **more})

    def claim(self, labels: dict[str, str] | None = None, phase: str = "Bound", **spec: Any) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], **spec}
        self.put(CLAIMS, "PersistentVolumeClaim", "backups", labels, spec=spec, status={"phase": phase})

    def pods(self) -> list[dict[str, Any]]:
        return [each for (prefix, _, _), each in list(self.api.objects.items()) if prefix == PODS]

    def close(self) -> None:
        self._over.set()
        self._kubelet.join()
        for each in self.running.values():
            served_folder.ended(each)

    def _forwarding(self, _method: str, path: str) -> None:
        if "/portforward" in path:
            name = path.split("/pods/")[1].partition("/")[0]
            self.api.forward_to = ("127.0.0.1", self.running[name].port if name in self.running else 1)

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            for each in self.pods():
                if "status" not in each:
                    self._begin(each)
            there = {each["metadata"]["name"] for each in self.pods()}
            for name in set(self.running) - there:
                served_folder.ended(self.running.pop(name))

    def _begin(self, pod: dict[str, Any]) -> None:
        self.seen.append(pod)
        status = self.status
        if status is None:
            words = list(pod["spec"]["containers"][0]["command"])
            words[words.index(backup_claim.MOUNTED)] = str(self.volume)
            words[words.index(str(backup_claim.PORT))] = "0"
            self.running[pod["metadata"]["name"]] = served_folder.started(words)
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.put(PODS, {**pod, "status": status})

    def end(self, name: str, **status: Any) -> None:
        """The pod of this name ends by itself."""
        (pod,) = [each for each in self.pods() if each["metadata"]["name"] == name]
        served_folder.ended(self.running.pop(name))
        self.api.put(PODS, {**pod, "status": status})


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "volume").mkdir()
    with StubApi() as api:
        found = Host(api, tmp_path / "volume")
        yield found
        found.close()


@pytest.fixture
def run(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(remote_folder, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(transport, "RETRY_SECONDS", 1.0)
    with ExitStack() as stack:
        yield run_on(host, stack)


def run_on(host: Host, stack: ExitStack) -> Run:
    cluster = cluster_of(host.api.kubeconfig(), name="host cluster")
    run = fake_run(samples.document({}), cluster)  # type: ignore[arg-type]
    run.kept(cluster)
    stack.callback(run.close)
    run.said = []  # type: ignore[attr-defined]
    run.say = run.said.append  # type: ignore[attr-defined]
    return run


def wanted(run: Run, name: str = "nightly", **target: Any) -> Wanted:
    given = {"persistentVolumeClaim": {**TARGET["persistentVolumeClaim"], **target}}
    (found,) = backups.resolved([backup_series.document(name, target=given)], run.deployment)
    return Wanted.of(found)


def put(target: Any, *names: str) -> None:
    for file in names or (SNAPSHOT, KEYS, RECORD):
        target.put(NAME, file, io.BytesIO(b"content"), 7)


def refusal(run: Run, **target: Any) -> str:
    with pytest.raises(ProblemsError) as error:
        series.opened(run, wanted(run, **target)).names()
    (problem,) = error.value.problems
    assert problem.where == f"PersistentVolumeClaim {NAMESPACE}/{target.get('claimName', 'backups')}"
    return str(problem)


# -- its course --------------------------------------------------------------------------------------------------------


def test_backups_lie_in_the_claim_and_the_pod_goes_with_the_step(run: Run, host: Host) -> None:
    target = series.opened(run, wanted(run))
    assert target.where == "PersistentVolumeClaim karmada/backups: site-a/prod"
    assert host.pods() == [], "none is made before it is needed"
    target.check()
    target.require_room(1)
    put(target)
    sink = io.BytesIO()
    target.get(NAME, SNAPSHOT, sink)
    assert sink.getvalue() == b"content"
    assert target.names() == [NAME]
    assert (host.volume / "site-a" / "prod" / NAME / SNAPSHOT).read_bytes() == b"content"
    assert len(host.seen) == 1
    target.delete(NAME)
    assert list((host.volume / "site-a" / "prod").iterdir()) == []
    run.close()
    assert host.pods() == []


def test_all_series_that_lead_there_have_one_pod(run: Run, host: Host) -> None:
    """A claim that one pod may mount would keep a second one waiting until this step is over."""
    first, second = (series.opened(run, wanted(run, name)) for name in ("nightly", "hourly"))
    assert first is second
    first.check()
    other = series.opened(run, wanted(run, prefix="site-b"))
    assert other is not first
    other.check()
    assert len(host.seen) == 2


def test_of_two_runs_at_once_each_has_its_own(run: Run, host: Host) -> None:
    with ExitStack() as stack:
        other = run_on(host, stack)
        put(series.opened(run, wanted(run)), SNAPSHOT)
        listing = series.opened(other, wanted(other))
        assert listing.names() == []
        put(series.opened(run, wanted(run)), KEYS, RECORD)
        assert listing.names() == [NAME]
        assert len(host.pods()) == 2
    (left,) = host.pods()
    assert left["metadata"]["name"] == host.seen[0]["metadata"]["name"]
    assert series.opened(run, wanted(run)).names() == [NAME]


def test_one_that_ends_meanwhile_is_made_again(run: Run, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    # So long a way that nobody is behind any more keeps who asks waiting.
    monkeypatch.setattr(remote_folder, "ASK_SECONDS", 5.0)
    target = series.opened(run, wanted(run))
    put(target, SNAPSHOT)
    (gone,) = host.pods()
    host.api.remove(PODS, NAMESPACE, gone["metadata"]["name"])
    until(lambda: not host.running, "the end of the pod")
    put(target, KEYS, RECORD)
    assert target.names() == [NAME]
    assert len(host.seen) == 2
    assert any("another one is made" in line for line in run.said)  # type: ignore[attr-defined]


def test_one_that_was_evicted_is_made_again_and_one_that_fails_by_itself_is_told(run: Run, host: Host) -> None:
    target = series.opened(run, wanted(run))
    put(target, SNAPSHOT)
    host.end(host.seen[0]["metadata"]["name"], phase="Failed", reason="Evicted", message="the node was low on memory")
    put(target, KEYS)
    assert len(host.seen) == 2
    name = host.seen[1]["metadata"]["name"]
    host.end(name, phase="Failed", containerStatuses=[{"name": "serve", "state": {"terminated": {"exitCode": 1}}}])
    with pytest.raises(ProblemsError, match=f"pod {name}, which mounts it, does not serve it: it failed"):
        put(target, RECORD)
    assert len(host.seen) == 2


def test_an_answer_that_is_lost_makes_no_second_pod(run: Run, host: Host) -> None:
    host.api.faults.append(Fault("reset-after", method="POST", path="/pods"))
    series.opened(run, wanted(run)).check()
    assert len(host.seen) == 1
    run.close()
    assert host.pods() == []


def test_what_killed_runs_have_left_goes_and_what_runs_stays(run: Run, host: Host) -> None:
    labels = run.instance.labels(backup_claim.NAME)
    for name, phase in (("done", "Succeeded"), ("failed", "Failed"), ("at-work", "Running")):
        host.put(PODS, "Pod", name, labels, spec={"containers": []}, status={"phase": phase})
    host.put(PODS, "Pod", "of-others", {}, spec={"containers": []}, status={"phase": "Succeeded"})
    series.opened(run, wanted(run)).check()
    made = host.seen[-1]["metadata"]["name"]
    assert {each["metadata"]["name"] for each in host.pods()} == {"at-work", "of-others", made}


def test_a_pod_that_cannot_be_deleted_ends_no_step(run: Run, host: Host) -> None:
    series.opened(run, wanted(run)).check()
    host.api.faults.append(Fault("status", method="DELETE", status=403, times=9))
    run.close()
    assert any("is still there, and ends by itself" in line for line in run.said)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("prefix", "kind", "name"),
    [
        ("apis/apps/v1/statefulsets", "StatefulSet", "prod-etcd"),
        ("apis/apps/v1/deployments", "Deployment", "prod-apiserver"),
        ("api/v1/secrets", "Secret", "prod-installer-state"),
    ],
)
def test_it_goes_with_the_control_plane(run: Run, host: Host, prefix: str, kind: str, name: str) -> None:
    there = host.put(prefix, kind, name, spec={}) if kind != "Secret" else None
    series.opened(run, wanted(run)).check()
    (owner,) = host.seen[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == (kind, name)
    assert there is None or owner["uid"] == there["metadata"]["uid"]


@pytest.mark.parametrize(
    ("modes", "phase", "node"),
    [
        (["ReadWriteOnce"], "Running", "n2"),
        (["ReadWriteOnce"], "Succeeded", ""),
        (["ReadWriteOnce", "ReadWriteMany"], "Running", ""),
        (["ReadWriteOncePod"], "Pending", "n2"),
    ],
)
def test_it_goes_to_the_node_that_has_mounted_the_claim(
    run: Run, host: Host, modes: list[str], phase: str, node: str
) -> None:
    host.claim(accessModes=modes)
    mounts = [{"name": "v", "persistentVolumeClaim": {"claimName": "backups"}}]
    for name, volumes, on in (("other", [], "n1"), ("waiting", mounts, ""), ("mounts", mounts, "n2")):
        spec = {"volumes": volumes, "containers": [], **({"nodeName": on} if on else {})}
        host.put(PODS, "Pod", name, spec=spec, status={"phase": phase})
    series.opened(run, wanted(run)).check()
    affinity = host.seen[-1]["spec"].get("affinity")
    assert bool(affinity) == bool(node)
    assert not node or node in str(affinity)


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_claim_that_is_not_there_is_told_before_anything_is_done(run: Run, host: Host) -> None:
    told = refusal(run, claimName="missing")
    assert "there is no such claim. Create it in namespace karmada of the host cluster" in told
    assert "EtcdBackup nightly: spec.target.persistentVolumeClaim.claimName" in told
    assert host.api.writes() == []


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"phase": "Lost"}, "its volume is lost"),
        ({"volumeMode": "Block"}, "it is a device without a file system"),
        ({"accessModes": ["ReadOnlyMany"]}, "it can only be read"),
        ({"labels": {"installer.karmada.io/owner": samples.OWNER}}, "it is a volume of a control plane"),
    ],
)
def test_a_claim_that_cannot_be_used_is_told(run: Run, host: Host, given: dict[str, Any], part: str) -> None:
    host.claim(**given)
    assert part in refusal(run)
    assert host.api.writes() == []


PULLING = {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image name"}}
LACKING = {"terminated": {"reason": "StartError", "exitCode": 128}}


@pytest.mark.parametrize(
    ("status", "part"),
    [
        ({"phase": "Pending", "containerStatuses": [{"name": "serve", "state": PULLING}]}, "InvalidImageName"),
        ({"phase": "Failed", "containerStatuses": [{"name": "serve", "state": LACKING}]}, "it failed"),
    ],
)
def test_a_pod_that_never_serves_is_told_at_once(run: Run, host: Host, status: dict[str, Any], part: str) -> None:
    host.status = status
    told = refusal(run)
    assert part in told
    assert f"nodes can pull {IMAGE}, which has to have python3, 3.9 or newer" in told
    assert host.seen[0]["metadata"]["name"] in told
    assert host.pods() == []


def test_a_pod_without_a_node_is_told_in_time(run: Run, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "READY_SECONDS", 0.5)
    why = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: unbound claim"}
    host.status = {"phase": "Pending", "conditions": [why]}
    assert "no node for it: 0/3 nodes are available: unbound claim" in refusal(run)
    assert host.pods() == []


def test_rights_that_lack_are_told(run: Run, host: Host) -> None:
    host.api.faults.append(Fault("status", method="POST", path="/pods", status=403, times=9))
    with pytest.raises(ProblemsError) as error:
        series.opened(run, wanted(run)).names()
    (problem,) = error.value.problems
    assert problem.reason is Reason.MISSING_PERMISSION
    assert "create pods there and forward their ports" in problem.remedy


def test_what_the_volume_refuses_says_who_is_to_be_let_in(run: Run, host: Host) -> None:
    target = series.opened(run, wanted(run))
    (host.volume / "site-a").write_text("a file")
    with pytest.raises(ProblemsError) as error:
        target.check()
    assert "site-a/prod: not a directory. Have the volume let the user and the group" in str(error.value.problems[0])
    with pytest.raises(ProblemsError, match="keep fewer backups, or enlarge the claim"):
        target.require_room(1 << 62)


def test_plain_hosts_have_no_volume_claims() -> None:
    deployment = samples.document({"mode": "Binary", "hosts": [{"name": "cp1", "address": "192.0.2.11"}]})
    with pytest.raises(ProblemsError) as error:
        backups.resolved([backup_series.document(target=TARGET)], deployment)
    (problem,) = error.value.problems
    assert problem.reason is Reason.FIELD_WITHOUT_EFFECT
    assert problem.where == "EtcdBackup nightly: spec.target.persistentVolumeClaim"
    assert "write s3, or directory" in problem.remedy
