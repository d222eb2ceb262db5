# SPDX-License-Identifier: Apache-2.0
"""What the targets of the README use is made by themselves, on a machine where nothing has been built yet."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from karmada_bench.clusters import Clusters
from karmada_lab import artifacts, cli, gobuild, lifecycle, prepare, rootfs, upstream
from karmada_lab.images import KARMADA_BASE, KARMADA_OPTIONAL
from karmada_lab.products import KARMADA_VERSION, catalogue
from karmada_lab.state import Lab

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("demo", "test", "test-full", "bench")
CONTRACT = ROOT / "collections/ansible_collections/karmada/installer/tests/contract"
#: What runs a control plane without optional components, wherever it runs.
CONTROL_PLANE = {*KARMADA_BASE, "kube-apiserver", "kube-controller-manager", "etcd"}
# `lab artifacts path NAME`, as words of a shell, of YAML, or of Python; and how contract tests ask for it.
_ASKS = re.compile(
    r"""\bartifacts,?\ path,?\ ([a-z][a-z-]+) | "artifacts",\ "path",\ "([a-z-]+)" | \bbinary\("([a-z-]+)" """,
    re.VERBOSE,
)


class MachinesAreMadeNext(Exception):  # noqa: N818 - no error: as far as `lab up` goes here
    """All programs are there."""


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A lab that has its base and nothing else. Builds leave a file for each program; machines are not made."""
    monkeypatch.setenv("KARMADA_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KARMADA_LAB_CACHE", str(tmp_path / "cache"))

    def build(_product, names, _work, into):
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            (into / name).write_text("")

    def make_machines(_lab):
        raise MachinesAreMadeNext

    module = tmp_path / "module"
    (module / "charts/karmada/_crds").mkdir(parents=True)
    monkeypatch.setattr(gobuild, "build", build)
    monkeypatch.setattr(gobuild, "module_directory", lambda *_: module)
    monkeypatch.setattr(upstream, "unusable", lambda *_: "there is no network")
    monkeypatch.setattr(artifacts.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(cli.os, "geteuid", lambda: 0)
    for module_of, name in ((prepare, "prepare"), (prepare, "require"), (rootfs, "ensure_base")):
        monkeypatch.setattr(module_of, name, lambda _lab: None)
    monkeypatch.setattr(lifecycle, "_nothing_to_do", lambda *_: False)
    monkeypatch.setattr(lifecycle, "_remove_leftovers", make_machines)
    found = Lab.from_environment()
    busybox = rootfs.base(found) / "bin/busybox"
    busybox.parent.mkdir(parents=True)
    busybox.write_text("#!/bin/sh\necho wget\n")
    busybox.chmod(0o755)
    return found


def lab(*words):
    """One command of the lab, as far as it needs no machine."""
    try:
        assert cli.main(words) == 0
    except MachinesAreMadeNext:
        assert words[0] == "up"


def recipe(target):
    """Words of each command of the target and of all that it depends on."""
    names = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SCENARIOS", "SCENARIOS_FULL", "PYTEST_ARGS", "CONTRACT")
    told = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name not in names},
    )  # fmt: skip
    return [shlex.split(line) for line in told.stdout.splitlines() if ".ci/venv " in line]


def folders(target, commands):
    """Where the code is that a target runs, beside the lab."""
    if target == "bench":
        # It joins simulated members to the API server of the contract tests.
        return [ROOT / "bench/karmada_bench", CONTRACT / "conftest.py"]
    scenarios = [words[-1] for words in commands if words[-3:-1] == ["test", "-s"]]
    if target == "demo":
        return [ROOT / "molecule/demo/run"]
    return [CONTRACT, ROOT / "molecule/shared", *(ROOT / "molecule" / name for name in scenarios)]


def asked_for(places):
    """Programs that this code asks the lab for by name."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*")))]
    texts = [file.read_text(errors="replace") for file in files if file.is_file() and file.suffix != ".pyc"]
    return {name for text in texts for found in _ASKS.findall(text) for name in found if name}


def benchmark_begins(monkeypatch, capsys, folder):
    """What the benchmark asks of the lab until there are machines."""

    def in_process(_clusters, *words):
        if words != ("down",):
            lab(*words)
        if words[0] == "up":
            raise MachinesAreMadeNext
        return capsys.readouterr().out.strip()

    monkeypatch.setattr(Clusters, "lab", in_process)
    with pytest.raises(MachinesAreMadeNext):
        Clusters(folder, folder / "state").bring_up(["cp1"])


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_makes_all_programs_that_it_uses(target, empty, monkeypatch, capsys, tmp_path):
    commands = recipe(target)
    for words in commands:
        if words[1] == "lab/lab":
            lab(*words[2:])
    if target == "bench":
        benchmark_begins(monkeypatch, capsys, tmp_path)
    products = catalogue()
    missing = {name for name in CONTROL_PLANE if not artifacts.path_of(empty, products, name).exists()}
    assert not missing
    assert (artifacts.folder(empty, products["karmada"]) / "crds").is_dir()
    for name in sorted(asked_for(folders(target, commands))):
        lab("artifacts", "path", name)
        assert Path(capsys.readouterr().out.splitlines()[-1]).is_file()


@pytest.mark.parametrize("target", ["test", "test-full", "bench"])
def test_what_takes_minutes_to_make_is_made_before_anything_runs(target):
    commands = recipe(target)
    [helm] = [number for number, words in enumerate(commands) if words[1:3] == ["python", "tools/helm.py"]]
    begins = [number for number, words in enumerate(commands) if {"karmada_bench", "molecule", "pytest"} & set(words)]
    assert begins
    assert helm < min(begins)


def test_the_benchmark_has_its_image_before_the_machine_is_at_rest():
    commands = recipe("bench")
    image = [".ci/venv", "python", "molecule/operator_in_pods/image.py", "--base"]
    assert 0 <= commands.index(image) < len(commands) - 1


def test_code_that_asks_for_programs_is_found():
    """So that the test above looks for something."""
    assert asked_for([ROOT / "molecule/demo/run"]) == {"kubectl"}
    assert "karmadactl" in asked_for(folders("bench", []))
    full = recipe("test-full")
    assert sum(words[-3:-1] == ["test", "-s"] for words in full) == len(
        list((ROOT / "molecule").glob("*/molecule.yml"))
    )
    assert asked_for(folders("test-full", full)) >= {"kubectl", "karmadactl", "etcd", "etcdctl", "karmada-agent"}


@pytest.mark.parametrize("name", [*KARMADA_OPTIONAL, "karmadactl", "etcdctl", "kubectl"])
def test_a_program_that_is_asked_for_is_made_and_only_once(name, empty, monkeypatch, capsys):
    lab("artifacts", "path", name)
    told = Path(capsys.readouterr().out.strip())
    assert told == artifacts.path_of(empty, catalogue(), name)
    assert told.is_file()
    monkeypatch.setattr(gobuild, "build", None)
    lab("artifacts", "path", name)
    assert capsys.readouterr().out.strip() == str(told)


def test_crds_are_those_of_the_release_that_the_lab_has(empty):
    lab("up", "--cluster=host", f"--images=karmada:{KARMADA_VERSION}")
    assert (empty.artifacts / "karmada" / KARMADA_VERSION / "crds").is_dir()
