# SPDX-License-Identifier: Apache-2.0
"""What the real client of etcd says of a real API server and of others, and that a host says the same of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    KARMADA_AGENT,
    KARMADA_CONTROLLER_MANAGER,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import reach_probe
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Target
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, binary
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_reach import (
    AUTHORITY,
    DAY,
    NOW,
    OTHER,
    certificate,
    server,
)
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port
from ansible_collections.karmada.installer.tests.unit.support.samples import rendered

#: What is silent takes as long; everything else a small part of it.
SECONDS = 10
OURS, OTHERS = AUTHORITY.certificate.decode(), OTHER.certificate.decode()


@pytest.fixture(scope="module")
def targets(api_server: ApiServer) -> Iterator[dict[str, tuple[Target, str]]]:
    """What there is to reach, and what has to be found."""
    authority, port = api_server.ca.read_text(), urlsplit(api_server.url).port
    with ExitStack() as stack:

        def at(*, name: str = "127.0.0.1", trusted: str = OURS, tls: bool = True, **of: object) -> Target:
            pair = of.pop("pair", None)
            there = stack.enter_context(server(pair, **of))  # type: ignore[arg-type]
            url = f"https://{name}:{there}" if tls else f"http://{name}:{there}"
            return Target.of_url(url, url, trusted) if tls else Target.of_proxy(url, url)

        closed = stack.enter_context(closed_port())
        yield {
            "an API server": (Target.of_url("api", api_server.url, authority), ""),
            "by its name": (Target.of_url("name", f"https://localhost:{port}/path", authority), ""),
            "not verified": (Target.of_url("any", api_server.url), ""),
            "an API server of another authority": (Target.of_url("other", api_server.url, OURS), kinds.OTHER_AUTHORITY),
            "without HTTP/2": (at(pair=certificate()), ""),
            "of one of several authorities": (at(pair=certificate(), trusted=OTHERS + OURS), ""),
            "another authority": (at(pair=certificate(OTHER)), kinds.OTHER_AUTHORITY),
            "another address": (at(pair=certificate(addresses=("192.0.2.1",))), kinds.OTHER_NAME),
            "no address": (at(pair=certificate(addresses=())), kinds.OTHER_NAME),
            "expired": (at(pair=certificate(at=NOW - 3 * DAY)), kinds.EXPIRED),
            "not yet valid": (at(pair=certificate(at=NOW + 3 * DAY)), kinds.NOT_YET_VALID),
            "not TLS": (at(pair=None), kinds.NOT_TLS),
            "silent": (at(pair=None, answers=False), kinds.SILENT),
            "refused": (Target.of_url("closed", f"https://127.0.0.1:{closed}", OURS), kinds.REFUSED),
            "no such name": (Target.of_url("invalid", "https://m1.invalid:6443", OURS), kinds.UNKNOWN_NAME),
            "a proxy": (at(pair=None, tls=False), ""),
            "no proxy": (Target.of_proxy("proxy", f"http://127.0.0.1:{closed}"), kinds.REFUSED),
        }


def test_pods_and_hosts_find_the_same(
    targets: dict[str, tuple[Target, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach_probe, "CONNECT_SECONDS", SECONDS)
    etcdctl = Path(binary("etcd", "TEST_ETCD")).with_name("etcdctl")

    def said(name: str) -> str:
        target = targets[name][0]
        file = tmp_path / f"{name.replace('/', '-')}.pem"
        file.write_text(target.authority)
        _name, *arguments = reach_probe.command(target, str(file))
        done = subprocess.run([str(etcdctl), *arguments], check=False, capture_output=True, text=True)
        # As much as the status of a pod holds.
        fault = reach_probe.fault_of((done.stdout + done.stderr)[-2048:], tls=target.tls)
        return fault.kind if fault and done.returncode else ""

    expected = {name: kind for name, (_target, kind) in targets.items()}
    with ThreadPoolExecutor(4) as pool:
        assert dict(zip(targets, pool.map(said, targets), strict=True)) == expected
    named = [{**target.plain, "name": name} for name, (target, _kind) in targets.items()]
    found = kinds.look(named, SECONDS)
    assert {name: found.get(name, {}).get("fault", "") for name in targets} == expected


def test_an_etcd_is_reached(api_server: ApiServer) -> None:
    target = Target.of_proxy("etcd", api_server.etcd_url)
    etcdctl = Path(binary("etcd", "TEST_ETCD")).with_name("etcdctl")
    done = subprocess.run([str(etcdctl), *reach_probe.command(target, "")[1:]], check=False, capture_output=True)
    assert done.returncode == 0


def test_its_pod_is_admitted_where_pods_may_do_least(api_server: ApiServer) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "reach", "labels": labels}}
    assert api_server.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    targets = [
        Target.of_url("m1", "https://m1.example.com:6443", OURS),
        Target.of_url("m2", "https://[2001:db8::7]:6443"),
        Target.of_proxy("m3", "http://proxy.example.com:3128"),
    ]
    for component, some in ((KARMADA_CONTROLLER_MANAGER, targets), (KARMADA_AGENT, targets[1:2])):
        pod = reach_probe.pod(rendered().instance, component, "reach", some, 60)
        status, answer = api_server.request("POST", "/api/v1/namespaces/reach/pods?dryRun=All", pod)
        assert (status, answer.get("message")) == (201, None)
