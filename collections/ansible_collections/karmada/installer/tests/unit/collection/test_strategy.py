# SPDX-License-Identifier: Apache-2.0
"""The order of steps is that of the playbooks, whatever somebody has configured to make Ansible faster.

With another strategy every host goes on by itself: all members of etcd would restart at the same time, and what is to
be done once would be done for each host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.collection.test_playbooks import RESULTS, given, run

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
PLAYS = [
    pytest.param(play, id=f"{path.relative_to(PLAYBOOKS)}: {play['name']}")
    for path in sorted(PLAYBOOKS.rglob("*.yml"))
    for play in yaml.safe_load(path.read_text())
    if "hosts" in play
]


def test_there_are_plays() -> None:
    assert len(PLAYS) >= len(list(PLAYBOOKS.glob("*.yml")))


@pytest.mark.parametrize("play", PLAYS)
def test_every_play_names_its_strategy(play: dict[str, Any]) -> None:
    assert play.get("strategy") == "linear"


@pytest.mark.parametrize("configured", ["strategy = free", "strategy = host_pinned", "forks = 1"])
def test_hosts_restart_one_after_the_other_and_what_is_done_once_is_done_once(configured: str, tmp_path: Path) -> None:
    (tmp_path / "empty.cfg").write_text(f"[defaults]\n{configured}\n")
    names = ("cp1", "cp2", "cp3")
    (tmp_path / "more.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": dict.fromkeys(names)}}))
    hosts = {name: {"ansible_connection": "local", "karmada_host": {"name": name}} for name in names}
    found = {
        "journal": {"changed": False, "due": True},
        "host_components": {"changed": True, "outdated": ["karmada-prod-etcd.service"]},
        "host_observe": {"changed": False, "reached": True},
    }
    done, steps = run("install", tmp_path, RESULTS | found, "-i", "more.yml", mode="Binary", hosts=hosts)
    restarts = [
        "restart" if each["step"] == "host_components" else "keep"
        for each in steps
        if each.get("wait_for") == "started" or each.get("state") == "kept"
    ]
    assert restarts == ["keep", "keep", "keep", "restart"] * 3, done.stdout + done.stderr
    assert [len(given(steps, name)) for name in ("preflight", "differences", "report")] == [1, 0, 1]
    # Nobody is ahead: all of them were looked at before the check, and have the journal before anything starts.
    order = [f"{each['step']} {each['state']}" if each["step"] == "journal" else each["step"] for each in steps]
    assert order[: order.index("preflight")].count("host_observe") == len(names)
    assert order[order.index("programs") : order.index("host_programs")].count("journal written") == len(names)
