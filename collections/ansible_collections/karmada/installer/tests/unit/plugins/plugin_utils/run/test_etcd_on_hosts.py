# SPDX-License-Identifier: Apache-2.0
"""etcd on plain hosts beneath a control plane in pods: who renders what, which state is kept where, what is told."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.template import Templar
from ansible_collections.karmada.installer.plugins.action import workloads
from ansible_collections.karmada.installer.plugins.action.ssh_files import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import source as artifact_source
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS, ETCD, ETCD_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings, host_list_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import ComponentStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import make_run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import UnitStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.run.in_pods import InPods, PodsAboveHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.place import Place
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, TOKEN, document, rendered, state
from cryptography import x509

Object = dict[str, Any]

NAMES = ["etcd1", "etcd2", "etcd3"]
HOSTS = [{"name": name, "address": f"192.0.2.{number}", "roles": ["etcd"]} for number, name in enumerate(NAMES, 1)]
URLS = [f"https://192.0.2.{number}:2379" for number in (1, 2, 3)]
SPEC: Object = {
    "hosts": HOSTS,
    "components": {"karmadaSearch": {}, "etcd": {"local": {"extraArgs": {"max-wals": "9"}}}},
}
EVERY = [component.name for component in COMPONENTS]


def remembered(**etcd: Any) -> State:
    members = tuple(EtcdMemberState(name, id=f"{number}") for number, name in enumerate(NAMES, 1))
    known = {"token": TOKEN, "storage": "directory", "bootstrapped": True, "members": members}
    return state(etcd=EtcdState(**{**known, **etcd}))


#: of a host on which nothing is under our names
FACTS = {"architecture": "x86_64"}


class Runs:
    """Steps of one run, whose host cluster is in memory."""

    def __init__(self, folder: Path) -> None:
        self.handover = Handover(folder)
        self.host = FakeCluster("host cluster")

    def see(self, **more: Any) -> None:
        for name in NAMES:
            observations.note(self.handover, name, {"files": {}, "programs": {}, "facts": FACTS, **more})

    def step(self, stored: State | None, *, check: bool = False) -> Run:
        deployment = document(SPEC)
        run = Run(
            deployment,
            Connection(),
            operation="test",
            holder="me",
            check=check,
            say=lambda _: None,
            place=partial(PodsAboveHosts, handover=self.handover),
        )
        fake_run(deployment, self.host, stored=stored)  # puts the state there
        run.place.__dict__["host_cluster"] = self.host
        run.now = NOW
        return run


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    found.see()
    return found


# -- what is rendered ------------------------------------------------------------------------------------------------


def test_the_host_cluster_gets_nothing_of_etcd_but_certificates_for_its_clients() -> None:
    names = {each["metadata"]["name"] for each in rendered(SPEC).objects}
    assert {name for name in names if "etcd" in name} == {
        "prod-apiserver-etcd-client-cert",
        "prod-aggregated-apiserver-etcd-client-cert",
        "prod-search-etcd-client-cert",
    }


@pytest.mark.parametrize("component", ["apiserver", "aggregated-apiserver", "search"])
def test_all_that_store_something_know_every_host(component: str) -> None:
    pod = rendered(SPEC).one("Deployment", f"prod-{component}")["spec"]["template"]["spec"]
    assert f"--etcd-servers={','.join(URLS)}" in [
        *pod["containers"][0].get("args", ()),
        *pod["containers"][0]["command"],
    ]


@pytest.mark.parametrize("component", ["apiserver", "aggregated-apiserver", "search"])
def test_no_policy_keeps_them_from_the_hosts(component: str) -> None:
    assert rendered(SPEC).one("NetworkPolicy", f"prod-{component}")["spec"]["policyTypes"] == ["Ingress"]


def test_a_host_gets_etcd_and_nothing_else(runs: Runs) -> None:
    tree = runs.step(remembered()).on_host("etcd2").tree(EVERY)
    assert [unit["name"] for unit in tree["units"]] == ["karmada-prod-etcd.service"]
    assert len(tree["absent"]["units"]) == len([each for each in COMPONENTS if not each.per_member]) - 1
    assert {file["path"].rpartition("/")[0] for file in tree["files"] if "/prod/" in file["path"]} == {
        "/etc/karmada/prod/etcd",
        *(f"/etc/karmada/prod/etcd/pki/{name}" for name in ("server", "peer", "peer-client")),
    }


def test_host_and_pods_trust_the_same_authority(runs: Runs) -> None:
    run = runs.step(remembered())
    tree = run.on_host("etcd2").tree(["etcd"])
    files = {file["path"]: base64.b64decode(file["content"]) for file in tree["files"]}
    assert files["/etc/karmada/prod/etcd/pki/server/ca.crt"] == run.state.authorities[ETCD_CA].certificate
    leaf = x509.load_pem_x509_certificate(files["/etc/karmada/prod/etcd/pki/server/tls.crt"])
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "192.0.2.2" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    client = x509.load_pem_x509_certificate(run.material.leaves["karmada-apiserver-etcd-client"].certificate)
    assert client.issuer == leaf.issuer
    assert not [name for name in run.material.leaves if name in {each.name for each in ETCD.certificates}]


# -- the run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({}, InPods),
        ({"hosts": HOSTS}, PodsAboveHosts),
        ({"mode": "Binary", "hosts": [{"name": "cp1", "address": "192.0.2.1"}]}, OnHosts),
    ],
)
def test_the_document_says_where_it_runs(spec: Object, place: type[Place]) -> None:
    variables = {"karmada_members": "m2,m1", "karmada_confirm_images": "b:1,a:1"}
    made = make_run(document(spec), {}, variables, check=True)
    assert type(made.place) is place
    assert made.selected == ("m1", "m2")
    assert made.confirmed_images == {"a:1", "b:1"}
    assert bool(made.hosts) == ("hosts" in spec)


@pytest.mark.parametrize("own", [{}, {"karmada_member_name": "m1"}])
def test_on_other_hosts_than_ours_the_document_is_found(own: Object) -> None:
    action: Any = ActionModule.__new__(ActionModule)
    action._task = SimpleNamespace(check_mode=True)
    control = {"karmada_deployment": document(), "karmada_connection": {"secrets": "./secrets"}}
    action.variables = {**own, "hostvars": {"karmada_control": control}}
    made = action._make_run({})
    assert (made.name, made.connection.secrets) == (document()["metadata"]["name"], str(Path("secrets").absolute()))
    action.variables = {**own, "hostvars": {}}
    with pytest.raises(ProblemsError, match="no KarmadaDeployment is known here"):
        action._make_run({})


@pytest.mark.parametrize(
    ("role", "given", "dead"),
    [
        ("", {}, ""),
        ("", {"karmada_confirm_dead": "run-1"}, "run-1"),
        ("preflight", {"karmada_confirm_dead": "run-1", "uninstall_confirm_dead": "run-2"}, "run-1"),
        ("uninstall", {"karmada_confirm_dead": "run-1", "uninstall_confirm_dead": "run-2"}, "run-2"),
        ("uninstall", {"uninstall_confirm_dead": ""}, ""),
    ],
)
def test_the_lock_knows_who_is_called_dead(role: str, given: dict[str, str], dead: str) -> None:
    action: Any = ActionModule.__new__(ActionModule)
    named = SimpleNamespace(
        get_name=lambda *, include_role_fqcn: f"karmada.installer.{role}" if include_role_fqcn else role
    )
    action._task = SimpleNamespace(check_mode=True, _role=named if role else None)
    action.variables = {"karmada_deployment": document(), "hostvars": {}, **given}
    action._templar = Templar(loader=None, variables=action.variables)
    store = action._make_run({}).store
    store._cluster_of = lambda: FakeCluster("host")
    assert store._lock._is_free(lease("elsewhere/boot/1/1/run-1")) is (dead == "run-1")
    assert store._lock._is_free(lease("elsewhere/boot/1/1/run-2")) is (dead == "run-2")


def lease(holder: str) -> Object:
    return {"kind": "Lease", "metadata": {"name": "x"}, "spec": {"holderIdentity": holder}}


def test_a_first_state_says_that_etcd_is_on_hosts(runs: Runs) -> None:
    assert runs.step(None).state.etcd.storage == "directory"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps for which the lock of the host cluster was taken and the state written."""
    steps: list[str] = []

    @contextmanager
    def writing(_run: Run, step: str) -> Iterator[None]:
        steps.append(step)
        yield

    monkeypatch.setattr(Run, "writing", writing)
    return steps


def test_hosts_as_they_should_be_need_no_lock(runs: Runs, written: list[str]) -> None:
    runs.see(differs=False, lacking={})
    assert runs.step(remembered()).begin() is False
    assert written == []


@pytest.mark.parametrize("seen", [{"differs": True}, {"lacking": {"/usr/local/lib/karmada/v1/etcd": {}}}])
def test_the_state_is_on_record_before_the_first_change_of_a_host(runs: Runs, written: list[str], seen: Object) -> None:
    runs.see(**seen)
    assert runs.step(remembered()).begin() is True
    assert written == ["etcd on hosts"]
    stored = runs.step(None).stored_state
    assert stored
    assert (stored.hosts, stored.etcd.nodes) == ({host["name"]: host for host in HOSTS}, tuple(NAMES))


def test_what_tags_led_to_is_in_the_state_of_the_host_cluster_before_any_host_has_a_program(
    runs: Runs, written: list[str]
) -> None:
    digest = {"quay.io/coreos/etcd:v3.6.16": f"sha256:{1:064}"}
    runs.step(remembered()).hold_to(digest)
    assert written == ["record images"]
    later = runs.step(None)
    assert later.state.digests == digest
    later.hold_to(digest)
    assert written == ["record images"]


def test_a_run_that_was_killed_before_etcd_was_seen_healthy_looks_again(runs: Runs, written: list[str]) -> None:
    runs.see(differs=False, lacking={})
    assert runs.step(remembered(bootstrapped=False)).begin() is True
    assert written == ["etcd on hosts"]


def test_a_check_says_so_and_takes_no_lock(runs: Runs, written: list[str]) -> None:
    runs.see(differs=True)
    assert runs.step(remembered(), check=True).begin() is True
    assert written == []


def test_the_end_of_the_bootstrap_is_in_the_state_of_the_host_cluster(runs: Runs, written: list[str]) -> None:
    runs.step(remembered(bootstrapped=False, nodes=tuple(NAMES))).etcd_bootstrapped()
    assert written == ["end the bootstrap of etcd"]
    run = runs.step(None)
    assert run.stored_state
    assert run.stored_state.etcd == remembered(nodes=tuple(NAMES)).etcd


# -- checks ----------------------------------------------------------------------------------------------------------


def test_addresses_of_hosts_say_nothing_of_the_range_for_services_in_pods() -> None:
    spec = {**SPEC, "components": {"karmadaAPIServer": {"serviceSubnet": "fd00:1::/112"}}}
    assert list(host_list_checks.of_the_document(rendered(spec).instance)) == []


def test_an_uninstall_without_the_hosts_is_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "version", lambda *_, **__: {}, raising=False)
    monkeypatch.setattr(FakeCluster, "can_i", lambda *_: [], raising=False)
    stored = remembered(nodes=tuple(NAMES))
    (problem,) = findings.uninstall_problems(fake_run(document({}), runs.host, stored=stored))
    assert problem.where == "spec.hosts"
    assert "etcd1, etcd2, etcd3" in problem.what
    assert findings.uninstall_problems(runs.step(stored)) == []


def test_an_uninstall_wants_the_hosts_that_a_killed_install_has_begun_with(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "version", lambda *_, **__: {}, raising=False)
    monkeypatch.setattr(FakeCluster, "can_i", lambda *_: [], raising=False)
    stored = remembered(bootstrapped=False, nodes=(*NAMES, "etcd4", "etcd5"))
    (problem,) = findings.uninstall_problems(runs.step(stored))
    assert problem.where == "spec.hosts"
    assert "the document does not name etcd4, etcd5" in problem.what
    assert problem.remedy.endswith("""-e '{"uninstall_abandon_hosts": ["etcd4", "etcd5"]}'""")
    assert findings.uninstall_problems(runs.step(stored), ["etcd4", "etcd5"]) == []


def test_an_uninstall_wants_the_hosts_that_a_killed_install_has_not_cleaned(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "version", lambda *_, **__: {}, raising=False)
    monkeypatch.setattr(FakeCluster, "can_i", lambda *_: [], raising=False)
    left = {"name": "etcd9", "address": "192.0.2.9", "roles": ["etcd"]}
    stored = replace(remembered(nodes=tuple(NAMES)), hosts={each["name"]: each for each in [*HOSTS, left]})
    (problem,) = findings.uninstall_problems(runs.step(stored))
    assert "the document does not name etcd9" in problem.what
    assert findings.uninstall_problems(runs.step(stored), ["etcd9"]) == []


def test_other_hosts_are_no_change_that_is_refused(runs: Runs) -> None:
    stored = remembered(nodes=("etcd1", "etcd2", "etcd7"))
    run = runs.step(replace(stored, document=document(SPEC)))
    assert run.stored_state
    assert list(host_list_checks.of_the_past(run.instance, run.stored_state)) == []
    begun = replace(run.stored_state, etcd=replace(stored.etcd, bootstrapped=False))
    (problem,) = host_list_checks.of_the_past(run.instance, begun)
    assert problem.what.endswith("members that have not been healthy together yet cannot change")


def test_an_uninstall_wants_every_host_or_its_name(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "version", lambda *_, **__: {}, raising=False)
    monkeypatch.setattr(FakeCluster, "can_i", lambda *_: [], raising=False)
    runs.handover.note("etcd2", refusal="Connection timed out")
    (problem,) = findings.uninstall_problems(runs.step(remembered()))
    assert "etcd2" in problem.where
    assert findings.uninstall_problems(runs.step(remembered()), ["etcd2"]) == []


# -- what is told ----------------------------------------------------------------------------------------------------


def endpoints(*healthy: bool) -> list[EndpointStatus]:
    return [EndpointStatus(url=url, healthy=each) for url, each in zip(URLS, healthy, strict=True)]


def test_the_report_tells_of_units_as_of_pods(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_hosts, "look", lambda _: seen_in_pods())
    monkeypatch.setattr(artifact_source, "read_lock", dict)
    run = runs.step(remembered())
    unit = units.unit_name(run.instance, ETCD)
    runs.see(units={unit: {"program": "", "reason": ""}})
    runs.handover.note("etcd3", units={unit: UnitStatus("", "failed")})
    server = run.on_host("etcd1").tree(["etcd"])["files"]
    runs.handover.note("etcd1", files={file["path"]: file["content"] for file in server})
    found = observe_hosts.observe_etcd_on_hosts(runs.step(remembered()))
    assert found.components[0] == ComponentStatus("etcd", desired=3, ready=2, trouble="etcd3: failed")
    assert [*map(str, found.notes)] == [f"host etcd3: {unit} failed", "of the pods"]
    assert "the images of etcd (programs of hosts" in found.unpinned
    assert "karmada-scheduler" in found.unpinned
    assert {"etcd-server", "etcd-peer", "karmada-apiserver"} <= found.certificates.keys()
    expected = pki.expiry(run.material.leaves["karmada-apiserver"].certificate).isoformat()
    assert found.certificates["etcd-server"] == expected


def seen_in_pods() -> observe_hosts.Seen:
    return observe_hosts.Seen(
        api={},
        components=[],
        versions={},
        etcd=endpoints(True, True, False),
        etcd_desired=3,
        etcd_ready=2,
        certificates={},
        notes=[observe_hosts.warning("of the pods", observe_hosts.Reason.VERSION_SKEW)],
    )


@pytest.mark.parametrize(
    ("healthy", "told"),
    [
        ((True, True, True), f"let the pods of the host cluster reach {', '.join(URLS)}"),
        ((False, False, False), "journalctl -u karmada-prod-etcd.service"),
    ],
)
def test_an_api_server_that_does_not_start_points_at_the_way_to_the_hosts(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, healthy: tuple[bool, ...], told: str
) -> None:
    ref = Ref("apps/v1", "Deployment", "prod-apiserver", "karmada")

    def wait_until(*_: Any, **__: Any) -> None:
        raise NotReady({ref: "its pod crashes"}, 60)

    monkeypatch.setattr(workloads, "wait_until", wait_until)
    monkeypatch.setattr(observe_hosts, "etcd_members", lambda _: endpoints(*healthy))
    action = object.__new__(workloads.ActionModule)
    options = {
        "components": ["karmada-apiserver"],
        "apply": False,
        "wait": True,
        "remove_unwanted": True,
        "timeout": 60,
    }
    with pytest.raises(NotReady, match="its pod crashes") as refusal:
        action.perform(runs.step(remembered()), {**options, "timeout": 60})
    assert told in str(refusal.value)
