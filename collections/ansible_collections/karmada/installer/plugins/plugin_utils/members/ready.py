# SPDX-License-Identifier: Apache-2.0
"""Members found Ready by their control plane, which is what joined means."""

from __future__ import annotations

from collections.abc import Sequence

from ..components.spec import MemberEntry
from ..components.table import KARMADA_CONTROLLER_MANAGER
from ..kube.errors import ApiError
from ..kube.objects import Ref
from ..kube.wait import NotReady, wait_until
from ..problems import ProblemsError
from ..run.run import Run
from . import agent, agent_join, registration
from .join import Outcome, connected, of_each


def wait_ready(run: Run, entries: Sequence[MemberEntry], timeout: float) -> list[Outcome]:
    """Wait until the control plane itself finds all these members Ready, which is what joined means.

    If an agent does not get there, its status and logs on the member tell why.
    """

    def runs(entry: MemberEntry, outcome: Outcome) -> None:
        if problems := run.place.agent_problems(entry):
            raise ProblemsError(problems)
        if not entry.agent_hosts:
            with connected(run, entry) as member:
                outcome.on_member += agent_join.start_at_once(run, entry.name, member)
                agent_join.wait(run, member, timeout)

    outcomes = {entry.name: Outcome(entry.name) for entry in entries}
    pulling = [entry for entry in entries if entry.pulls]
    outcomes.update((each.name, each) for each in of_each(pulling, runs, run.trace))
    sound = [name for name, outcome in outcomes.items() if not outcome.problem]
    targets = {Ref(registration.CLUSTER_API, "Cluster", name, None): name for name in sound}
    try:
        looks = run.servers(KARMADA_CONTROLLER_MANAGER.name)  # at members in mode Push; agents were seen to run
        served_by = {ref: looks for ref, name in targets.items() if name not in {each.name for each in pulling}}
        wait_until(run.control_plane, targets, timeout=timeout, progress=run.say, served_by=served_by)
    except NotReady as error:
        on_hosts = {entry.name: entry for entry in entries if entry.agent_hosts}
        for ref in (ref for ref in targets if ref in error.reasons):
            outcome = outcomes[targets[ref]]
            outcome.fail(error.about(ref, served_by.get(ref)))
            outcome.unready = True
            if outcome.name in on_hosts:
                log = agent.log_of(run.instance, on_hosts[outcome.name])
                outcome.next_step = f"see what its agent says ({log}), then run again"
    except ApiError as error:
        for name in sound:
            outcomes[name].fail(error)
    return list(outcomes.values())
