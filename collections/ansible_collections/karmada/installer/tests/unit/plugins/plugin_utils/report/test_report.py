# SPDX-License-Identifier: Apache-2.0
"""From observations to phases and conditions: what people read and programs decide by."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import HandOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import LastBackup, RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.document import crd, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import schema
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report import backups, block, hold, report
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import (
    ComponentStatus,
    HostStatus,
    Observation,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange
from ansible_collections.karmada.installer.tests.unit.support.reports import MEMBER, WORKING
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, state
from hypothesis import given, settings
from hypothesis import strategies as st


def conditions(observed: Observation) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in report.status(observed)["conditions"]}


def last_backup(age: timedelta, allowed: int = 7200) -> LastBackup:
    started = (NOW - age).replace(microsecond=0).isoformat()
    return LastBackup("prod-20261125t024100z-1f3a9c", started, 1 << 40, 4711, 12, allowed)


def test_backups_are_told_and_an_old_one_is_no_trouble_of_the_control_plane() -> None:
    assert "BackupHealthy" not in conditions(WORKING)
    assert "backups" not in report.status(WORKING)
    recent = replace(WORKING, backups={"nightly": last_backup(timedelta(hours=2))})
    assert conditions(recent)["BackupHealthy"]["status"] == "True"
    (told,) = report.status(recent)["backups"]
    assert (told["series"], told["sizeBytes"], told["startTime"][-1]) == ("nightly", 1 << 40, "Z")
    assert report.warnings(recent) == []
    old = replace(WORKING, backups={"nightly": last_backup(timedelta(hours=3)), "weekly": None})
    assert conditions(old)["BackupHealthy"]["reason"] == "NoBackup"
    assert conditions(old)["BackupHealthy"]["message"] == (
        "the newest verified backup of EtcdBackup nightly is 3h old; EtcdBackup weekly has no verified backup yet"
    )
    assert conditions(old)["Ready"]["status"] == "True"
    assert [each.reason for each in report.warnings(old)] == [Reason.BACKUP_MISSED] * 2
    for observed in (recent, old):
        findings = crd.structure_findings({"status": report.status(observed)}, schema())
        assert [each for each in findings if each.path[:1] == ("status",)] == []


def test_a_backup_that_no_other_place_could_use_is_told_with_what_to_do() -> None:
    last = last_backup(timedelta(hours=1))
    moved = replace(WORKING, backups={"nightly": last}, only_here=frozenset({last.name}))
    condition = conditions(moved)["BackupHealthy"]
    assert (condition["status"], condition["reason"]) == ("False", "OnlyHere")
    assert condition["message"].startswith(f"{last.name} and what is older of EtcdBackup nightly can be restored here,")
    (warned,) = report.warnings(moved)
    assert warned.remedy == "karmada.installer.backup -e backup_now=nightly"
    assert conditions(replace(moved, only_here=frozenset({"another"})))["BackupHealthy"]["reason"] == "Recent"
    worse = replace(moved, backups={"nightly": last, "weekly": None})
    assert conditions(worse)["BackupHealthy"]["reason"] == "NoBackup"
    assert len(report.warnings(worse)) == 2


def test_a_place_that_was_handed_over_is_not_asked_for_backups() -> None:
    backups = {"nightly": last_backup(timedelta(days=9)), "weekly": None}
    left = replace(WORKING, backups=backups, final_backup="prod-b1")
    condition = conditions(left)["BackupHealthy"]
    assert (condition["status"], condition["reason"]) == ("True", "HandedOver")
    assert "its final backup is prod-b1" in condition["message"]
    assert report.warnings(left) == []


@pytest.mark.parametrize("why", list(hold.Why))
def test_what_holds_it_is_a_condition_that_programs_can_tell_apart(why: hold.Why) -> None:
    held = replace(WORKING, quarantined=hold.Hold(why, "in words"))
    condition = conditions(held)["Held"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", why.value, "in words")
    assert conditions(held)["Ready"] == conditions(WORKING)["Ready"]
    found = report.status(held)
    assert found["phase"] == "Quarantined"
    findings = crd.structure_findings({"status": found}, schema())
    assert [each for each in findings if each.path[:1] == ("status",)] == []
    assert "Held" not in conditions(WORKING)


HELD = RestoreState("back", "nightly", "b1", "", "0d6c", 1, 10**9, EtcdState("t1", 1), step="Compare", held=("a", "b"))


@pytest.mark.parametrize(
    ("found", "why", "told"),
    [
        ({}, None, ""),
        ({"restore": HELD}, "Restored", "restored from b1 and held: a, b does not run"),
        ({"restore": replace(HELD, step="Switch", former=EtcdState("t1", 2))}, "Restored", "being restored and held"),
        # Its part is on record before it follows.
        ({"restore": replace(HELD, step="Hold", parts={"m1": ()})}, "Restored", "held: a, b does not run"),
        ({"restore": replace(HELD, step="PartReleased", held=(), parts={"m1": ()})}, "PartReleased", "released is m1"),
        # Another one is restored upon it: all of it may be taken back.
        ({"restore": replace(HELD, step="Prepare", parts={}, former_restore=HELD)}, "Restored", "held: a, b"),
        ({"restore": replace(HELD, step="Released")}, None, ""),
        ({"handed_over": HandOverState("s", "t", step="StopServers")}, "HandingOver", "is being handed over"),
        (
            {"handed_over": HandOverState("s", "t", step="HandedOver", undoing=True)},
            "HandingOver",
            "is being handed over",
        ),
        ({"handed_over": HandOverState("s", "t", step="HandedOver", backup="b2")}, "HandedOver", "handed over by b2"),
    ],
)
def test_what_holds_it_is_told_by_its_state(found: dict[str, Any], why: str | None, told: str) -> None:
    held = hold.of(replace(state(), etcd=EtcdState("t2", 2), **found))
    assert (held.why if held else None) == why
    assert told in (held.told if held else "")
    # By the same, the playbook takes backups that are due.
    assert series.waits(replace(state(), **found)) == (why == "Restored")


def test_members_of_etcd_as_they_answered() -> None:
    silent = EndpointStatus("https://b:2379", message="connection refused", cause=Cause.WRONG)
    full = EndpointStatus("https://c:2379", version="3.6.9", alarms=("NOSPACE",), message="alarm:NOSPACE")
    found = report.status(replace(WORKING, etcd_endpoints=[*WORKING.etcd_endpoints, silent, full]))
    assert found["etcdVersion"] == "v3.6.9"
    assert found["etcd"]["endpoints"] == [
        {
            "url": "https://prod-etcd-0:2379",
            "leader": True,
            "healthy": True,
            "alarms": [],
            "version": "v3.6.16",
            "learner": False,
            "dbSizeBytes": 20480,
            "dbSizeInUseBytes": 0,
        },
        {"url": "https://b:2379", "leader": False, "healthy": False, "alarms": [], "message": "connection refused"},
        {
            "url": "https://c:2379",
            "leader": False,
            "healthy": False,
            "alarms": ["NOSPACE"],
            "version": "v3.6.9",
            "learner": False,
            "dbSizeBytes": 0,
            "dbSizeInUseBytes": 0,
            "message": "alarm:NOSPACE",
        },
    ]


def test_a_working_control_plane() -> None:
    found = report.status(WORKING)
    assert found["phase"] == "Completed"
    assert {each["status"] for each in found["conditions"]} == {"True"}
    assert {each["observedGeneration"] for each in found["conditions"]} == {3}
    assert found["members"][0]["ready"]


@pytest.mark.parametrize(
    ("change", "phase", "broken", "reason"),
    [
        ({"components": []}, "Preflight", "ComponentsReady", "NotReady"),
        ({"components": [ComponentStatus("etcd", 3, 2)]}, "Waiting", "ComponentsReady", "NotReady"),
        ({"api_ready": False}, "Installing", "ControlPlaneReady", "APIServerNotReady"),
        ({"aggregated_ready": False}, "Waiting", "ControlPlaneReady", "AggregatedAPINotReady"),
        ({"crds_installed": False}, "InstallCRD", "ControlPlaneReady", "CRDsMissing"),
        ({"members": [replace(MEMBER, ready=False)]}, "Waiting", "MembersReady", "NotReady"),
        ({"members": []}, "Waiting", "MembersReady", "NotReady"),
    ],
)
def test_one_thing_that_is_wrong_shows_where_it_is(
    change: dict[str, Any], phase: str, broken: str, reason: str
) -> None:
    observed = replace(WORKING, **change)
    assert report.status(observed)["phase"] == phase
    found = conditions(observed)
    assert {kind for kind, each in found.items() if each["status"] == "False"} == {"Ready", broken}
    assert found[broken]["reason"] == found["Ready"]["reason"] == reason
    assert found["Ready"]["message"] == found[broken]["message"]


def test_a_message_names_what_is_missing() -> None:
    observed = replace(WORKING, components=[ComponentStatus("etcd", 3, 2)], wanted_members=["m1", "m2"])
    assert "etcd has 2 of 3 ready" in conditions(observed)["ComponentsReady"]["message"]
    assert "m2" in conditions(observed)["MembersReady"]["message"]


def test_a_member_that_is_not_listed_does_not_make_the_control_plane_unready() -> None:
    other = replace(MEMBER, name="other", ready=False)
    assert report.status(replace(WORKING, members=[MEMBER, other]))["phase"] == "Completed"


OBSERVED = st.builds(
    replace,
    st.just(WORKING),
    components=st.lists(st.builds(ComponentStatus, st.sampled_from(["a", "b"]), st.integers(0, 3), st.integers(0, 3))),
    members=st.lists(st.builds(lambda ready: replace(MEMBER, ready=ready), st.booleans()), max_size=1),
    api_ready=st.booleans(),
    aggregated_ready=st.booleans(),
    crds_installed=st.booleans(),
    kubernetes_version=st.sampled_from(["", "v1.35.4"]),
)


@given(OBSERVED)
def test_ready_says_the_same_as_the_phase_and_as_all_other_conditions(observed: Observation) -> None:
    found = conditions(observed)
    others = [each["status"] for kind, each in found.items() if kind != "Ready"]
    ready = found["Ready"]["status"] == "True"
    assert ready == all(status == "True" for status in others) == (report.status(observed)["phase"] == "Completed")


@given(OBSERVED)
def test_every_field_and_value_of_the_report_is_one_that_the_schema_has(observed: Observation) -> None:
    check(report.status(observed), schema()["properties"]["status"], "status")


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 3000),
    st.sets(st.integers(0, 2999), max_size=40),
    st.integers(0, 300),
    st.sampled_from(["volumeClaim", "hostPath", "emptyDir", "external", "directory"]),
)
def test_however_many_there_are_what_is_wrong_fits_into_the_status(
    number: int, lost: set[int], certificates: int, storage: str
) -> None:
    names = [f"{index:04d}{'m' * 44}" for index in range(number)]
    observed = replace(
        WORKING,
        members=[replace(MEMBER, name=name, ready=index not in lost) for index, name in enumerate(names)],
        wanted_members=names,
        components=[
            ComponentStatus(f"karmada-scheduler-estimator-{name}", 1, int(index not in lost))
            for index, name in enumerate(names)
        ],
        certificates={
            f"karmada-scheduler-estimator-{index:04d}{'m' * 44}": (NOW + timedelta(days=1 + index % 97)).isoformat()
            for index in range(certificates)
        },
        etcd_storage=storage,
    )
    found = report.status(observed)
    assert list(crd.structure_findings(found, schema()["properties"]["status"])) == []
    broken = {names[index] for index in lost if index < number}
    assert {each["name"] for each in found["members"] if not each["ready"]} == broken
    assert {each["name"][-48:] for each in found["components"] if not each["ready"]} == broken
    assert found["membersReady"] == f"{number - len(broken)}/{number}"
    if certificates:
        assert found["nextExpiry"] == min(observed.certificates.values())
        assert found["nextExpiry"] in {each["notAfter"] for each in found["certificates"]}


def check(value: Any, definition: dict[str, Any], path: str) -> None:
    """Names, types and enums; the rest is looked at by an API server."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    assert isinstance(value, kinds[definition["type"]]), path
    assert value in definition.get("enum", [value]), f"{path} is {value!r}"
    if isinstance(value, dict):
        assert set(value) <= set(definition["properties"]), path
        assert set(definition.get("required", ())) <= set(value), path
        for name, each in value.items():
            check(each, definition["properties"][name], f"{path}.{name}")
    if isinstance(value, list):
        for each in value:
            check(each, definition["items"], f"{path}[]")


def test_members_that_a_run_could_not_bring_to_what_is_listed_are_told_with_the_next_step() -> None:
    """One that is registered stays in the report as what it is; one that could not be is there, too."""
    broken = [BrokenMember("m1", "it does not answer", "mend it"), BrokenMember("m2", "no such Secret", "make it")]
    observed = replace(WORKING, wanted_members=["m1", "m2"], broken_members=broken)
    found = report.status(observed)
    assert [(each["name"], each["ready"], each["message"]) for each in found["members"]] == [
        ("m1", True, "it does not answer. Next: mend it"),
        ("m2", False, "no such Secret. Next: make it"),
    ]
    condition = conditions(observed)["MembersReady"]
    assert (condition["status"], condition["message"]) == ("False", "not ready, or not as listed: m2, m1")


def test_a_listed_member_that_is_missing_stands_among_the_members() -> None:
    found = report.status(replace(WORKING, wanted_members=["m1", "m2"]))
    assert [(each["name"], each["ready"], each["reason"]) for each in found["members"]] == [
        ("m1", True, "ClusterReady"),
        ("m2", False, "NotJoined"),
    ]
    assert found["membersReady"] == "1/2"
    assert list(crd.structure_findings(found, schema()["properties"]["status"])) == []
    silent = replace(WORKING, api_ready=False, members=[], wanted_members=["m1", "m2"])
    assert report.status(silent)["members"] == []


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = report.status(WORKING)
    later = replace(WORKING, now=NOW + timedelta(hours=1))
    assert {each["lastTransitionTime"] for each in first["conditions"]} == {NOW.strftime("%Y-%m-%dT%H:%M:%SZ")}
    assert report.status(later, first)["conditions"] == first["conditions"]
    broken = report.status(replace(later, wanted_members=["m1", "m2"]), first)
    moved = {
        each["type"] for each in broken["conditions"] if each["lastTransitionTime"].startswith(f"{later.now:%FT%H}")
    }
    assert moved == {"Ready", "MembersReady"}


def test_the_hosts_of_a_control_plane_with_what_is_wrong_there() -> None:
    assert "hosts" not in report.status(WORKING)
    hosts = [
        HostStatus("cp1", "192.0.2.1", ("etcd", "controlPlane")),
        HostStatus("cp2", "192.0.2.2", ("etcd",), "lost"),
    ]
    found = report.status(replace(WORKING, mode="Binary", hosts=hosts))
    assert found["mode"] == "Binary"
    assert found["hosts"] == [
        {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"], "ready": True},
        {"name": "cp2", "address": "192.0.2.2", "roles": ["etcd"], "ready": False, "message": "lost"},
    ]
    check(found, schema()["properties"]["status"], "status")


def test_what_an_unknown_former_report_says_does_not_matter() -> None:
    for former in ({}, {"conditions": None}, {"conditions": [{"type": "Ready"}]}):
        assert report.status(WORKING, former) == report.status(WORKING)


def test_members_on_which_nothing_is_placed_are_told_from_others() -> None:
    members = [
        replace(MEMBER, cordoned=True),
        replace(MEMBER, name="m2", cordoned=True, draining=True, ready=False),
        replace(MEMBER, name="m3"),
    ]
    observed = replace(WORKING, members=members)
    assert [(each["name"], each["cordoned"], each["draining"]) for each in report.status(observed)["members"]] == [
        ("m1", True, False),
        ("m2", True, True),
        ("m3", False, False),
    ]
    rows = {line.split()[0]: line for line in block.text(observed, block.About("prod")).splitlines() if line.strip()}
    assert rows["m1"].endswith("Ready, cordoned")
    assert rows["m2"].endswith("ClusterReady, draining")
    assert "cordoned" not in rows["m3"]


def test_what_a_run_has_changed_is_in_its_report_as_far_as_the_schema_takes_it() -> None:
    changes = [StepChange("created", "Deployment", f"karmada/d{number}") for number in range(2000)]
    observed = replace(WORKING, changes=[*changes, StepChange("held", "Unit", "a.service", host="cp1")])
    found = report.status(observed)
    assert found["changes"][0] == {"action": "created", "kind": "Deployment", "name": "karmada/d0"}
    definition = schema()["properties"]["status"]
    assert (len(found["changes"]), found["changesTotal"]) == (definition["properties"]["changes"]["maxItems"], 2001)
    check({**found, "changes": [each.plain for each in observed.changes[-2:]]}, definition, "status")


def test_what_may_hurt_tomorrow_is_said_today() -> None:
    assert report.warnings(WORKING) == []
    assert "emptyDir" in report.warnings(replace(WORKING, etcd_storage="emptyDir"))[0].what
    soon = {"karmada-webhook": (NOW + timedelta(days=29)).isoformat(), "x": (NOW + timedelta(days=31)).isoformat()}
    (warning,) = map(str, report.warnings(replace(WORKING, certificates=soon)))
    assert "karmada-webhook" in warning
    assert "x (" not in warning


@pytest.mark.parametrize(
    ("ago", "said"), [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (172800, "2d")]
)
def test_age(ago: int, said: str) -> None:
    assert backups.age((NOW - timedelta(seconds=ago)).isoformat(), NOW) == said
    assert backups.age("", NOW) == "-"


def test_problems_of_members_come_before_warnings_as_data_that_the_schema_takes() -> None:
    wrong = Problem("it does not answer", "member m1", "mend it", reason=Reason.MEMBER_UNREACHABLE)
    broken = [BrokenMember.of_problems("m1", [wrong])]
    status = report.status(replace(WORKING, etcd_storage="emptyDir", broken_members=broken))
    assert [(each["severity"], each["reason"]) for each in status["problems"]] == [
        ("error", "MemberUnreachable"),
        ("warning", "DataNotDurable"),
    ]
    many = [replace(wrong, what=f"{number}") for number in range(100)]
    told = report.status(replace(WORKING, broken_members=[BrokenMember.of_problems("m1", many)]))["problems"]
    assert len(told) == manifest.schema()["properties"]["status"]["properties"]["problems"]["maxItems"]
    assert list(crd.structure_findings(status, manifest.schema()["properties"]["status"])) == []
