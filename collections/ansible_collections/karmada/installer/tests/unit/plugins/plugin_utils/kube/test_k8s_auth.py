# SPDX-License-Identifier: Apache-2.0
"""Clusters that the environment names, as AWX and kubernetes.core name them."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import (
    host_cluster,
    k8s_auth,
    kubeconfig,
    passed_over,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import Access, from_environment
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Severity
from ansible_collections.karmada.installer.tests.unit.support.samples import client_pair
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

TOKEN = "t0ps3cret"
SERVER = "https://192.0.2.1:6443"
#: What AWX gives for its own credential, with and without a CA.
OF_AWX = {"K8S_AUTH_HOST": SERVER, "K8S_AUTH_API_KEY": TOKEN, "K8S_AUTH_VERIFY_SSL": "False"}


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, str]:
    """Files of a CA, which signs itself, and of a client."""
    cert, key = client_pair()
    for name, text in (("ca.crt", cert), ("tls.crt", cert), ("tls.key", key)):
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in ("ca.crt", "tls.crt", "tls.key")}


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubeconfig of whoever runs this test, and no pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def refused(environment: dict[str, str], context: str | None = None) -> str:
    with pytest.raises(ProblemsError) as caught:
        from_environment(context, environment)
    assert TOKEN not in str(caught.value)
    (problem,) = caught.value.problems
    assert problem.remedy
    return str(problem)


def written(file: Path, server: str = SERVER, name: str = "one", **user: Any) -> str:
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server, "proxy-url": "http://proxy.example.com"}}],
        "users": [{"name": name, "user": user or {"token": f"of-{name}"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return str(file)


def identity(access: Access) -> dict[str, str]:
    return dict(access.headers())


# -- a server and a credential -----------------------------------------------------------------------------------------


def test_a_credential_of_awx_leads_to_its_server(pair: dict[str, str]) -> None:
    secure = {**OF_AWX, "K8S_AUTH_VERIFY_SSL": "True", "K8S_AUTH_SSL_CA_CERT": pair["ca.crt"]}
    found = from_environment(None, secure)
    assert (found.server, found.insecure, found.ca_pem) == (SERVER, False, Path(pair["ca.crt"]).read_text())
    assert identity(found) == {"Authorization": f"Bearer {TOKEN}"}


def test_one_without_a_ca_is_obeyed_and_warned_of() -> None:
    found = from_environment(None, OF_AWX)
    assert found.insecure
    host_cluster.refuse_unverified(found, "kubeconfig of the host cluster", allowed=False)
    warning = k8s_auth.unverified(OF_AWX)
    assert warning is not None
    assert warning.severity is Severity.WARNING
    assert "AWX sets it when its credential has no CA" in str(warning)
    assert "K8S_AUTH_VERIFY_SSL" in str(warning)


@pytest.mark.parametrize(
    ("value", "off"), [("false", True), ("No", True), ("0", True), ("true", False), ("flase", False), ("", False)]
)
def test_verification_is_off_only_by_the_words_of_kubernetes_core(value: str, *, off: bool) -> None:
    for name in ("K8S_AUTH_VERIFY_SSL", "K8S_AUTH_VALIDATE_CERTS"):
        environment = {**OF_AWX, "K8S_AUTH_VERIFY_SSL": "", name: value}
        found = from_environment(None, environment)
        assert (found.insecure, found.insecure_by) == (off, name if off else "")
        warning = k8s_auth.unverified(environment)
        assert (warning.where if warning else "") == (f"environment variable {name}" if off else "")


def test_a_kubeconfig_that_switches_verification_off_is_refused_all_the_same(tmp_path: Path) -> None:
    file = Path(written(tmp_path / "kubeconfig"))
    config = yaml.safe_load(file.read_text())
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    file.write_text(yaml.safe_dump(config))
    found = from_environment(None, {"K8S_AUTH_KUBECONFIG": str(file)})
    with pytest.raises(ProblemsError, match="switches off the verification"):
        host_cluster.refuse_unverified(found, "kubeconfig of the host cluster", allowed=False)
    verified = from_environment(None, {"K8S_AUTH_KUBECONFIG": str(file), "K8S_AUTH_VERIFY_SSL": "true"})
    assert not verified.insecure


def test_a_kubeconfig_of_another_server_that_a_token_passes_over_is_told(tmp_path: Path) -> None:
    there, same = (written(tmp_path / name, each) for name, each in (("there", "https://192.0.2.2"), ("same", SERVER)))
    found = passed_over.problem({**OF_AWX, "K8S_AUTH_KUBECONFIG": there})
    assert found is not None
    assert found.severity is Severity.WARNING
    assert found.where == "environment variable K8S_AUTH_KUBECONFIG"
    assert found.what.startswith("it leads to https://192.0.2.2, and is not used: K8S_AUTH_HOST")
    assert TOKEN not in str(found)
    assert from_environment(None, {**OF_AWX, "K8S_AUTH_KUBECONFIG": there}).server == SERVER
    without_host = {name: each for name, each in OF_AWX.items() if name != "K8S_AUTH_HOST"}
    for environment in (
        OF_AWX,
        {"K8S_AUTH_KUBECONFIG": there},
        {**without_host, "K8S_AUTH_KUBECONFIG": there},
        {**OF_AWX, "K8S_AUTH_HOST": f"{SERVER}/", "K8S_AUTH_KUBECONFIG": same},
        {**OF_AWX, "K8S_AUTH_KUBECONFIG": str(tmp_path / "nowhere")},
        {**OF_AWX, "KUBECONFIG": there},
        {**OF_AWX, "K8S_AUTH_HOST": "no address", "K8S_AUTH_KUBECONFIG": there},
    ):
        assert passed_over.problem(environment) is None


def test_an_address_without_tls_is_refused_by_the_name_of_its_variable() -> None:
    found = from_environment(None, {**OF_AWX, "K8S_AUTH_HOST": "http://192.0.2.1"})
    with pytest.raises(ProblemsError, match="K8S_AUTH_HOST: it leads to an address without TLS"):
        host_cluster.refuse_unverified(found, "kubeconfig of the host cluster", allowed=False)


def test_every_other_setting_is_taken(pair: dict[str, str]) -> None:
    common = {"K8S_AUTH_HOST": f"{SERVER}/", "K8S_AUTH_PROXY": "socks5://proxy.example.com:1080"}
    found = from_environment(None, {**common, "K8S_AUTH_USERNAME": "me", "K8S_AUTH_PASSWORD": TOKEN})
    assert identity(found)["Authorization"].startswith("Basic ")
    assert (found.server, found.proxy) == (SERVER, "socks5://proxy.example.com:1080")
    of_client = {"K8S_AUTH_CERT_FILE": pair["tls.crt"], "K8S_AUTH_KEY_FILE": pair["tls.key"]}
    assert identity(from_environment(None, {**common, **of_client})) == {}
    others = {"K8S_AUTH_CLIENT_CERT": pair["tls.crt"], "K8S_AUTH_CLIENT_KEY": pair["tls.key"]}
    assert from_environment(None, {**common, **others}).expiry() is not None


@pytest.mark.parametrize(
    ("no_proxy", "direct"),
    [
        *(("localhost,192.0.2.1", True), ("192.0.2.10", False), ("10.0.0.0/8, 192.0.2.0/24", True), ("*", True)),
        *(("10.0.0.0/8", False), (",", False), ("192.0.2.0/99", False), ("fd00::/8", False)),
    ],
)
def test_no_proxy_holds_for_every_proxy_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str, *, direct: bool
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    environment = {"K8S_AUTH_NO_PROXY": no_proxy}
    for more in (
        OF_AWX,
        {**OF_AWX, "K8S_AUTH_PROXY": "socks5://proxy.example.com:1080"},
        {"K8S_AUTH_KUBECONFIG": written(tmp_path / "kubeconfig")},
    ):
        with Cluster(from_environment(None, {**environment, **more}), "host cluster") as cluster:
            assert (cluster._proxy == "") is direct


def test_somebody_else_is_impersonated_with_each_group_in_a_header_of_its_own(api: StubApi) -> None:
    environment = {
        "K8S_AUTH_HOST": api.url,
        "K8S_AUTH_API_KEY": TOKEN,
        "K8S_AUTH_IMPERSONATE_USER": "karmada",
        "K8S_AUTH_IMPERSONATE_GROUPS": "one, two,",
    }
    with Cluster(from_environment(None, environment), "host cluster") as cluster:
        cluster.version()
    assert api.headers[-1]["Impersonate-User"] == "karmada"
    assert api.headers[-1]["Impersonate-Group"] == "one\ntwo"
    assert api.headers[-1]["Authorization"] == f"Bearer {TOKEN}"


# -- what wins ---------------------------------------------------------------------------------------------------------


def test_the_order_in_which_a_cluster_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_ansible = written(tmp_path / "a", name="ansible")
    of_kubectl = written(tmp_path / "b", name="kubectl")
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube" / "config", name="default")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("of-pod")
    (tmp_path / "ca.crt").write_text(client_pair()[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.9")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    environment = {**OF_AWX, "K8S_AUTH_KUBECONFIG": of_ansible, "KUBECONFIG": of_kubectl}
    seen = []
    for gone in ((), ("K8S_AUTH_HOST", "K8S_AUTH_API_KEY", "K8S_AUTH_VERIFY_SSL"), ("K8S_AUTH_KUBECONFIG",)):
        for name in gone:
            del environment[name]
        seen.append(identity(from_environment(None, environment))["Authorization"])
    seen.append(identity(from_environment(None, {}))["Authorization"])
    (tmp_path / ".kube" / "config").unlink()
    seen.append(identity(from_environment(None, {"K8S_AUTH_VERIFY_SSL": "true"}))["Authorization"])
    assert seen == [f"Bearer {each}" for each in (TOKEN, "of-ansible", "of-kubectl", "of-default", "of-pod")]


def test_a_context_is_that_of_the_caller_then_that_of_the_environment(tmp_path: Path) -> None:
    files = [written(tmp_path / name, name=name) for name in ("one", "two", "three")]
    environment = {"K8S_AUTH_KUBECONFIG": ":".join(files), "K8S_AUTH_CONTEXT": "two"}
    assert identity(from_environment(None, environment)) == {"Authorization": "Bearer of-two"}
    assert identity(from_environment("three", environment)) == {"Authorization": "Bearer of-three"}
    assert "there is no context 'four'. There are: one, three, two." in refused(environment, "four")


def test_settings_stand_in_the_place_of_those_of_a_kubeconfig(tmp_path: Path, pair: dict[str, str]) -> None:
    named = {"K8S_AUTH_KUBECONFIG": written(tmp_path / "kubeconfig")}
    found = from_environment(None, named)
    assert (found.server, found.proxy, found.given_by) == (SERVER, "http://proxy.example.com", "")
    more = {"K8S_AUTH_PROXY": "http://other.example.com", "K8S_AUTH_IMPERSONATE_USER": "karmada"}
    found = from_environment(None, {**named, **more})
    assert found.proxy == "http://other.example.com"
    assert identity(found) == {"Authorization": "Bearer of-one", "Impersonate-User": "karmada"}
    found = from_environment(None, {**named, "K8S_AUTH_API_KEY": TOKEN, "K8S_AUTH_SSL_CA_CERT": pair["ca.crt"]})
    assert (found.server, found.ca_pem is None) == (SERVER, False)
    assert identity(found) == {"Authorization": f"Bearer {TOKEN}"}
    found = from_environment(None, {**named, "K8S_AUTH_HOST": "https://192.0.2.7"})
    assert (found.server, identity(found)) == ("https://192.0.2.7", {"Authorization": "Bearer of-one"})


def test_a_program_of_the_kubeconfig_is_not_asked_where_a_credential_was_given(tmp_path: Path) -> None:
    program = {"command": "no-such-plugin", "apiVersion": "client.authentication.k8s.io/v1"}
    named = {"K8S_AUTH_KUBECONFIG": written(tmp_path / "kubeconfig", exec=program)}
    assert "no-such-plugin" in refused(named)
    assert identity(from_environment(None, {**named, "K8S_AUTH_API_KEY": TOKEN})) == {
        "Authorization": f"Bearer {TOKEN}"
    }


def test_settings_take_the_place_of_what_a_kubeconfig_lacks(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    written(file)
    config = yaml.safe_load(file.read_text())
    for section in ("clusters", "users"):
        file.write_text(yaml.safe_dump({**config, section: []}))
        named = {"K8S_AUTH_KUBECONFIG": str(file)}
        assert "which is not in" in refused({**named, "K8S_AUTH_PROXY": "http://proxy.example.com"}), "nobody is asked"
    assert identity(from_environment(None, {**named, "K8S_AUTH_API_KEY": TOKEN})) == {
        "Authorization": f"Bearer {TOKEN}"
    }
    for user in ({}, {"user": ""}, {"user": None}):
        config["contexts"][0]["context"] = {"cluster": "one", **user}
        file.write_text(yaml.safe_dump(config))
        found = from_environment(None, {**named, "K8S_AUTH_PROXY": "http://other.example.com"})
        assert (identity(found), found.proxy) == ({}, "http://other.example.com")


# -- users without a home ----------------------------------------------------------------------------------------------


def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a user of its own number."""

    def unknown(_user: int) -> Any:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_who_has_no_home_is_found_a_cluster_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_home(monkeypatch)
    assert from_environment(None, OF_AWX).server == SERVER
    assert "give the job template and the inventory source a credential" in refused({})
    assert "~/absent: there is no such kubeconfig file" in refused({"K8S_AUTH_KUBECONFIG": "~/absent"})
    assert "~/absent does not exist" in refused({**OF_AWX, "K8S_AUTH_SSL_CA_CERT": "~/absent"})
    named = written(tmp_path / "kubeconfig")
    assert from_environment(None, {"K8S_AUTH_KUBECONFIG": named}).server == SERVER


def test_a_home_of_somebody_else_has_no_kubeconfig_for_us(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def closed(_path: Path, *_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "stat", closed)
    monkeypatch.setattr(Path, "exists", closed)
    monkeypatch.setattr(Path, "open", closed)
    assert "give the job template and the inventory source a credential" in refused({})
    assert "the kubeconfig cannot be read (Permission denied)" in refused({"KUBECONFIG": str(tmp_path / "config")})


def test_a_context_is_not_passed_over_in_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names another cluster than that of the pod."""
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.9")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("of-pod")
    (tmp_path / "ca.crt").write_text(client_pair()[0])
    assert from_environment(None, {}).server == "https://192.0.2.9:443"
    assert "context: there is no context 'prod': no kubeconfig was found." in refused({}, "prod")
    assert "K8S_AUTH_CONTEXT: is set, and there is neither" in refused({"K8S_AUTH_CONTEXT": "prod"})
    assert "there is no such kubeconfig file" in refused({"K8S_AUTH_KUBECONFIG": os.pathsep})


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "context", "told"),
    [
        (
            {**OF_AWX, "K8S_AUTH_HOST": "api.example.com:6443"},
            None,
            "environment variable K8S_AUTH_HOST: is no address that can be connected to. Write https://… or http://….",
        ),
        ({**OF_AWX, "K8S_AUTH_API_KEY": f"{TOKEN}\n{TOKEN}"}, None, "K8S_AUTH_API_KEY: has a character that cannot"),
        ({"K8S_AUTH_HOST": SERVER}, None, "K8S_AUTH_HOST: names a server, and nothing says who asks there."),
        ({"K8S_AUTH_API_KEY": TOKEN}, None, "K8S_AUTH_API_KEY: is set, and there is neither K8S_AUTH_HOST nor a kube"),
        (
            {"K8S_AUTH_HOST": SERVER, "K8S_AUTH_USERNAME": "me"},
            None,
            "K8S_AUTH_USERNAME: is set, and K8S_AUTH_PASSWORD is not. Set both, or neither.",
        ),
        (
            {"K8S_AUTH_HOST": SERVER, "K8S_AUTH_KEY_FILE": "/absent"},
            None,
            "K8S_AUTH_KEY_FILE: is set, and K8S_AUTH_CERT_FILE is not. Set both, or neither.",
        ),
        (
            {**OF_AWX, "K8S_AUTH_IMPERSONATE_GROUPS": "one"},
            None,
            "K8S_AUTH_IMPERSONATE_GROUPS: is set, and K8S_AUTH_IMPERSONATE_USER is not: no API server takes groups",
        ),
        ({**OF_AWX, "K8S_AUTH_SSL_CA_CERT": "/absent"}, None, "K8S_AUTH_SSL_CA_CERT: /absent does not exist."),
        (
            {**OF_AWX, "K8S_AUTH_HOST": f"https://me:{TOKEN}@192.0.2.1"},
            None,
            "K8S_AUTH_HOST: has a login in it, which no API server takes. Put the name into K8S_AUTH_USERNAME",
        ),
        (
            {**OF_AWX, "K8S_AUTH_IMPERSONATE_USER": "a", "K8S_AUTH_IMPERSONATE_GROUPS": "b,c\r\nX: d"},
            None,
            "environment variable K8S_AUTH_IMPERSONATE_GROUPS: has a character that cannot be sent",
        ),
        ({**OF_AWX, "K8S_AUTH_PROXY": "proxy:3128"}, None, "K8S_AUTH_PROXY: is no address that can be connected to."),
        ({"K8S_AUTH_KUBECONFIG": "/absent"}, None, "/absent: there is no such kubeconfig file."),
        (OF_AWX, "prod", "context: there is no context 'prod': K8S_AUTH_HOST and a credential lead to one server"),
        ({}, None, "In AWX, give the job template and the inventory source a credential of the cluster."),
    ],
)
def test_what_is_wrong_is_told_by_the_name_of_its_variable(
    environment: dict[str, str], context: str | None, told: str
) -> None:
    assert told in refused(environment, context)


@pytest.mark.parametrize("name", ["SSL_CA_CERT", "CA_CERT"])
@pytest.mark.parametrize(
    ("content", "told"),
    [("no certificate", "the CA certificate cannot be read"), (" \n", "names a file with nothing in")],
)
def test_a_ca_that_is_none_is_told_by_its_variable(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / "ca").write_text(content)
    found = refused({**OF_AWX, f"K8S_AUTH_{name}": str(tmp_path / "ca")})
    assert found.startswith(f"environment variable K8S_AUTH_{name}: {told}")


@pytest.mark.parametrize("empty", ["tls.crt", "tls.key"])
def test_an_empty_certificate_makes_nobody_anonymous(pair: dict[str, str], empty: str) -> None:
    Path(pair[empty]).write_text("")
    told = refused(
        {"K8S_AUTH_HOST": SERVER, "K8S_AUTH_CERT_FILE": pair["tls.crt"], "K8S_AUTH_KEY_FILE": pair["tls.key"]}
    )
    assert "names a file with nothing in it" in told


def test_a_certificate_and_a_key_that_do_not_belong_together_are_told_by_their_variable(pair: dict[str, str]) -> None:
    Path(pair["tls.key"]).write_text(client_pair()[1])
    told = refused(
        {"K8S_AUTH_HOST": SERVER, "K8S_AUTH_CERT_FILE": pair["tls.crt"], "K8S_AUTH_KEY_FILE": pair["tls.key"]}
    )
    assert told.startswith("environment variable K8S_AUTH_CERT_FILE: the client certificate and key cannot be used")
