# SPDX-License-Identifier: Apache-2.0
"""A host cluster of which it cannot be known who answers is refused before anything is sent there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import SimulatedMembers
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

ALLOWED = "insecureSkipTLSVerification"
FROM_SECRET, FROM_FILE = "spec.hostCluster.secretRef", "kubeconfig of the host cluster"


def a_run(folder: Path, config: dict[str, Any], *, secret: bool = False, **settings: Any) -> Run:
    """A run whose host cluster has this kubeconfig, in a Secret or in the file that the inventory source names."""
    (folder / "site").mkdir()
    (folder / "site" / "kubeconfig").write_text(yaml.safe_dump(config))
    if secret:
        settings["secretRef"] = {"name": "site"}
    return Run(
        document({"hostCluster": settings}),
        Connection(kubeconfig=str(folder / "site" / "kubeconfig"), secrets=str(folder)),
        operation="apply",
        holder="me",
        check=False,
        say=lambda _message: None,
    )


def unverified(config: dict[str, Any]) -> dict[str, Any]:
    cluster = config["clusters"][0]["cluster"]
    cluster.pop("certificate-authority-data")
    cluster["insecure-skip-tls-verify"] = True
    return config


@pytest.mark.parametrize(("secret", "where"), [(True, FROM_SECRET), (False, FROM_FILE)])
def test_one_that_is_not_verified_is_told_by_preflight_and_gets_nothing(
    tmp_path: Path, *, secret: bool, where: str
) -> None:
    with SimulatedMembers(["host"]) as clusters:
        host = clusters.members["host"]
        run = a_run(tmp_path, unverified(host.kubeconfig()), secret=secret)
        found = findings.findings(run).problems
        what = "it switches off the verification of the server's certificate (insecure-skip-tls-verify)"
        assert [each.what for each in found if each.where == where] == [what]
        assert "spec.hostCluster.insecureSkipTLSVerification: true" in next(
            each.remedy for each in found if each.what == what
        )
        with pytest.raises(ProblemsError, match="switches off the verification"):
            _ = run.stored_state
        with pytest.raises(ProblemsError, match="switches off the verification"):
            run.writing("anything").__enter__()
        run.close()
        assert host.connections == 0


def test_one_that_is_not_verified_is_let_in_by_name(tmp_path: Path) -> None:
    with SimulatedMembers(["host"]) as clusters:
        run = a_run(tmp_path, unverified(clusters.members["host"].kubeconfig()), **{ALLOWED: True})
        assert run.host_cluster.version()["gitVersion"]
        run.close()


def test_one_that_is_verified_needs_no_leave(tmp_path: Path) -> None:
    with SimulatedMembers(["host"]) as clusters:
        run = a_run(tmp_path, clusters.members["host"].kubeconfig())
        assert run.host_cluster.version()["gitVersion"]
        run.close()


@pytest.mark.parametrize(
    ("server", "allowed", "remedy"),
    [
        ("http://127.0.0.1:{port}", False, "Use the https:// address. If it is a proxy of your own on this machine"),
        ("http://localhost:{port}", False, "Use the https:// address. If it is a proxy of your own on this machine"),
        ("http://192.0.2.7:{port}", False, "Use the https:// address."),
        ("http://192.0.2.7:{port}", True, "Use the https:// address."),
        ("http://host.example.com:{port}", True, "Use the https:// address."),
    ],
)
def test_one_without_tls_is_told_by_preflight_and_gets_nothing(
    tmp_path: Path, server: str, *, allowed: bool, remedy: str
) -> None:
    with StubApi() as api:
        config = api.kubeconfig()
        config["clusters"][0]["cluster"]["server"] = server.format(port=api.url.rpartition(":")[2])
        run = a_run(tmp_path, config, **({ALLOWED: True} if allowed else {}))
        (found,) = (each for each in findings.findings(run).problems if each.where == FROM_FILE)
        assert found.what == "it leads to an address without TLS, where all keys of the control plane could be read"
        assert found.remedy.startswith(remedy)
        assert ("allow it" in found.remedy) is not server.startswith(("http://192", "http://host"))
        assert isinstance(found, Problem)
        assert api.requests == []


def test_a_proxy_of_our_own_is_let_in_by_name(tmp_path: Path) -> None:
    with StubApi() as api:
        run = a_run(tmp_path, api.kubeconfig(), **{ALLOWED: True})
        assert run.host_cluster.version()["gitVersion"]
        run.close()
