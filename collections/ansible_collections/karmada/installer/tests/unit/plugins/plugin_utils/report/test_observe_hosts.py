# SPDX-License-Identifier: Apache-2.0
"""The report on a control plane on plain hosts: what works, with which version, and what ends first."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    ETCD,
    KARMADA_APISERVER,
    KARMADA_SCHEDULER,
    KARMADA_WEBHOOK,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates, x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units as render
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import ComponentStatus, Observation
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, deployment, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, TOKEN, authorities

NAMES = ("cp1", "cp2", "cp3")
HOSTS = [
    {"name": name, "address": f"192.0.2.{number}", "roles": ["etcd", "controlPlane"]}
    for number, name in enumerate(NAMES, 1)
]
ANSWERS = {"version": "v1.31.3", "crds": True, "aggregated": True, "members": []}
#: What tells that a host has an API server.
API_SERVER = {"/etc/karmada/prod/karmada-apiserver/audit/policy.yaml": ""}
CRASHED = "failed (failed), result exit-code, last exit 1"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Three hosts, all of whose units work with the same version; the control plane answers."""
    monkeypatch.setattr(observe_hosts, "control_plane_answers", lambda _run: ANSWERS)
    runs = Runs(tmp_path / "run")
    document = deployment(hosts=HOSTS)
    stored = Stored(4).after(remembered(document=document, hosts={each["name"]: each for each in HOSTS}))
    runs.see(**dict.fromkeys(NAMES, seen(stored, files=API_SERVER)))
    run = step(runs)
    units = {
        unit["name"]: {"program": "", "reason": ""}
        for unit in run.on_host("cp1").tree(component.name for component in ALL)["units"]
    }
    for component in ALL:
        units[render.unit_name(run.instance, component)]["program"] = render.program(run.instance, component)
    runs.see(**{name: {"units": units} for name in NAMES})
    return runs


ALL = (ETCD, KARMADA_APISERVER, KARMADA_SCHEDULER, KARMADA_WEBHOOK)


def step(runs: Runs) -> Run:
    return runs.step(deployment(hosts=HOSTS))


def report(runs: Runs) -> Observation:
    return observe_hosts.observe_hosts(step(runs))


def test_what_a_restore_holds_is_not_missed_but_told_if_it_runs(runs: Runs) -> None:
    etcd = EtcdState(TOKEN, storage="directory", bootstrapped=True)
    name = "prod-20261125t020000z-1f3a9c"
    held = RestoreState("back", "nightly", name, "", "0d6c", 2, 10**9, etcd, held=("karmada-scheduler",))
    document = deployment(hosts=HOSTS)
    known = remembered(document=document, hosts={each["name"]: each for each in HOSTS}, restore=held)
    runs.see(**{key: {"stored": Stored(5).after(known).plain} for key in NAMES})
    run = step(runs)
    (unit,) = [
        each for each in run.on_host("cp1").tree([KARMADA_SCHEDULER.name])["units"] if "scheduler" in each["name"]
    ]
    assert unit["stopped"] is True
    components = {each.name: each for each in report(runs).components}
    scheduler = components["karmada-scheduler"]
    assert (scheduler.desired, scheduler.ready) == (0, 0)
    assert components["karmada-apiserver"].desired == 3


def put(runs: Runs, host: str, component: Component, **told: str) -> str:
    """Change what is told of the unit of a component on a host; returns the unit's name."""
    name = render.unit_name(step(runs).instance, component)
    units = runs.handover.observed(host).plain["units"]
    runs.see(**{host: {"units": {**units, name: {**units[name], **told}}}})
    return name


def status(found: Observation, component: Component) -> tuple[int, int]:
    """How many there are to be, and how many work."""
    one: ComponentStatus = next(each for each in found.components if each.name == component.name)
    return one.desired, one.ready


def test_of_three_hosts_one_has_a_unit_that_does_not_work(runs: Runs) -> None:
    unit = put(runs, "cp2", KARMADA_SCHEDULER, reason=CRASHED)
    found = report(runs)
    assert status(found, KARMADA_SCHEDULER) == (3, 2)
    assert status(found, KARMADA_WEBHOOK) == (3, 3)
    told = {str(note): (note.reason, note.severity) for note in found.notes}
    assert told[f"host cp2: {unit} {CRASHED}"] == (Reason.UNIT_NOT_HEALTHY, Severity.WARNING)
    assert [note for note in map(str, found.notes) if note.startswith("host ")] == [f"host cp2: {unit} {CRASHED}"]


def test_a_host_is_in_trouble_that_cannot_be_asked_or_has_a_unit_that_does_not_work(runs: Runs) -> None:
    unit = put(runs, "cp2", KARMADA_SCHEDULER, reason=CRASHED)
    runs.see(cp3={"lost": {"step": "Start units", "reason": "Connection timed out"}})
    found = report(runs)
    assert found.mode == "Binary"
    assert [(each.name, each.address, tuple(each.roles), each.trouble) for each in found.hosts] == [
        ("cp1", "192.0.2.1", ("etcd", "controlPlane"), ""),
        ("cp2", "192.0.2.2", ("etcd", "controlPlane"), f"{unit} {CRASHED}"),
        ("cp3", "192.0.2.3", ("etcd", "controlPlane"), "Connection timed out"),
    ]


def test_what_nobody_has_looked_at_does_not_count_as_working(runs: Runs) -> None:
    runs.see(cp3={"units": {}})
    assert status(report(runs), KARMADA_SCHEDULER) == (3, 2)


OLD = "/usr/local/lib/karmada/v1.17.9"


@pytest.mark.parametrize(
    ("told", "version", "mixed"),
    [
        ({}, "", False),
        ({"program": f"{OLD}/karmada-scheduler"}, "v1.17.9", True),
        # What crashes does not work with any version.
        ({"program": f"{OLD}/karmada-scheduler", "reason": CRASHED}, "", False),
        ({"program": "/opt/elsewhere/karmada-scheduler"}, "", False),
    ],
)
def test_the_version_is_the_oldest_of_those_that_work(
    runs: Runs, told: dict[str, str], version: str, mixed: bool
) -> None:
    put(runs, "cp2", KARMADA_SCHEDULER, **told)
    found = report(runs)
    assert found.karmada_version == (version or step(runs).instance.release.karmada)
    notes = [note for note in map(str, found.notes) if "different versions" in note]
    assert bool(notes) == mixed
    assert all("karmada-scheduler v1.17.9" in note for note in notes)


def certificate(path: str, days: int) -> dict[str, Any]:
    """A certificate of a host that ends in so many days."""
    wanted = x509.Certificate("any", "karmada-ca", "any", (), client=True)
    pair = x509.issue(wanted, authorities()["karmada-ca"], "ECDSA-P256", NOW, timedelta(days=days))
    return {"files": {**API_SERVER, path: base64.b64encode(pair.certificate).decode()}}


def test_of_certificates_that_each_host_has_the_first_to_end_is_told(runs: Runs) -> None:
    files = step(runs).on_host("cp1").tree([KARMADA_SCHEDULER.name])["files"]
    path = next(file["path"] for file in files if file["path"].endswith("/tls.crt"))
    (leaf,) = [
        leaf.name for leaf in KARMADA_SCHEDULER.certificates if f"/{certificates.file_set_of(leaf).directory}/" in path
    ]
    runs.see(cp1=certificate(path, 300), cp2=certificate(path, 20), cp3=certificate(path, 100))
    found = report(runs).certificates
    assert found[leaf].startswith(f"{NOW + timedelta(days=20):%Y-%m-%dT}")
    assert {"karmada-ca", "admin"} <= found.keys()


def test_a_control_plane_that_cannot_be_reached_is_a_note_beside_what_hosts_say(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_run: Run) -> dict[str, Any]:
        raise ProblemsError(
            Problem("no API server can be reached from here", "control plane", reason=Reason.CONTROL_PLANE_UNREACHABLE)
        )

    monkeypatch.setattr(observe_hosts, "control_plane_answers", refuse)
    found = report(runs)
    assert not found.api_ready
    assert "no API server can be reached from here" in [*map(str, found.notes)]
    assert status(found, KARMADA_SCHEDULER) == (3, 3)


def test_a_check_run_before_the_first_install_does_not_miss_what_is_not_there_yet(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "run")
    runs.see(**dict.fromkeys(NAMES, seen(Stored())))
    chosen = step(runs)
    # As the step does that begins a state, also where nothing is written.
    chosen.save(chosen.state)
    found = report(runs)
    assert not found.api_ready
    assert found.notes == []


def test_before_an_installation_nothing_is_asked_and_nothing_works(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "run")
    runs.see(**dict.fromkeys(NAMES, seen(Stored())))
    found = report(runs)
    assert not found.api_ready
    assert found.karmada_version == ""
    assert found.certificates == {}
    assert status(found, KARMADA_SCHEDULER) == (3, 0)


def test_a_host_that_has_left_and_is_not_cleaned_yet_is_told_of(runs: Runs) -> None:
    assert report(runs).notes == []
    former = {"name": "cp4", "address": "192.0.2.4", "roles": ["controlPlane"]}
    run = step(runs)
    run.save(replace(run.state, hosts={**run.state.hosts, "cp4": former}))
    note, *more = map(str, report(runs).notes)
    assert more == []
    assert "cp4 (192.0.2.4) has left the document" in note


def test_hosts_that_have_different_programs_of_one_version_are_told(runs: Runs) -> None:
    path, unused = (
        render.program(step(runs).instance, KARMADA_SCHEDULER),
        "/usr/local/lib/karmada/v0.0.1/karmada-scheduler",
    )
    one, two = "1" * 64, "2" * 64
    runs.see(
        cp1={"programs": {path: one, unused: one}},
        cp2={"programs": {path: two, unused: two}},
        cp3={"programs": {path: one}},
    )
    (note,) = map(str, report(runs).notes)
    assert note.startswith(f"hosts have different programs as {path}: sha256:{one} on cp1, cp3, sha256:{two} on cp2.")
    # A program for another machine is another one.
    runs.see(cp2={"facts": {"architecture": "aarch64"}})
    assert report(runs).notes == []
    runs.see(cp2={"facts": {"architecture": "x86_64"}, "programs": {path: "\x1b]0;"}})
    assert report(runs).notes == []
    runs.see(cp2={"programs": {path: one}})
    assert report(runs).notes == []


def members(runs: Runs, *, restore: RestoreState | None = None, **of_cp2: Any) -> None:
    """Three members, of which the one of cp2 was replaced."""
    first, third = EtcdMemberState("cp1", id="a1"), EtcdMemberState("cp3", id="a3")
    second = EtcdMemberState("cp2", **{"id": "b2", "added": True, **of_cp2})
    etcd = EtcdState(TOKEN, storage="directory", bootstrapped=True, members=(first, second, third))
    hosts = {each["name"]: each for each in HOSTS}
    known = remembered(document=deployment(hosts=HOSTS), hosts=hosts, etcd=etcd, restore=restore)
    runs.see(**{key: {"stored": Stored(5).after(known).plain} for key in NAMES})


def folders(runs: Runs, **found: dict[str, int | None]) -> None:
    for name, of_host in found.items():
        told = [{"name": each, **({"size": size} if size is not None else {})} for each, size in of_host.items()]
        runs.see(**{name: {"etcd": {"message": "silent", "data": True, "folders": told}}})


def hints(runs: Runs) -> list[Problem]:
    return [each for each in report(runs).notes if each.reason is Reason.OLD_DATA_LEFT]


def test_data_that_a_replaced_member_left_is_hinted_at_with_its_room_and_the_step_that_removes_it(runs: Runs) -> None:
    members(runs)
    folders(runs, cp1={"gen-1": 9}, cp2={"gen-1": 40 << 20, "gen-1-a2": None, "gen-1-b2": 9}, cp3={"gen-0": 9})
    (hint,) = hints(runs)
    assert hint.severity is Severity.HINT
    assert hint.what == (
        "data of etcd that no member uses: gen-1 (40 MiB), gen-1-a2 on cp2; gen-0 (less than 1 MiB) on cp3"
    )
    assert hint.remedy.endswith("karmada.installer.restore_cleanup -e restore_cleanup_confirm=prod")
    folders(runs, cp1={"gen-1": 9}, cp2={"gen-1-b2": 9}, cp3={"gen-1": 9})
    assert hints(runs) == []


def test_data_that_may_still_be_needed_is_no_old_data(runs: Runs) -> None:
    folders(runs, cp2={"gen-1": 9, "gen-1-b2": 9, "gen-2": 9})
    members(runs)
    assert len(hints(runs)) == 1
    members(runs, leaving=True)
    assert hints(runs) == [], "a member that comes or goes"
    former = EtcdState(TOKEN, 2, storage="directory", bootstrapped=True)
    quarantined = RestoreState("back", "nightly", "a-backup", "", "0d6c", 1, 10**9, former, step="Compare")
    members(runs, added=False, restore=quarantined)
    (hint,) = hints(runs)
    assert "gen-1-b2" in hint.what
    assert "gen-2" not in hint.what, "a restore may go back to it"
    members(runs, added=False, restore=replace(quarantined, step="Released"))
    (hint,) = hints(runs)
    assert "gen-2" in hint.what
