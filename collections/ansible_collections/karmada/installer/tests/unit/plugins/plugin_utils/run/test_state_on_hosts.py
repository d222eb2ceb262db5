# SPDX-License-Identifier: Apache-2.0
"""Which state counts when hosts differ: what a killed run leaves goes on, what one host says alone does not win.

Hosts whose names begin with ``cp`` have an API server. Those called ``etcd`` or ``lb`` only store or balance load: runs
leave no copy of a state there.
"""

from __future__ import annotations

import base64
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.plugin_utils.components.hosts import Host
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
    roles = {name: ("controlPlane",) if name.startswith("cp") else ("etcd",) for name in hosts}
    known = {name: Host(name, f"192.0.2.{number}", roles[name]) for number, name in enumerate(hosts)}
    return choose(kept_by(observed(hosts)), known, "prod")


def named(hosts: list[Object]) -> dict[str, Object]:
    """Hosts by name; those that only know which state there is have no API server."""
    only_know = [(each.get("stored") or {}).get("files") == {} for each in hosts]
    return {
        f"{'etcd' if only else 'cp'}{number}": each
        for number, (only, each) in enumerate(zip(only_know, hosts, strict=True))
    }


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
    found = chosen(named(hosts))
    assert (found.serial, found.files or {}) == (expected.serial, expected.files or {})


FOLLOWING = forged(SECOND.serial + 1, (SECOND.digest,))

#: Who may say what the state is, by role: hosts → the state that is chosen.
BY_ROLE = [
    pytest.param({"cp1": keeper(THIRD), "cp2": {}, "cp3": {}}, THIRD, id="one grows to three, or survives of three"),
    pytest.param({"cp1": keeper(THIRD), "etcd1": witness(THIRD), "cp2": {}, "cp3": {}, "lb1": {}}, THIRD, id="grows"),
    pytest.param({"cp1": {}, "cp2": keeper(forged(1))}, forged(1), id="gets all keys anyway, and is told"),
    pytest.param(
        {"cp1": keeper(THIRD), "cp2": {"refusal": "timed out"}, "cp3": {"refusal": "timed out"}},
        THIRD,
        id="the others are out of reach",
    ),
    pytest.param({"cp1": keeper(FIRST), "etcd1": keeper(forged(1))}, Stored(), id="killed before the first of all"),
    pytest.param(
        {"cp1": keeper(FIRST), "cp2": keeper(FIRST), "etcd1": keeper(forged(1))}, FIRST, id="a first one beside theirs"
    ),
    pytest.param({"cp1": keeper(SECOND), "etcd1": keeper(FOLLOWING, SECOND)}, SECOND, id="a next step of one"),
    pytest.param(
        {"cp1": keeper(SECOND), **{name: keeper(FOLLOWING, SECOND) for name in ("etcd1", "etcd2", "etcd3")}},
        SECOND,
        id="a next step of all that only store",
    ),
    pytest.param(
        {"cp1": keeper(THIRD, SECOND), "cp2": keeper(SECOND), "etcd1": keeper(FOLLOWING, SECOND)},
        SECOND,
        id="two next steps of one state",
    ),
    pytest.param({"cp1": witness(THIRD), "etcd1": keeper(THIRD)}, THIRD, id="two hosts have changed their roles"),
    pytest.param(
        {"cp1": witness(THIRD), "cp2": {}, "cp3": {}, "etcd1": keeper(THIRD)}, THIRD, id="the same, and two are new"
    ),
    pytest.param(
        {"cp4": {}, "cp5": {}, **{name: keeper(THIRD) for name in ("etcd1", "etcd2", "etcd3")}},
        THIRD,
        id="three that had the role only store now, and two are new",
    ),
    pytest.param(
        {"cp2": {}, "etcd1": keeper(THIRD, SECOND), "etcd2": witness(THIRD), "etcd3": witness(SECOND)},
        SECOND,
        id="the role moves as a whole, and a run was killed before",
    ),
    pytest.param({"cp2": keeper(THIRD), "etcd1": keeper(SECOND)}, SECOND, id="a former one is one step behind"),
    pytest.param({"cp2": keeper(THIRD), "cp3": keeper(THIRD), "etcd1": keeper(FIRST)}, THIRD, id="or was away"),
]


@pytest.mark.parametrize(("hosts", "expected"), BY_ROLE)
def test_a_state_counts_by_the_roles_of_those_that_have_it(hosts: dict[str, Object], expected: Stored) -> None:
    found = chosen(hosts)
    assert (found.serial, found.files or {}) == (expected.serial, expected.files or {})


#: Copies that no host with an API server knows, while none of these keeps any: hosts → those that are named.
MISPLACED = [
    pytest.param({"cp1": {}, "cp2": {}, "etcd1": {}, "etcd2": keeper(forged(1))}, ["etcd2"], id="a first install"),
    pytest.param({"cp1": {}, "lb1": keeper(forged(1))}, ["lb1"], id="a first install with half of the hosts"),
    pytest.param({"cp1": {}, "etcd1": keeper(forged(99)), "lb1": {}}, ["etcd1"], id="a late one"),
    pytest.param(
        {"cp1": {}, "cp2": {}, "etcd1": keeper(forged(1)), "etcd2": keeper(forged(1))},
        ["etcd1", "etcd2"],
        id="half of the hosts",
    ),
    pytest.param(
        {
            "cp1": {"refusal": "timed out"},
            "cp2": {"refusal": "timed out"},
            "etcd1": keeper(forged(1)),
            "etcd2": witness(forged(1)),
        },
        ["etcd1"],
        id="hosts out of reach count",
    ),
    pytest.param({"cp2": {}, "etcd1": keeper(THIRD)}, ["etcd1"], id="the role has moved to a new host"),
]


@pytest.mark.parametrize(("hosts", "names"), MISPLACED)
def test_a_host_that_only_stores_or_balances_decides_nothing_alone(hosts: dict[str, Object], names: list[str]) -> None:
    with pytest.raises(ProblemsError) as caught:
        chosen(hosts)
    assert [each.where for each in caught.value.problems] == [f"host {name}" for name in names]
    for each in caught.value.problems:
        assert "no host that has the role knows this state" in each.what
        assert "remove /var/lib/karmada-installer/prod there" in each.remedy
        assert "give it back beside the new hosts" in each.remedy


def test_a_moved_role_is_taken_away_in_two_runs() -> None:
    """As the refusal says: the host that had the role has it again, beside the new one, and then not any more."""
    assert chosen({"cp1": keeper(THIRD), "cp2": {}}).digest == THIRD.digest
    assert chosen({"etcd1": keeper(FOURTH, THIRD), "cp2": keeper(FOURTH)}).digest == FOURTH.digest


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param({"cp1": keeper(SECOND), "etcd1": keeper(forged(99))}, id="one of two"),
        pytest.param(
            {"cp1": keeper(SECOND), **{name: keeper(forged(99)) for name in ("etcd1", "etcd2", "etcd3")}},
            id="all that only store",
        ),
    ],
)
def test_hosts_without_an_api_server_bring_in_no_state_beside_one_with_it(hosts: dict[str, Object]) -> None:
    with pytest.raises(ProblemsError, match="no more than half agree on any"):
        chosen(hosts)


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param({"cp1": {}, "etcd1": witness(FOLLOWING), "etcd2": witness(FOLLOWING)}, id="two that store"),
        pytest.param({"cp4": {}, "cp5": {}, "cp6": {}, "lb1": witness(THIRD)}, id="one that balances, beside others"),
        pytest.param({"cp1": witness(THIRD), "cp2": {}}, id="one that has got the role"),
    ],
)
def test_where_all_copies_are_lost_that_is_told_and_where_there_is_another(hosts: dict[str, Object]) -> None:
    with pytest.raises(ProblemsError) as caught:
        chosen(hosts)
    (problem,) = caught.value.problems
    there = ", ".join(sorted(name for name, each in hosts.items() if each))
    assert "no host has a copy of the installer's state" in problem.what
    assert there in problem.what
    assert f"remove /var/lib/karmada-installer/prod from {there} to take the control plane over" in problem.remedy
    # As it says: nothing is there then, and a backup can be taken over.
    assert chosen({name: {} for name in hosts}) == Stored()


def test_a_copy_without_a_serial_is_none() -> None:
    """Else hosts that lie could make an installed control plane seem to be none."""
    lie = {**keeper(THIRD)["stored"], "previous": {"serial": 0, "files": dict(FIRST.files or {})}, "lineage": [""]}
    assert chosen({"cp1": {"stored": lie}, "cp2": {"stored": lie}, "cp3": keeper(THIRD)}).digest == THIRD.digest


ROLES_OF_THREE = [each for each in product((True, False), repeat=3) if any(each)]


@pytest.mark.parametrize("new", range(3))
@pytest.mark.parametrize("before", ROLES_OF_THREE)
def test_whatever_roles_change_the_state_is_found_or_a_person_is_asked(before: tuple[bool, ...], new: int) -> None:
    """Nothing begins anew beside what is installed. ``before``: which of three hosts had an API server."""
    for after in [*ROLES_OF_THREE, (False, False, False)]:
        hosts = {
            f"{'cp' if has_now else 'etcd'}{number}": keeper(THIRD) if had else witness(THIRD)
            for number, (had, has_now) in enumerate(zip(before, after, strict=True))
        }
        hosts |= {f"cp-new{number}": {} for number in range(new)}
        if any(after) or 2 * len(before) > len(hosts):
            assert chosen(hosts).files == THIRD.files, hosts.keys()
        else:
            with pytest.raises(ProblemsError):
                chosen(hosts)


@pytest.mark.parametrize("liars", range(1, 5))
@pytest.mark.parametrize("lie", [forged(1), FOLLOWING, forged(99), forged(99, (THIRD.digest, SECOND.digest))])
def test_liars_without_an_api_server_are_followed_only_if_they_are_most_and_no_other_has_anything(
    lie: Stored, liars: int
) -> None:
    for honest in [each for number in (1, 2, 3) for each in product((None, SECOND, THIRD), repeat=number)]:
        hosts = {f"cp{number}": keeper(each, SECOND) if each else {} for number, each in enumerate(honest)}
        hosts |= {f"lb{number}": keeper(lie, SECOND) for number in range(liars)}
        try:
            found = chosen(hosts)
        except ProblemsError:
            continue
        most = not any(honest) and 2 * liars > len(hosts)
        assert (found.digest == lie.digest) is most, [each and each.serial for each in honest]


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
        chosen({"cp1": keeper(SECOND), "cp-evil": lie, "cp2": keeper(SECOND)})
    (problem,) = caught.value.problems
    assert problem.where == "host cp-evil"
    assert f"they have {SECOND.serial}" in problem.what
    assert "remove /var/lib/karmada-installer/prod there" in problem.remedy


@pytest.mark.parametrize("lie", LIES)
def test_of_two_hosts_that_differ_neither_wins(lie: Object) -> None:
    with pytest.raises(ProblemsError, match=r"no more than half agree on any \(.*evil: serial") as caught:
        chosen({"cp-good": keeper(SECOND), "cp-evil": lie})
    assert "cp-good: serial 2" in str(caught.value)


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
    found = chosen({"cp-evil": lie, **{f"cp{number}": keeper(SECOND) for number in range(others)}})
    assert found.digest == SECOND.digest
    assert found.files == SECOND.files


def test_two_hosts_of_three_that_tell_one_lie_decide_but_only_within_the_schema() -> None:
    """As the guide says of a majority; the third is no stranger to a state that has no line."""
    lie = forged(9)
    found = chosen(dict(zip(("cp1", "cp2", "cp3"), [keeper(lie), keeper(lie), keeper(THIRD, SECOND)], strict=True)))
    assert found.digest == lie.digest
    with pytest.raises(ProblemsError, match="of the hosts"):
        found.state()


def test_two_hosts_of_three_that_tell_two_lies_decide_nothing_and_all_are_named() -> None:
    other = Stored(8, {"instance.json": base64.b64encode(b"[]").decode()})
    with pytest.raises(ProblemsError, match=r"cp1: serial 9") as error:
        chosen(dict(zip(("cp1", "cp2", "cp3"), [keeper(forged(9)), keeper(other), keeper(THIRD, SECOND)], strict=True)))
    assert all(f"{name}: serial" in str(error.value) for name in ("cp1", "cp2", "cp3"))


def test_a_copy_that_was_restored_on_one_of_two_hosts_is_for_a_person_to_judge() -> None:
    """Which of them is right cannot be told from an old state that a host pretends is the last one."""
    with pytest.raises(ProblemsError, match="cp1: serial 1; cp2: serial 4"):
        chosen({"cp1": keeper(FIRST), "cp2": keeper(FOURTH, THIRD)})


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
        all_names = [f"{'cp' if has_copy else 'etcd'}{number}" for number, has_copy in enumerate(keeps)]
        hosts = {name: System(str(Path(folder, name))) for name in all_names}
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
                wanted = following.plain if name.startswith("cp") else following.without_files
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
