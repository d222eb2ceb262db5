# SPDX-License-Identifier: Apache-2.0
"""Where a step of the journal is done, and what each host gets of the installer's state."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import journal
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe_hosts, report
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import Asked
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import NAMES, Runs, remembered, seen


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "run")


def test_a_host_without_an_api_server_loses_the_keys_that_an_earlier_version_gave_it(runs: Runs) -> None:
    whole = Stored(4).after(remembered())
    runs.see_all(seen(whole))
    runs.see(etcd1={"stored": whole.plain})
    run = runs.step()
    (hint,) = host_preflight._with_keys(run)
    assert str(hint).startswith("host etcd1 (192.0.2.3)")
    assert run.begin() is True
    step = Asked(journal.OnHost, runs.step(), "etcd1")
    step.perform(state="written", required=True)
    (sent,) = step.asked
    assert json.loads(sent["content"])["files"] == {}
    assert sent["expected"] == whole.digest
    assert host_preflight._with_keys(runs.step()) == []


@pytest.mark.parametrize(
    ("state", "variables", "delegate_to", "part"),
    [
        ("chosen", {}, None, "OfControlPlane"),
        ("opened", {}, None, "OfControlPlane"),
        ("noted", {}, None, "OfControlPlane"),
        ("closed", {}, None, "OfControlPlane"),
        ("released", {}, None, "OfControlPlane"),
        ("released", {"inventory_hostname": "cp1"}, None, "OnHost"),
        # What a host has made a fact makes no other one a plain host.
        ("released", {"inventory_hostname": "m1", "karmada_host": {"name": "cp1"}}, None, "OfControlPlane"),
        # karmada_control does it for hosts that have left the document.
        ("released", {}, "gone1", "OnHost"),
        ("absent", {}, "gone1", "OnHost"),
        ("written", {"inventory_hostname": "cp1"}, None, "OnHost"),
        ("kept", {"inventory_hostname": "cp1"}, None, "OnHost"),
    ],
)
def test_a_step_is_done_where_the_state_or_the_lock_is(
    state: str, variables: dict[str, Any], delegate_to: str | None, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OfControlPlane", "OnHost"):
        monkeypatch.setattr(getattr(journal, name), "run", lambda _self, _tmp, _vars, name=name: {"part": name})
    task = SimpleNamespace(args={"state": state}, delegate_to=delegate_to)
    action = journal.ActionModule(task, None, None, None, None, None)
    inventory = SimpleNamespace(
        hosts={"cp1": SimpleNamespace(vars={"karmada_host": {}}), "m1": SimpleNamespace(vars={})}
    )
    variables = {**variables, "hostvars": SimpleNamespace(_inventory=inventory)}
    assert action.run(None, variables) == {"part": part}
    assert state in journal.OPTIONS["state"]["choices"]


class Journalled:
    """A run that says what is done of it. Its state is written to where it is kept at once, or by later steps."""

    def __init__(self, *, check: bool = False, later: bool = False) -> None:
        self.check, self.done = check, list[str]()
        self.state = SimpleNamespace(etcd=SimpleNamespace(bootstrapped=False))
        self.hosts: dict[str, Any] = {}
        self.store = SimpleNamespace(later=later, release_lock=lambda: self.done.append("release"))

    def begin(self, *, asked: bool) -> bool:
        return self.store.later or asked

    def finish(self) -> bool:
        self.done.append("finish")
        return True

    def save(self, _state: Any) -> None:
        self.done.append("save")

    def hosts_left(self) -> None:
        self.done.append("hosts_left")

    def etcd_bootstrapped(self) -> None:
        self.done.append("etcd_bootstrapped")


@pytest.mark.parametrize(
    ("state", "check", "due", "done"),
    [
        ("closed", False, True, ["finish", "release"]),
        ("released", False, False, ["release"]),
        ("closed", True, False, []),
        ("released", True, False, []),
        ("chosen", False, False, []),
        ("opened", False, False, []),
    ],
)
def test_in_pods_a_journal_is_closed_and_its_lock_let_go_of(
    state: str, check: bool, due: bool, done: list[str]
) -> None:
    run: Any = Journalled(check=check)
    step = journal.OfControlPlane.__new__(journal.OfControlPlane)
    found = step.perform(run, {"state": state, "event": None, "asked": False})
    assert (found["changed"], found["due"]) == (False, due)
    assert run.done == done


@pytest.mark.parametrize("check", [False, True])
def test_on_hosts_it_is_opened_and_events_are_noted_and_a_check_notes_nothing(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal.former_connections, "ended", lambda run: run.done.append("restarted"))
    monkeypatch.setattr(journal.members_on_hosts, "note", lambda run: run.done.append("members"))
    monkeypatch.setattr(journal.host_preflight, "kept_by_few", lambda _run: {})
    run: Any = Journalled(check=check, later=True)
    step = journal.OfControlPlane.__new__(journal.OfControlPlane)
    assert step.perform(run, {"state": "chosen"}) == {"changed": False, "due": False}
    assert step.perform(run, {"state": "opened", "asked": False})["due"] is True
    for event in journal.EVENTS:
        first = event == "etcd_bootstrapped" and not check
        assert step.perform(run, {"state": "noted", "event": event}) == {"changed": False, "due": first}
    assert run.done == ["save", *([] if check else ["etcd_bootstrapped", "members", "hosts_left", "restarted"])]
    # Whoever knows it already need not have it at once.
    run.state.etcd.bootstrapped = True
    assert step.perform(run, {"state": "noted", "event": "etcd_bootstrapped"})["due"] is False


RUNS = {"program": "/bin/it", "reason": ""}
FAILS = {"program": "", "reason": "it does not answer"}
MEMBER, SERVER = "karmada-prod-etcd.service", "karmada-prod-apiserver.service"


@pytest.mark.parametrize(
    ("changed", "members", "servers"),
    [
        ({}, True, True),
        ({"etcd1": {MEMBER: FAILS}}, False, True),
        ({"cp1": {SERVER: FAILS}}, True, False),
        ({"cp1": {SERVER: None}}, True, False),
        ({"etcd1": {MEMBER: None}}, False, True),
        # Others are no concern of those who ask.
        ({"cp1": {"karmada-prod-scheduler.service": FAILS}}, True, True),
    ],
)
def test_who_opens_the_journal_is_told_what_was_seen_to_answer(
    runs: Runs, changed: dict[str, Any], members: bool, servers: bool
) -> None:
    runs.see_all(seen(Stored(4).after(remembered())))
    for name in NAMES:
        units = {**dict.fromkeys((MEMBER, SERVER), RUNS), **changed.get(name, {})}
        runs.see(**{name: {"units": {unit: each for unit, each in units.items() if each}}})
    found = journal.OfControlPlane.__new__(journal.OfControlPlane).perform(
        runs.step(), {"state": "opened", "asked": False}
    )
    assert (found["members_answer"], found["api_servers_answer"]) == (members, servers)


def written_everywhere(runs: Runs) -> None:
    """What the first step that writes to hosts does, on each of them."""
    runs.step().begin()
    for name in NAMES:
        Asked(journal.OnHost, runs.step(), name).perform(state="written", required=True)


def test_a_host_that_is_let_go_of_gets_what_it_lacks_with_that(runs: Runs) -> None:
    runs.see_all(seen(Stored(4).after(remembered())))

    def released(name: str, *, write: bool = True) -> dict[str, Any]:
        step = Asked(journal.OnHost, runs.step(), name)
        step.perform(state="released", required=False, write=write)
        (sent,) = step.asked
        assert (sent["module"], sent["state"]) == ("_host_state", "released")
        return sent

    assert "content" not in released("cp1"), "it has it"
    run = runs.step()
    run.save(remembered(endpoint_host="another.example.com"))
    assert "content" not in released("cp1", write=False)
    assert json.loads(released("cp1")["content"])["serial"] == 6
    assert "content" not in released("cp1"), "it has it now"


def test_a_host_is_let_go_of_where_no_state_counts(runs: Runs) -> None:
    """That is why the run has ended; nobody else could work on the host until it is taken for dead."""
    runs.see_all(seen(Stored(4).after(remembered())))
    runs.see(cp1={"stored": Stored().plain}, cp2={"stored": Stored().plain})
    with pytest.raises(ProblemsError, match="no host has a copy"):
        _ = runs.step().store.stored
    for required in (True, False):
        step = Asked(journal.OnHost, runs.step(), "etcd1")
        step.perform(state="released", required=required)
        (sent,) = step.asked
        assert (sent["module"], sent["state"]) == ("_host_state", "released")
    with pytest.raises(ProblemsError, match="no host has a copy"):
        Asked(journal.OnHost, runs.step(), "etcd1").perform(state="absent", required=True)


def notes_of(runs: Runs) -> list[str]:
    """What the report of the run has to say of states."""
    run = runs.step()
    return [str(each) for each in (*host_preflight.unlike_others(run), *host_preflight.done_to_states(run))]


def made_up(runs: Runs) -> Stored:
    """A first state that fits the schema, as root of a host can make one up with this collection."""
    return Stored().after(runs.step().place.first_state())


@pytest.mark.parametrize("name", ["etcd1", "etcd2"])
def test_a_host_that_only_stores_chooses_no_key_before_the_first_install(runs: Runs, name: str) -> None:
    runs.see_all(seen(Stored()))
    forged = made_up(runs)
    runs.see(**{name: {"stored": forged.plain}})
    with pytest.raises(ProblemsError, match=f"host {name}: it has a copy of the installer's state") as caught:
        runs.step().begin()
    assert "nothing was changed" in str(caught.value)
    assert host_preflight.unlike_others(runs.step()) == []
    runs.see(**{name: {"stored": Stored().plain}})
    run = runs.step()
    assert run.begin() is True
    assert run.store.stored is not None
    assert run.store.stored.files != forged.files


def test_the_one_host_that_has_a_state_is_followed_and_told_before_and_after(runs: Runs) -> None:
    """One that grows to two, or one of two that was emptied; or a state that somebody has put there."""
    runs.see_all(seen(Stored()))
    before = Stored(4).after(remembered())
    runs.see(cp2={"stored": before.plain})
    said = "host cp2 (192.0.2.2): it has a state of the installer, and cp1, etcd1, etcd2 have none: right if"
    (hint,) = host_preflight.unlike_others(runs.step())
    assert str(hint).startswith(said)
    assert "somebody has put it there" in str(hint)
    step = journal.OfControlPlane.__new__(journal.OfControlPlane)
    for _again in range(2):
        step.perform(runs.step(), {"state": "chosen"})
    assert runs.step().state == before.state()
    written_everywhere(runs)
    (note,) = notes_of(runs)
    assert note.startswith(said)


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param(["cp1", "cp2", "etcd1"], id="most have it"),
        pytest.param([], id="nobody has one"),
        pytest.param(["cp1"], id="the others are out of reach"),
    ],
)
def test_a_state_that_most_hosts_have_that_can_be_seen_is_no_hint(runs: Runs, hosts: list[str]) -> None:
    before = Stored(4).after(remembered())
    for name in NAMES:
        runs.see(**{str(name): {"refusal": "timed out"} if hosts == ["cp1"] else seen(Stored())})
    for name in hosts:
        runs.see(**{name: {**seen(before), "refusal": ""}})
    assert host_preflight.kept_by_few(runs.step()) == {}
    agreed = runs.step().store.agreed
    assert agreed is not None
    assert agreed.serial == (5 if hosts else 0)


def test_a_check_notes_no_state_of_few_hosts(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    runs.see(cp1={"stored": Stored(4).after(remembered()).plain})
    step = journal.OfControlPlane.__new__(journal.OfControlPlane)
    step.perform(runs.step(check=True), {"state": "chosen"})
    assert host_preflight.done_to_states(runs.step()) == []


def test_a_copy_that_no_run_has_left_is_not_said_to_have_the_keys(runs: Runs) -> None:
    whole = Stored().after(remembered())
    runs.see_all(seen(whole))
    runs.see(etcd2={"stored": made_up(runs).plain})
    (hint,) = host_preflight._with_keys(runs.step())
    assert str(hint).startswith("host etcd2 (192.0.2.4) holds a copy of a state of the installer")
    assert "keys" not in str(hint)
    written_everywhere(runs)
    replaced, taken = notes_of(runs)
    assert "which the others do not have" in replaced
    assert taken.endswith("none of this control plane's, and has no API server; this run took it away")


def test_the_report_says_whose_keys_were_taken_away(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Stored(4).after(remembered())
    runs.see_all(seen(whole))
    runs.see(etcd1={"stored": whole.plain})
    assert notes_of(runs) == []
    written_everywhere(runs)
    monkeypatch.setattr(observe_hosts, "control_plane_answers", lambda _run: {})
    written = report.status(observe_hosts.observe_hosts(runs.step()), None)
    (note,) = [each for each in json.dumps(written).split('"') if "keys of all authorities" in each]
    assert "host etcd1 (192.0.2.3): it had the keys" in note
    assert "took them away" in note


def test_a_state_that_only_one_host_has_is_told_before_and_after_it_is_replaced(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Stored(4).after(remembered())
    runs.see_all(seen(before))
    ahead = before.after(remembered(endpoint_host="another.example.com"))
    runs.see(cp2={"stored": ahead.plain})
    (hint,) = host_preflight.unlike_others(runs.step())
    assert str(hint).startswith(
        "host cp2 (192.0.2.2): it has a state of the installer, serial 6, which the others do not"
    )
    monkeypatch.setattr(host_preflight.host_checks, "hints", lambda *_: [])
    assert hint in host_preflight.hints(runs.step())
    written_everywhere(runs)
    (note,) = notes_of(runs)
    assert "host cp2 (192.0.2.2)" in note
    assert "serial 6, which the others do not have" in note


def test_an_old_state_that_somebody_put_back_is_told(runs: Runs) -> None:
    old = Stored(4).after(remembered())
    now = old.after(remembered(endpoint_host="another.example.com"))
    runs.see_all(seen(now))
    runs.see(cp2={"stored": old.plain})
    (hint,) = host_preflight.unlike_others(runs.step())
    assert str(hint).startswith("host cp2 (192.0.2.2): it has an older state of the installer, serial 5")
    assert "serial 6, is written over it" in str(hint)


def test_hosts_that_agree_and_states_that_do_not_fit_are_no_hint(runs: Runs) -> None:
    runs.see_all(seen(Stored(4).after(remembered())))
    assert host_preflight.unlike_others(runs.step()) == []
    written_everywhere(runs)
    assert notes_of(runs) == []
    runs.see(cp2={"stored": Stored(99).after(remembered(endpoint_host="x.example.com")).plain})
    runs.handover._folder.joinpath("state.json").unlink()
    assert host_preflight.unlike_others(runs.step()) == []
