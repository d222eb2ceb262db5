# SPDX-License-Identifier: Apache-2.0
"""Nothing of a recorded state is used that its schema does not let through, whoever has written it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    FORMER_MODE,
    Journal,
    LastBackup,
    RestoreState,
    State,
    to_files,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document import crd, manifest, recorded
from ansible_collections.karmada.installer.plugins.plugin_utils.document.recorded import read_state
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state
from hypothesis import given
from hypothesis import strategies as st

HOST = {"name": "cp1", "address": "192.0.2.1", "roles": ["controlPlane"], "port": 22}
FINGERPRINT = "SHA256:" + "A" * 43
FROM = {
    "address": "m1.example.com",
    "port": 22,
    "path": "/etc/admin.conf",
    "user": "me",
    "hostKeyFingerprint": FINGERPRINT,
}
MEMBER = {"mode": "Push", "context": None, "onLeave": "Retain"}
PULL = {**MEMBER, "mode": "Pull", FORMER_MODE: "Push"}


def test_what_no_run_could_read_is_refused_before_it_is_stored() -> None:
    """A state that is stored once and never read again stops every playbook, and its backups are refused, too."""
    last = whole().backups["nightly"]
    most = replace(whole(), backups={f"series-{number}": last for number in range(64)})
    recorded.require_readable(most, "here")
    assert read_state(to_files(most), "here").backups == most.backups
    more = replace(most, backups={**most.backups, "one-more": last})
    with pytest.raises(ProblemsError, match="backups must have at most 64 entries"):
        recorded.require_readable(more, "here")


def whole() -> State:
    """A state with every kind of record in it."""
    return state(
        hosts={"cp1": HOST, "v6": {**HOST, "name": "v6", "address": "2001:db8::1", "hostKeyFingerprint": FINGERPRINT}},
        members={
            "m1": {**MEMBER, "secretRef": {"name": "m1"}},
            "m2": {**PULL, "kubeconfigFrom": FROM, "context": "admin@m2", "agentHosts": ["a1"]},
        },
        member_places={"m1": 0},
        digests={"docker.io/karmada/karmada-webhook:v1.18.2": f"sha256:{'a' * 64}"},
        restarts={"karmada-search": 2},
        restarts_due=("karmada-search",),
        owned={"host": {"Secret x/y": "uid"}},
        document=document({}),
        journal=Journal("install", "host/boot/1/2", "2026-01-01T00:00:00+00:00", "", "hosts"),
        endpoint_host="2001:db8::2",
        service_subnet="10.96.0.0/12,fd00::/108",
        passages=("Ingress",),
        backup_key=b"a key",
        backups={"nightly": LastBackup("prod-20261125t024100z-1f3a9c", "2026-11-25T02:41:00+00:00", 9, 8, 7, 6, 5)},
    )


def test_what_this_collection_writes_is_read() -> None:
    assert read_state(to_files(whole()), "here") == whole()


def refusal_of(changed: State) -> str:
    with pytest.raises(ProblemsError) as caught:
        read_state(to_files(changed), "the hosts")
    (problem,) = caught.value.problems
    assert problem.where == "the hosts"
    return problem.what


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"started": "yesterday"}, "started"),
        ({"name": "../x"}, "name"),
        ({"size": -1}, "size"),
        ({"revision": "1"}, "revision"),
    ],
)
def test_a_recorded_backup_that_no_run_writes_is_refused(changes: dict[str, Any], said: str) -> None:
    last = replace(whole().backups["nightly"], **changes)
    assert f"backups.nightly.{said}" in refusal_of(replace(whole(), backups={"nightly": last}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token": "x --force-new-cluster"}, "token"),
        ({"generation": 0}, "generation"),
        ({"bump": -1}, "bump"),
        ({"revision": 2**63}, "revision"),
        ({"backup": "../x"}, "backup"),
        ({"series": "/x"}, "series"),
        ({"step": "a step"}, "step"),
        ({"aside": ("/",)}, "aside"),
        ({"held": ("..",)}, "held"),
        ({"former": EtcdState(token="t", generation=-1)}, "former.generation"),
        ({"parts": {"../m1": ()}}, "parts[0].cluster"),
        ({"parts": {"m1": ("a,b",)}}, "parts[0].namespaces"),
    ],
)
def test_a_recorded_restore_that_no_run_writes_is_refused(changes: dict[str, Any], said: str) -> None:
    restore = RestoreState(
        *("back", "nightly", "prod-20261125t020000z-1f3a9c", "2026-11-25T02:41:00+00:00", "0d6c2a35", 2, 10**9),
        former=whole().etcd,
        members=("prod-etcd-0",),
        aside=("gen-1", "gen-1-8e9e05c52164694d"),
        parts={"m1": (), "m2": ("shop",), "*": ()},
        step="SwitchGeneration",
    )
    assert read_state(to_files(replace(whole(), restore=restore)), "here").restore == restore
    assert f"restore.{said}" in refusal_of(replace(whole(), restore=replace(restore, **changes)))
    # One that another restore has begun upon is judged alike.
    upon = replace(restore, former_restore=restore)
    assert read_state(to_files(replace(whole(), restore=upon)), "here").restore == upon
    bad = replace(restore, former_restore=replace(restore, **changes))
    assert f"restore.former_restore.{said}" in refusal_of(replace(whole(), restore=bad))


BREAKS_OUT = f"{FINGERPRINT}\"' '-oProxyCommand=/bin/sh -c id' '-oSetEnv=A=\"x"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"hostKeyFingerprint": BREAKS_OUT}, "hosts.cp1.hostKeyFingerprint"),
        ({"hostKeyFingerprint": f"{FINGERPRINT}\n"}, "hosts.cp1.hostKeyFingerprint"),
        ({"address": "-oProxyCommand=id"}, "hosts.cp1.address"),
        ({"address": "evil.example.com"}, "hosts.cp1.address"),
        ({"address": "192.0.2.1\n"}, "hosts.cp1.address"),
        ({"address": ["192.0.2.1"]}, "hosts.cp1.address"),
        ({"port": "22 -oProxyCommand=id"}, "hosts.cp1.port"),
        ({"port": True}, "hosts.cp1.port"),
        ({"name": "cp2"}, "hosts.cp1 is the entry of"),
        ({"roles": ["root"]}, "hosts.cp1.roles"),
        ({"ansible_connection": "local"}, "hosts.cp1.ansible_connection"),
    ],
)
def test_a_recorded_host_that_the_schema_would_not_admit_is_refused(entry: dict[str, Any], said: str) -> None:
    assert said in refusal_of(replace(whole(), hosts={"cp1": {**HOST, **entry}}))


@pytest.mark.parametrize("name", ["localhost", "karmada_control", "../x", "{{ x }}", "-v", ""])
def test_a_recorded_host_has_no_name_that_means_something_else(name: str) -> None:
    assert "hosts" in refusal_of(replace(whole(), hosts={name: {**HOST, "name": name}}))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"kubeconfigFrom": {**FROM, "path": "/etc/x; id"}}, "members.m1.kubeconfigFrom.path"),
        ({"kubeconfigFrom": {**FROM, "hostKeyFingerprint": BREAKS_OUT}}, "members.m1.kubeconfigFrom.hostKey"),
        ({"kubeconfigFrom": {**FROM, "address": "-oProxyCommand=id"}}, "members.m1.kubeconfigFrom.address"),
        ({"kubeconfigFrom": {**FROM, "privateKeySecretRef": {"name": "../../root/.ssh"}}}, "privateKeySecretRef.name"),
        ({"secretRef": {"name": ".."}}, "members.m1.secretRef.name"),
        ({"secretRef": {"name": "../../etc"}}, "members.m1.secretRef.name"),
        ({"mode": "Shove"}, "members.m1.mode"),
        ({"onLeave": "Burn"}, "members.m1.onLeave"),
        ({"exec": {}}, "members.m1.exec"),
    ],
)
def test_a_recorded_member_that_the_schema_would_not_admit_is_refused(record: dict[str, Any], said: str) -> None:
    assert said in refusal_of(replace(whole(), members={"m1": {**MEMBER, **record}}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner", "x'; drop"),
        ("version", "v1.18.2/../../x"),
        ("endpoint_host", "x y"),
        ("service_subnet", "10.0.0.0/8 --flag"),
        ("restarts", {"karmada-search": "often"}),
        ("restarts_due", ("$(id)",)),
        ("member_places", {"m1": -1}),
        ("member_places", {"../m1": 1}),
        ("host_cluster", "x y"),
        ("host_cluster", "\x1b[2J"),
        ("digests", {"\x1b[2J": f"sha256:{'a' * 64}"}),
        ("restarts", {"\x1b[2J": 1}),
        ("restarts", {"../x": 1}),
        ("owned", {"\x1b[2J": {"Secret x/y": "uid"}}),
        ("owned", {"host": {"\x1b[2J": "uid"}}),
        ("owned", {"host": {"x" * 2000: "uid"}}),
        ("backups", {"../x": whole().backups["nightly"]}),
        ("encryption_key", "x\ny"),
        ("etcd", EtcdState(token="t", storage="../x")),
        ("etcd", EtcdState(token="t\n--flag", storage="volumeClaim")),
        ("etcd", EtcdState(token="t", nodes=("../x",))),
        ("journal", Journal(operation="\x1b]0;title\x07")),
        ("owned", {"host": {"Secret x/y": "\x1b[2J"}}),
        ("hosts", {"cp1": "cp1"}),
        ("members", {"m1": None}),
        ("document", {"kind": "KarmadaDeployment", "spec": []}),
    ],
)
def test_every_other_part_has_its_form(field: str, value: Any) -> None:
    assert refusal_of(replace(whole(), **{field: value}))


@pytest.mark.parametrize("name", ["instance.json", "journal.json", "members.json", "owned.json", "document.json"])
@pytest.mark.parametrize("value", [5, True, None, "x", [], ["x"], {}, {"x": 5}, {"x": None}, {"x": ["x"]}], ids=str)
def test_whatever_kind_of_value_is_anywhere_it_is_read_or_refused(name: str, value: Any) -> None:
    """No other error, which would end a run in a traceback."""
    files = to_files(whole())
    plain = json.loads(files[name])
    for content in (value, *({**plain, field: value} for field in plain)):
        with suppress(ProblemsError):
            read_state({**files, name: json.dumps(content).encode()}, "here")


@pytest.mark.parametrize(
    "hosts",
    [
        {"cp1": {**HOST, "address": "\x9b2J\u202e"}},
        {"cp1": {**HOST, "\x1b]0;owned\x07": 1}},
        {"\x1b[2J": {**HOST, "name": "\x1b[2J"}},
    ],
    ids=["value", "field", "name"],
)
def test_what_a_host_has_written_commands_no_terminal(hosts: dict[str, Any]) -> None:
    assert refusal_of(replace(whole(), hosts=hosts)).isprintable()


def test_of_many_problems_a_few_are_told() -> None:
    hosts = {f"h{number}": {"name": f"h{number}", "address": "x"} for number in range(20)}
    said = refusal_of(replace(whole(), hosts=hosts))
    assert "and 15 more" in said
    assert len(said) < 2000


# -- the quick look and the thorough one ------------------------------------------------------------------------------

_MEMBERS = manifest.schema()["properties"]["spec"]["properties"]["members"]["items"]
_TEXTS = st.sampled_from(["m1", "Push", "Pull", "192.0.2.1", "/etc/x", "", "-x", "../x", FINGERPRINT, "Retain", "x y"])
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-1, 70_000), _TEXTS)
_FIELDS = st.sampled_from([*_MEMBERS["properties"], *_MEMBERS["properties"]["kubeconfigFrom"]["properties"], "other"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=4), max_leaves=8
)


@given(st.dictionaries(_FIELDS, _VALUES, max_size=5))
def test_the_quick_look_lets_nothing_through_that_the_thorough_one_refuses(entry: dict[str, Any]) -> None:
    if crd.fits(entry, _MEMBERS):
        assert not list(crd.structure_findings(entry, _MEMBERS))


@pytest.mark.parametrize("section", ["hosts", "members"])
def test_the_quick_look_knows_what_is_usual(section: str) -> None:
    """Otherwise each step of a run would take the thorough one for thousands of entries."""
    schema = recorded._member_schema() if section == "members" else recorded._entry_schema(section)
    records = getattr(whole(), section)
    for name, record in records.items():
        entry = {"name": name, **{key: value for key, value in record.items() if value is not None}}
        assert crd.fits(entry, schema), json.dumps(entry)
    assert crd.fits(document({}), manifest.schema())
