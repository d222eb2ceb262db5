# SPDX-License-Identifier: Apache-2.0
"""Desired state of each host: its components and the end of others, certificates, addresses and flags."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import private_file
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    BY_NAME,
    COMPONENTS,
    KARMADA_SCHEDULER,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import files as pki_files
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer, units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    EXTERNAL,
    HOSTS,
    NAMES,
    VIRTUAL,
    Object,
    Runs,
    deployment,
    seen,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EXTERNAL_FILES,
    external_etcd,
)
from cryptography import x509

EVERY = [component.name for component in COMPONENTS]


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


# -- uninstall -----------------------------------------------------------------------------------------------


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
