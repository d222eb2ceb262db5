# SPDX-License-Identifier: Apache-2.0
"""A run on hosts that did not come to its end says of each host what is done there and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.hosts import Host
from ansible_collections.karmada.installer.plugins.plugin_utils.report.host_outcome import Reached, problems
from ansible_collections.karmada.installer.tests.unit.support import observations

HOSTS = {name: Host(name, f"192.0.2.1{number}", ("etcd",)) for number, name in enumerate(("cp1", "cp2", "cp3"))}
SILENT = "Failed to connect to the host via ssh: Timeout, server 192.0.2.11 not responding."


def told(observed: dict[str, dict[str, Any]], reached: Reached) -> list[str]:
    known = observations.observed({name: observed.get(name, {}) for name in HOSTS})
    return [str(problem) for problem in problems(HOSTS, known, reached)]


def test_a_run_that_came_to_its_end_or_was_refused_leaves_nothing_to_say() -> None:
    done = {name: {"done": "Wait until everything answers"} for name in HOSTS}
    assert told(done, Reached.END) == []
    assert told({"cp1": {}, "cp2": {"refusal": "Connection refused"}}, Reached.NO_CHANGE) == []


def test_a_host_that_is_lost_is_named_with_its_step_and_the_others_with_theirs() -> None:
    observed = {
        "cp1": {"done": "Send the programs"},
        "cp2": {"done": "Send the programs", "lost": {"step": "Start etcd", "reason": SILENT}},
        "cp3": {"done": "Send the programs", "stopped": "Start etcd"},
    }
    first, second, third = told(observed, Reached.PART)
    assert first == 'host cp1 (192.0.2.10): done up to "Send the programs"'
    assert second.startswith('host cp2 (192.0.2.11): done up to "Send the programs"; it was lost in "Start etcd"')
    assert "it does not answer at its address. See that it is switched on" in second
    assert third.startswith('host cp3 (192.0.2.12): done up to "Send the programs"; it failed in "Start etcd"')


def test_a_host_that_is_lost_when_its_step_is_done_is_said_to_have_done_it() -> None:
    observed = {"cp2": {"done": "Send the programs", "lost": {"step": "Send the programs", "reason": SILENT}}}
    _first, second, _third = told(observed, Reached.PART)
    assert 'done up to "Send the programs"; it was lost at the end of that: it does not answer' in second


def test_a_host_that_nothing_was_done_on_is_said_to_be_untouched() -> None:
    observed = {"cp1": {"done": "Send the programs"}, "cp2": {"lost": {"step": "Note", "reason": SILENT}}}
    assert [text.split(": ")[1].split(";")[0] for text in told(observed, Reached.PART)] == [
        'done up to "Send the programs"',
        "nothing was changed there",
        "nothing was changed there",
    ]


@pytest.mark.parametrize("reached", [Reached.NO_CHANGE, Reached.END])
def test_a_host_that_is_lost_before_the_first_change_or_after_the_last_is_named_alone(reached: Reached) -> None:
    observed = {"cp1": {}, "cp2": {"lost": {"step": "Compare", "reason": SILENT}}}
    assert [text.split(":")[0] for text in told(observed, reached)] == ["host cp2 (192.0.2.11)"]
