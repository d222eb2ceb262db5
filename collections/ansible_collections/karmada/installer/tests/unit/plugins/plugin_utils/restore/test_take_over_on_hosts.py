# SPDX-License-Identifier: Apache-2.0
"""A control plane whose hosts are lost comes to other ones, or to new machines with their names and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import verify
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import Claim, HandOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import means_of_place, take_over
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.take_over import TakingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.restore.test_take_over import (
    BACKUP,
    KEY,
    MEMBERS,
    SIGNER,
    offer_backup,
)
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.restore.test_take_over import THERE as TAKEN
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs, deployment, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document

#: Where it was: on other hosts, and on hosts with the names and addresses that those here have.
OTHERS = [{"name": f"h{number}", "address": f"192.0.2.2{number}"} for number in (1, 2, 3)]
PLACES = [pytest.param(OTHERS, id="other hosts"), pytest.param(HOSTS, id="the same names and addresses")]


def lost(hosts: list[dict[str, Any]]) -> State:
    """State in a backup of a control plane that was on these hosts, and had not been handed over."""
    names = tuple(str(each["name"]) for each in hosts)
    etcd = EtcdState(
        "token-of-the-lost",
        generation=3,
        bootstrapped=True,
        storage="directory",
        nodes=names,
        members=tuple(EtcdMemberState(name, id=f"a{number}") for number, name in enumerate(names)),
        cluster="a",
    )
    known = {str(each["name"]): each for each in hosts}
    return replace(TAKEN, backup_key=KEY, handed_over=None, etcd=etcd, hosts=known, document=deployment(hosts=hosts))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """A run that has looked at bare hosts, for which one backup lies elsewhere, with a private key here."""
    found = Runs(tmp_path / "run")
    found.see_all(seen(Stored()))
    run = found.step(operation="restore")
    offer_backup(monkeypatch, run)
    return found


def adopted(runs: Runs, **asked: Any) -> Run:
    """Run that has judged the backup, and stored its keys."""
    run = runs.step(operation="restore")
    wishes: Mapping[str, Any] = {"keys": ("key",), "signer": SIGNER, "confirm": BACKUP, **asked}
    taking = TakingOver(run, Asked(**wishes), means_of_place.means(run, 1, []))
    taking.judge()
    taking.adopt()
    return run


@pytest.mark.parametrize("hosts", PLACES)
def test_nothing_of_the_lost_hosts_and_of_their_etcd_comes_along(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, hosts: list[dict[str, Any]]
) -> None:
    then = lost(hosts)
    monkeypatch.setattr(verify, "state_of", lambda *_: then)
    adopted(runs, take_over="prod")
    run = runs.step(operation="restore")
    state = run.stored_state
    assert state is not None
    assert (state.owner, state.members, state.claim.epoch) == (then.owner, MEMBERS, then.claim.epoch + 1)
    # No run of this place looks for a host of the lost one, or waits for a member of its etcd.
    assert (dict(state.hosts), list(run.leaving), state.document) == ({}, [], None)
    assert (state.etcd.bootstrapped, state.etcd.members, state.etcd.nodes, state.etcd.generation) == (False, (), (), 1)
    assert state.etcd.token != then.etcd.token
    assert state.taken_over is not None
    assert not state.taken_over.planned
    assert Claim.of(str(state.claim)) > then.claim


@pytest.mark.parametrize("hosts", PLACES)
def test_it_is_not_taken_for_lost_before_somebody_says_so(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, hosts: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(verify, "state_of", lambda *_: lost(hosts))
    with pytest.raises(ProblemsError, match="-e restore_take_over=prod") as refused:
        adopted(runs)
    assert [each.reason for each in refused.value.problems] == [Reason.CONFIRMATION_REQUIRED]
    assert runs.handover.stored is None
    assert runs.step(operation="restore").stored_state is None


# -- an address that hosts of the lost place take again ----------------------------------------------------------------


def virtual(address: str) -> dict[str, Any]:
    return deployment(endpoint={"type": "VirtualIP", "virtualIP": {"address": address}})


def told_of(before: Any, here: Any) -> list[Problem]:
    """Warning of an address that both places have."""
    found = take_over._shared_address(replace(TAKEN, document=before), Spec(here["spec"]))
    return [found] if found else []


def test_a_virtual_ip_that_hosts_of_a_lost_place_would_take_again_is_told() -> None:
    (told,) = told_of(virtual("192.0.2.100"), virtual("192.0.2.100"))
    assert (told.reason, told.severity) == (Reason.ADDRESS_IN_USE, Severity.WARNING)
    assert "192.0.2.100 is the virtual IP of the lost place, too" in told.what
    assert "choose another address here" in told.remedy
    assert told_of(virtual("192.0.2.100"), virtual("192.0.2.101")) == []
    assert told_of(None, virtual("192.0.2.100")) == []
    assert told_of(document(), virtual("192.0.2.100")) == []


@pytest.mark.parametrize("left", [TAKEN.handed_over, None])
def test_it_is_told_before_anything_is_made_and_not_of_a_place_that_was_left(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, left: HandOverState | None
) -> None:
    shared = Problem.warning("both have it", Reason.ADDRESS_IN_USE)
    monkeypatch.setattr(take_over, "_shared_address", lambda *_: shared)
    told: list[Problem] = []
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    monkeypatch.setattr(verify, "state_of", lambda *_: replace(lost(OTHERS), handed_over=left))
    adopted(runs, take_over="prod")
    assert (shared in told) == (left is None)
