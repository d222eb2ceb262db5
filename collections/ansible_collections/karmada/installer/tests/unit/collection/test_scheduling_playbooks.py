# SPDX-License-Identifier: Apache-2.0
"""Which members a cordon, a drain or an uncordon works on, what it is given, and where it looks for a kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support.playbook_runs import RESULTS, given, run


@pytest.mark.parametrize(
    ("playbook", "options", "state", "members"),
    [
        ("cordon", ["--limit", "m2"], "cordoned", ["m2"]),
        ("drain", ["--limit", "karmada_members"], "drained", ["m1", "m2"]),
        ("uncordon", ["-e", "karmada_members=m9,m1"], "uncordoned", ["m1", "m9"]),
        ("cordon", ["-e", '{"karmada_members": ["m9"]}', "--limit", "m2"], "cordoned", ["m9"]),
        ("cordon", [], "cordoned", []),
        ("cordon", ["--limit", "karmada_control"], "cordoned", []),
    ],
)
def test_members_are_chosen_by_limit_or_by_name_and_none_by_default(
    playbook: str, options: list[str], state: str, members: Any, tmp_path: Path
) -> None:
    done, steps = run(playbook, tmp_path, {"member_scheduling": {"changed": False, "left": []}}, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each["limit"] for each in given(steps, "require_document")] == ["any"]
    (step,) = given(steps, "member_scheduling")
    assert (step["state"], step["selected"]) == (state, members)


def test_a_drain_gets_its_time_and_confirmation_and_ends_with_how_members_are(tmp_path: Path) -> None:
    line = "m2 is drained; nothing runs there"
    result = {"member_scheduling": {"changed": True, "left": [], "now": [line]}}
    options = ["--limit", "m2", "-e", "karmada_drain_timeout=60", "-e", "karmada_confirm_drain=m2"]
    done, steps = run("drain", tmp_path, result, *options)
    (step,) = given(steps, "member_scheduling")
    assert (step["timeout"], step["confirm"]) == (60, "m2")
    assert line in done.stdout


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        *((verb, ["-e", '{"karmada_members": ["m1"]}']) for verb in ("cordon", "drain", "uncordon")),
        ("drain", ["--limit", "m1"]),
    ],
)
def test_plain_hosts_are_looked_at_for_a_member_where_nobody_has_given_a_kubeconfig(
    verb: str, options: list[str], tmp_path: Path
) -> None:
    """Also with a limit, which leaves these hosts out of the play."""
    hosts = {name: {"ansible_connection": "local", "karmada_host": {"name": name}} for name in ("cp1", "cp2")}
    there = {
        "member_scheduling": {"changed": True, "left": [], "now": []},
        "member_scheduling looked_for": {"changed": False, "hosts": ["cp1", "cp2"]},
    }
    done, steps = run(verb, tmp_path, {**RESULTS, **there}, *options, mode="Binary", hosts=hosts, grouped=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [(each["step"], each.get("host", each.get("state"))) for each in steps]
    state = {"cordon": "cordoned", "drain": "drained", "uncordon": "uncordoned"}[verb]
    assert told[-4:] == [
        ("member_scheduling", "looked_for"),
        ("host_observe", "cp1"),
        ("host_observe", "cp2"),
        ("member_scheduling", state),
    ]
    assert steps[-1]["selected"] == ["m1"]


@pytest.mark.parametrize("mode", ["Container", "Binary"])
def test_no_host_is_looked_at_for_a_member_where_there_is_a_kubeconfig_or_a_host_cluster(
    mode: str, tmp_path: Path
) -> None:
    there = {
        "member_scheduling": {"changed": True, "left": [], "now": []},
        "member_scheduling looked_for": {"changed": False, "hosts": []},
    }
    chosen = ("-e", '{"karmada_members": ["m1"]}')
    done, steps = run("cordon", tmp_path, {**RESULTS, **there}, *chosen, mode=mode)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = ["looked_for"] if mode == "Binary" else []
    assert [each["state"] for each in given(steps, "member_scheduling")] == [*asked, "cordoned"]
    assert given(steps, "host_observe") == []
