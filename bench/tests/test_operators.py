# SPDX-License-Identifier: Apache-2.0
"""What two operators are asked for, and what is measured of it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from karmada_bench import __main__ as benchmark
from karmada_bench.command import BenchError, Ran
from karmada_bench.operators import KarmadasOperator, OurOperator

SECRET = {"data": {"kubeconfig": base64.b64encode(b"of the administrator").decode()}}
DONE = Ran(2.0, 0, "", 10.0, 1.0)


class Desk:
    """Clusters and a runner that note what they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.commands: list[list[str]] = []
        self.lab_commands: list[tuple[str, ...]] = []
        self.answers: dict[str, str] = {"image": "made\n/opt/lab/images/operator.tar\n"}
        self.artifacts = folder / "artifacts"
        release = self.artifacts / "karmada/v1.18.2"
        (release / "crds").mkdir(parents=True)
        chart = release / "charts/karmada-operator/templates/crd-operator.karmada.io_karmadas.yaml"
        chart.parent.mkdir(parents=True)
        chart.write_text("{{- if .Values.crds }}\nkind: CustomResourceDefinition\n{{- end }}\n")
        self.kubectl, self.settings = "kubectl", {"KARMADA_LAB_STATE": "/lab"}

    def kubeconfig(self, name: str) -> Path:
        return Path(f"/clusters/{name}")

    def lab(self, *arguments: str) -> str:
        self.lab_commands.append(arguments)
        return ""

    def run(self, name: str, command: list[str], **_: object) -> Ran:
        self.commands.append(command)
        answer = next((text for end, text in self.answers.items() if name.endswith(end)), "")
        return Ran(DONE.seconds, 0, answer, DONE.mebibytes, DONE.cpu_seconds)

    def place(self, part: str) -> int:
        """Position of the first command that has this in it."""
        return next(at for at, each in enumerate(self.commands) if part in " ".join(each))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("kind", [OurOperator, KarmadasOperator])
def test_both_are_up_before_the_object_comes_and_ask_for_the_same(kind, desk, tmp_path):
    operator = kind(desk, desk, tmp_path / "work")
    operator.set_up("one")
    up = len(desk.commands)
    assert not [each for each in desk.commands if "apply" in each]
    waits = "--wait" if kind is OurOperator else "rollout status deployment/karmada-operator"
    assert desk.place(waits) < up
    assert desk.place("namespace operators") < desk.place("namespace karmada-system") < desk.place(waits)
    operator.create("two")
    script = desk.commands[-1][-1]
    assert script.index("apply") < script.index("wait") < script.index("--for=condition=Ready")
    wanted = yaml.safe_load((tmp_path / "work/object.yaml").read_text())
    assert wanted["metadata"]["namespace"] == "karmada-system"
    etcd = wanted["spec"]["components"]["etcd"]["local"]
    assert (etcd["replicas"], etcd["volumeData"]) == (1, {"emptyDir": {}})
    assert "NodePort" in json.dumps(wanted["spec"])


def test_the_images_are_there_before(desk, tmp_path):
    OurOperator(desk, desk, tmp_path / "work").set_up("one")
    assert desk.lab_commands == [
        ("exec", "host", "--", "ctr", "--namespace", "k8s.io", "images", "import", "/opt/lab/images/operator.tar")
    ]
    desk.lab_commands.clear()
    KarmadasOperator(desk, desk, tmp_path / "work").set_up("one")
    assert [each[2] for each in desk.lab_commands] == [
        "--images=karmada-operator:v1.18.2",
        "--images=karmada-metrics-adapter:v1.18.2",
    ]
    assert (tmp_path / "work/karmadas.yaml").read_text() == "kind: CustomResourceDefinition\n"


def test_the_kubeconfig_is_the_one_key_of_the_secret_that_the_status_names(desk, tmp_path):
    operator = OurOperator(desk, desk, tmp_path)
    desk.answers = {"get-secret": json.dumps(SECRET), "get": json.dumps({"status": {"secretRef": {"name": "s"}}})}
    operator.fetch("get")
    assert operator.control_plane.read_text() == "of the administrator"
    assert operator.control_plane.stat().st_mode & 0o777 == 0o600
    assert "s" in desk.commands[-1]
    desk.answers["get-secret"] = json.dumps({"data": {**SECRET["data"], "other": ""}})
    with pytest.raises(BenchError, match="2 keys"):
        operator.fetch("get")


def test_what_is_left_is_what_a_namespace_does_not_have_by_itself(desk, tmp_path):
    desk.answers = {"left": "configmap/kube-root-ca.crt\nsecret/karmada-ca\n"}
    assert KarmadasOperator(desk, desk, tmp_path).left("left") == ["secret/karmada-ca"]


@pytest.mark.parametrize("kind", [OurOperator, KarmadasOperator])
def test_nothing_of_an_operator_stays_for_the_next(kind, desk, tmp_path):
    kind(desk, desk, tmp_path).take_down("down")
    said = [" ".join(each) for each in desk.commands]
    assert all(any(each in one for one in said) for each in kind.of_cluster)
    assert "namespace/operators namespace/karmada-system" in said[-1]


@pytest.mark.parametrize(
    ("side", "object_seconds"), [("ours", 9.0), ("peer", 5.0)], ids=["until it is proved", "until it is Ready"]
)
def test_what_is_measured_of_each(side, object_seconds, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(benchmark, "rest", lambda: True)

    def passes(seconds: float, done: object = None):
        def step(*_: object) -> object:
            now[0] += seconds
            return done

        return step

    operator = SimpleNamespace(
        side=side,
        control_plane=Path("/k"),
        set_up=passes(100),
        create=passes(5, Ran(5.0, 0, "", 1.0, 0.1)),
        fetch=passes(1),
        remove=passes(4, Ran(4.0, 0, "", 1.0, 0.1)),
        left=lambda _name: ["secret/x"],
        take_down=passes(10),
    )
    clusters = SimpleNamespace(wait_until_complete=passes(3))
    found = benchmark.Benchmark(clusters, None, None, None, ())  # type: ignore[arg-type]
    found._round = 2
    found._keep("ours", "install", 7.5)
    found._object(operator)  # type: ignore[arg-type]
    of_side = {each["case"]: each["value"] for each in found.measurements if each["side"] == side}
    of_side.pop("install", None)
    over = {"object_over_playbook": 1.5} if side == "ours" else {}
    assert of_side == {
        "object": object_seconds, "object_complete": 9.0, "object_gone": 4.0, "object_left": 1, **over,
    }  # fmt: skip
