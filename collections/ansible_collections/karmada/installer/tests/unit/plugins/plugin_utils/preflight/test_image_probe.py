# SPDX-License-Identifier: Apache-2.0
"""The image probe: one pod for each image, the node's own reason, and nothing left whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import image_probe, pod_security, probe_pods
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import FULL_SPEC, document, pods, rendered

Object = dict[str, Any]
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada"}}
RUNNING = {"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}
MESSAGE = "failed to pull: pull access denied"
FAILED = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": MESSAGE}}}]}


class Nodes(FakeCluster):
    """A cluster whose nodes have all images but those with ``missing`` in their names."""

    missing = ""

    def create(self, obj: Object, **_: Any) -> Object:
        super().create(obj)
        image = obj["spec"]["containers"][0]["image"]
        return self.put({**obj, "status": FAILED if self.missing and self.missing in image else RUNNING})


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_pods, "pause", lambda _: None)


def test_images_that_are_there_are_no_problem_and_no_pod_is_left() -> None:
    cluster = Nodes("host cluster", NAMESPACE)
    assert image_probe.problems(fake_run(document(), cluster)) == []
    assert cluster.names("Pod") == set()
    images = {pod["spec"]["containers"][0]["image"] for pod in pods(rendered().workloads).values()}
    assert len([line for line in cluster.log if line.startswith("create Pod")]) == len(images)


def test_an_image_that_cannot_be_pulled_is_told_with_the_reason_of_the_node() -> None:
    cluster = Nodes("host cluster", NAMESPACE)
    cluster.missing = "karmada-webhook"
    (problem,) = image_probe.problems(fake_run(document(), cluster))
    assert f"the image docker.io/karmada/karmada-webhook:v1.18.2 cannot be pulled: {MESSAGE}" == problem.what
    assert cluster.names("Pod") == set()


def test_pods_are_removed_when_the_probe_breaks_and_those_of_a_killed_one_first() -> None:
    class Broken(Nodes):
        def create(self, obj: Object, **_: Any) -> Object:
            if "webhook" in obj["spec"]["containers"][0]["image"]:
                raise Unreachable(self.name, "POST", "/", 0, "Unreachable", "no answer")
            return super().create(obj)

    cluster = Broken("host cluster", NAMESPACE)
    run = fake_run(document(), cluster)
    cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-a-stranger", "namespace": "karmada"}})
    left = {"name": "left", "namespace": "karmada", "labels": run.instance.labels("image-probe")}
    cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": left})
    with pytest.raises(ApiError):
        image_probe.problems(run)
    assert cluster.names("Pod") == {"of-a-stranger"}


def test_without_an_answer_in_time_it_says_what_the_pod_waits_for() -> None:
    class Full(FakeCluster):
        def create(self, obj: Object, **_: Any) -> Object:
            unmet = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
            return self.put({**obj, "status": {"conditions": [unmet]}})

    cluster = Full("host cluster", NAMESPACE)
    found = image_probe.problems(fake_run(document(), cluster), seconds=0)
    assert found
    assert all("nothing is known after 0 s" in each.what for each in found)
    assert image_probe.verdict({"status": {"conditions": [{"status": "False", "message": "m"}]}}) == (False, "m")
    assert cluster.names("Pod") == set()


def test_it_needs_the_namespace_and_the_right() -> None:
    (problem,) = image_probe.problems(fake_run(document(), Nodes("host cluster")))
    assert "does not exist" in problem.what
    cluster = Nodes("host cluster", NAMESPACE)
    cluster.denied = {("create", "pods")}
    (problem,) = image_probe.problems(fake_run(document(), cluster))
    assert "create pods" in problem.what
    assert cluster.log == []


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ({"running": {}}, (True, "")),
        ({"terminated": {"exitCode": 1}}, (True, "")),
        ({"waiting": {"reason": "ContainerCreating"}}, (False, "")),
        ({"waiting": {"reason": "CreateContainerError"}}, (True, "")),
        ({"waiting": {"reason": "RunContainerError"}}, (True, "")),
        ({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}, (True, "Back-off")),
        ({"waiting": {"reason": "InvalidImageName"}}, (True, "InvalidImageName")),
    ],
    ids=str,
)
def test_what_the_state_of_a_container_says_of_its_image(state: Object, verdict: tuple[bool, str]) -> None:
    assert image_probe.verdict({"status": {"containerStatuses": [{"state": state}]}}) == verdict


@pytest.mark.parametrize("spec", [{}, FULL_SPEC], ids=["empty", "full"])
def test_its_pods_are_admitted_where_those_of_the_components_are_and_read_nothing(spec: Object) -> None:
    found = rendered(spec)
    workloads = [each for each in found.workloads if each["kind"] in ("Deployment", "StatefulSet")]
    for image, pod in image_probe.pods(found.instance, workloads, 60).items():
        (container,) = pod["spec"]["containers"]
        assert container["image"] == image
        assert pod_security.violations(pod["spec"]) == []
        assert "volumes" not in pod["spec"]
        assert "volumeMounts" not in container
        assert pod["spec"].get("imagePullSecrets") == workloads[0]["spec"]["template"]["spec"].get("imagePullSecrets")
        assert pod["spec"]["activeDeadlineSeconds"] == 90
        assert len(pod["metadata"]["name"]) <= 63
