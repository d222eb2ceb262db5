#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the report as a page for made-up control planes, and pictures of it by a browser, to be looked at.

`PYTHONPATH=collections .ci/venv python tools/example_reports.py FOLDER` writes a page for each example.
With `--browser chromium` (Debian's package, or another of that kind) it also takes the pictures: each page light
and dark, at three widths. With `--docs` those that the guide shows are written to docs/images/ in place of that.
`pngquant`, where it is installed, makes them smaller.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import websocket
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.report.html.page import page

ROOT = Path(__file__).resolve().parents[1]
NOW = datetime(2026, 11, 23, 16, 20, tzinfo=UTC)
#: Width and height of a window; the pictures are as high as the page.
WINDOWS = {"narrow": (400, 800), "tablet": (820, 1000), "wide": (1280, 900)}
#: Seconds that a browser gets to start.
PATIENCE = 60
#: Picture of the guide → example, window, scheme, and the greatest height in pixels.
PICTURES = {
    "report-3-light": ("pods-3", "wide", "light", 1500),
    "report-3-dark": ("pods-3", "wide", "dark", 1500),
    "report-300-light": ("hosts-300", "wide", "light", 1960),
    "report-300-dark": ("hosts-300", "wide", "dark", 1960),
    "report-narrow": ("pods-3-broken", "narrow", "light", 1400),
}
CERTIFICATES = (
    *("admin", "etcd-peer", "etcd-server", "front-proxy-client", "karmada-aggregated-apiserver", "karmada-apiserver"),
    *("karmada-apiserver-etcd-client", "karmada-controller-manager-client", "karmada-scheduler-client"),
    *("karmada-webhook", "kube-controller-manager"),
)
AUTHORITIES = ("client-signing-ca", "etcd-ca", "front-proxy-ca", "karmada-ca")


class Example(NamedTuple):
    """Made-up control plane: how many members, of which every so many is broken (0 is none), and where it runs."""

    members: int
    broken: int = 0
    mode: str = "Container"
    storage: str = "volumeClaim"
    #: Number of plain hosts.
    hosts: int = 0


EXAMPLES = {
    "pods-0": Example(0),
    "pods-3": Example(3),
    "pods-3-broken": Example(3, broken=3),
    "pods-300": Example(300, broken=60),
    "pods-1000": Example(1000, broken=25),
    "pods-etcd-on-hosts": Example(8, broken=5, storage="directory", hosts=3),
    "pods-external-etcd": Example(20, storage="external"),
    "hosts-3": Example(3, mode="Binary", storage="directory", hosts=3),
    "hosts-300": Example(300, broken=100, mode="Binary", storage="directory", hosts=5),
}


def status(example: Example) -> dict[str, Any]:
    """Status of this control plane, as report.status makes it."""
    members = [_member(number, example) for number in range(1, example.members + 1)]
    broken = [each["name"] for each in members if not each["ready"]]
    hosts = [_host(number, example) for number in range(1, example.hosts + 1)]
    down = [each["name"] for each in hosts if not each["ready"]]
    told = f"not ready, or not as listed: {', '.join(broken)}"
    conditions = [
        _condition("Ready", not broken, told if broken else "everything that was asked for is ready"),
        _condition(
            "ComponentsReady", not down, f"not ready: etcd on {', '.join(down)}" if down else "every component is ready"
        ),
        _condition("ControlPlaneReady", True, "the API server, the aggregated API and the CRDs answer"),
        _condition("MembersReady", not broken, told if broken else "all listed members are ready"),
    ]
    return {
        "phase": "Waiting" if broken else "Completed",
        "observedGeneration": 3,
        "installed": True,
        "mode": example.mode,
        "karmadaVersion": "v1.18.2",
        "kubernetesVersion": "v1.35.4",
        "etcdVersion": "v3.6.16",
        "conditions": conditions,
        "components": [*_components(members, example, len(down))],
        **({"hosts": hosts} if hosts else {}),
        "etcd": {
            "storage": example.storage,
            "members": 3,
            "ready": 3 - len(down),
            "endpoints": [_endpoint(number, example, down) for number in range(3)],
        },
        "members": members,
        "certificates": [
            *({"name": each, "notAfter": _after(350 if example.members else 20)} for each in CERTIFICATES),
            *({"name": each, "notAfter": _after(3640)} for each in AUTHORITIES),
        ],
        "problems": [*_problems(members, down)],
    }


def _member(number: int, example: Example) -> dict[str, Any]:
    name = f"{('edge', 'shop', 'lab')[number % 3]}-{('eu', 'us', 'ap')[number % 7 % 3]}-{number:04}"
    version = ("v1.35.4", "v1.35.4", "v1.34.8", "v1.33.9+k3s1", "v1.35.1-gke.1200000")[number % 5]
    known = {"name": name, "mode": "Pull" if number % 4 == 0 else "Push", "kubernetesVersion": version}
    since = {"lastTransitionTime": (NOW - timedelta(hours=7 * number)).isoformat()}
    if not example.broken or number % example.broken:
        return {**known, "ready": True, "reason": "ClusterReady", **since}
    if number % (3 * example.broken):
        message = f"https://{name}.example.com:6443 does not answer: connection timed out. Next: let it answer"
        return {**known, "ready": False, "reason": "ClusterNotReachable", "message": message, **since}
    return {
        "name": name,
        "ready": False,
        "reason": "NotJoined",
        "message": f"there is no Secret karmada-system/{name}. Next: create it, then run again",
    }


def _host(number: int, example: Example) -> dict[str, Any]:
    roles = ["etcd"] if example.mode == "Container" else ["etcd", "controlPlane"] if number <= 3 else ["controlPlane"]
    host = {"name": f"cp{number}", "address": f"192.0.2.{10 + number}", "roles": roles, "ready": True}
    if example.broken and number == 2:
        message = "karmada-prod-etcd.service failed (failed), result exit-code, last exit 1"
        return {**host, "ready": False, "message": message}
    return host


def _components(members: list[dict[str, Any]], example: Example, down: int) -> Iterator[dict[str, Any]]:
    for component in COMPONENTS:
        desired = 3 if component.name == "etcd" or example.mode == "Binary" else 2
        if component.per_member:
            pushed = [each for each in members if each.get("mode") == "Push"] if example.members > 3 else []
            yield from (
                {"name": f"{component.name}-{each['name']}", "desired": 1, "ready": int(each["ready"])}
                for each in pushed
            )
        elif not component.optional or example.members > 3:
            yield {
                "name": component.name,
                "desired": desired,
                "ready": desired - (down if component.name == "etcd" else 0),
            }


def _endpoint(number: int, example: Example, down: list[str]) -> dict[str, Any]:
    name = f"192.0.2.{11 + number}" if example.hosts else f"prod-etcd-{number}.prod-etcd.karmada-system.svc"
    found = {"url": f"https://{name}:2379", "leader": number == 0, "healthy": True, "alarms": []}
    if f"cp{number + 1}" in down:
        return {**found, "healthy": False, "message": "connection refused"}
    return {**found, "version": "v3.6.16", "dbSizeBytes": 25_444_352 + 4096 * number}


def _problems(members: list[dict[str, Any]], down: list[str]) -> Iterator[dict[str, Any]]:
    broken = [each for each in members if not each["ready"]]
    for each in broken[:20]:
        name, error = each["name"], {"severity": "error", "where": f"member {each['name']}"}
        if each["reason"] == "NotJoined":
            told = {"what": f"there is no Secret karmada-system/{name}", "remedy": "create it, then run again"}
            yield {**error, "reason": "SecretNotFound", **told}
        else:
            what = f"https://{name}.example.com:6443 does not answer: connection timed out"
            remedy = "let it answer again (its network, firewalls, its API server), then run again"
            yield {**error, "reason": "MemberUnreachable", "what": what, "remedy": remedy}
    for name in down:
        what = "karmada-prod-etcd.service failed (failed), result exit-code, last exit 1"
        yield {"severity": "warning", "reason": "UnitNotHealthy", "what": what, "where": f"host {name}", "remedy": ""}
    if broken:
        what = "components of different versions are at work: karmada-scheduler v1.18.1, karmada-webhook v1.18.2"
        yield {"severity": "hint", "reason": "VersionSkew", "what": what, "where": "", "remedy": ""}


def _condition(kind: str, good: bool, message: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": "AllReady" if good else "NotReady",
        "message": message,
    }


def _after(days: int) -> str:
    return (NOW + timedelta(days=days, hours=3)).isoformat()


class Browser:
    """Page of a headless browser, by its debugging protocol (CDP)."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket, self._number = socket, 0

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Result of one command."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    def value(self, expression: str) -> Any:
        """Value of an expression in the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)["result"].get(
            "value"
        )

    def picture(self, url: str, window: tuple[int, int], scheme: str, highest: int = 16_000) -> bytes:
        """Picture of the whole page, or of its upper part."""
        width, height = window
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=url)
        until = time.monotonic() + PATIENCE
        while self.value("document.readyState + location.href") != f"complete{url}" and time.monotonic() < until:
            time.sleep(0.05)
        across = self.value("document.documentElement.scrollWidth")
        if across > width:
            print(f"  {url} is {across} wide in a window of {width}", file=sys.stderr)
        size = {"x": 0, "y": 0, "width": width, "scale": 1}
        clip = {**size, "height": min(highest, self.value("document.documentElement.scrollHeight"))}
        return base64.b64decode(self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Start a browser of the Chromium family, and end it."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}"]
        # It opens files of ours only, and often runs in containers that have no namespaces for its own sandbox.
        options += ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"]
        process = subprocess.Popen([program, *options, "about:blank"], stderr=subprocess.DEVNULL)
        try:
            port = _port(Path(profile) / "DevToolsActivePort")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE) as answer:
                target = next(each for each in json.load(answer) if each["type"] == "page")
            socket = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=PATIENCE)
            yield Browser(socket)
            socket.close()
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _port(file: Path) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if file.is_file() and (lines := file.read_text().split()):
            return lines[0]
        time.sleep(0.1)
    raise SystemExit("the browser did not start")


def pages(folder: Path) -> Mapping[str, Path]:
    """Write the page of each example; returns its files by the example's name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, example in EXAMPLES.items():
        made = status(example)
        began = time.perf_counter()
        text = page("prod", "karmada-system", made, NOW)
        took = time.perf_counter() - began
        files[name] = folder / f"{name}.html"
        files[name].write_text(text, encoding="utf-8")
        print(f"{name:20} {len(text.encode()) / 1024:7.1f} KiB {1000 * took:6.0f} ms")
    return files


def _keep(picture: bytes, path: Path) -> None:
    path.write_bytes(picture)
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--skip-if-larger", "64", path], check=False)
    print(f"{path} {path.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    """Write pages, and pictures of them if there is a browser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for pages and pictures")
    parser.add_argument("--browser", help="program of a browser of the Chromium family")
    parser.add_argument("--docs", action="store_true", help="take the pictures of the guide, and no others")
    parser.add_argument("--only", help="take pictures of this example only", choices=EXAMPLES)
    options = parser.parse_args()
    files = pages(options.folder)
    if not options.browser:
        return
    with browser(options.browser) as window:
        if options.docs:
            for name, (example, width, scheme, highest) in PICTURES.items():
                picture = window.picture(files[example].resolve().as_uri(), WINDOWS[width], scheme, highest)
                _keep(picture, ROOT / f"docs/images/{name}.png")
            return
        for example, file in files.items():
            for width, size in WINDOWS.items() if options.only in (None, example) else ():
                for scheme in ("light", "dark"):
                    picture = window.picture(file.resolve().as_uri(), size, scheme)
                    _keep(picture, options.folder / f"{example}-{width}-{scheme}.png")


if __name__ == "__main__":
    main()
