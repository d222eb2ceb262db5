# SPDX-License-Identifier: Apache-2.0
"""Which state counts when hosts differ: what a killed run leaves goes on, what one host says alone does not win."""

from __future__ import annotations

import base64
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import (
    LINEAGE,
    Kept,
    Stored,
    choose,
    kept_by,
)
from ansible_collections.karmada.installer.tests.unit.support.observations import observed
from ansible_collections.karmada.installer.tests.unit.support.samples import state
from hypothesis import given, settings
from hypothesis import strategies as st

Object = dict[str, Any]


def line(length: int) -> list[Stored]:
    """States as one run after another writes them."""
    states = [Stored()]
    for number in range(length):
        states.append(states[-1].after(state(endpoint_host=f"step{number}")))
    return states[1:]


FIRST, SECOND, THIRD, FOURTH = line(4)


def keeper(now: Stored, before: Stored | None = None) -> Object:
    """What a host answers that has a copy of this, and one of that before it."""
    before = before or Stored()
    return {"stored": {**now.plain, "previous": {"serial": before.serial, "files": dict(before.files or {})}}}


def witness(now: Stored) -> Object:
    """What a host answers that only knows which one it is."""
    return {"stored": now.without_files}


def chosen(hosts: dict[str, Object]) -> Stored:
    return choose(kept_by(observed(hosts)), "prod")


def forged(serial: int, lineage: tuple[str, ...] = ()) -> Stored:
    """What root of a host makes up."""
    files = {"instance.json": base64.b64encode(b"{}").decode()}
    return Stored(serial, files, lineage)


def earlier_version(stored: Stored) -> Object:
    """What is on a host that an earlier version of this collection has written to last."""
    return {"stored": {"serial": stored.serial, "files": dict(stored.files or {})}}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        pytest.param([{}, {"stored": None}, {"stored": {"serial": 0, "files": {}}}], Stored(), id="nothing anywhere"),
        pytest.param([{}, witness(FIRST), witness(FIRST)], Stored(), id="killed while the first was on its way"),
        pytest.param([keeper(FIRST), keeper(forged(1))], Stored(), id="killed while the first was on its way, twice"),
        pytest.param([keeper(FIRST), keeper(FIRST), witness(forged(1))], FIRST, id="killed before the first of all"),
        pytest.param([keeper(THIRD), {}, {"stored": {"serial": 0, "files": {}}}], THIRD, id="new hosts"),
        pytest.param([keeper(THIRD), keeper(THIRD), keeper(THIRD)], THIRD, id="all alike"),
        pytest.param([keeper(THIRD, SECOND), keeper(SECOND), keeper(SECOND)], SECOND, id="killed after one of three"),
        pytest.param([keeper(THIRD, SECOND), keeper(THIRD), keeper(SECOND)], THIRD, id="killed after two of three"),
        pytest.param([keeper(THIRD, SECOND), keeper(SECOND)], SECOND, id="killed after one of two"),
        pytest.param(
            [keeper(THIRD, SECOND), keeper(forged(3, THIRD.lineage))], SECOND, id="one of two has another last step"
        ),
        pytest.param([keeper(THIRD, SECOND), *[witness(SECOND)] * 3], SECOND, id="killed, the only copy is ahead"),
        pytest.param([keeper(SECOND), *[witness(THIRD)] * 3], SECOND, id="killed, the only copy is behind"),
        pytest.param([keeper(FIRST), keeper(THIRD), keeper(THIRD)], THIRD, id="one was away"),
        pytest.param(
            [witness(SECOND.after(state(endpoint_host="abandoned"))), keeper(THIRD), keeper(THIRD)],
            THIRD,
            id="killed after one, and again after all but that one",
        ),
        pytest.param([keeper(FIRST), witness(THIRD), keeper(THIRD)], THIRD, id="one was away, one only knows which"),
        pytest.param([earlier_version(THIRD)] * 3, Stored(THIRD.serial, THIRD.files), id="of an earlier version"),
        pytest.param(
            [earlier_version(FIRST), earlier_version(THIRD), earlier_version(THIRD)],
            Stored(THIRD.serial, THIRD.files),
            id="of an earlier version, one was away",
        ),
    ],
)
def test_what_more_than_half_of_the_hosts_have_is_gone_on_with(hosts: list[Object], expected: Stored) -> None:
    found = chosen({f"h{number}": each for number, each in enumerate(hosts)})
    assert (found.serial, found.files or {}) == (expected.serial, expected.files or {})


LIES = [
    pytest.param(keeper(forged(99)), id="a serial far ahead"),
    pytest.param(keeper(forged(SECOND.serial)), id="the serial of the others"),
    pytest.param(keeper(forged(SECOND.serial + 1)), id="the next serial"),
    pytest.param({"stored": {**forged(99).plain, "digest": SECOND.digest}}, id="under the name of the others' state"),
    pytest.param({"stored": {**forged(99).without_files}}, id="knows of a state that nobody has"),
    pytest.param(earlier_version(forged(99)), id="in the form of an earlier version"),
]


@pytest.mark.parametrize(
    "lie", [*LIES, pytest.param(keeper(forged(99, (SECOND.digest,)), SECOND), id="after the state of the others")]
)
def test_a_host_that_lies_does_not_win_and_is_named(lie: Object) -> None:
    with pytest.raises(ProblemsError) as caught:
        chosen({"good1": keeper(SECOND), "evil": lie, "good2": keeper(SECOND)})
    (problem,) = caught.value.problems
    assert problem.where == "host evil"
    assert f"they have {SECOND.serial}" in problem.what
    assert "remove /var/lib/karmada-installer/prod there" in problem.remedy


@pytest.mark.parametrize("lie", LIES)
def test_of_two_hosts_that_differ_neither_wins(lie: Object) -> None:
    with pytest.raises(ProblemsError, match=r"no more than half agree on any \(.*evil: serial") as caught:
        chosen({"good": keeper(SECOND), "evil": lie})
    assert "good: serial 2" in str(caught.value)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(keeper(forged(3, (SECOND.digest,)), SECOND), id="as the next step"),
        pytest.param(
            keeper(forged(3, (SECOND.digest,)), forged(SECOND.serial)), id="with another copy of the last one"
        ),
    ],
)
@pytest.mark.parametrize("others", [1, 2, 4])
def test_what_looks_like_an_unfinished_step_is_not_gone_on_with(lie: Object, others: int) -> None:
    found = chosen({"evil": lie, **{f"good{number}": keeper(SECOND) for number in range(others)}})
    assert found.digest == SECOND.digest
    assert found.files == SECOND.files


def test_two_hosts_of_three_that_tell_one_lie_decide_but_only_within_the_schema() -> None:
    """As the guide says of a majority; the third is no stranger to a state that has no line."""
    lie = forged(9)
    found = chosen(dict(zip("abc", [keeper(lie), keeper(lie), keeper(THIRD, SECOND)], strict=True)))
    assert found.digest == lie.digest
    with pytest.raises(ProblemsError, match="of the hosts"):
        found.state()


def test_two_hosts_of_three_that_tell_two_lies_decide_nothing_and_all_are_named() -> None:
    other = Stored(8, {"instance.json": base64.b64encode(b"[]").decode()})
    with pytest.raises(ProblemsError, match=r"a: serial 9") as error:
        chosen(dict(zip("abc", [keeper(forged(9)), keeper(other), keeper(THIRD, SECOND)], strict=True)))
    assert all(f"{name}: serial" in str(error.value) for name in "abc")


def test_a_copy_that_was_restored_on_one_of_two_hosts_is_for_a_person_to_judge() -> None:
    """Which of them is right cannot be told from an old state that a host pretends is the last one."""
    with pytest.raises(ProblemsError, match="h1: serial 1; h2: serial 4"):
        chosen({"h1": keeper(FIRST), "h2": keeper(FOURTH, THIRD)})


def test_a_state_of_which_nobody_has_a_copy_any_more_is_not_replaced_by_an_older_one() -> None:
    with pytest.raises(ProblemsError, match="no more than half agree on any"):
        chosen({"cp1": keeper(FIRST), "etcd1": witness(FOURTH), "etcd2": witness(FOURTH)})


def test_the_line_of_a_state_does_not_grow_for_ever() -> None:
    states = line(LINEAGE + 5)
    assert len(states[-1].lineage) == LINEAGE
    assert states[-1].lineage[0] == states[-2].digest


def test_what_no_host_has_got_is_no_part_of_the_line() -> None:
    only_here = FIRST.after(state(endpoint_host="x"))
    found = only_here.after(state(endpoint_host="y"), on_hosts=False)
    assert (found.serial, found.lineage) == (2, (FIRST.digest,))


# -- any run, killed anywhere, on real folders ------------------------------------------------------------------------

ROLES = st.lists(st.booleans(), min_size=1, max_size=5).filter(any)
#: Each write: to how many of the hosts it gets before the run is killed (None: to all of them), and in which order.
WRITES = st.lists(st.tuples(st.none() | st.integers(0, 4), st.randoms(use_true_random=False)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(ROLES, WRITES)
def test_a_run_killed_at_any_write_is_followed_by_one_that_finds_all_that_was_acted_upon(
    keeps: list[bool], writes: list[tuple[int | None, Any]]
) -> None:
    """``keeps``: which hosts keep a copy. What all hosts had got may have been acted upon and must not be forgotten."""
    with TemporaryDirectory() as folder:
        hosts = {f"h{number}": System(str(Path(folder, f"h{number}"))) for number in range(len(keeps))}
        acted_upon = Stored()
        for number, (reached, shuffled) in enumerate(writes):
            seen = {name: {"stored": host_state.read_state(system, "prod")} for name, system in hosts.items()}
            agreed = chosen(seen)
            assert agreed.serial >= acted_upon.serial
            if agreed.serial == acted_upon.serial:
                assert agreed.digest == acted_upon.digest
            following = agreed.after(state(endpoint_host=f"write{number}"))
            names = list(hosts)
            shuffled.shuffle(names)
            for name in names[:reached]:
                wanted = following.plain if keeps[int(name[1:])] else following.without_files
                host_state.write_state(hosts[name], "prod", wanted, Kept.of(seen[name]["stored"]).digest)
            if reached is None or reached >= len(names):
                acted_upon = following


def test_a_host_that_got_something_else_meanwhile_takes_nothing(tmp_path: Path) -> None:
    system = System(str(tmp_path))
    host_state.write_state(system, "prod", FIRST.plain, "")
    host_state.write_state(system, "prod", SECOND.plain, FIRST.digest)
    with pytest.raises(HostError, match=r"not the one that this run has seen \(serial 2\)"):
        host_state.write_state(system, "prod", forged(9).plain, FIRST.digest)
    assert host_state.read_state(system, "prod")["digest"] == SECOND.digest
    assert host_state.write_state(system, "prod", SECOND.plain, FIRST.digest) is False


def test_a_host_that_is_to_know_only_which_state_it_is_keeps_no_file_of_it(tmp_path: Path) -> None:
    """Hosts that balance load or store had the keys of all authorities with earlier versions."""
    system = System(str(tmp_path))
    host_state.write_state(system, "prod", FIRST.plain, "")
    assert host_state.write_state(system, "prod", FIRST.without_files, FIRST.digest) is True
    assert host_state.write_state(system, "prod", FIRST.without_files, FIRST.digest) is False
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in kept} == {"serial", "digest", "lineage"}
    assert all(b"PRIVATE" not in path.read_bytes() for path in kept)
    assert host_state.read_state(system, "prod")["digest"] == FIRST.digest
