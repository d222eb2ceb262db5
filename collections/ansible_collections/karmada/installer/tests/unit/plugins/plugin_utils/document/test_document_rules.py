# SPDX-License-Identifier: Apache-2.0
"""Rules of the schema (CEL): what each is given, what is evaluated, and how often."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import cel_rules, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.documents import document
from hypothesis import given
from hypothesis import strategies as st

OBJECT: dict[str, Any] = {"type": "object", "properties": {name: {} for name in ("a", "b", "a-b", "namespace")}}
MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("rule", "schema", "value", "seen"),
    [
        ("!has(self.a) || self.b == 1", OBJECT, {"a": 1, "b": 1, "a-b": 2}, {"a": 1, "b": 1}),
        ("self.a__dash__b == 1", OBJECT, {"a": 1, "a-b": 1}, {"a__dash__b": 1}),
        ("has(self.__namespace__)", OBJECT, {"namespace": "x", "a": 1}, {"__namespace__": "x"}),
        ("self == {} || self.a == 1", OBJECT, {"a": 1, "b": 1}, {"a": 1, "b": 1}),
        ("self.all(key, key.size() < 5)", MAP, {"a": "x", "b": "y"}, {"a": None, "b": None}),
        ("!self.exists(key, key == 'a')", MAP, {"a": "x"}, {"a": None}),
        ("self.all(key, self[key] == 'x')", MAP, {"a": "x"}, {"a": "x"}),
        ("self.all(one, one.size() < 5)", {"type": "array", "items": {"type": "string"}}, ["a"], ["a"]),
        ("self.matches('a')", {"type": "string"}, "a", "a"),
    ],
)
def test_a_rule_is_given_what_it_can_see(rule: str, schema: dict[str, Any], value: Any, seen: Any) -> None:
    assert cel_rules._reads(rule).of("self", value, schema) == seen


@pytest.mark.parametrize(
    ("rule", "guards"),
    [
        ("!has(self.a) || self.a > 1", ["a"]),
        ("!has(self.a)\n|| !has(self.b) || self.a > self.b", ["a", "b"]),
        ("!has(self.a) || has(self.b) ? true : false", []),
        ("!has(self.a) && self.b == 1", []),
        ("!has(self.c) || !has(self.c.d) || self.c.d > 1", ["c", "c.d"]),
        ("!has(self.a__dash__b) || self.b == 1", []),
        ("has(self.a) || self.b == 1", []),
        ("self.m != 'x' || !has(self.a) || self.a > 1", ['m != "x"', "a"]),
        ("!has(self.m) || self.m != 'x' || self.b > 1", ["m", 'm != "x"']),
        ("self.m != 'x' && has(self.a) || self.b == 1", []),
        ("!has(self.a) || self.a == 2 || self.b == 1 || self.b > 1", ["a", "a == 2", "b == 1"]),
        ("self.m != 'x' || !has(self.a)", ['m != "x"', "a"]),
        ("!has(self.f) || self.f == true || self.m == 'y' || self.b > 1", ["f", "f == true", 'm == "y"']),
    ],
)
def test_a_rule_that_its_beginning_makes_hold_is_not_evaluated(rule: str, guards: list[str]) -> None:
    found = cel_rules._reads(rule).guards
    assert [f"{'.'.join(each.path)} {each.operator} {each.other}".strip() for each in found] == guards
    schema = {**OBJECT, "x-kubernetes-validations": [{"rule": rule, "message": "no"}]}
    for value in (
        {},
        {"b": 1},
        {"a": 2, "b": 1},
        {"c": {}},
        {"c": {"d": 2}},
        {"m": "x"},
        {"m": "y"},
        {"m": "x", "a": 2},
        {"m": "z", "f": True},
        {"m": "z", "f": False},
    ):
        with_shortcut = [finding.what for finding in cel_rules.rule_findings(value, schema)]
        plain = cel_rules._verdict(rule, json.dumps({"self": cel_rules._for_cel(value, schema)}))
        assert with_shortcut == ([] if plain is None else [f"no ({plain})" if plain else "no"])


NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {"spec": OBJECT, "list": {"type": "array", "items": OBJECT}, "map": MAP, "status": OBJECT},
}


def test_a_rule_is_given_no_more_of_a_field_than_what_it_names_there() -> None:
    value = {"spec": {"a": 1, "b": 2, "a-b": 3}, "list": [{"a": 1}], "map": {"a": "x", "b": "y"}, "status": {"a": 1}}
    rule = "self.spec.a == 1 || self.spec.a__dash__b == 2 || self.list.exists(x, x.a == 1) || 'a' in self.map"
    assert cel_rules._reads(rule).of("self", value, NESTED) == {
        "spec": {"a": 1, "a__dash__b": 3},
        "list": [{"a": 1}],
        "map": {"a": "x", "b": "y"},
    }


CHANGING: dict[str, Any] = {
    **NESTED,
    "x-kubernetes-validations": [
        {
            "rule": "!has(oldSelf.status) || self.spec.a == oldSelf.spec.a",
            "fieldPath": ".spec.a",
            "message": "does not change",
            "messageExpression": "'was ' + string(oldSelf.spec.a) + ', is ' + string(self.spec.a)",
        },
        {"rule": "has(self.spec.b)", "message": "needs b"},
    ],
}


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, []),
        ({"spec": {"a": 1}, "status": {}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": 1}, "status": {}}, {"spec": {"a": 2}}, [(("spec", "a"), "was 1, is 2")]),
    ],
)
def test_changes_are_judged_by_the_rules_about_changes_alone(before: Any, now: Any, changes: list[Any]) -> None:
    found = cel_rules.change_findings(now, CHANGING, before)
    assert [(finding.path, finding.what) for finding in found] == changes
    assert [finding.what for finding in cel_rules.rule_findings(now, CHANGING)] == ["needs b"]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("'a is ' + string(self.a)", "a is 1"),
        ("'has %s of %s, %s'.format([['x', 'y'].filter(each, each != 'z'), 'all', 2])", 'has ["x", "y"] of all, 2'),
        ("'a is ' + self.absent", "plain"),
        ("'a\\nb'", "plain"),
        ("''", "plain"),
    ],
)
def test_what_a_rule_says_is_computed_and_plain_where_that_gives_no_line(expression: str, what: str) -> None:
    schema = {
        **OBJECT,
        "x-kubernetes-validations": [{"rule": "self.a > 1", "message": "plain", "messageExpression": expression}],
    }
    assert [finding.what for finding in cel_rules.rule_findings({"a": 1}, schema)] == [what]


@given(st.ip_addresses().filter(lambda address: not getattr(address, "ipv4_mapped", None)), st.booleans())
def test_addresses_that_others_cannot_reach_are_told_by_their_text(address: Any, exploded: bool) -> None:
    of_hosts = manifest.schema()["properties"]["spec"]["properties"]["hosts"]["items"]["properties"]["address"]
    found = [each.what for each in cel_rules.rule_findings(address.exploded if exploded else str(address), of_hosts)]
    only_here = address.is_loopback or address.is_unspecified or address.is_multicast or address.is_link_local
    assert ["is no address at which other hosts can reach it" in what for what in found] == [True] * only_here


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:DB8:0:0::1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.01", "192.0.2.1", False),
        ("fe80::1%eth0", "fe80::1%eth0", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1", False),
        ("name", "name", False),
    ],
)
def test_addresses_are_compared_by_what_they_mean(first: str, second: str, same: bool) -> None:
    """What an API server takes for no address is none here."""
    rule = {"rule": "isIP(self.a) && isIP(self.b) && ip(self.a) == ip(self.b)", "message": "no"}
    found = list(cel_rules.rule_findings({"a": first, "b": second}, {**OBJECT, "x-kubernetes-validations": [rule]}))
    assert bool(found) is not same


def rules_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return [
        *schema.get("x-kubernetes-validations", ()),
        *(rule for each in below if isinstance(each, dict) for rule in rules_of(each)),
    ]


def test_no_rule_has_a_part_that_is_not_evaluated_here() -> None:
    found = {key for rule in rules_of(manifest.schema()) for key in rule}
    assert found <= {"rule", "message", "messageExpression", "fieldPath", "reason"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("binary_pulls", Reason.FIELD_WITHOUT_EFFECT),
        ("artifacts_directory_url", Reason.FIELD_WITHOUT_EFFECT),
        ("hosts_load_balancer_without_virtual_ip", Reason.INVALID_DOCUMENT),
    ],
)
def test_programs_are_told_a_field_without_effect_from_a_wrong_value(name: str, reason: Reason) -> None:
    (file,) = [file for file in corpus_files.bad() if str(file) == name]
    assert {problem.reason for problem in manifest.validate(manifest.parse(file.text))} == {reason}


@pytest.mark.parametrize(
    ("rule", "entries"),
    [
        ("!has(self.a) || !self.a.exists(x, has(x.c) && x.c == 1)", {"a": {"c"}}),
        ("self.a.all(x, x.c == 1 || x.d == self.b)", {"a": {"c", "d"}}),
        ("self.a.exists(x, self.e.exists(y, x.c == y.c))", {"a": {"c"}, "e": {"c"}}),
        ("self.a.all(x, x == self.b)", {}),
        ("self.a.exists_one(x, x.c == 1)", {}),
        ("self.a.size() == 2 || self.a.all(x, x.c == 1)", {}),
    ],
)
def test_entries_that_are_alike_are_seen_once_where_it_makes_no_difference(
    rule: str, entries: dict[str, set[str]]
) -> None:
    assert cel_rules._reads(rule).entries == entries


@pytest.mark.parametrize("modes", [["Push", "Push"], ["Push", "Pull", "Push"], []])
def test_a_rule_about_entries_has_the_same_verdict_for_those_that_differ(modes: list[str]) -> None:
    rule = "!self.members.exists(member, has(member.mode) && member.mode == 'Pull')"
    value = {"members": [{"name": f"m{number}", "mode": mode} for number, mode in enumerate(modes)]}
    entry = {"type": "object", "properties": {"name": {"type": "string"}, "mode": {"type": "string"}}}
    schema = {"type": "object", "properties": {"members": {"type": "array", "items": entry}}}
    assert len(cel_rules._reads(rule).of("self", value, schema)["members"]) == len(set(modes))
    assert (cel_rules._failure(rule, {"self": value}, schema) is None) == ("Pull" not in modes)


def test_thousands_of_members_alike_are_evaluated_once() -> None:
    members = [
        {"name": f"m{number}", "secretRef": {"name": f"m{number}"}, "labels": {"tier": str(number)}}
        for number in range(300)
    ]
    manifest.resolve(document(members=members[:2]))
    before = cel_rules._verdict.cache_info().misses
    manifest.resolve(document(members=members))
    assert cel_rules._verdict.cache_info().misses == before
