# SPDX-License-Identifier: Apache-2.0
"""Members that a query of JMESPath chooses, and the run that works on these alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support.playbook_runs import RESULTS, given, run

MEMBERS = [
    {"name": "m1", "secretRef": {"name": "m1"}, "region": "eu", "labels": {"tier": "prod"}},
    {"name": "m2", "secretRef": {"name": "m2"}, "region": "us", "labels": {"tier": "prod"}},
    {"name": "m3", "secretRef": {"name": "m3"}, "region": "eu"},
]
ON_HOSTS = {
    "mode": "Binary",
    "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
    "endpoint": {"type": "External", "host": "karmada.example.com"},
    "ssh": {"user": "karmada"},
}


def source(tmp_path: Path, query: str, **spec: Any) -> dict[str, Any]:
    """Source of an inventory whose members a query chooses among three."""
    document = {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "KarmadaDeployment",
        "metadata": {"name": "prod", "namespace": "karmada"},
        "spec": {**spec, "members": MEMBERS},
    }
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return {"manifest": "prod.yaml", "members_query": query}


@pytest.mark.parametrize(
    ("query", "options", "chosen"),
    [
        ("[?member.region == 'eu' && member.labels.tier == 'prod']", ["--limit", "karmada_members"], ["m1"]),
        ("[?member.region == 'eu'].name", ["--limit", "karmada_members"], ["m1", "m3"]),
        ("[?member.region == 'eu']", ["--limit", "karmada_members:!m3"], ["m1"]),
        # Without a limit the query is about the inventory alone.
        ("[?member.region == 'eu']", [], []),
        ("[?member.region == 'eu']", ["-e", "karmada_members=m2"], ["m2"]),
    ],
)
def test_a_limit_to_all_members_works_on_those_that_the_query_chose(
    query: str, options: list[str], chosen: list[str], tmp_path: Path
) -> None:
    done, steps = run("members", tmp_path, RESULTS, *options, source=source(tmp_path, query))
    (joining,) = given(steps, "member_join")
    assert joining["selected"] == chosen, done.stdout + done.stderr
    assert {tuple(each["selected"]) for each in given(steps, "member_leave")} == {tuple(chosen)}


@pytest.mark.parametrize("playbook", ["members", "drain"])
def test_a_query_that_chose_nobody_lets_no_run_begin(playbook: str, tmp_path: Path) -> None:
    nobody = source(tmp_path, "[?member.region == 'mars']")
    done, steps = run(playbook, tmp_path, RESULTS, "--limit", "karmada_members", source=nobody)
    assert done.returncode != 0
    assert "leaves us with no hosts to target" in done.stderr
    assert steps == []


@pytest.mark.parametrize("spec", [{}, ON_HOSTS], ids=["in pods", "on hosts"])
def test_those_that_the_query_chose_are_drained_in_both_modes(spec: dict[str, Any], tmp_path: Path) -> None:
    results = {"member_scheduling": {"changed": False, "left": []}}
    chosen = source(tmp_path, "[?member.region == 'eu']", **spec)
    done, steps = run("drain", tmp_path, results, "--limit", "karmada_members", source=chosen)
    # On hosts a first step tells whether they have to be asked for the way to the control plane.
    assert {tuple(each["selected"]) for each in given(steps, "member_scheduling")} == {("m1", "m3")}, done.stdout
