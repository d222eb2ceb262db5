# SPDX-License-Identifier: Apache-2.0
"""The bar of a run: it never goes back, and most of it is what takes most of the time."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

PLAYBOOKS = Path(__file__).parents[5] / "playbooks"
#: Says of each play how much of it is over when each of its tasks begins. In a process of its own, as Ansible finds
#: collections once for all.
SAY = """
import json, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.vars.manager import VariableManager
from ansible_collections.karmada.installer.plugins.plugin_utils.run import play_progress

loader = DataLoader()
inventory = InventoryManager(loader, sources=["localhost,"])
for play in Playbook.load(sys.argv[1], VariableManager(loader, inventory), loader).get_plays():
    progress = play_progress.PlayProgress(play.tasks)
    tasks = [[task.name, progress.at(task)] for task in play_progress._flat(play.tasks)]
    print(json.dumps([play.get_name(), tasks]))
"""


@functools.cache
def plays(playbook: str) -> dict[str, list[tuple[str, float]]]:
    """Name of each play → its tasks, each with the part that is over when it begins."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [sys.executable, "-c", SAY, str(PLAYBOOKS / playbook)],
        env={**kept, "ANSIBLE_COLLECTIONS_PATH": str(ansible_commands.CHECKOUT / "collections")},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("play", ["Install Karmada as pods", "Install Karmada on plain hosts"])
def test_most_of_the_bar_is_etcd_and_the_control_plane(play: str) -> None:
    tasks = plays("install.yml")[play]
    number = next(i for i, (name, _) in enumerate(tasks) if name in ("Bring up what differs", "Bring it up"))
    begins, ends = tasks[number][1], tasks[number + 1][1]
    assert begins < 0.35
    assert ends - begins > 0.4


@pytest.mark.parametrize("playbook", ["install.yml", "members.yml", "uninstall.yml", "restore.yml"])
def test_the_bar_never_goes_back(playbook: str) -> None:
    for tasks in plays(playbook).values():
        over = [part for _, part in tasks]
        assert all(before <= after for before, after in pairwise(over)), tasks
        assert all(0 <= part <= 1 for part in over)


def test_reading_the_document_is_no_part_of_the_bar() -> None:
    tasks = plays("install.yml")["Read the document"]
    assert {part for _, part in tasks} == {0.0}
