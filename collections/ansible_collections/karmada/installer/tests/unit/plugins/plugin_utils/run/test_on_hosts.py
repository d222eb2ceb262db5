# SPDX-License-Identifier: Apache-2.0
"""A run on plain hosts: which state it goes on with, when there is something to do, and which hosts leave."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import journal, uninstall
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    COLLECTION_VERSION,
    Journal,
    to_files,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ADMIN
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    FORMER,
    HOSTS,
    NAMES,
    Object,
    Runs,
    deployment,
    remembered,
    seen,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    NOW,
)

# -- the state as it lies on hosts ---------------------------------------------------------------------------


def test_the_serial_grows_if_and_only_if_something_differs() -> None:
    first = Stored().after(remembered())
    assert first.serial == 1
    assert first.after(remembered()) is first
    second = first.after(remembered(endpoint_host="karmada.example.com"))
    assert second.serial == 2
    assert second.after(remembered()).serial == 3, "going back is a change, too"


def test_what_was_stored_is_read_again() -> None:
    stored = Stored.of(Stored(6).after(remembered()).plain)
    assert stored.serial == 7
    assert stored.state() == remembered()
    assert Stored.of(None).state() is None


# -- when there is something to do ---------------------------------------------------------------------------


def test_nothing_is_due_where_all_is_as_it_should_be(installed: Runs) -> None:
    assert installed.step().begin() is False
    assert installed.step().store.stored.serial == 5
    assert installed.step().finish() is False
    assert installed.step().store.stored.serial == 5


def interrupted(runs: Runs) -> Object:
    journal = Journal(operation="apply", run="somebody@else", started=NOW.isoformat(), step="hosts")
    runs.see_all(seen(Stored(4).after(remembered(journal=journal))))
    return deployment()


def changed(_runs: Runs) -> Object:
    return deployment(encryption={"provider": "identity"})


def of_host(what: Object) -> Callable[[Runs], Object]:
    def change(runs: Runs) -> Object:
        runs.see(cp2=what)
        return deployment()

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(of_host({"stored": {"serial": 0, "files": {}}}), id="a fresh host"),
        pytest.param(of_host({"stored": Stored(4).after(remembered()).without_files}), id="no copy of the state"),
        pytest.param(of_host({"differs": True}), id="differs"),
        pytest.param(of_host({"lacking": {"/usr/local/lib/karmada/v1/karmada-scheduler": {}}}), id="lacking programs"),
        pytest.param(interrupted, id="interrupted"),
        pytest.param(changed, id="another document"),
    ],
)
def test_a_run_is_due_and_only_a_real_one_opens_the_journal(installed: Runs, change: Callable[[Runs], Object]) -> None:
    document = change(installed)
    before = installed.step(document).state.journal
    assert installed.step(document, check=True).begin() is True
    assert installed.step(document).state.journal == before
    assert installed.step(document).begin() is True
    journal = installed.step(document).state.journal
    assert journal.interrupted
    assert (journal.operation, journal.run, journal.step) == ("apply", "me@here", "hosts")
    assert installed.step(document).state.collection == COLLECTION_VERSION
    assert installed.step(document).store.stored.serial == 6


def test_who_has_an_api_server_gets_a_copy_and_others_only_which_state_it_is(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    runs.step().begin()
    kept = {name: runs.step().store.stored.for_host(runs.step().hosts[name]) for name in NAMES}
    assert {name for name, each in kept.items() if each["files"]} == {"cp1", "cp2"}
    assert len({each["digest"] for each in kept.values()}) == 1
    assert "PRIVATE" not in json.dumps([kept["etcd1"], kept["etcd2"]])


def test_a_first_install_is_due_and_its_keys_are_those_of_all_later_steps(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    run = runs.step()
    assert run.begin() is True
    later = runs.step()
    assert later.stored_state == run.state
    assert later.state.etcd.storage == "directory"
    assert not later.state.etcd.bootstrapped
    assert later.state.document is None


def test_the_range_for_services_is_noted_by_the_first_install(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    run = runs.step()
    run.begin()
    assert runs.step().state.service_subnet == run.snapshot.service_subnet != ""


def test_members_of_etcd_are_noted_before_they_start_and_then_their_bootstrap(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    runs.step().begin()
    etcd = runs.step().state.etcd
    assert (etcd.bootstrapped, etcd.nodes) == (False, ("cp1", "etcd1", "etcd2"))
    runs.step().etcd_bootstrapped()
    etcd = runs.step().state.etcd
    assert (etcd.bootstrapped, etcd.nodes) == (True, ("cp1", "etcd1", "etcd2"))


@pytest.mark.parametrize("check", [True, False])
def test_a_step_has_no_objects_to_apply_where_there_is_no_host_cluster(runs: Runs, check: bool) -> None:
    """Such as the administrator's kubeconfig, which is a file only."""
    run = runs.step(check=check)
    assert run.apply_to_host_cluster("admin kubeconfig", lambda: [admin_kubeconfig.secret(run)]) == []


def test_the_end_closes_the_journal_and_keeps_the_document(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    runs.step().begin()
    assert runs.step().finish() is True
    found = runs.step().state
    assert found.document == deployment()
    assert found.journal.finished
    assert not found.journal.interrupted
    assert runs.step().finish() is False


# -- hosts that leave ----------------------------------------------------------------------------------------
KNOWN = {host["name"]: host for host in (*HOSTS, FORMER)}


def left(run: Run) -> dict[str, Any]:
    """The hosts that have left, by name, as they are on record."""
    return {name: entry.plain for name, entry in run.leaving.items()}


@pytest.fixture
def without_one(runs: Runs) -> Runs:
    """All is as an installation has left it, and a host has been taken out of the document since."""
    document = deployment(hosts=[*HOSTS, FORMER])
    runs.see_all(seen(Stored(4).after(remembered(document=document, hosts=KNOWN))))
    return runs


def test_a_host_that_the_document_has_no_more_leaves_until_it_is_forgotten(without_one: Runs) -> None:
    assert left(without_one.step()) == {"cp3": FORMER}
    assert without_one.step().begin() is True
    assert left(without_one.step()) == {"cp3": FORMER}, "a run that is killed here comes back to it"
    without_one.step().hosts_left()
    assert left(without_one.step()) == {}
    without_one.step().finish()
    without_one.see_all({"stored": without_one.step().store.stored.plain})
    assert without_one.step().begin() is False


def test_what_joins_members_does_not_forget_it(without_one: Runs) -> None:
    without_one.step().finish()
    assert without_one.step().state.document == deployment()
    assert left(without_one.step()) == {"cp3": FORMER}
    assert without_one.step().begin() is True


def test_a_host_is_known_before_anything_is_put_there(runs: Runs) -> None:
    runs.see_all(seen(Stored()))
    assert left(runs.step()) == {}
    runs.step(deployment(hosts=[*HOSTS, FORMER])).begin()
    assert left(runs.step()) == {"cp3": FORMER}, "though that run never came to its end"


def test_one_that_only_gets_another_name_does_not_leave(without_one: Runs) -> None:
    renamed = deployment(hosts=[*HOSTS, {**FORMER, "name": "cp9"}])
    assert left(without_one.step(renamed)) == {}


def test_an_earlier_version_has_recorded_the_hosts_with_the_document(runs: Runs) -> None:
    files = to_files(remembered(document=deployment(hosts=[*HOSTS, FORMER])))
    plain = json.loads(files["instance.json"])
    files["instance.json"] = json.dumps(
        {**{key: value for key, value in plain.items() if key != "hosts"}, "format": 3}
    ).encode()
    stored = Stored(4, {name: base64.b64encode(content).decode() for name, content in files.items()})
    runs.see_all(seen(stored))
    assert left(runs.step()) == {"cp3": FORMER}


# -- uninstall -----------------------------------------------------------------------------------------------


def test_keys_in_an_etcd_of_somebody_else_go_with_the_control_plane(
    installed: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Change(Ref("etcd", "KeyPrefix", "/karmada/prod"), "deleted")
    monkeypatch.setattr(uninstall.external_etcd, "release", lambda _run: [gone])
    arguments = {"stage": "control_plane", "timeout": 600, "abandon_members": []}
    assert uninstall._on_hosts(installed.step(), arguments)["changed"] is True


@pytest.mark.parametrize(("policy", "sent"), [("Retain", "written"), ("Delete", "absent")])
def test_the_state_stays_where_the_data_stays_with_what_the_uninstall_has_learnt(
    installed: Runs, policy: str, sent: str
) -> None:
    run = installed.step(deployment(deletion={"policy": policy}))
    run.save(replace(run.state, members={}, endpoint_host="elsewhere"))
    action = journal.OnHost.__new__(journal.OnHost)
    action.karmada, action.variables = run, {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    asked: list[Object] = []
    action.on_host = lambda _module, **arguments: asked.append(arguments) or {"changed": True}
    assert action.perform({"state": "absent", "required": True})["changed"] is (sent == "absent")
    assert [(each["state"], "content" in each) for each in asked] == [(sent, sent == "written")]


# -- addresses -----------------------------------------------------------------------------------------------


def test_only_what_was_seen_tells_whether_there_is_an_api_server(installed: Runs) -> None:
    assert installed.step().control_plane_exists is False
    installed.see(cp2={"files": {"/etc/karmada/prod/karmada-apiserver/pki/server/tls.crt": ""}})
    assert installed.step().control_plane_exists is True


def test_a_step_hands_its_state_on_to_the_next_one(installed: Runs) -> None:
    run = installed.step()
    run.save(replace(run.state, endpoint_host="noted"))
    assert run.state.endpoint_host == "noted"
    assert installed.step().state.endpoint_host == "noted"
    assert installed.step().store.agreed.serial == 5, "what lies on the hosts is written by the step for it only"


# -- the administrator's certificate, which no host and no state keeps ------------------------------------------


def left_in_a_file(run: Run, folder: Path) -> Connection:
    path = folder / "prod.kubeconfig"
    path.write_text(admin_kubeconfig.for_person(run))
    return Connection(kubeconfig_output=str(path))


def left_beside_the_object(run: Run, _folder: Path) -> Connection:
    run.connection = Connection(object_uid="of-prod")
    run.__dict__["home"] = OBJECTS
    secret = admin_kubeconfig.beside_object(run)
    assert secret
    assert secret["metadata"]["namespace"] == run.deployment["metadata"]["namespace"]
    OBJECTS.put(secret)
    return run.connection


OBJECTS = FakeCluster("home")


@pytest.mark.parametrize("left", [left_in_a_file, left_beside_the_object])
def test_the_certificate_that_was_left_is_kept_until_it_is_to_be_renewed(
    left: Callable[[Run, Path], Connection], runs: Runs, tmp_path: Path
) -> None:
    """Otherwise the kubeconfig would be another one after each run, and each run would find a difference."""
    runs.see_all(seen(Stored(4).after(remembered())))
    connection = left(runs.step(), tmp_path)

    def certificate(now: datetime = NOW) -> bytes:
        run = runs.step()
        run.connection, run.now = connection, now
        run.__dict__["home"] = OBJECTS
        return run.material.leaves[ADMIN.name].certificate

    assert certificate() == certificate()
    assert certificate(NOW + timedelta(days=400)) != certificate()


def test_without_one_each_step_has_a_certificate_of_its_own_and_leaves_it_nowhere(runs: Runs) -> None:
    """As in a job of AWX whose document is a file."""
    runs.see_all(seen(Stored(4).after(remembered())))
    one, other = (runs.step().material.leaves[ADMIN.name].certificate for _ in range(2))
    assert one != other
