# SPDX-License-Identifier: Apache-2.0
"""Histories of an etcd whose members change while disks are lost, networks are cut, runs are killed, and people meddle.

``ETCD_HISTORIES`` says how many of them are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import plan_types as steps
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.plan import next_step
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.plan_types import Refusal
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.tests.unit.support.etcd_in_memory import EtcdInMemory
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

HISTORIES = int(os.environ.get("ETCD_HISTORIES", "300"))
#: No way between two numbers of members is longer, waiting for a learner included.
ENOUGH = 600
SIZES = st.sampled_from([1, 3, 5, 7])


def names(count: int) -> list[str]:
    return [f"prod-etcd-{ordinal}" for ordinal in range(count)]


def in_flight(etcd: EtcdInMemory) -> int:
    deciding = {each.name for each in etcd.known.values() if not each.id}
    leaving = {each.name for each in etcd.known.values() if each.leaving}
    learning = {etcd.name_of(each.id) for each in etcd.members.values() if each.learner}
    return len(deciding | leaving | learning)


def one_step(etcd: EtcdInMemory, wanted: Sequence[str], replace: Sequence[str] = ()) -> steps.Step | Refusal | None:
    """Ask for a step and do it, and see that no step costs what it must not cost."""
    etcd.wanted = tuple(wanted)
    step = next_step(etcd.seen(), wanted, replace)
    if step is None or isinstance(step, Refusal):
        return step
    had_majority, leader = etcd.has_majority(), etcd.leader()
    served = bool(etcd.serving_clients())
    etcd.do(step)
    assert etcd.has_majority() or not had_majority, step
    # What a stranger has begun is there, too, while a run waits.
    assert in_flight(etcd) <= 1 or isinstance(step, steps.Wait), step
    if isinstance(step, steps.Remove):
        assert step.id != leader, "who leads was removed"
    assert etcd.serving_clients() or not served, f"clients know only members that are gone: {step}"
    return step


def to_its_end(etcd: EtcdInMemory, wanted: Sequence[str], replace: Sequence[str] = ()) -> Refusal | steps.Wait | None:
    """Take all steps; returns a refusal, or a wait for a majority, which a run ends when its time is over."""
    for _ in range(ENOUGH):
        step = one_step(etcd, wanted, replace)
        if step is None or isinstance(step, Refusal):
            return step
        if isinstance(step, steps.Wait) and not etcd.has_majority():
            return step
    raise AssertionError(f"no end after {ENOUGH} steps; the last one was {step}")


@given(ways=st.lists(SIZES, min_size=2, max_size=6))
@settings(max_examples=max(HISTORIES // 10, 30), deadline=None)
def test_members_grow_and_shrink_to_any_number(ways: list[int]) -> None:
    etcd = EtcdInMemory.of(names(ways[0]))
    for count in ways[1:]:
        while step := one_step(etcd, names(count)):
            assert isinstance(step, steps.Step), step
            if isinstance(step, steps.Remove):
                assert step.name not in etcd.clients
        etcd.clients = frozenset(names(count))  # the control plane's own steps follow
        assert sorted(etcd.known) == sorted(names(count))
        assert sorted(each.name for each in etcd.voters()) == sorted(names(count))
        assert etcd.healthy_voters() == count


SIZE = st.tuples(st.just("size"), SIZES)
FEW_STEPS = st.tuples(st.just("steps"), st.integers(1, 4))
REPLACE = st.tuples(st.just("replace"), st.integers(0, 27))
LOSE_DISK = st.tuples(st.just("lose disk"), st.integers(0, 6))
EVENTS = st.one_of(
    st.tuples(st.just("steps"), st.integers(1, 12)),
    FEW_STEPS,
    REPLACE,
    st.tuples(st.just("leads"), st.integers(0, 6)),
    SIZE,
    LOSE_DISK,
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("mend"), st.integers(0, 6)),
    st.tuples(st.just("write"), st.integers(1, 60_000)),
    st.tuples(st.just("stranger"), st.integers(0, 1)),
    st.tuples(st.just("meddler removes"), st.integers(0, 6)),
    st.tuples(st.just("full"), st.integers(0, 1)),
)
#: A run is killed after its first steps, and a disk is lost.
UNLUCKY = st.one_of(st.tuples(REPLACE, LOSE_DISK), st.tuples(SIZE, FEW_STEPS, LOSE_DISK))


def history(some: list[tuple[str, int]], last: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [*some, *last]


def happens(etcd: EtcdInMemory, event: str, number: int, wanted: Sequence[str]) -> None:
    """One event of a history; ``number`` is how often it happens, or to which member, or both."""
    often, ordinal = (number // 7 + 1, number % 7) if event == "replace" else (number, number)
    name = f"prod-etcd-{ordinal}"
    match event:
        case "steps" | "replace":  # a run that is killed after some steps
            replace = [each.id for each in etcd.voters() if each.name == name] if event == "replace" else []
            for _ in range(often):
                if not isinstance(one_step(etcd, wanted, replace), steps.Step):
                    break
        case "full":
            etcd.full = bool(number)
        case "write":
            etcd.write(number)
        case "stranger":
            etcd.add_stranger("stranger" * number)
        case "mend":
            etcd.cut(name, off=False)
        case _:
            {
                "leads": etcd.choose_leader,
                "lose disk": etcd.lose_disk,
                "cut": etcd.cut,
                "meddler removes": etcd.remove_by_others,
            }[event](name)


@example(  # A member is to go, and two others fall silent.
    start=5, events=[("size", 3), ("steps", 2), ("cut", 0), ("cut", 1), ("steps", 3), ("mend", 0), ("mend", 1)]
)
@example(  # A member is to go, and becomes the leader.
    start=3, events=[("size", 1), ("steps", 2), ("leads", 2), ("steps", 3)]
)
@example(  # A member is to go, clients have followed, and the one that stays loses its disk.
    start=5, events=[("size", 1), ("steps", 2), ("lose disk", 0), ("steps", 3)]
)
@example(  # The one that is to stay alone is to be replaced.
    start=3, events=[("size", 1), ("replace", 0)]
)
@example(  # The same, where that was begun before only it was to stay.
    start=3, events=[("replace", 0), ("size", 1)]
)
@example(  # It is full, and a disk is lost.
    start=3, events=[("full", 1), ("lose disk", 1), ("steps", 3)]
)
@example(  # A member is to be replaced, and another one loses its disk.
    start=3, events=[("replace", 0), ("lose disk", 1), ("steps", 1)]
)
@example(  # A member is to go, and one of those that stay loses its disk.
    start=3, events=[("size", 1), ("steps", 2), ("lose disk", 1)]
)
@example(  # A member is decided on, and another one loses its disk.
    start=3, events=[("size", 5), ("steps", 1), ("lose disk", 0)]
)
@example(  # Another one is to come in place of a member, and a second one loses its disk.
    start=5, events=[("lose disk", 4), ("steps", 4), ("lose disk", 1)]
)
@given(
    start=SIZES,
    events=st.one_of(
        st.lists(EVENTS, min_size=3, max_size=25), st.builds(history, st.lists(EVENTS, max_size=3), UNLUCKY)
    ),
)
@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_history_leads_below_a_majority_and_each_comes_to_an_end(start: int, events: list[tuple[str, int]]) -> None:
    etcd, wanted = EtcdInMemory.of(names(start)), names(start)
    for event, number in events:
        if event == "size":
            wanted = names(number)
        else:
            happens(etcd, event, number, wanted)
    # In the end the networks work again, and the stranger is removed, as the refusal asks for.
    for process in etcd.processes.values():
        process.cut = False
    etcd.members.pop("bad", None)
    had_majority = etcd.has_majority()
    # Asked for are those that somebody has removed, as the refusal says.
    gone = [each.id for each in etcd.known.values() if each.id and each.id not in etcd.members]
    end = to_its_end(etcd, wanted, gone)
    assert etcd.has_majority() == had_majority
    if not had_majority:
        assert isinstance(end, steps.Wait) or (end is not None and end.reason is Reason.ETCD_MAJORITY_LOST)
        return
    if end is not None:
        # Only disks are lost, so all else has an end. Of those that are to stay none works: as the refusal says, the
        # members of before are asked for again, and fewer after that.
        assert isinstance(end, Refusal)
        assert "clients of etcd would be left with" in end.what
        assert to_its_end(etcd, names(7)) is None
        assert to_its_end(etcd, wanted) is None
    assert sorted(each.name for each in etcd.voters()) == sorted(wanted)
    assert etcd.healthy_voters() == len(wanted)
    assert not in_flight(etcd)


def test_members_that_are_only_stopped_are_waited_for_and_lost_data_is_told() -> None:
    etcd = EtcdInMemory.of(names(3))
    for name in names(3):
        etcd.cut(name)
    assert isinstance(one_step(etcd, names(3)), steps.Wait)
    etcd.lose_disk("prod-etcd-1")
    assert isinstance(one_step(etcd, names(3)), steps.Wait)
    etcd.lose_disk("prod-etcd-2")
    refused = one_step(etcd, names(3))
    assert isinstance(refused, Refusal)
    assert "prod-etcd-2" in refused.what


@pytest.mark.parametrize("count", [3, 5])
def test_a_lost_member_of_a_full_etcd_is_replaced(count: int) -> None:
    etcd = EtcdInMemory.of(names(count))
    etcd.full = True
    etcd.lose_disk("prod-etcd-1")
    assert to_its_end(etcd, names(count)) is None
    assert etcd.healthy_voters() == len(etcd.members) == count
    assert etcd.full, "that is for somebody else to mend"


def test_a_full_etcd_is_no_reason_to_give_its_majority_away() -> None:
    etcd = EtcdInMemory.of(names(3))
    etcd.full = True
    etcd.cut("prod-etcd-2")
    (asked,) = (each.id for each in etcd.voters() if each.name == "prod-etcd-1")
    refused = one_step(etcd, names(3), [asked])
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.where) == (Reason.ETCD_MAJORITY_AT_RISK, "etcd member prod-etcd-2")


def test_a_member_that_works_is_forgotten_by_clients_before_it_is_replaced() -> None:
    etcd = EtcdInMemory.of(names(3))
    (identity,) = (each.id for each in etcd.voters() if each.name == "prod-etcd-1")
    taken = []
    while (step := one_step(etcd, names(3), [identity])) and not isinstance(step, Refusal):
        taken.append(type(step))
        if isinstance(step, steps.Remove):
            assert "prod-etcd-1" not in etcd.clients
            break
    assert taken[-1] is steps.Remove


@pytest.mark.parametrize("begun", [True, False], ids=["one is going", "nothing is begun"])
def test_no_member_goes_while_the_only_one_that_clients_have_falls_silent(begun: bool) -> None:
    etcd = EtcdInMemory.of(names(5))
    while not any(each.leaving for each in etcd.known.values()) and begun:
        one_step(etcd, names(1))
    etcd.cut("prod-etcd-0")
    refused = to_its_end(etcd, names(1))
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.where) == (Reason.ETCD_MAJORITY_AT_RISK, "etcd member prod-etcd-0")
    assert len(etcd.members) == 5
    if begun:
        assert "prod-etcd-4 is to go, and clients of etcd would be left with prod-etcd-0" in refused.what
        # As it says: with the former number clients connect to the others, and serve again.
        to_its_end(etcd, names(5))
        assert etcd.serving_clients()


def test_the_one_that_is_to_stay_alone_is_not_replaced_before_others_have_gone() -> None:
    etcd = EtcdInMemory.of(names(3))
    refused = one_step(etcd, names(1), [each.id for each in etcd.voters() if each.name == "prod-etcd-0"])
    assert isinstance(refused, Refusal)
    assert "clients of etcd would be left with no member" in refused.what
    assert not any(each.leaving for each in etcd.known.values())


def id_of(etcd: EtcdInMemory, name: str) -> str:
    return next(each.id for each in etcd.voters() if each.name == name)


@pytest.mark.parametrize("proven", [True, False], ids=["its disk is another one", "nothing proves it"])
@pytest.mark.parametrize("again", [True, False], ids=["asked for again", "not any more"])
def test_a_member_that_was_to_go_stays_where_another_one_has_lost_its_data(proven: bool, again: bool) -> None:
    etcd = EtcdInMemory.of(names(3))
    first, second = id_of(etcd, "prod-etcd-0"), id_of(etcd, "prod-etcd-1")
    assert isinstance(one_step(etcd, names(3), [first]), steps.Leave)
    etcd.cut("prod-etcd-1")
    refused = to_its_end(etcd, names(3), [first])
    assert isinstance(refused, Refusal)
    assert etcd.known["prod-etcd-0"].leaving, "one that is only silent may come back"
    assert """-e '{"etcd_replace": ["prod-etcd-1"]}'""" in refused.remedy
    if proven:
        etcd.lose_disk("prod-etcd-1")
    asked = [*([] if proven else [second]), *([first] if again else [])]
    assert one_step(etcd, names(3), asked) == steps.Stay("prod-etcd-0")
    assert etcd.known["prod-etcd-0"] == steps.Known("prod-etcd-0", first)
    assert to_its_end(etcd, names(3), asked) is None
    assert {first, second} & set(etcd.members) == (set() if again else {first})
    assert etcd.healthy_voters() == len(etcd.members) == 3


@pytest.mark.parametrize("proven", [True, False], ids=["its disk is another one", "nothing proves it"])
def test_a_decision_to_add_one_is_taken_back_where_a_member_has_lost_its_data(proven: bool) -> None:
    etcd = EtcdInMemory.of(names(3))
    assert isinstance(one_step(etcd, names(5)), steps.Decide)
    etcd.cut("prod-etcd-1")
    refused = one_step(etcd, names(5))
    assert isinstance(refused, Refusal)
    assert refused.where == "etcd member prod-etcd-1"
    asked = [] if proven else [id_of(etcd, "prod-etcd-1")]
    if proven:
        etcd.lose_disk("prod-etcd-1")
    assert one_step(etcd, names(5), asked) == steps.Stop("prod-etcd-3")
    assert to_its_end(etcd, names(5), asked) is None
    assert etcd.healthy_voters() == len(etcd.members) == 5


def test_members_that_work_are_replaced_one_after_the_other() -> None:
    etcd = EtcdInMemory.of(names(3))
    asked = list(etcd.members)
    while step := one_step(etcd, names(3), asked):
        assert isinstance(step, steps.Step)
        assert len(etcd.voters()) >= 2, "one comes before the next one goes"
    assert not set(asked) & set(etcd.members)
    assert etcd.healthy_voters() == 3


def test_the_model_itself_loses_its_majority_where_a_step_is_wrong() -> None:
    etcd = EtcdInMemory.of(names(3))
    etcd.cut("prod-etcd-1")
    etcd.cut("prod-etcd-2")
    assert not etcd.has_majority()
    assert etcd.seen().members is None
