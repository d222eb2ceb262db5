# SPDX-License-Identifier: Apache-2.0
"""A run that somebody ends leaves no process, no lock and no secret; by Ansible, with an API server in memory."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.run import action, end
from ansible_collections.karmada.installer.tests.unit.support.ansible_commands import CHECKOUT
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

SECRET = "the-content-of-a-private-key"
DOCUMENT = {
    "apiVersion": "installer.karmada.io/v1alpha1",
    "kind": "KarmadaDeployment",
    "metadata": {"name": "prod", "namespace": "karmada"},
    "spec": {
        "hostCluster": {"namespace": "karmada", "insecureSkipTLSVerification": True},
        "hosts": [{"name": "etcd1", "address": "192.0.2.1", "roles": ["etcd"]}],
        "ssh": {"privateKeySecretRef": {"name": "key"}},
        "components": {"karmadaAPIServer": {"serviceSubnet": "10.96.0.0/16"}},
    },
}
#: A step that writes for as long as it lives, and waits for a program that does not end.
ACTION = """
import os, pathlib, subprocess, threading, time
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction

class ActionModule(KarmadaAction):
    OPTIONS = {"for_ever": {"type": "bool", "default": False}}
    KEEPS_LOCK = False

    def perform(self, run, arguments):
        here = pathlib.Path(os.environ["HERE"])
        with run.writing("hold"):
            if arguments["for_ever"]:
                program = subprocess.Popen(["sleep", "3600"], preexec_fn=run_process.ends_with_us())
                (here / "pids.new").write_text(f"{os.getpid()} {program.pid}")
                (here / "pids.new").rename(here / "pids")
                program.wait()
        return {"changed": True}
"""
PLAY: list[dict[str, Any]] = [
    {
        "hosts": "karmada_control",
        "gather_facts": False,
        "tasks": [
            {"karmada.installer.ssh_files": None},
            {"hold": {"for_ever": "{{ inside }}"}},
            {"ansible.builtin.shell": "echo $PPID $$ > $HERE/pids.new; mv $HERE/pids.new $HERE/pids; exec sleep 3600"},
        ],
    }
]
NEXT: list[dict[str, Any]] = [
    {
        "hosts": "karmada_control",
        "gather_facts": False,
        "tasks": [{"karmada.installer.journal": {"state": "released"}}],
    }
]


def kind(name: str, kind: str, *, namespaced: bool = True) -> dict[str, Any]:
    verbs = ["get", "list", "create", "update", "patch", "delete"]
    return {"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs}


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        stub.types["v1"] = [kind("namespaces", "Namespace", namespaced=False), kind("secrets", "Secret")]
        stub.types["coordination.k8s.io/v1"] = [kind("leases", "Lease")]
        stub.put("api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "karmada"}})
        data = {"ssh-privatekey": base64.b64encode(SECRET.encode()).decode()}
        metadata = {"name": "key", "namespace": "karmada"}
        stub.put("api/v1/secrets", {"kind": "Secret", "metadata": metadata, "data": data})
        yield stub


@pytest.fixture
def memory() -> Iterator[Path]:
    """A place of our own in memory."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def here(tmp_path: Path, api: StubApi) -> Path:
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "hold.py").write_text(ACTION)
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(api.kubeconfig()))
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(DOCUMENT))
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "kubeconfig": "./kubeconfig"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source))
    (tmp_path / "play.yml").write_text(yaml.safe_dump(PLAY))
    (tmp_path / "next.yml").write_text(yaml.safe_dump(NEXT))
    (tmp_path / "empty.cfg").touch()
    return tmp_path


def playbook(name: str, here: Path, memory: Path, *, inside: bool = False) -> subprocess.Popen[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_AUTH_"))}
    # A run ignores what the tests are told to ignore, as under nohup.
    command = ["env", "--default-signal=HUP,INT", str(Path(sys.executable).parent / "ansible-playbook")]
    with (here / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "-i", "site.karmada.yml", name, "-e", json.dumps({"inside": inside})],
            cwd=here,
            env={
                **kept,
                "ANSIBLE_CONFIG": str(here / "empty.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "collections"),
                "ANSIBLE_HOME": str(here / ".ansible"),
                "ANSIBLE_STDOUT_CALLBACK": "karmada.installer.report",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HERE": str(here),
                "XDG_RUNTIME_DIR": str(memory),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def interrupted(number: int, here: Path, memory: Path, *, inside: bool) -> tuple[int, list[int]]:
    """A run is given that signal, its first process alone. Returns how this ended, and its other processes."""
    run = playbook("play.yml", here, memory, inside=inside)
    try:
        until(lambda: (here / "pids").exists() or run.poll() is not None, "the step that waits")
        assert run.poll() is None, (here / "play.yml.log").read_text()
        others = [int(each) for each in (here / "pids").read_text().split()]
        assert everything_with_the_secret(memory), "it is no test if there was nothing to be left"
        run.send_signal(number)
        return run.wait(300), others
    finally:
        run.kill()


def everything_with_the_secret(place: Path) -> list[Path]:
    files = (each for each in place.rglob("*") if each.is_file())
    return [each for each in files if SECRET in each.read_text(errors="replace")]


def holder(api: StubApi) -> str:
    leases = [each for (prefix, _, _), each in api.objects.items() if prefix.endswith("/leases")]
    assert len(leases) == 1, "it is no test if the lock was not taken"
    return str(leases[0]["spec"]["holderIdentity"])


def test_where_a_run_has_stopped_is_said_in_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end, "_step", "Register the APIs of the optional components, and take away those of the others")
    lines = end._farewell().splitlines()
    assert lines[1:3] == [
        "Stopped at: Register the APIs of the optional components, and take away those of",
        "the others",
    ]
    monkeypatch.setattr(end, "_step", "")
    assert end._farewell().splitlines()[1] == "Stopped."


@pytest.mark.parametrize("forks_end", [True, False])
@pytest.mark.parametrize("answer", [True, False, None], ids=["released", "refused", "no answer"])
def test_a_lock_that_may_stay_is_told(
    answer: bool | None, forks_end: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answered, removed = threading.Event(), []
    monkeypatch.setattr(end, "ENDING_SECONDS", 0.1 if answer is None else 300.0)
    monkeypatch.setattr(end, "_held", dict)
    monkeypatch.setattr(end.run_process, "end_forks", lambda _seconds: forks_end)
    monkeypatch.setattr(end.private_folder, "remove", lambda: removed.append(True))
    if answer is not None:
        answered.set()
    end._end(lambda _held: answered.wait(300) and bool(answer))
    answered.set()
    assert removed == ([True] if forks_end else []), "a fork that goes on needs its files"
    assert ("could not be released" in capfd.readouterr().err) is not (forks_end and answer is True)


def test_a_lock_that_a_killed_fork_had_asked_for_is_released_as_well(
    here: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "prod-installer", "namespace": "karmada"},
        "spec": {"holderIdentity": "killed", "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    monkeypatch.setattr(action.time, "sleep", lambda _seconds: api.put("apis/coordination.k8s.io/v1/leases", lease))
    lock = {
        "deployment": manifest.with_defaults(DOCUMENT),
        "connection": asdict(Connection(kubeconfig=str(here / "kubeconfig"))),
        "holder": "killed",
    }
    assert action.give_back(lock)
    assert holder(api) == ""


@pytest.mark.parametrize(
    ("number", "inside"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGHUP, True)],
)
def test_a_run_that_is_asked_to_end_leaves_nothing_behind(
    number: int, inside: bool, here: Path, memory: Path, api: StubApi
) -> None:
    code, others = interrupted(number, here, memory, inside=inside)
    said = (here / "play.yml.log").read_text()
    if number == signal.SIGINT:
        assert "Stopped at: hold\nRun the same command again: it goes on from there.\n" in said
    # Ansible has a code of its own for SIGINT.
    assert code == (99 if number == signal.SIGINT else -number), said
    assert list(memory.iterdir()) == []
    assert list((here / ".ansible" / "tmp").iterdir()) == []
    assert everything_with_the_secret(here) == []
    assert holder(api) == ""
    until(lambda: all(run_process._start_time(each) is None for each in others), "the end of its other processes")


def journal(api: StubApi) -> Journal:
    """That of the state which the run has left."""
    (state,) = [each for (prefix, _, name), each in api.objects.items() if name == "prod-installer-state"]
    return Journal(**json.loads(base64.b64decode(state["data"]["journal.json"])))


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name
)
def test_the_state_says_where_a_run_was_interrupted_and_the_next_one_goes_on_to_the_end(
    number: signal.Signals, here: Path, memory: Path, api: StubApi
) -> None:
    _code, others = interrupted(number, here, memory, inside=True)
    until(lambda: all(run_process._start_time(each) is None for each in others), "the end of its other processes")
    left = journal(api)
    assert left.interrupted
    assert (left.step, left.finished) == ("hold", "")
    assert left.started
    goes_on = [{"hold": None}, {"karmada.installer.journal": {"state": "closed"}}]
    (here / "next.yml").write_text(yaml.safe_dump([{**NEXT[0], "tasks": goes_on}]))
    assert playbook("next.yml", here, memory).wait(300) == 0, (here / "next.yml.log").read_text()
    ended = journal(api)
    assert not ended.interrupted
    assert (ended.operation, ended.step) == (left.operation, "")
    assert ended.run != left.run
    assert holder(api) == ""


@pytest.mark.parametrize("inside", [True, False], ids=["in a step of ours", "in a step of Ansible"])
def test_what_a_killed_run_leaves_the_next_one_takes_away(inside: bool, here: Path, memory: Path, api: StubApi) -> None:
    code, others = interrupted(signal.SIGKILL, here, memory, inside=inside)
    assert code == -signal.SIGKILL
    if inside:
        until(lambda: all(run_process._start_time(each) is None for each in others), "the end of its other processes")
    else:
        for each in others:  # a fork of Ansible's own may go on, and is no run of ours that could write
            os.kill(each, signal.SIGKILL)
    until(lambda: run_process.holder_is_dead(holder(api)), "the end of the last process")
    assert everything_with_the_secret(here) == []
    assert everything_with_the_secret(memory)
    assert playbook("next.yml", here, memory).wait(300) == 0, (here / "next.yml.log").read_text()
    assert list(memory.iterdir()) == []


def test_a_run_that_nobody_ends_leaves_nothing_behind(here: Path, memory: Path, api: StubApi) -> None:
    (here / "play.yml").write_text(yaml.safe_dump([{**PLAY[0], "tasks": [*PLAY[0]["tasks"][:2], *NEXT[0]["tasks"]]}]))
    run = playbook("play.yml", here, memory)
    assert run.wait(300) == 0, (here / "play.yml.log").read_text()
    assert list(memory.iterdir()) == []
    assert holder(api) == ""
