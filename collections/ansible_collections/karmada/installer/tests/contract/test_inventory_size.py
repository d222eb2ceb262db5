# SPDX-License-Identifier: Apache-2.0
"""An inventory of many control planes with fifty members each: requests, memory, and time as a figure.

``INVENTORY_CONTROL_PLANES`` says how many of them; ``make test-full`` has a hundred, to which the goals belong.
The API servers are stubs in this process. Time is not asserted: the machine has other tests to run at the same moment.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
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


def control_plane(number: int) -> dict[str, Any]:
    members = [
        {"name": f"member{each}", "secretRef": {"name": f"member{each}"}, "region": "eu", "labels": {"tier": "prod"}}
        for each in range(MEMBERS)
    ]
    hosts = [{"name": f"cp{each}", "address": f"192.0.2.{each}"} for each in (1, 2, 3)]
    spec = {
        "mode": "Binary",
        "endpoint": {"type": "External", "host": f"karmada{number}.example.com"},
        "hosts": hosts,
        "ssh": {"user": "karmada"},
        "members": members,
    }
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


@pytest.fixture(scope="module")
def api() -> Iterator[StubApi]:
    """A host cluster that has all objects, and at the same address the control planes, which have the same members."""
    with StubApi() as stub:
        for version, (name, kind, namespaced) in TYPES.items():
            stub.types[version] = [
                {"name": name, "kind": kind, "namespaced": namespaced, "verbs": ["list", "get"]},
            ]
        kubeconfig = base64.b64encode(json.dumps(stub.kubeconfig()).encode()).decode()
        for number in range(CONTROL_PLANES):
            stub.put(OBJECTS, control_plane(number))
            metadata = {"name": f"prod{number}-admin-config", "namespace": "karmada"}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": kubeconfig}}
            stub.put("api/v1/secrets", secret)
        for number in range(MEMBERS):
            stub.put(CLUSTERS, registered(number))
        yield stub


@pytest.mark.parametrize("membership", GOALS)
def test_many_control_planes_take_few_requests_and_little_memory(membership: str, api: StubApi, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig()), encoding="utf-8")
    source = {"plugin": "karmada.installer.karmada", "instances": "all", "kubeconfig": "kubeconfig"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump({**source, "membership": membership}), encoding="utf-8")
    api.requests.clear()
    began = time.monotonic()
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", "site.karmada.yml", "--list", "--export"]
    done = ansible_commands.run("python", "-c", MEASURED, "inventory.json", *command, directory=tmp_path)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "inventory.json").read_text(encoding="utf-8"))
    assert len(found["karmada_instances"]["hosts"]) == CONTROL_PLANES
    assert len(found["karmada_all_members"]["hosts"]) == CONTROL_PLANES * MEMBERS
    asked = Counter(path.partition("?")[0].rstrip("/").rpartition("/")[2] for _, path in api.requests)
    memory, computed = map(float, done.stdout.split())
    told = (
        f"{CONTROL_PLANES} control planes with {MEMBERS} members: {seconds:.1f} s, of which {computed:.1f} s of a "
        f"processor (goal with 100: {GOALS[membership]} s), {memory / 2**20:.0f} MiB, {len(api.requests)} requests"
    )
    sys.stdout.write(f"{told}\n")
    keep_figure(CHECKOUT / "build/figures/contract.json", f"inventory, membership {membership}", told)
    assert memory < MOST_MEMORY, told
    assert asked["karmadadeployments"] == 1
    # One list and what the server says of the kind; of each control plane also its Secret, its owner and its members.
    most = 2 if membership == "spec" else 2 + 4 * CONTROL_PLANES
    assert len(api.requests) <= most, asked
    assert asked["clusters"] == (0 if membership == "spec" else CONTROL_PLANES)
