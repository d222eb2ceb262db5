# SPDX-License-Identifier: Apache-2.0
"""The agent itself: with the certificate that joining asks for, the rights that it gives and the flags that we render.

It registers, propagates, renews its certificate and lets go, at two real API servers and with Karmada's own approval.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import (
    agent,
    agent_join,
    artifacts,
    control_plane_objects,
    member_join,
    member_leave,
    member_works,
    members,
    pki,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.components import CLIENT_SIGNING_CA, KARMADA_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.samples import OWNER, document, state

Object = dict[str, Any]
ENTRY = {"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}, "region": "eu", "labels": {"tier": "prod"}}
SECONDS = 120
#: In the place of the aggregated API, which is not what this is about.
CLUSTER_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusters.cluster.karmada.io"},
    "spec": {
        "group": "cluster.karmada.io",
        "scope": "Cluster",
        "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def until(done: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := done()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


class Site:
    """A control plane with what registering needs of it, and a member that is nobody's yet."""

    def __init__(self, folder: Path, processes: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.processes = folder, processes
        servers = {}
        for name, flags in (("inside", ["--enable-bootstrap-token-auth=true"]), ("member", [])):
            (folder / name).mkdir()
            servers[name] = processes.enter_context(conftest.running_api_server(folder / name, *flags))
        self.server: ApiServer = servers["inside"]
        self.inside, self.member = (
            processes.enter_context(Cluster.from_kubeconfig(str(each.kubeconfig), name=name))
            for name, each in servers.items()
        )
        self.ca = self.server.ca.read_bytes()
        authorities = {**state().authorities, KARMADA_CA: pki.Pair(self.ca, b"")}
        self.state = replace(state(), authorities=authorities)
        self._prepare()
        monkeypatch.setattr(member_join, "_credentials", lambda *_: members.Credentials("t", "t", b"c"))
        monkeypatch.setattr(member_join, "connected", lambda *_: contextlib.nullcontext(self.member))
        monkeypatch.setattr(Run, "public_url", self.server.url)
        home = folder / "agent" / ".kube"
        home.mkdir(parents=True)
        (home / "config").write_bytes(servers["member"].kubeconfig.read_bytes())

    def _prepare(self) -> None:
        crds = artifacts.crds(releases.newest().karmada, artifacts.Source("GoModules"))
        apply_all(self.inside, [*control_plane_objects.rights(OWNER), *crds, CLUSTER_CRD])
        apply_all(self.inside, member_works.policies(OWNER))
        signing = self.state.authorities[CLIENT_SIGNING_CA]
        for name, content in (("signing.crt", signing.certificate), ("signing.key", signing.key)):
            (self.folder / name).write_bytes(content)
        # The API server reads it again when it changes.
        with self.server.ca.open("ab") as accepted:
            accepted.write(signing.certificate)
        (port,) = conftest.free_ports(1)
        self.start(
            "kube-controller-manager",
            f"--kubeconfig={self.server.kubeconfig}",
            "--controllers=csrsigning",
            f"--cluster-signing-cert-file={self.folder / 'signing.crt'}",
            f"--cluster-signing-key-file={self.folder / 'signing.key'}",
            "--leader-elect=false",
            f"--secure-port={port}",
        )
        self.start(
            "karmada-controller-manager",
            f"--kubeconfig={self.server.kubeconfig}",
            "--controllers=agentcsrapproving",
            "--leader-elect=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        )

    def start(self, program: str, *flags: str) -> Any:
        path = conftest.binary(program, f"TEST_{program.upper().replace('-', '_')}")
        home = self.folder / program
        home.mkdir(exist_ok=True)
        return conftest.started(self.processes, home / "log", [path, *flags])

    def run(self) -> Run:
        wanted = document({"endpoint": {"type": "NodePort"}, "members": [ENTRY]})
        run = fake_run(wanted, FakeCluster("host cluster"), stored=self.state)
        run.__dict__["control_plane"] = self.inside
        return run

    def join(self) -> list[str]:
        """What one run of the step changes, without waiting."""
        run = self.run()
        registered = member_join.registered_clusters(run)
        survey, outcome = member_join.Outcome("m1"), member_join.Outcome("m1")
        member_join.survey_member(run, ENTRY, registered, survey)
        if not member_join.needs_work(ENTRY, survey, self.state):
            return []
        member_join.register_member(run, ENTRY, registered, outcome)
        self.state = member_join.recorded(self.state, ENTRY, outcome.on_member)
        return [f"{change.action} {change.ref}" for change in outcome.changes]

    @property
    def identity(self) -> agent.Identity:
        found = agent.identity_of(self.member.get("v1", "Secret", agent.SECRET, "karmada-cluster"))
        assert found
        return found

    def start_agent(self, *more: str) -> Any:
        """As its pod would, with ports that are free here."""
        secret = self.member.get("v1", "Secret", agent.SECRET, "karmada-cluster")
        assert secret
        kubeconfig = self.folder / "karmada-kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                pki.kubeconfig("c", self.identity.server, self.identity.ca_pem, "m1", self.identity.pair, context="m1")
            )
        )
        ports = dict(zip(agent.ROW.ports, conftest.free_ports(2), strict=True))
        own = {
            "karmada-kubeconfig": str(kubeconfig),
            "metrics-bind-address": f"127.0.0.1:{ports['metrics']}",
            "health-probe-bind-address": f"127.0.0.1:{ports['health']}",
        }
        flags = dict(
            each.removeprefix("--").split("=", 1)
            for each in agent.flags(self.run().instance, "m1", self.member.access.server)
        )
        path = conftest.binary("karmada-agent", "TEST_KARMADA_AGENT")
        command = [path, *(f"--{key}={value}" for key, value in {**flags, **own}.items()), *more]
        return conftest.started(self.processes, self.folder / "agent" / "log", command)

    @property
    def log(self) -> str:
        return (self.folder / "agent" / "log").read_text(errors="replace")

    def cluster(self) -> Object:
        found = self.inside.get(members.CLUSTER_API, "Cluster", "m1")
        assert found
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patched, ExitStack() as processes:
        yield Site(tmp_path_factory.mktemp("agent"), processes, patched)


def test_an_agent_registers_propagates_renews_its_certificate_and_lets_go(site: Site) -> None:
    """One story, because each part needs the one before it, and the processes cost more than all of them."""
    _is_registered(site)
    _propagates(site)
    _renews_its_certificate(site)
    _lets_go(site)


def _is_registered(site: Site) -> None:
    assert "created Deployment karmada-cluster/karmada-agent" in site.join()
    assert site.inside.list(agent.CSR_API, "CertificateSigningRequest") == []
    assert [each["metadata"]["name"] for each in site.inside.list("v1", "Secret", "kube-system")] == []
    assert site.join() == []
    as_joined = site.cluster()["spec"]

    site.start_agent()
    until(lambda: reason_not_ready(site.cluster()) is None, f"the Cluster is not ready: {site.log[-3000:]}")
    assert site.cluster()["spec"] == as_joined
    assert site.join() == []


def _propagates(site: Site) -> None:
    space = member_works.execution_namespace("m1")
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": "default"}}
    work = {
        "apiVersion": member_works.WORK_API,
        "kind": "Work",
        "metadata": {"name": "app", "namespace": space, "finalizers": ["karmada.io/execution-controller"]},
        "spec": {"workload": {"manifests": [manifest]}},
    }
    site.inside.create(work)
    until(lambda: site.member.get("v1", "ConfigMap", "app", "default"), "the agent does not apply what is propagated")

    def status() -> Any:
        live = site.inside.get(member_works.WORK_API, "Work", "app", space) or {}
        return (live.get("status") or {}).get("conditions")

    until(status, "the agent does not report")
    assert "forbidden" not in site.log, [line for line in site.log.splitlines() if "forbidden" in line][:5]


def _renews_its_certificate(site: Site) -> None:
    before = site.identity
    second = site.start_agent("--cert-rotation-remaining-time-threshold=1", "--leader-elect=false")
    renewed = until(
        lambda: site.identity if site.identity.pair != before.pair else None,
        f"the agent does not renew its certificate: {site.log[-3000:]}",
    )
    second.terminate()
    assert renewed.issued == before.issued
    # It is the agent's own affair: nothing is to be done, and least of all asked for anew.
    assert site.join() == []
    parts = [part.decode() for part in (site.ca, renewed.pair.certificate, renewed.pair.key)]
    with Cluster.from_parts(site.server.url, *parts, name="agent") as found:
        assert found.get(members.CLUSTER_API, "Cluster", "m1")


def _lets_go(site: Site) -> None:
    """Its rights are in the namespace of its Works, so these go before that does."""
    member_leave._see_works_go(site.inside, "m1", time.monotonic() + SECONDS, lambda: None)
    assert site.member.get("v1", "ConfigMap", "app", "default") is None
    run = site.run()
    agent_join.forget(run, "m1", SECONDS)
    for ref in (*map(Ref.of, agent.rights("m1", OWNER)), *agent.leases("m1")):
        assert site.inside.get(ref.api_version, ref.kind, ref.name, ref.namespace) is None
