# SPDX-License-Identifier: Apache-2.0
"""Host clusters of IPv4, of IPv6 and of both: ranges for Services, addresses to listen on, names in the certificate."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import endpoint
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Endpoint
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import from_files, to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import fixed_settings
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store as store_module
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run, storage_class
from ansible_collections.karmada.installer.tests.unit.support.samples import Object, Rendered, document, state

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada"}}


class Host(FakeCluster):
    """A host cluster whose API server fills in the families of Services."""

    def __init__(self, families: list[str], *objects: Object) -> None:
        super().__init__("host", storage_class("standard"), *objects)
        self.families = families

    def apply(self, obj: Object, *, dry_run: bool = False, **_: Any) -> Applied:
        """The first family only for a Service that wants one."""
        if obj["kind"] == "Service":
            number = 1 if obj["spec"].get("ipFamilyPolicy", "SingleStack") == "SingleStack" else 2
            obj = {**obj, "spec": {**obj["spec"], "ipFamilies": self.families[:number]}}
        return super().apply(obj, dry_run=dry_run)


def fresh(families: list[str], spec: Object | None = None, *there: Object, check: bool = False) -> Run:
    return fake_run(document(spec), Host(families, *there), check=check)


class NoLock:
    """A lock that is always ours."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: nullcontext()


@pytest.fixture(autouse=True)
def _unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "Lock", lambda *_, **_named: NoLock())


def recorded(run: Run) -> Run:
    """A run after the first step of that one was written."""
    with run.writing("first"):
        pass
    return fake_run(run.deployment, run.host_cluster)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("families", "spec", "expected"),
    [
        (["IPv4"], None, "10.96.0.0/12"),
        (["IPv6"], None, "fd00:10:96::/108"),
        (["IPv4", "IPv6"], None, "10.96.0.0/12,fd00:10:96::/108"),
        (["IPv6", "IPv4"], None, "fd00:10:96::/108,10.96.0.0/12"),
        (["IPv6", "IPv4"], {"endpoint": {"ipFamilyPolicy": "SingleStack"}}, "fd00:10:96::/108"),
        (["IPv6"], {"components": {"karmadaAPIServer": {"serviceSubnet": "fd00::/112"}}}, "fd00::/112"),
    ],
)
@pytest.mark.parametrize("there", [(), (NAMESPACE,)], ids=["new namespace", "old namespace"])
def test_the_range_for_services_follows_the_host_cluster(
    families: list[str], spec: Object | None, expected: str, there: tuple[Object, ...]
) -> None:
    run = fresh(families, spec, *there)
    later = recorded(run)
    assert run.snapshot.service_subnet == later.state.service_subnet == expected
    assert later.layout.service_subnet == expected


def test_it_stays_when_the_host_cluster_gets_a_second_family() -> None:
    run = fresh(["IPv4"])
    later = recorded(run)
    run.host_cluster.families = ["IPv4", "IPv6"]  # type: ignore[attr-defined]
    assert later.snapshot.service_subnet == "10.96.0.0/12"
    assert not list(fixed_settings.service_subnet(later))


def test_a_check_run_guesses_by_what_it_may_read() -> None:
    kubernetes = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"ipFamilies": ["IPv6"]},
    }
    run = fresh(["IPv6"], None, kubernetes, check=True)
    assert run.snapshot.service_subnet == "fd00:10:96::/108"


@pytest.mark.parametrize("check", [False, True])
def test_an_account_that_may_only_read_looks_without_trying_a_service(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Forbidden("host cluster", "PATCH", "/", 403, "Forbidden", "no")

    run = fresh(["IPv4"], None, NAMESPACE, check=check)
    monkeypatch.setattr(run.host_cluster, "apply", refuse)
    assert run.live.seen_families == ()
    assert run.snapshot.service_subnet == "10.96.0.0/12"


@pytest.mark.parametrize(
    ("address", "expected", "said"),
    [
        ("[2001:db8::1]:6443", "fd00:10:96::/108", 0),
        ("192.0.2.1:6443", "10.96.0.0/12", 0),
        ("192.0.2.1", "10.96.0.0/12", 0),
        ("api.example.com:6443", "10.96.0.0/12", 1),
        ("", "10.96.0.0/12", 1),
    ],
)
def test_a_check_run_that_may_read_nothing_goes_by_the_address_of_the_api_server(
    address: str, expected: str, said: int
) -> None:
    told: list[str] = []
    run = fresh(["IPv6"], check=True)
    run.say = told.append
    run.host_cluster.denied, run.host_cluster.own_address = {("get", "services")}, address  # type: ignore[attr-defined]
    assert run.snapshot.service_subnet == expected
    assert run.layout.service_subnet == expected
    assert len(told) == said


def test_a_range_that_the_api_server_would_not_start_with_is_refused() -> None:
    spec = {"components": {"karmadaAPIServer": {"serviceSubnet": "10.96.0.0/12,fd00::/112"}}}
    (problem,) = fixed_settings.service_subnet(fresh(["IPv6"], spec, NAMESPACE))
    assert "begins with IPv4" in problem.what
    assert "fd00:10:96::/108" in problem.remedy
    assert not list(fixed_settings.service_subnet(fresh(["IPv6", "IPv4"], spec, NAMESPACE)))


def node(*addresses: str, pods: tuple[str, ...] = ()) -> Object:
    listed = [{"type": "InternalIP", "address": each} for each in addresses]
    listed.append({"type": "Hostname", "address": "node1"})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{addresses[0].replace(':', '-')}"},
        "spec": {"podCIDRs": list(pods)} if pods else {},
        "status": {"addresses": listed},
    }


FIRST_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "spec": {"ipFamilies": ["IPv4"]},
}


@pytest.mark.parametrize(
    ("nodes", "refused"),
    [
        ([node("192.0.2.1", pods=("10.64.0.0/24",))], True),
        ([node("192.0.2.1"), node("192.0.2.2")], True),
        # Whoever has an address of IPv6 somewhere may give one to pods.
        ([node("192.0.2.1", pods=("10.64.0.0/24", "fd00:1::/64"))], False),
        ([node("192.0.2.1"), node("192.0.2.2", "2001:db8::2")], False),
        ([], False),
    ],
)
def test_a_range_of_a_family_that_no_node_has_is_refused_before_there_is_a_namespace(
    nodes: list[Object], *, refused: bool
) -> None:
    spec = {"components": {"karmadaAPIServer": {"serviceSubnet": "fd00::/112"}}}
    run = fresh(["IPv4"], spec, FIRST_SERVICE, *nodes)
    found = list(fixed_settings.service_subnet(run))
    assert [problem.where for problem in found] == ["spec.components.karmadaAPIServer.serviceSubnet"] * refused
    run.host_cluster.denied = {("list", "nodes")}  # type: ignore[attr-defined]
    assert not list(fixed_settings.service_subnet(run)), "who may not look cannot know"


def test_the_second_try_of_a_first_install_may_name_another_range() -> None:
    run = fresh(["IPv6"], {"components": {"karmadaAPIServer": {"serviceSubnet": "10.96.0.0/12"}}})
    with run.writing("first"):
        pass
    again = fake_run(document(), run.host_cluster)  # type: ignore[arg-type]
    assert again.state.service_subnet == "10.96.0.0/12"
    spec = {"components": {"karmadaAPIServer": {"serviceSubnet": "fd00::/112"}}}
    mended = fake_run(document(spec), run.host_cluster)  # type: ignore[arg-type]
    assert not list(fixed_settings.service_subnet(mended))
    assert mended.snapshot.service_subnet == "fd00::/112"


def test_processes_listen_on_both_families_and_prefer_that_of_the_range() -> None:
    for subnet, address in (("10.96.0.0/12,fd00::/112", "0.0.0.0"), ("fd00::/112", "::")):  # noqa: S104
        found = Rendered(document(), state=replace(state(), service_subnet=subnet))
        flags = BY_NAME["karmada-apiserver"].flags(found.spec, found.layout)
        assert f"--service-cluster-ip-range={subnet}" in flags
        assert f"--bind-address={address}" in flags


def test_the_certificate_has_the_first_address_of_each_range() -> None:
    found = Rendered(document(), state=replace(state(), service_subnet="10.96.0.0/12,fd00::/112"))
    assert {"10.96.0.1", "fd00::1"} <= set(found.layout.server_names["karmada-apiserver"].ips)


def _service(*ingress: Object) -> Object:
    return {"status": {"loadBalancer": {"ingress": list(ingress)}}}


def test_a_node_is_known_by_all_of_its_addresses() -> None:
    settings = Endpoint({"type": "NodePort"})
    nodes = [["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"]]
    assert endpoint.host(settings, "", nodes, None, None) == "10.0.0.1"
    assert endpoint.host(settings, "fd00::2", nodes, None, None) == "fd00::2"
    assert endpoint.same_place(settings, "10.0.0.2", nodes, None) == ("fd00::2",)
    named = Endpoint({"type": "NodePort", "host": "karmada.example.com"})
    assert endpoint.same_place(named, "karmada.example.com", nodes, None) == ()


def test_a_load_balancer_is_known_by_all_of_its_addresses() -> None:
    settings = Endpoint({"type": "LoadBalancer"})
    service = _service({"ip": "192.0.2.1"}, {"ip": "2001:db8::1"})
    assert endpoint.host(settings, "", [], service, None) == "192.0.2.1"
    assert endpoint.same_place(settings, "192.0.2.1", [], service) == ("2001:db8::1",)
    assert endpoint.same_place(settings, "192.0.2.1", [], _service()) == ()


@pytest.mark.parametrize("finished", [True, False])
def test_what_an_earlier_version_has_recorded_stays(finished: bool) -> None:
    """It had a default in the document, and nothing in the state beside it."""
    written = document()
    written["spec"]["components"]["karmadaAPIServer"]["serviceSubnet"] = "10.112.0.0/16"
    files = to_files(state(document=written if finished else None))
    plain = json.loads(files["instance.json"])
    del plain["serviceSubnet"]
    read = from_files({**files, "instance.json": json.dumps(plain).encode()}, "here")
    assert read.service_subnet == ("10.112.0.0/16" if finished else "")
