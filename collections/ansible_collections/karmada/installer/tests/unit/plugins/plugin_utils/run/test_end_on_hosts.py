# SPDX-License-Identifier: Apache-2.0
"""Where a run on plain hosts was interrupted is in the state of each of them, and the next run goes on to the end.

Ansible runs for real, with the modules as they are: each host is a folder of this machine in the place of its root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.tests.unit.support.ansible_commands import CHECKOUT
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import deployment

NAMES = ("cp1", "cp2", "cp3")
BEGIN: list[dict[str, Any]] = [
    {"karmada.installer.host_observe": {"lock": True}},
    {"karmada.installer.journal": {"state": "chosen"}, "run_once": True},
    {"karmada.installer.journal": {"state": "opened"}, "run_once": True},
    {"karmada.installer.journal": {"state": "written"}},
]
#: A step on hosts that does not end.
WAIT = {
    "ansible.builtin.shell": "echo $PPID $$ > $HERE/$HOST.new; mv $HERE/$HOST.new $HERE/$HOST.pids; exec sleep 3600"
}
#: The end of a run, also of one that has failed: see playbooks/on_hosts/install.yml.
CLOSED = {"karmada.installer.journal": {"state": "closed"}, "run_once": True}
END: list[dict[str, Any]] = [
    {"karmada.installer.journal": {"state": "written", "required": False}},
    {"karmada.installer.journal": {"state": "released", "required": False}},
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Folder of a site, with a collection whose modules take the folder of a host for its root."""
    ours, here = CHECKOUT / "collections/ansible_collections/karmada/installer", tmp_path / "site"
    collection = here / "ansible_collections/karmada/installer"
    (collection / "plugins/module_utils").mkdir(parents=True)
    for place in (ours, ours / "plugins", ours / "plugins/module_utils"):
        for part in place.iterdir():
            target = collection / part.relative_to(ours)
            if not target.exists():
                target.symlink_to(part)
    system = collection / "plugins/module_utils/host_system.py"
    text = system.read_text()
    system.unlink()
    changed = text.replace('root: str = "/"', 'root: str = os.environ.get("ROOT", "/nowhere")')
    assert changed != text
    system.write_text(changed)
    hosts = [{"name": name, "address": f"192.0.2.{number}"} for number, name in enumerate(NAMES, start=1)]
    (here / "prod.yaml").write_text(yaml.safe_dump(deployment(hosts=hosts)))
    (here / "site.karmada.yml").write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    (here / "mine.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": dict.fromkeys(NAMES, local)}}))
    for name in NAMES:
        (here / "roots" / name).mkdir(parents=True)
    (here / "empty.cfg").touch()
    return here


def started(name: str, here: Path, tasks: list[dict[str, Any]], ends: list[dict[str, Any]]) -> subprocess.Popen[bytes]:
    root = str(here / "roots/{{ inventory_hostname }}")
    environment = {"ROOT": root, "HERE": str(here), "HOST": "{{ inventory_hostname }}"}
    play = {
        "hosts": "karmada_hosts",
        "strategy": "linear",
        "gather_facts": False,
        "any_errors_fatal": True,
        "environment": environment,
        "vars": {"karmada_operation": "install"},
        "tasks": [{"block": tasks, "always": ends}],
    }
    (here / f"{name}.yml").write_text(yaml.safe_dump([play]))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_AUTH_"))}
    command = ["env", "--default-signal=HUP,INT", str(Path(sys.executable).parent / "ansible-playbook")]
    with (here / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "-i", "site.karmada.yml", "-i", "mine.yml", f"{name}.yml"],
            cwd=here,
            env={
                **kept,
                "ANSIBLE_CONFIG": str(here / "empty.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(here),
                "ANSIBLE_HOME": str(here / ".ansible"),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def journals(here: Path) -> list[Journal]:
    """That of the state which each host keeps."""
    place = "var/lib/karmada-installer/prod/journal.json"
    return [Journal(**json.loads((here / "roots" / name / place).read_text())) for name in NAMES]


def locks(here: Path) -> list[Path]:
    return [path for name in NAMES for path in (here / "roots" / name).rglob("*.lock")]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name
)
def test_every_host_says_where_a_run_was_interrupted_and_the_next_one_goes_on_to_the_end(
    number: signal.Signals, here: Path
) -> None:
    run = started("first", here, [*BEGIN, WAIT], END)
    try:
        waiting = [here / f"{name}.pids" for name in NAMES]
        until(lambda: all(each.exists() for each in waiting) or run.poll() is not None, "the step that waits")
        assert run.poll() is None, (here / "first.log").read_text()
        others = [int(pid) for each in waiting for pid in each.read_text().split()]
        run.send_signal(number)
        run.wait(300)
    finally:
        run.kill()
    for each in others:
        # What a step of Ansible's own has started may outlive a run that was killed.
        until(lambda each=each: run_process._start_time(each) is None or _killed(each), "the end of other processes")
    left = journals(here)
    assert len({each.run for each in left}) == 1
    assert all(each.interrupted for each in left)
    assert {(each.operation, each.step, each.finished) for each in left} == {("install", "hosts", "")}
    assert left[0].started
    # The hosts are as the run has left them: nobody who is not sure that it is dead may take them.
    assert len(locks(here)) == len(NAMES)

    goes_on = started("next", here, [*BEGIN, CLOSED], END)
    assert goes_on.wait(300) == 0, (here / "next.log").read_text()
    ended = journals(here)
    assert not any(each.interrupted for each in ended)
    assert all(each.finished for each in ended)
    assert {each.run for each in ended}.isdisjoint({each.run for each in left})
    assert locks(here) == []


def _killed(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return False
