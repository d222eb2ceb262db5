# SPDX-License-Identifier: Apache-2.0
"""Plain hosts that are folders of this machine in the place of their roots: Ansible and the modules are as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.tests.unit.support.ansible_commands import CHECKOUT
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import deployment

NAMES = ("cp1", "cp2", "cp3")
_ROOT = ('root: str = "/"', 'root: str = os.environ.get("ROOT", "/nowhere")')
#: Looks at the hosts, locks them, and writes down on each what is about to happen.
BEGIN: list[dict[str, Any]] = [
    {"karmada.installer.host_observe": {"lock": True}},
    {"karmada.installer.journal": {"state": "chosen"}, "run_once": True},
    {"karmada.installer.journal": {"state": "opened"}, "run_once": True},
    {"karmada.installer.journal": {"state": "written"}},
]
#: The end of a run, also of one that has failed: see playbooks/on_hosts/install.yml.
END: list[dict[str, Any]] = [
    {"karmada.installer.journal": {"state": "written", "required": False}},
    {"karmada.installer.journal": {"state": "released", "required": False}},
]


def site(here: Path, changes: Mapping[str, tuple[str, str]] | None = None, **spec: Any) -> Path:
    """Folder of a site with three hosts, and with a collection whose modules take the folder of a host for its root.

    ``changes``: file of the collection → what is in it, and what is to be there.
    """
    ours = CHECKOUT / "collections/ansible_collections/karmada/installer"
    collection = here / "ansible_collections/karmada/installer"
    changes = {"plugins/module_utils/host_system.py": _ROOT, **(changes or {})}
    # Of the folders on the way to what is changed there are some of our own, and the rest of each is linked.
    ways = sorted({way for name in changes for way in (*Path(name).parents, Path())})
    for way in ways:
        (collection / way).mkdir(parents=True, exist_ok=True)
    for way in ways:
        for part in (ours / way).iterdir():
            name = str(part.relative_to(ours))
            if name in changes:
                text, (before, after) = part.read_text(), changes[name]
                assert before in text
                (collection / name).write_text(text.replace(before, after))
            elif Path(name) not in ways:
                (collection / name).symlink_to(part)
    hosts = [{"name": name, "address": f"192.0.2.{number}"} for number, name in enumerate(NAMES, start=1)]
    (here / "prod.yaml").write_text(yaml.safe_dump(deployment(hosts=hosts, **spec)))
    (here / "site.karmada.yml").write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    mine = {}
    for name in NAMES:
        (here / "roots" / name).mkdir(parents=True)
        # Its Python knows which host it is on: the environment of a task is that of the host that delegates it.
        python = here / "roots" / f"{name}.python"
        python.write_text(f'#!/bin/sh\nROOT={here}/roots/{name} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        local = {"ansible_connection": "local", "ansible_become": False}
        mine[name] = {**local, "ansible_python_interpreter": str(python)}
    (here / "mine.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": mine}}))
    (here / "empty.cfg").touch()
    return here


def started(name: str, here: Path, tasks: list[dict[str, Any]], **environment: str) -> subprocess.Popen[bytes]:
    """A run of these tasks on all hosts, and of ``END`` behind them; its output is in NAME.log."""
    play = {
        "hosts": "karmada_hosts",
        "strategy": "linear",
        "gather_facts": False,
        "any_errors_fatal": True,
        "environment": {"HERE": str(here), "HOST": "{{ inventory_hostname }}"},
        "vars": {"karmada_operation": "install"},
        "tasks": [{"block": tasks, "always": END}],
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
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def locks(here: Path) -> list[Path]:
    """Lock of each host that is locked."""
    return [path for name in NAMES for path in (here / "roots" / name).rglob("*.lock")]
