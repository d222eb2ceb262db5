# SPDX-License-Identifier: Apache-2.0
"""Parts of a release: which a spec may name, which are released by a status, and what a run is given of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import RELEASE, UNDO, Part
from hypothesis import given
from hypothesis import strategies as st
from karmada_operator import kinds, parts, wishes
from karmada_operator.kinds import Key
from karmada_operator.orders import Operation, Order, Restore, Seen
from karmada_operator.runs import spec_of

CLUSTERS, SPACES = ("m1", "m2", "m3"), ("bank", "shop")
PARTS = st.lists(
    st.builds(
        lambda clusters, spaces: Part(tuple(sorted(clusters)), tuple(sorted(spaces))),
        st.sets(st.sampled_from(CLUSTERS)),
        st.sets(st.sampled_from(SPACES)),
    ).filter(lambda part: part != Part()),
    max_size=4,
).map(tuple)


def followed(asked: tuple[Part, ...]) -> set[tuple[str, str]]:
    """Everything that follows by these parts, as cluster and namespace; empty text stands for what is in none."""
    return {
        (cluster, space)
        for each in asked
        for cluster in each.clusters or CLUSTERS
        for space in each.namespaces or ("", *SPACES)
    }


def as_status(follows: set[tuple[str, str]]) -> tuple[parts.Released, list[str]]:
    """The form in which a status has that, and clusters of which something is held."""
    whole = {name for name in CLUSTERS if (name, "") in follows}
    rows = [
        (name, () if name in whole else tuple(sorted(space for cluster, space in follows if cluster == name)))
        for name in CLUSTERS
        if any(cluster == name for cluster, _ in follows)
    ]
    return tuple(rows), [name for name in CLUSTERS if name not in whole]


@given(PARTS, PARTS)
def test_what_is_named_is_covered_if_all_of_it_follows(asked: tuple[Part, ...], before: tuple[Part, ...]) -> None:
    released, held = as_status(followed(before))
    # Without parts the rest is meant, of which something is held.
    assert parts.covered(asked, released, held) == (bool(asked) and followed(asked) <= followed(before))


@given(PARTS, PARTS)
def test_what_is_released_and_not_named_any_longer_is_told(asked: tuple[Part, ...], before: tuple[Part, ...]) -> None:
    released, _ = as_status(followed(before))
    told = dict(parts.beyond(asked, released))
    named = followed(asked)
    for cluster, spaces in released:
        if not spaces:
            assert (cluster in told) == ((cluster, "") not in named)
        else:
            assert set(told.get(cluster, ())) == {each for each in spaces if (cluster, each) not in named}


def test_names_that_cannot_be_used_start_nothing() -> None:
    for field, value in (
        ("release", [{"clusters": ["{{ lookup('pipe', 'id') }}"]}]),
        ("release", [{}]),
        ("release", "m1"),
        ("keep", ["m1/{{ x }}"]),
        ("letGo", "m1/web"),
    ):
        found = parts.Named.of({"release": [{"clusters": ["m1"]}], field: value})
        assert found == parts.Named(problems=found.problems), "nothing of it is used"
        (problem,) = found.problems
        assert problem.where == f"spec.{field}"


def test_more_names_than_can_be_handed_on_are_refused_with_what_to_do() -> None:
    many = [f"member-{number:040}" for number in range(wishes.HANDED_ON // 2 // len(json.dumps(["x" * 47])))]
    release = [{"clusters": many[:900]}, {"clusters": many[900:1800]}]
    assert not parts.Named.of({"release": release}).problems
    (problem,) = parts.Named.of({"release": [*release, {"clusters": many[1800:], "namespaces": ["s" * 63]}]}).problems
    told = "has names that make 192 KiB in the order of a run; 192 KiB can be handed on"
    assert (problem.where, problem.what) == ("spec.release", told)
    assert "taking it out" in problem.remedy


@pytest.mark.parametrize("length", [4, 8, 48])
@pytest.mark.parametrize("size", [1000, 8000, 64 * 1024])
def test_what_can_be_handed_on_fits_into_a_job(length: int, size: int) -> None:
    """With its order and its variables, however long names are; short ones take the most beside themselves."""
    names = [f"m{number:0{length - 1}d}" for number in range(min(size // length, 10 ** (length - 1)))]
    chunks = [names[at : at + 1000] for at in range(0, len(names), 1000)]
    named = parts.Named.of({"release": [{"clusters": each} for each in chunks]})
    assert bool(named.problems) == (size == 64 * 1024 and length == 8)
    order = Order(Operation.RELEASE, "u1", 0, parts=named.parts, kept=named.kept, let_go=named.let_go)
    spec = spec_of(Key("EtcdRestore", "a", "back"), kinds.load()["EtcdRestore"], Seen("u1", 3), order)
    assert len(spec.text()) < 250 * 1024


def test_the_digest_is_that_of_what_is_meant() -> None:
    one = parts.Named.of({"release": [{"clusters": ["m2", "m1"]}, {"namespaces": ["shop"]}]}).parts
    same = parts.Named.of({"release": [{"namespaces": ["shop"], "clusters": []}, {"clusters": ["m1", "m2"]}]}).parts
    other = parts.Named.of({"release": [{"namespaces": ["m1", "m2"]}, {"clusters": ["shop"]}]}).parts
    assert parts.digest(one) == parts.digest(same) != parts.digest(other)
    assert parts.digest(()) == ""
    named = parts.Named(one)
    assert Restore(decision=RELEASE, named=named).decided == f"Release {parts.digest(one)}"
    assert Restore(decision=RELEASE).decided == RELEASE
    assert Restore(decision=UNDO, named=named).decided == UNDO
    assert Restore(named=named).decided == "", "parts alone decide nothing"


def test_a_status_has_room_for_a_hundred_and_says_the_rest_by_its_order() -> None:
    many = [{"name": f"m{number:04}", "namespaces": []} for number in reversed(range(4096))]
    spaces = [{"name": "a", "namespaces": [f"s{number:04}" for number in reversed(range(1024))]}]
    found = parts.fields_of({"clusters": [*many, *spaces], "held": [each["name"] for each in many]})
    assert [len(found[each]) for each in ("released", "held")] == [parts.MOST] * 2
    first, second, *_ = found["released"]
    assert (first["cluster"], first["namespaces"][0], len(first["namespaces"])) == ("a", "s0000", parts.MOST)
    assert second == {"cluster": "m0000"}
    assert parts.released_of(found)[1] == ("m0000", ())
    told = parts.in_words(parts.released_of(found))
    assert "and 90 more" in told
    assert len(told) < 350


def test_what_is_told_names_each() -> None:
    assert parts.in_words((("m1", ()), ("m2", ("bank", "shop")))) == "m1, m2 (namespace bank, shop)"
    asked = (Part((), ("bank",)), Part(("m1", "m3")))
    assert parts.asked_in_words(asked) == "all clusters (namespace bank), m1, m3"


@given(PARTS, st.lists(st.sampled_from(["m1/a", "m2/b"])).map(tuple))
def test_an_order_comes_back_as_it_went(asked: tuple[Part, ...], works: tuple[str, ...]) -> None:
    order = Order(Operation.RELEASE, "u1", 0, parts=asked, kept=works, let_go=works[:1])
    assert Order.of(json.loads(json.dumps(order.plain()))) == order


def test_a_run_gets_the_parts_that_its_order_is_for() -> None:
    """Not those of the object as it is by then, which may name none, and that would be everything."""
    kind = kinds.load()["EtcdRestore"]
    seen, key = Seen("u1", 3, restore=Restore(decision=RELEASE)), Key("EtcdRestore", "a", "back")
    order = Order(Operation.RELEASE, "u1", 0, parts=(Part(("m1",)), Part(("m2",), ("shop",))), kept=("m2/a",))

    def variables(order: Order) -> dict[str, Any]:
        return spec_of(key, kind, seen, order).variables

    assert variables(order) == {
        "restore_name": "back",
        "restore_release_parts": [
            {"clusters": ["m1"], "namespaces": []},
            {"clusters": ["m2"], "namespaces": ["shop"]},
        ],
        "restore_keep": ["m2/a"],
    }
    assert variables(replace(order, parts=(), kept=(), let_go=("m2/b",))) == {
        "restore_name": "back",
        "restore_let_go": ["m2/b"],
    }


def test_of_more_clusters_than_a_status_names_nobody_says_that_all_have_a_namespace() -> None:
    held = [f"m{number:03}" for number in range(parts.MOST)]
    released = tuple((name, ("shop",)) for name in held)
    assert parts.covered([Part((), ("shop",))], released[:-1], held[:-1])
    assert not parts.covered([Part((), ("shop",))], released, held)
    assert parts.covered([Part(("m001",), ("shop",))], released, held)
