# SPDX-License-Identifier: Apache-2.0
"""Everything that can be known before the first change of a control plane on plain hosts."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem


def unreachable_hosts(run: HostsRun, abandoned: Sequence[str] = ()) -> list[Problem]:
    """Hosts that cannot be looked at, or that another run works on, apart from those given up by name."""
    return [
        Problem(observed["refusal"], f"host {name}")
        for name, observed in run.observed.items()
        if observed.get("refusal") and name not in abandoned
    ]


def host_problems(run: HostsRun) -> list[Problem]:
    """Everything that is wrong, told at once. Changes nothing."""
    return unreachable_hosts(run) or run.program_problems()
