# SPDX-License-Identifier: Apache-2.0
"""Everything that can be known before the first change of a control plane on plain hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.karmada.installer.plugins.plugin_utils import host_access, host_checks
from ansible_collections.karmada.installer.plugins.plugin_utils import render_systemd as render
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.programs import ARCHITECTURES


def unreachable_hosts(run: HostsRun, abandoned: Sequence[str] = ()) -> list[Problem]:
    """Hosts that cannot be looked at, or that another run works on, apart from those given up by name."""
    user = run.spec["ssh"].get("user", "")
    found = {
        name: host_access.problem(observed["refusal"], host=name, address=run.hosts[name].address, user=user)
        for name, observed in run.observed.items()
        if observed.get("refusal") and name not in abandoned
    }
    return [
        replace(problem, remedy=f"{problem.remedy}; or give it up: -e '{_giving_up([*abandoned, name])}'")
        for name, problem in found.items()
    ]


def _giving_up(names: Sequence[str]) -> str:
    return json.dumps({"uninstall_on_hosts_abandon": list(names)})


def problems(run: HostsRun) -> list[Problem]:
    """Everything that is wrong, told at once. Changes nothing."""
    found = host_checks.problems(run.instance, run.observed, run.stored_state)
    seen = [observed.get("facts") for observed in run.observed.values()]
    # Which programs are lacking is known of hosts that could be looked at and for which there are any.
    if not all(facts and facts["architecture"] in ARCHITECTURES for facts in seen):
        return found
    return found + run.program_problems()


def hints(run: HostsRun) -> list[str]:
    """What is no reason to stop and a person wants to know."""
    return [*host_checks.hints(run.instance, run.observed), *_left(run)]


def _left(run: HostsRun) -> list[str]:
    """Hosts that the last document had and this one has not: nobody looks after what runs there."""
    before = run.stored_state.document if run.stored_state else None
    gone = [host for host in (render.all_hosts(before["spec"]) if before else ()) if host.name not in run.hosts]
    return [
        f"host {host.name} ({host.address}) has left the document, and what runs there is left running; the guide to "
        "plain hosts says how to take it away"
        for host in gone
    ]
