# SPDX-License-Identifier: Apache-2.0
"""The turns in which programs are brought are taken by one process, host after host, until they are there or one fails.

Ansible runs for real: once with a stand-in for the action, which says what it was asked for, and once with all as it
is, hosts that are folders of this machine, and a server that takes its time.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import go_modules
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import ARCHITECTURES, MACHINES
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands, host_roots
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, deployment
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    Request,
    Response,
    WebServer,
    authority,
    files,
    program,
)

COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
HOSTS = ("cp1", "cp2")
#: Begun in the first turn and looked at by the others, as downloads are.
ACTION = """\
import json, os
from ansible.plugins.action import ActionBase

BEGUN = []

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        args, done = self._task.args, {"changed": False}
        if args["state"] == "looked_for":
            return {**done, "turns": task_vars["turns"]}
        BEGUN.append(self._task.delegate_to)
        if len(BEGUN) == 3:
            return {**done, **task_vars["third"]}
        return {**done, "brought": False}
"""
MODULE = "DOCUMENTATION = 'module: programs'\n"
PLAY = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.include_role:
        name: karmada.installer.host_units
        tasks_from: programs
        rolespec_validate: false
    - ansible.builtin.debug:
        msg: "TAKEN {{ host_units_brought.results | default([]) | map(attribute='item') | to_json }}"
      run_once: true
"""


@pytest.mark.parametrize(
    ("turns", "third", "taken"),
    [
        ([*HOSTS] * 4, {"brought": True}, [*HOSTS, "cp1"]),
        ([], {}, []),
        ([*HOSTS] * 4, {"failed": True, "msg": "this run has lost the lock"}, None),
        ([*HOSTS] * 4, {"unreachable": True, "msg": "no route"}, None),
    ],
    ids=["until they are there", "nothing to bring", "a lock is lost", "a host is lost"],
)
def test_turns_are_taken_until(
    tmp_path: Path, turns: list[str], third: dict[str, object], taken: list[str] | None
) -> None:
    collection = tmp_path / "ansible_collections/karmada/installer"
    for kind, content in (("action", ACTION), ("modules", MODULE)):
        (collection / "plugins" / kind).mkdir(parents=True)
        (collection / "plugins" / kind / "programs.py").write_text(content)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (tmp_path / "play.yml").write_text(PLAY)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"hosts": dict.fromkeys(HOSTS), "vars": {**here, "turns": turns, "third": third}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml", "-e", "ansible_become=false"),
        directory=tmp_path,
        collection=False,
    )
    assert (done.returncode == 0) == (taken is not None), done.stdout
    said = [line for line in done.stdout.splitlines() if "TAKEN" in line]
    if taken is None:
        # The third turn was the last one, and nothing comes after it.
        assert said == []
        assert done.stdout.count("(item=") == 3
    else:
        assert json.loads(said[0].partition("TAKEN ")[2].strip().rstrip('"').replace('\\"', '"')) == taken


#: A round in seconds instead of minutes.
SOON = {
    "plugins/plugin_utils/run/host_programs.py": ("ROUND_SECONDS = host_lock.LOCK_SILENCE // 5", "ROUND_SECONDS = 3"),
    "plugins/plugin_utils/run/host_action.py": ("RENEW_SECONDS = host_lock.LOCK_SILENCE / 5", "RENEW_SECONDS = 0.5"),
}
BRING: list[dict[str, Any]] = [
    *host_roots.BEGIN,
    {
        "ansible.builtin.include_role": {
            "name": "karmada.installer.host_units",
            "tasks_from": "programs",
            "rolespec_validate": False,
        }
    },
    {"ansible.builtin.debug": {"msg": "BROUGHT {{ host_units_brought.results | last | to_json }}"}, "run_once": True},
]


class Mirror:
    """A mirror of all programs that sends nothing before ``arrives`` is set, and a site that uses it."""

    def __init__(self, folder: Path) -> None:
        self.arrives = threading.Event()
        release = Runs(folder / "run").step(deployment()).instance.release
        architecture = ARCHITECTURES[platform.machine()]
        content = {
            f"/{project}/{getattr(release, project)}/bin/linux/{architecture}/{name}": program(
                name, MACHINES[architecture]
            )
            for project, known in go_modules.PROJECTS.items()
            for name in known.packages
        }
        answer = files(content)

        def late(request: Request) -> Response:
            self.arrives.wait(120)
            return answer(request)

        self.server = WebServer(late)
        self.here = host_roots.site(
            folder / "site", SOON, artifacts={"source": "URL", "url": self.server.url}, endpoint=EXTERNAL
        )
        sums = [f"{hashlib.sha256(data).hexdigest()}  {path[1:]}" for path, data in content.items()]
        (self.here / "artifacts").mkdir()
        (self.here / "artifacts/sha256sums").write_text("\n".join(sums) + "\n")
        source = "plugin: karmada.installer.karmada\nmanifest: prod.yaml\nartifacts: ./artifacts\n"
        (self.here / "site.karmada.yml").write_text(source)
        (self.here / "authority.pem").write_text(authority())

    def run(self) -> Any:
        trust = {"SSL_CERT_FILE": str(self.here / "authority.pem"), "XDG_CACHE_HOME": str(self.here / "cache")}
        run = host_roots.started("bring", self.here, BRING, **trust)
        until(lambda: bool(self.server.asked) or run.poll() is not None, "the first download")
        assert run.poll() is None, self.log
        return run

    @property
    def log(self) -> str:
        return (self.here / "bring.log").read_text()

    def renewed(self) -> list[float]:
        """When each host was heard of last."""
        return [json.loads(lock.read_text())["renewed"] for lock in host_roots.locks(self.here)]


EXTERNAL = {"type": "External", "host": "karmada.example.com"}


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    mirror = Mirror(tmp_path)
    with mirror.server:
        yield mirror
        mirror.arrives.set()


def test_a_download_that_takes_long_renews_the_lock_of_every_host(mirror: Mirror) -> None:
    run = mirror.run()
    try:
        first = mirror.renewed()
        assert len(first) == len(host_roots.NAMES)
        for _ in range(2):
            until(lambda first=first: all(map(float.__lt__, first, mirror.renewed())), "a round of all hosts")
            first = mirror.renewed()
        mirror.arrives.set()
        assert run.wait(300) == 0, mirror.log
    finally:
        run.kill()
    (brought,) = [line for line in mirror.log.splitlines() if "BROUGHT" in line]
    assert all(name in brought for name in (*host_roots.NAMES, "karmada-scheduler", "kube-apiserver", "etcd"))
    kept = {path.read_bytes().partition(b"\0>\0")[2] for path in (mirror.here / "cache").rglob("sha256/*")}
    assert {b"etcd", b"kube-apiserver", b"karmada-scheduler"} <= kept


def test_a_host_that_another_run_has_taken_ends_the_run_while_it_downloads(mirror: Mirror) -> None:
    run = mirror.run()
    try:
        (lock,) = (mirror.here / "roots/cp2").rglob("*.lock")
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "holder": "another@run"}))
        assert run.wait(300) != 0
    finally:
        run.kill()
    assert "this run has lost the lock of prod on this host" in " ".join(mirror.log.split())
    assert "BROUGHT" not in mirror.log
    # What was on its way has ended with the run, and nobody has got it.
    assert list((mirror.here / "cache").rglob("sha256/*")) == []
