# SPDX-License-Identifier: Apache-2.0
"""The agent of a unit: a real API server gives out its identity, and the program takes flags and both kubeconfigs."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.flags import AGENT_IDENTITY
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_AGENT_ON_HOST
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import namespace_on_member
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.render import agent_units, units
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import BOTH, deployment
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, OWNER, authorities
from ansible_collections.karmada.installer.tests.unit.support.web_server import Response, WebServer, authority

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_INSIDE = "/api/v1/namespaces/karmada-cluster"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"{_INSIDE}/serviceaccounts",
    "Secret": f"{_INSIDE}/secrets",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
}


class Unit:
    """A unit of member m1, with its files in a folder of the test."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        instance = Runs(folder).step(deployment(*BOTH)).instance
        host = next(each for each in component_hosts.all_hosts(instance.spec) if each.name == "gw1")
        component = KARMADA_AGENT_ON_HOST.for_member("m1", 0)
        ports = dict(zip(component.ports, conftest.free_ports(2), strict=True))
        self.folder, self.component, self.spec = folder, replace(component, ports=ports), instance.spec
        known = units.layout(instance, host, component, "")
        self.where = replace(known, base=str(folder / "etc"), runtime=str(folder / "run"), member_url=server.url)
        self.pair = pair = x509.issue(
            x509.Certificate("x", "", agent.user("m1"), client=True),
            *(authorities()["client-signing-ca"], "ECDSA-P256", NOW, x509.parse_duration("87600h")),
        )
        identity = agent.Identity(pair, server.url, server.ca.read_bytes(), "")
        objects = agent.objects_on_member(instance, "m1", server.url, None, on_hosts=True)
        secret = agent.identity_secret("m1", OWNER, instance.full_name, identity)
        for each in (namespace_on_member(OWNER), *objects, secret):
            status, answer = server.request("POST", _PATHS[each["kind"]], each)
            assert status in (201, 409), answer
        # There is no controller here that fills its Secret.
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, answer = server.request("POST", f"{_INSIDE}/serviceaccounts/{agent.ACCOUNT}/token", request)
        assert status == 201, answer
        cluster: dict[str, Any] = pki_kubeconfig.kubeconfig(
            "m1", server.url, server.ca.read_bytes(), "karmada-agent", str(answer["status"]["token"]), context="m1"
        )
        access = agent_units.AgentAccess(json.dumps(cluster).encode(), "")
        assert access.server == server.url
        (folder / "run").mkdir()
        (folder / "etc" / "member").mkdir(parents=True)
        (folder / "etc" / "member" / "member.config").write_bytes(access.kubeconfig)
        addition = agent_units.addition(instance, component, self.where, access, server.url, server.ca.read_bytes())
        for entry in addition.files:
            Path(entry["path"]).write_bytes(base64.b64decode(entry["content"]))
        lines = dict(addition.service)
        self.fetch = [part.strip('"') for part in lines["ExecStartPre"].split(" ")]

    def fetched(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *self.fetch[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={})

    def ran(self, *flags: str) -> str:
        """What the program says, with the flags of the unit and then these."""
        command = [conftest.binary("karmada-agent", "TEST_KARMADA_AGENT")]
        command += [*self.component.flags(self.spec, self.where), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def unit(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Unit:
    return Unit(api_server, tmp_path_factory.mktemp("agent"))


def test_the_account_of_the_agent_fetches_its_identity(unit: Unit) -> None:
    done = unit.fetched()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = (unit.folder / "run" / "identity.pem").read_bytes()
    assert found == unit.pair.certificate + unit.pair.key


def test_the_program_gets_past_its_member_and_is_asked_who_it_is_by_the_control_plane(unit: Unit) -> None:
    """The same API server stands for both. It knows the account, and not who signed the identity."""
    assert unit.fetched().returncode == 0
    said = unit.ran()
    assert "Unauthorized" in said
    assert "error building kubeconfig" not in said
    assert "unknown flag" not in said


@pytest.fixture
def elsewhere() -> Iterator[WebServer]:
    """A server of somebody else, which notes who asks."""
    with WebServer(lambda _request: Response(401)) as server:
        yield server


@pytest.fixture
def crafted(unit: Unit, api_server: ApiServer, elsewhere: WebServer, tmp_path: Path) -> Iterator[bytes]:
    """What the member's Secret says after its owner has named a program and another server in it."""
    before = _secret(api_server)
    known = yaml.safe_load(base64.b64decode(before))
    known["clusters"][0]["cluster"].update(
        {"server": elsewhere.url, "certificate-authority-data": base64.b64encode(authority().encode()).decode()}
    )
    program = {"command": "/bin/touch", "args": [str(tmp_path / "mark")], "interactiveMode": "Never"}
    known["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **program}}
    content = yaml.safe_dump(known).encode()
    assert unit.fetched().returncode == 0
    _patch(api_server, base64.b64encode(content).decode())
    yield content
    _patch(api_server, before)


def _secret(server: ApiServer) -> str:
    status, answer = server.request("GET", f"{_PATHS['Secret']}/{AGENT_IDENTITY}")
    assert status == 200, answer
    return str(answer["data"][AGENT_IDENTITY])


def _patch(server: ApiServer, content: str) -> None:
    status, answer = server.request(
        *("PATCH", f"{_PATHS['Secret']}/{AGENT_IDENTITY}", {"data": {AGENT_IDENTITY: content}}),
        content_type="application/merge-patch+json",
    )
    assert status == 200, answer


def test_what_somebody_else_writes_into_the_secret_starts_nothing_and_leads_nowhere(
    unit: Unit, crafted: bytes, elsewhere: WebServer, tmp_path: Path
) -> None:
    """The host refuses it, says so, and the agent has what it had: that, and a server of the installer's."""
    assert b"/bin/touch" in crafted
    done = unit.fetched()
    assert (done.returncode, done.stdout) == (1, "")
    assert "Secret karmada-cluster/karmada-kubeconfig of" in done.stderr
    assert "is not used: line" in done.stderr
    assert "which neither the agent nor the installer writes there" in done.stderr
    assert "karmada.installer.members" in done.stderr
    assert (unit.folder / "run" / "identity.pem").read_bytes() == unit.pair.certificate + unit.pair.key
    # The program that systemd would not start now: it knows the former identity, and the server in the host's file.
    assert "Unauthorized" in unit.ran()
    assert elsewhere.requests == []
    assert not (tmp_path / "mark").exists()


def test_the_program_would_do_all_that_if_it_had_the_secret(
    unit: Unit, crafted: bytes, elsewhere: WebServer, tmp_path: Path
) -> None:
    """Or the test before would prove nothing."""
    taken = tmp_path / "taken"
    taken.write_bytes(crafted)
    unit.ran(f"--karmada-kubeconfig={taken}")
    assert (tmp_path / "mark").exists()
    without_exec = yaml.safe_load(crafted)
    without_exec["users"][0]["user"] = {"token": "t"}
    taken.write_text(yaml.safe_dump(without_exec))
    unit.ran(f"--karmada-kubeconfig={taken}")
    assert elsewhere.requests
