# SPDX-License-Identifier: Apache-2.0
"""An inventory of many control planes with fifty members each: requests, logins, memory, and time as a figure.

``INVENTORY_CONTROL_PLANES`` says how many of them; ``make test-full`` has a hundred, to which the goals belong.
The API servers are stubs in this process; those in pods speak TLS behind a port-forward, by the certificates of their
state. Time is not asserted: the machine has other tests to run at the same moment.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_APISERVER, KARMADA_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, authorities, rendered, state
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from figures import keep_figure

CONTROL_PLANES, MEMBERS = int(os.environ.get("INVENTORY_CONTROL_PLANES", "20")), 50
#: Goals in seconds for a hundred control planes.
GOALS = {"spec": 5, "live": 15}
MOST_MEMORY = 300 << 20
OBJECTS = "apis/installer.karmada.io/v1alpha1/karmadadeployments"
CLUSTERS = "apis/cluster.karmada.io/v1alpha1/clusters"
TYPES = {
    "installer.karmada.io/v1alpha1": ("karmadadeployments", "KarmadaDeployment", True),
    "cluster.karmada.io/v1alpha1": ("clusters", "Cluster", False),
    "v1": ("namespaces", "Namespace", False),
}
#: Runs a program with its output in a file; says the most memory and the processor's time that it has taken.
MEASURED = """\
import resource, subprocess, sys
with open(sys.argv[1], "wb") as output:
    code = subprocess.run(sys.argv[2:], stdout=output).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss << 10, used.ru_utime + used.ru_stime)
sys.exit(code)
"""


def control_plane(number: int, mode: str = "Binary") -> dict[str, Any]:
    members = [
        {"name": f"member{each}", "secretRef": {"name": f"member{each}"}, "region": "eu", "labels": {"tier": "prod"}}
        for each in range(MEMBERS)
    ]
    hosts = [{"name": f"cp{each}", "address": f"192.0.2.{each}"} for each in (1, 2, 3)]
    on_hosts = {
        "endpoint": {"type": "External", "host": f"karmada{number}.example.com"},
        "hosts": hosts,
        "ssh": {"user": "karmada"},
    }
    # The host cluster is a stub without TLS.
    in_pods = {"hostCluster": {"insecureSkipTLSVerification": True}}
    spec = {"mode": mode, **(on_hosts if mode == "Binary" else in_pods), "members": members}
    return {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "KarmadaDeployment",
        "metadata": {"name": f"prod{number}", "namespace": "karmada", "labels": {"tier": "prod"}},
        "spec": spec,
        "status": {"phase": "Completed", "karmadaVersion": "v1.18.2"},
    }


def registered(number: int) -> dict[str, Any]:
    """Cluster as a control plane lists it: what it says of its own APIs is most of it."""
    enabled = [{"groupVersion": f"group{each}.example.com/v1", "resources": [{"name": "x"}] * 8} for each in range(30)]
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": f"member{number}"},
        "spec": {"syncMode": "Push"},
        "status": {
            "kubernetesVersion": "v1.35.4",
            "apiEnablements": enabled,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def with_types(stub: StubApi) -> StubApi:
    for version, (name, kind, namespaced) in TYPES.items():
        stub.types[version] = [
            {"name": name, "kind": kind, "namespaced": namespaced, "verbs": ["list", "get"]},
        ]
    return stub


@pytest.fixture(scope="module")
def api() -> Iterator[StubApi]:
    """A host cluster that has all objects, and at the same address the control planes, which have the same members."""
    with StubApi() as stub:
        with_types(stub)
        kubeconfig = base64.b64encode(json.dumps(stub.kubeconfig()).encode()).decode()
        for number in range(CONTROL_PLANES):
            stub.put(OBJECTS, control_plane(number))
            metadata = {"name": f"prod{number}-admin-config", "namespace": "karmada"}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": kubeconfig}}
            stub.put("api/v1/secrets", secret)
        for number in range(MEMBERS):
            stub.put(CLUSTERS, registered(number))
        yield stub


def serving() -> ssl.SSLContext:
    """TLS of every API server in pods: all have the same authority here, and one certificate for all their names."""
    about = x509.Certificate("all", KARMADA_CA, "all", dns_names=("*.karmada.svc.cluster.local",), server=True)
    pair = x509.issue(about, authorities()[KARMADA_CA], "ECDSA-P256", datetime.now(UTC), timedelta(days=1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


@pytest.fixture(scope="module")
def in_pods() -> Iterator[tuple[StubApi, StubApi]]:
    """A host cluster with all objects and their pods, and what all of these pods lead to."""
    with StubApi() as host, StubApi(tls=serving()) as inside:
        with_types(host)
        with_types(inside)
        address = urlsplit(inside.url)
        host.forward_to = (str(address.hostname), int(address.port or 0))
        labels = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": OWNER}
        data = {name: base64.b64encode(each).decode() for name, each in to_files(state()).items()}
        for number in range(CONTROL_PLANES):
            name = f"prod{number}"
            host.put(OBJECTS, control_plane(number, "Container"))
            metadata = {"name": f"{name}-installer-state", "namespace": "karmada", "labels": labels}
            host.put("api/v1/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
            labelled = rendered(name=name).instance.selector(KARMADA_APISERVER.name)
            host.put(
                "api/v1/pods",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-apiserver-0", "namespace": "karmada", "labels": labelled},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                },
            )
        for number in range(MEMBERS):
            inside.put(CLUSTERS, registered(number))
        yield host, inside


@pytest.mark.parametrize("membership", GOALS)
def test_many_control_planes_take_few_requests_and_little_memory(membership: str, api: StubApi, tmp_path: Path) -> None:
    asked = measured(membership, tmp_path, api)
    # One list and what the server says of the kind; of each control plane also its Secret, its owner and its members.
    most = 2 if membership == "spec" else 2 + 4 * CONTROL_PLANES
    assert asked.total() <= most, asked
    assert asked["clusters"] == (0 if membership == "spec" else CONTROL_PLANES)


def test_those_in_pods_are_asked_through_one_client_of_their_cluster(
    in_pods: tuple[StubApi, StubApi], tmp_path: Path
) -> None:
    asked = measured("live", tmp_path, *in_pods)
    # Of each whether its cluster answers, its state, its pods, the way into one; there its members and their kind.
    assert asked.total() <= 2 + 6 * CONTROL_PLANES, asked
    assert asked["portforward"] == asked["clusters"] == CONTROL_PLANES


def measured(membership: str, tmp_path: Path, api: StubApi, inside: StubApi | None = None) -> Counter[str]:
    """Requests of an inventory of all, by the last part of their paths, after what holds of every inventory is seen.

    ``inside`` are API servers of control planes in pods of ``api``, where they are.
    """
    logins = tmp_path / "logins"
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig_with_login(logins)), encoding="utf-8")
    source = {"plugin": "karmada.installer.karmada", "instances": "all", "kubeconfig": "kubeconfig"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump({**source, "membership": membership}), encoding="utf-8")
    stubs = [each for each in (api, inside) if each]
    for each in stubs:
        each.requests.clear()
    began = time.monotonic()
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", "site.karmada.yml", "--list", "--export"]
    done = ansible_commands.run("python", "-c", MEASURED, "inventory.json", *command, directory=tmp_path)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "inventory.json").read_text(encoding="utf-8"))
    assert len(found["karmada_instances"]["hosts"]) == CONTROL_PLANES
    assert len(found["karmada_all_members"]["hosts"]) == CONTROL_PLANES * MEMBERS
    requests = [path for stub in stubs for _, path in stub.requests]
    asked = Counter(path.partition("?")[0].rstrip("/").rpartition("/")[2] for path in requests)
    memory, computed = map(float, done.stdout.split())
    where = " in pods" if inside else ""
    told = (
        f"{CONTROL_PLANES} control planes{where} with {MEMBERS} members: {seconds:.1f} s, of which {computed:.1f} s "
        f"of a processor (goal with 100: {GOALS[membership]} s), {memory / 2**20:.0f} MiB, {len(requests)} requests"
    )
    sys.stdout.write(f"{told}\n")
    keep_figure(CHECKOUT / "build/figures/contract.json", f"inventory, membership {membership}{where}", told)
    assert memory < MOST_MEMORY, told
    assert asked["karmadadeployments"] == 1
    assert logins.read_text(encoding="utf-8").splitlines() == ["login"]
    return asked
