# SPDX-License-Identifier: Apache-2.0
"""Preflight of plain hosts brings together what is wrong with hosts and which programs cannot be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import host_preflight
from ansible_collections.karmada.installer.plugins.plugin_utils import render_systemd as render
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.tests.unit import test_host_checks as checks

NO_PROGRAM = Problem("no release downloads exist", "spec.artifacts.source", "use Image")
REFUSED = {"refusal": "ssh: connect to host 192.0.2.2 port 22: Connection refused"}


def run(observed: dict[str, Any]) -> Any:
    of = checks.instance()
    return SimpleNamespace(
        instance=of,
        spec=of.spec,
        hosts={host.name: host for host in render.all_hosts(of.spec)},
        observed=observed,
        stored_state=None,
        program_problems=lambda: [NO_PROGRAM],
    )


def test_hosts_and_programs_are_told_of_together() -> None:
    observed = checks.three()
    checks.put(systemd=200)(observed)
    first, second = host_preflight.problems(run(observed))
    assert "systemd is version 200" in first.what
    assert second == NO_PROGRAM


def test_programs_are_asked_for_when_it_is_known_which_are_lacking() -> None:
    (problem,) = host_preflight.problems(run({**checks.three(), "host2": REFUSED}))
    assert problem.where == "host host2 (192.0.2.2)"
    observed = checks.three()
    checks.put(architecture="mips")(observed)
    (problem,) = host_preflight.problems(run(observed))
    assert "its architecture is mips" in problem.what


def test_a_host_that_was_given_up_by_name_may_be_away() -> None:
    of = run({**checks.three(), "host2": REFUSED})
    assert [problem.where for problem in host_preflight.unreachable_hosts(of)] == ["host host2 (192.0.2.2)"]
    assert host_preflight.unreachable_hosts(of, ["host2"]) == []


def test_hints_come_along() -> None:
    observed = checks.three()
    checks.put(selinux_enforcing=True)(observed)
    (hint,) = host_preflight.hints(run(observed))
    assert "SELinux" in hint


def test_a_host_that_left_the_document_is_told_of() -> None:
    of = run(checks.three())
    former = {"name": "host4", "address": "192.0.2.4", "roles": ["controlPlane"]}
    of.stored_state = SimpleNamespace(document={"spec": {"hosts": [*of.spec["hosts"], former]}})
    (hint,) = host_preflight.hints(of)
    assert "host4 (192.0.2.4) has left the document" in hint


def test_an_uninstall_says_how_a_lost_host_is_given_up() -> None:
    (problem,) = host_preflight.unreachable_hosts(run({**checks.three(), "host2": REFUSED}))
    assert problem.remedy.endswith("""-e '{"uninstall_on_hosts_abandon": ["host2"]}'""")
