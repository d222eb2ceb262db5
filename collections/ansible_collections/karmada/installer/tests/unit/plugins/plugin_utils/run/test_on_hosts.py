# SPDX-License-Identifier: Apache-2.0
"""A run on plain hosts: which state it goes on with, when there is something to do, and what each host is to be."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import host_programs as host_programs_action
from ansible_collections.karmada.installer.plugins.action import journal, uninstall
from ansible_collections.karmada.installer.plugins.plugin_utils import private_file
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import programs
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Program
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    COLLECTION_VERSION,
    EtcdState,
    Journal,
    State,
    to_files,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    BY_NAME,
    COMPONENTS,
    KARMADA_SCHEDULER,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import files as pki_files
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer, units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored, choose, kept_by
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EXTERNAL_FILES,
    NOW,
    TOKEN,
    document,
    external_etcd,
    state,
)
from cryptography import x509

Object = dict[str, Any]

EXTERNAL: Object = {"type": "External", "host": "karmada.example.com"}
VIRTUAL: Object = {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}}
HOSTS = [
    {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]},
    {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]},
    {"name": "etcd1", "address": "192.0.2.3", "roles": ["etcd"]},
    {"name": "etcd2", "address": "192.0.2.4", "roles": ["etcd"]},
]
NAMES = [host["name"] for host in HOSTS]
EVERY = [component.name for component in COMPONENTS]


def deployment(**spec: Any) -> Object:
    return document({"mode": "Binary", "hosts": HOSTS, "endpoint": EXTERNAL, **spec})


def remembered(**fields: Any) -> State:
    """After an installation that came to its end."""
    known = {
        "etcd": EtcdState(token=TOKEN, storage="directory", bootstrapped=True),
        "document": deployment(),
        "hosts": {host["name"]: host for host in HOSTS},
    }
    return state(**{**known, **fields})


def seen(stored: Stored, **more: Any) -> Object:
    """What was seen of a host on which nothing is to be done."""
    return {"stored": stored.plain, "files": {}, "programs": {}, "facts": {"architecture": "x86_64"}, **more}


class Runs:
    """Steps of one playbook run, each with a look of its own at what those before it have left."""

    def __init__(self, folder: Path) -> None:
        self.handover = Handover(folder)

    def see(self, **hosts: Object) -> None:
        for name, what in hosts.items():
            observations.note(self.handover, name, what)

    def see_all(self, what: Object) -> None:
        """Of all hosts; what those that only store keep of the state is which one it is."""
        for host in HOSTS:
            only_which = "controlPlane" not in host["roles"] and what.get("stored", {}).get("serial")
            self.see(**{host["name"]: {**what, **({"stored": {**what["stored"], "files": {}}} if only_which else {})}})

    def step(self, document: Object | None = None, *, check: bool = False, holder: str = "me@here") -> Run:
        run = Run(
            document or deployment(),
            Connection(),
            operation="apply",
            holder=holder,
            check=check,
            say=lambda _message: None,
            place=partial(OnHosts, handover=self.handover),
        )
        run.now = NOW
        return run


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "run")


@pytest.fixture
def installed(runs: Runs) -> Runs:
    """All hosts are as an installation has left them."""
    runs.see_all(seen(Stored(4).after(remembered())))
    return runs


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

FORMER = {"name": "cp3", "address": "192.0.2.13", "roles": ["controlPlane"]}
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


# -- what a host is to be ------------------------------------------------------------------------------------


def absent(tree: Object) -> list[str]:
    return [unit["name"] for unit in tree["absent"]["units"]]


def unit_names(run: Run, *components: str) -> list[str]:
    return [units.unit_name(run.instance, BY_NAME[name]) for name in components]


@pytest.mark.parametrize("host", NAMES)
def test_a_host_has_the_components_of_its_roles_and_the_end_of_all_others(installed: Runs, host: str) -> None:
    run = installed.step()
    roles = next(each["roles"] for each in HOSTS if each["name"] == host)
    of_control_plane = [each.name for each in wanted_components(run.spec) if each.name != "etcd"]
    expected = [*(["etcd"] if "etcd" in roles else []), *(of_control_plane if "controlPlane" in roles else [])]
    tree = run.on_host(host).tree(EVERY)
    assert [unit["name"] for unit in tree["units"]] == unit_names(run, *expected)
    rows = [name for name in EVERY if name not in expected and not BY_NAME[name].per_member]
    assert absent(tree) == unit_names(run, *rows)


def test_an_optional_component_comes_and_goes_with_the_document(installed: Runs) -> None:
    without, wanted = installed.step(), installed.step(deployment(components={"karmadaDescheduler": {}}))
    (unit,) = unit_names(without, "karmada-descheduler")
    found = without.on_host("cp2").tree(EVERY)
    assert unit not in [each["name"] for each in found["units"]]
    assert unit in absent(found)
    assert "/etc/karmada/prod/karmada-descheduler" in found["absent"]["folders"]
    assert {"name": "karmada-prod-descheduler"} in found["absent"]["users"]
    found = wanted.on_host("cp2").tree(EVERY)
    assert unit in [each["name"] for each in found["units"]]
    assert unit not in absent(found)


def test_an_api_server_that_is_to_go_does_not_end_before_its_clients(installed: Runs) -> None:
    tree = installed.step().on_host("etcd1").tree(["etcd", "karmada-apiserver"])
    assert absent(tree) == []
    # all but etcd, and but what only members have one of
    assert len(absent(installed.step().on_host("etcd1").tree(EVERY))) == len(EVERY) - 2


def test_what_ends_on_a_host_never_takes_the_data_of_etcd_along(installed: Runs) -> None:
    found = installed.step().on_host("cp2").tree(EVERY)
    assert absent(found)[0] == "karmada-prod-etcd.service"
    assert not [each for each in found["absent"]["folders"] if "etcd" in each]
    assert not [each for each in found["absent"]["users"] if "etcd" in each["name"]]


def files_of(tree: Object) -> dict[str, str]:
    return {file["path"]: file["content"] for file in tree["files"]}


def test_certificates_that_are_there_are_kept_and_what_is_missing_is_issued(installed: Runs) -> None:
    def look() -> dict[str, str]:
        return files_of(installed.step().on_host("cp1").tree([KARMADA_SCHEDULER.name, "etcd"]))

    first = look()
    installed.see(cp1={"files": {path: content for path, content in first.items() if path.startswith("/etc/karmada")}})
    assert look() == first
    keys = [path for path in first if path.endswith("/tls.key")]
    assert len(keys) > 1
    gone = keys[0]
    installed.see(cp1={"files": {path: content for path, content in first.items() if path != gone}})
    second = look()
    assert {path for path in first if path.endswith("/tls.key") and second[path] != first[path]} == {gone}
    certificate = gone.replace("tls.key", "tls.crt")
    assert second[certificate] != first[certificate]


def test_a_kubeconfig_of_an_earlier_version_is_written_anew_once(installed: Runs, tmp_path: Path) -> None:
    """Its administrator was above all rights, and nothing could take that away."""
    path = tmp_path / "kubeconfig"

    def step() -> Run:
        run = installed.step()
        run.connection = Connection(kubeconfig_output=str(path))
        return run

    first = step()
    masters = pki.Certificate("admin", "karmada-ca", "system:admin", ("system:masters",), client=True)
    was = pki.issue(masters, first.state.authorities["karmada-ca"], "ECDSA-P256", first.now, timedelta(days=365))
    path.write_text(pki_files.kubeconfig_of(was, b"", "https://192.0.2.1", "karmada-admin"))
    reasons = step().snapshot.issued.reasons
    assert list(reasons) == ["admin"]
    assert "The subject differs" in reasons["admin"][0]
    assert private_file.write(path, admin_kubeconfig.for_person(step())) is True
    assert step().snapshot.issued.reasons == {}
    assert private_file.write(path, admin_kubeconfig.for_person(step())) is False


def test_a_raised_generation_is_another_administrator(installed: Runs, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"

    def step(generation: int) -> Run:
        run = installed.step(deployment(certificates={"administratorGeneration": generation}))
        run.connection = Connection(kubeconfig_output=str(path))
        return run

    private_file.write(path, admin_kubeconfig.for_person(step(1)))
    assert step(1).snapshot.issued.reasons == {}
    assert list(step(2).snapshot.issued.reasons) == ["admin"]
    private_file.write(path, admin_kubeconfig.for_person(step(2)))
    assert step(2).snapshot.issued.reasons == {}


def test_what_a_run_works_with_is_not_what_it_hands_out(installed: Runs) -> None:
    run = installed.step()
    own = pki.describe(run.snapshot.own_identity.certificate)
    assert own["subject"] == "CN=system:karmada:installer, O=system:masters"
    assert pki.expiry(run.snapshot.own_identity.certificate) - run.now < timedelta(days=1)
    key = run.snapshot.own_identity.key.decode()
    assert key not in admin_kubeconfig.for_person(run)
    assert not [text for text in files_of(run.on_host("cp1").tree(EVERY)).values() if key in text]


def test_a_host_with_another_address_gets_another_certificate(installed: Runs) -> None:
    def etcd(document: Object) -> dict[str, str]:
        return files_of(installed.step(document).on_host("cp1").tree(["etcd"]))

    first = etcd(deployment())
    installed.see(cp1={"files": first})
    moved = etcd(deployment(hosts=[{**HOSTS[0], "address": "192.0.2.9"}, *HOSTS[1:]]))
    renewed = {path for path in first if path.endswith("/tls.crt") and moved[path] != first[path]}
    assert renewed == {path for path in first if path.endswith("/tls.crt") and addresses(first[path])}
    assert {address for path in renewed for address in addresses(moved[path])} >= {"192.0.2.9"}


def addresses(certificate: str) -> set[str]:
    """The addresses that a certificate is good for; empty for that of a client."""
    try:
        names = x509.load_pem_x509_certificate(base64.b64decode(certificate)).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return set()
    return {str(address) for address in names.value.get_values_for_type(x509.IPAddress)}


def test_what_hosts_lack_is_told_by_the_names_that_releases_have_for_architectures(installed: Runs) -> None:
    run = installed.step()
    paths = {component.name: units.program(run.instance, component) for component in wanted_components(run.spec)}
    installed.see(
        cp1={"programs": dict.fromkeys(paths.values(), "")},
        cp2={"programs": {path: "" for name, path in paths.items() if name != "karmada-webhook"}},
        etcd2={"programs": dict.fromkeys(paths.values(), "")},
        etcd1={"facts": {"architecture": "aarch64"}},
    )
    found = host_programs.missing(installed.step())
    named = {
        host: {architecture: [component.name for component in lacking] for architecture, lacking in each.items()}
        for host, each in found.items()
    }
    assert named == {"cp2": {"amd64": ["karmada-webhook"]}, "etcd1": {"arm64": ["etcd"]}}


# -- what programs came out of -------------------------------------------------------------------------------

DIGEST, OTHER = f"sha256:{1:064}", f"sha256:{2:064}"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Object]:
    """What was asked for: architecture, components, and what tags were held to. Every tag leads to DIGEST."""
    asked: list[Object] = []

    def fetch(_release: Any, architecture: str, lacking: Any, _spec: Any, _source: Any, *, held: Held) -> Any:
        asked.append({"for": architecture, "held": dict(held.digests), "accepted": set(held.accepted)})
        return {
            each.name: Program(Path("/cache"), "0" * 64, 1, "v1", f"registry/{each.name}:v1", DIGEST)
            for each in lacking
        }

    monkeypatch.setattr(programs, "programs", fetch)
    return asked


def test_what_tags_led_to_is_on_record_before_any_host_has_a_program(runs: Runs, fetched: list[Object]) -> None:
    runs.see_all(seen(Stored()))
    runs.see(etcd2={"facts": {"architecture": "aarch64"}})
    run = runs.step()
    run.save(run.state)
    host_programs.fetch(runs.step())
    names = {each.name for each in wanted_components(run.spec)}
    assert runs.step().state.digests == {f"registry/{name}:v1": DIGEST for name in names}
    # It is in what is written to hosts before programs are sent there, and survives what comes after it.
    runs.step().begin()
    assert len(runs.step().state.digests) == len(names)
    first, second = fetched
    assert (first["for"], first["held"]) == ("amd64", {})
    assert (second["for"], second["held"]["registry/etcd:v1"]) == ("arm64", DIGEST)


def test_a_host_that_comes_later_is_held_to_what_the_first_were(runs: Runs, fetched: list[Object]) -> None:
    recorded = {"registry/karmada-webhook:v1": OTHER}
    runs.see_all(seen(Stored(4).after(remembered(digests=recorded))))
    host_programs.fetch(runs.step())
    assert fetched == [{"for": "amd64", "held": recorded, "accepted": set()}]


def test_a_name_that_is_accepted_is_recorded_anew_and_once_for_all_architectures(
    runs: Runs, fetched: list[Object]
) -> None:
    name = "registry/etcd:v1"
    runs.see_all(seen(Stored(4).after(remembered(digests={name: OTHER}))))
    runs.see(etcd2={"facts": {"architecture": "aarch64"}})
    run = runs.step()
    run.confirmed_images = {name}
    host_programs.fetch(run)
    first, second = fetched
    assert (first["held"][name], first["accepted"]) == (OTHER, {name})
    assert (second["held"][name], second["accepted"]) == (DIGEST, set()), "another one for arm64 would be a third"
    assert runs.step().state.digests[name] == DIGEST


def test_a_second_run_and_a_check_record_nothing(installed: Runs, fetched: list[Object]) -> None:
    paths = [units.program(installed.step().instance, each) for each in wanted_components(Spec(deployment()["spec"]))]
    check = installed.step(check=True)
    assert host_programs.fetch(check)
    assert fetched == []
    installed.see_all({"programs": dict.fromkeys(paths, "0" * 64)})
    host_programs.fetch(installed.step())
    assert fetched == []
    assert installed.step().store.stored.serial == 5
    assert installed.step().begin() is False


def test_a_program_that_was_sent_is_known_with_its_checksum(installed: Runs) -> None:
    lacking = {"/usr/local/lib/karmada/v1/etcd": {"sha256": "2" * 64, "file": "/cache/etcd"}}
    installed.see(cp1={"programs": {"/usr/local/lib/karmada/v1/other": "1" * 64}, "lacking": lacking})
    action = host_programs_action.ActionModule.__new__(host_programs_action.ActionModule)
    action.karmada, action.variables = installed.step(), {"karmada_host": {"name": "cp1"}}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    action._send = lambda file: f"/tmp/{file.name}"
    action.on_host = lambda _module, **arguments: {"changed": True, **arguments}
    assert action.perform({"state": "present"})["arrived"] == {"2" * 64: "/tmp/etcd"}
    known = installed.handover.observed("cp1")
    assert (known.lacking, [*known.programs.values()]) == ({}, ["1" * 64, "2" * 64])


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
    action.karmada, action.variables = run, {"karmada_host": {"name": "cp1"}}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    asked: list[Object] = []
    action.on_host = lambda _module, **arguments: asked.append(arguments) or {"changed": True}
    assert action.perform({"state": "absent", "required": True})["changed"] is (sent == "absent")
    assert [(each["state"], "content" in each) for each in asked] == [(sent, sent == "written")]


@pytest.mark.parametrize(
    ("source", "crds", "programs"),
    [
        ({"source": "URL"}, None, None),
        ({"source": "URL", "url": "https://mirror/a/"}, "https://mirror/a/karmada", "https://mirror/a/"),
        ({"source": "Image", "url": "https://mirror/a"}, "https://mirror/a/karmada", "https://mirror/a"),
        ({"source": "GoModules", "url": "https://proxy"}, "https://proxy", "https://proxy"),
    ],
)
def test_a_mirror_has_the_crds_beside_the_programs_of_karmada(
    installed: Runs, source: Object, crds: str | None, programs: str | None
) -> None:
    run = installed.step(deployment(artifacts=source))
    assert (run.place.crd_source.url, run.artifact_source.url) == (crds, programs)
    assert run.place.crd_source.kind == run.artifact_source.kind == source["source"]


def test_with_an_etcd_of_somebody_else_hosts_have_its_client_certificate_and_none_of_ours(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "external_etcd_files", EXTERNAL_FILES)
    hosts = [{**host, "roles": ["controlPlane"]} for host in HOSTS]
    runs.see_all(seen(Stored()))
    run = runs.step(deployment(hosts=hosts, **external_etcd()))
    assert "etcd-ca" not in run.state.authorities
    tree = run.on_host("cp1").tree(EVERY)
    assert not [unit for unit in tree["units"] if "etcd" in unit["name"]]
    content = {file["path"].removeprefix("/etc/karmada/prod/"): file["content"] for file in tree["files"]}
    for name, expected in EXTERNAL_FILES.items():
        assert base64.b64decode(content[f"karmada-apiserver/pki/etcd-client/{name}"]) == expected
    assert run.material.external_etcd == EXTERNAL_FILES, "the report tells when it ends"


# -- addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "host", "url"),
    [
        (EXTERNAL, "karmada.example.com", "https://karmada.example.com:5443"),
        ({**EXTERNAL, "port": 443}, "karmada.example.com", "https://karmada.example.com:443"),
        (VIRTUAL, "192.0.2.100", "https://192.0.2.100:5443"),
        ({**VIRTUAL, "host": "karmada.example.com"}, "karmada.example.com", "https://karmada.example.com:5443"),
        (
            {"type": "VirtualIP", "virtualIP": {"address": "2001:db8::100"}},
            "2001:db8::100",
            "https://[2001:db8::100]:5443",
        ),
    ],
)
def test_where_everyone_finds_the_api_server(installed: Runs, endpoint: Object, host: str, url: str) -> None:
    prefix = "2001:db8::" if ":" in host else "192.0.2."
    hosts = [{**each, "address": each["address"].replace("192.0.2.", prefix)} for each in HOSTS]
    run = installed.step(deployment(endpoint=endpoint, hosts=hosts))
    assert (run.endpoint_host, run.public_url) == (host, url)


def test_an_api_server_asks_the_helpers_of_its_own_host(installed: Runs) -> None:
    found = installed.step(deployment(components={"karmadaSearch": {}, "karmadaMetricsAdapter": {}})).snapshot.addresses
    assert found.webhook_url.startswith("https://localhost:")
    assert set(found.aggregated) == {"karmada-aggregated-apiserver", "karmada-search", "karmada-metrics-adapter"}
    ports = [port for host, port in found.aggregated.values() if host == "localhost"]
    assert len(set(ports)) == 3, "they are all on one host, and none at another one"
    assert int(found.webhook_url.rsplit(":", 1)[1]) not in ports
    assert found.public_url == "https://karmada.example.com:5443"


def test_whoever_looks_for_a_component_on_hosts_follows_its_flags(installed: Runs) -> None:
    components = {
        "karmadaAPIServer": {"extraArgs": {"secure-port": "6443"}},
        "karmadaAggregatedAPIServer": {"extraArgs": {"secure-port": "17443"}},
        "karmadaWebhook": {"extraArgs": {"secure-port": "18443"}},
        "karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "127.0.0.1:20351"}},
        "etcd": {"local": {"extraArgs": {"listen-client-urls": "https://0.0.0.0:12379"}}},
    }
    run = installed.step(deployment(components=components, endpoint=VIRTUAL))
    assert run.snapshot.addresses.webhook_url == "https://localhost:18443"
    assert run.snapshot.addresses.aggregated["karmada-aggregated-apiserver"] == ("localhost", 17443)
    tree = run.on_host("cp1").tree(EVERY)
    health = {unit["name"]: unit["health"]["url"].rpartition("/")[0] for unit in tree["units"]}
    names = ("karmada-apiserver", "karmada-webhook", "karmada-scheduler")
    assert [health[name] for name in unit_names(run, *names)] == [
        "https://192.0.2.1:6443",
        "https://127.0.0.1:18443",
        "http://127.0.0.1:20351",
    ]
    files = {path: base64.b64decode(content).decode() for path, content in files_of(tree).items()}
    (api_server,) = [text for path, text in files.items() if path.endswith("karmada-prod-apiserver.service")]
    assert "--etcd-servers=https://192.0.2.1:12379" in api_server
    assert not [path for path, text in files.items() if ":5443" in text], "kubeconfigs"
    assert "192.0.2.1:6443" in load_balancer.haproxy_configuration(run.instance, run.hosts["cp1"])


def test_only_what_was_seen_tells_whether_there_is_an_api_server(installed: Runs) -> None:
    assert installed.step().control_plane_exists is False
    installed.see(cp2={"files": {"/etc/karmada/prod/karmada-apiserver/pki/server/tls.crt": ""}})
    assert installed.step().control_plane_exists is True


def test_a_step_hands_its_state_on_to_the_next_one(installed: Runs) -> None:
    run = installed.step()
    run.save(replace(run.state, endpoint_host="noted"))
    assert run.state.endpoint_host == "noted"
    assert installed.step().state.endpoint_host == "noted"
    assert choose(kept_by(installed.step().observed), "prod").serial == 5, (
        "what lies on the hosts is written by the step for it only"
    )
