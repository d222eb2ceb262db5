# SPDX-License-Identifier: Apache-2.0
"""The operator as a process against a real API server, with the collection's CRD and inventory, and small playbooks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.moments import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FINALIZER = "installer.karmada.io/instance"
SAMPLE = {
    "phase": "Completed",
    "observedGeneration": 1,
    "installed": True,
    "karmadaVersion": "v1.18.2",
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "AllReady", "message": "", "observedGeneration": 1},
    ],
    "members": [{"name": "m1", "ready": True, "reason": "Ready"}],
    "certificates": [{"name": "ca", "notAfter": "2030-01-01T00:00:00Z"}],
}
#: Writes down what it was run for, waits for a word, and reports. The inventory keeps paths relative to the working
#: directory, and a module of Ansible has another one.
INSTALL = """
- name: Install
  hosts: karmada_control
  gather_facts: false
  tasks:
    - name: Write down what this is for
      ansible.builtin.shell: >-
        echo {{{{ karmada_deployment.metadata.generation }}}} {{{{ ansible_check_mode }}}} >>{here}/installs
      check_mode: false
    - name: Wait for a word
      ansible.builtin.wait_for: {{path: {here}/go, timeout: 900, sleep: 1}}
      check_mode: false
    - name: Report
      ansible.builtin.copy:
        src: {here}/report.json
        dest: "{{{{ karmada_connection.report_output | realpath }}}}"
        mode: "0600"
"""
REMOVE = """
- name: Remove
  hosts: karmada_control
  gather_facts: false
  tasks:
    - name: Write down what was confirmed
      ansible.builtin.shell: echo {{{{ karmada_confirm }}}} >>{here}/removals
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("operator")) as found:
        definition = yaml.safe_load(manifest._SCHEMA_FILE.read_text(encoding="utf-8"))
        assert found.request("POST", CRDS, definition)[0] == 201
        until(lambda: found.request("GET", f"/apis/{manifest.API_VERSION}/karmadadeployments")[0] == 200, "the CRD")
        yield found


class Site:
    """A namespace with one object, and the folder in which playbooks leave their traces."""

    def __init__(self, server: ApiServer, here: Path, namespace: str) -> None:
        self.server, self.here, self.namespace = server, here, namespace
        self.path = f"/apis/{manifest.API_VERSION}/namespaces/{namespace}/karmadadeployments"
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        (here / "report.json").write_text(json.dumps(SAMPLE))
        for name, text in (("install.yml", INSTALL), ("remove.yml", REMOVE)):
            (here / name).write_text(text.format(here=here))
        row, *_ = yaml.safe_load((CHECKOUT / "operator/karmada_operator/watches.yaml").read_text())
        row |= {
            "playbook": str(here / "install.yml"),
            "finalizer": {**row["finalizer"], "playbook": str(here / "remove.yml")},
        }
        (here / "watches.yml").write_text(yaml.safe_dump([row]))

    def with_real_playbooks(self) -> None:
        """Have the collection's own playbooks run."""
        (self.here / "watches.yml").write_text((CHECKOUT / "operator/karmada_operator/watches.yaml").read_text())

    def create(self) -> None:
        head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}}
        code, answer = self.server.request("POST", self.path, {**head, "spec": {}})
        assert code == 201, answer

    def edit(self, patch: dict[str, Any]) -> None:
        path = f"{self.path}/prod"
        code, answer = self.server.request("PATCH", path, patch, "application/merge-patch+json")
        assert code == 200, answer

    def replicas(self, count: int) -> None:
        self.edit({"spec": {"components": {"karmadaWebhook": {"replicas": count}}}})

    @property
    def object(self) -> dict[str, Any]:
        code, found = self.server.request("GET", f"{self.path}/prod")
        return found if code == 200 else {}

    @property
    def phase(self) -> str:
        return str(self.object.get("status", {}).get("phase", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        found = self.object.get("status", {}).get("conditions", ())
        return next((each for each in found if each["type"] == kind), {"status": "", "reason": ""})

    def go(self, word: bool = True) -> None:
        if word:
            (self.here / "go").touch()
        else:
            (self.here / "go").unlink()

    def lines(self, name: str) -> list[str]:
        file = self.here / name
        return file.read_text().splitlines() if file.exists() else []

    def events(self) -> set[str]:
        _, found = self.server.request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return {each["reason"] for each in found["items"]}


@contextmanager
def operator(site: Site, name: str = "one", *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Operator as a process; ``name`` is that of its folder and log, ``options`` are further ones of its command."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{CHECKOUT / 'operator'}:{CHECKOUT / 'collections'}",
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "collections"),
        "K8S_AUTH_KUBECONFIG": str(site.server.kubeconfig),
    }
    runs = ["--runs", str(site.here / name), "--watches", str(site.here / "watches.yml")]
    where = ["--namespace", site.namespace, "--lease-namespace", site.namespace]
    command = [
        sys.executable,
        "-m",
        "karmada_operator",
        *runs,
        *where,
        "--listen",
        "127.0.0.1",
        "--port",
        "0",
        *options,
    ]
    log = (site.here / f"{name}.log").open("wb")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
        assert process.poll() in (None, 0, -signal.SIGKILL)
    finally:
        process.terminate()
        process.wait(300)
        log.close()
        print((site.here / f"{name}.log").read_text()[-6000:])  # noqa: T201 - shown with a failure


@pytest.fixture
def site(server: ApiServer, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return Site(server, tmp_path, f"n{abs(hash(request.node.name)) % 10**8}")


def wait(site: Site, done: Callable[[], object], what: str) -> None:
    """Wait, and say what the object looks like if it was in vain."""
    try:
        until(done, what)
    except AssertionError as error:
        raise AssertionError(f"{error}; {json.dumps(site.object.get('status'), indent=1)}") from None


def test_the_life_of_an_object(site: Site) -> None:
    with operator(site) as process:
        site.create()
        wait(site, lambda: site.lines("installs") == ["1 False"], "a run")
        assert site.object["metadata"]["finalizers"] == [FINALIZER]
        wait(site, lambda: site.condition("Progressing")["reason"] == "Running", "the condition")
        assert site.phase == "Preflight"
        assert site.condition("Ready")["status"] == "False"
        # While it runs, edits are made; they make one run more.
        site.replicas(3)
        site.replicas(2)
        site.go()
        wait(site, lambda: site.condition("Ready")["status"] == "True", "Ready")
        wait(site, lambda: site.lines("installs") == ["1 False", "3 False"], "one run more")
        wait(site, lambda: site.condition("Progressing")["status"] == "False", "its end")
        status = site.object["status"]
        assert (status["phase"], status["karmadaVersion"]) == ("Completed", "v1.18.2")
        assert {"Running", "RunSucceeded"} <= site.events()
        assert all(each["lastTransitionTime"] for each in status["conditions"])
        version, ready = site.object["metadata"]["resourceVersion"], site.condition("Ready")
        # What annotations ask for is done, or not done.
        site.edit({"metadata": {"annotations": {"installer.karmada.io/dry-run": "true"}}})
        wait(site, lambda: site.lines("installs")[2:] == ["3 True"], "a dry run")
        wait(site, lambda: site.condition("Drifted")["reason"] == "DryRun", "what it found")
        assert site.object["metadata"]["resourceVersion"] != version
        assert site.condition("Ready") == ready, "nothing has changed, its time neither"
        site.edit({"metadata": {"annotations": {"installer.karmada.io/paused": "true"}}})
        wait(site, lambda: site.condition("Paused")["status"] == "True", "the pause")
        annotations = {"installer.karmada.io/dry-run": None, "installer.karmada.io/paused": None}
        site.edit({"metadata": {"annotations": annotations}})
        wait(site, lambda: len(site.lines("installs")) == 4, "a run after the pause")
        wait(site, lambda: site.condition("Progressing")["status"] == "False", "its end")
        site.server.request("DELETE", f"{site.path}/prod")
        wait(site, lambda: not site.object, "its removal")
        assert site.lines("removals") == ["prod"]
        assert list((site.here / "one").iterdir()) == [], "runs leave nothing"
        process.terminate()
        assert process.wait(300) == 0


def test_deletion_in_the_middle_of_an_install_by_an_operator_that_took_over(site: Site) -> None:
    """The first operator is killed without a word: its run ends with it, and another one goes on."""
    with operator(site, "one") as first:
        site.create()
        wait(site, lambda: site.lines("installs") == ["1 False"], "a run")
        with operator(site, "two"):
            first.kill()
            wait(site, lambda: site.lines("installs") == ["1 False", "1 False"], "a run of the other")
            # Its worker was told to end; ansible-playbook is given time to, and may outlive a Lease of a second.
            wait(site, lambda: not running(site.here / "one"), "the end of what the first one started")
            site.server.request("DELETE", f"{site.path}/prod")
            wait(site, lambda: not site.object, "its removal")
            assert site.lines("removals") == ["prod"]
            assert not (site.here / "go").exists(), "no install came to its end"


def test_the_collections_own_playbooks_find_what_is_wrong_and_leave_nothing(site: Site) -> None:
    """There are no nodes here: preflight says so, the object tells it, and removal finds nothing to remove."""
    site.with_real_playbooks()
    with operator(site):
        site.create()
        wait(site, lambda: site.condition("Degraded")["status"] == "True", "what preflight found")
        status = site.object["status"]
        assert status["phase"] == "Failed"
        reasons = {each["reason"] for each in status["problems"] if each["severity"] == "error"}
        assert reasons
        assert site.condition("Degraded")["reason"] in reasons
        assert site.condition("Ready")["status"] == "False"
        assert {"Running", "Preflight", "RunFailed"} <= site.events()
        site.server.request("DELETE", f"{site.path}/prod")
        wait(site, lambda: not site.object, "its removal")


def running(folder: Path) -> list[str]:
    """Processes that work for a run below this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if "ansible-playbook" in arguments and str(folder) in arguments:
            found.append(arguments)
    return found
