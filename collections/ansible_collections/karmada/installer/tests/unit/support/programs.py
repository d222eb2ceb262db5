# SPDX-License-Identifier: Apache-2.0
"""Programs of a release that does not exist, from every source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import (
    programs,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Access, Program
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Logins
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import table, types
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.plugins.plugin_utils.components.releases import Release
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    WebServer,
    authority,
    program,
    tar,
)

RELEASE = Release(karmada="v9.1.0", kubernetes="v9.2.0", etcd="v9.3.0")
ETCD, APISERVER, SCHEDULER = table.ETCD, table.KARMADA_APISERVER, table.KARMADA_SCHEDULER
THREE = (ETCD, APISERVER, SCHEDULER)

APISERVER_PATH = "kubernetes/v9.2.0/bin/linux/amd64/kube-apiserver"
SCHEDULER_PATH = "karmada/v9.1.0/bin/linux/amd64/karmada-scheduler"
ETCD_FOLDER = "etcd-v9.3.0-linux-amd64"
ETCD_PATH = f"etcd/v9.3.0/{ETCD_FOLDER}.tar.gz"
#: A site's or a publisher's files, by path.
FILES = {
    APISERVER_PATH: program("kube-apiserver"),
    SCHEDULER_PATH: program("karmada-scheduler"),
    ETCD_PATH: tar((f"{ETCD_FOLDER}/README.md", b"read"), (f"{ETCD_FOLDER}/etcd", program("etcd"))),
}
CONTENT = {
    "etcd": program("etcd"),
    "karmada-apiserver": program("kube-apiserver"),
    "karmada-scheduler": program("karmada-scheduler"),
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record(lock: dict[str, Any], *paths: str) -> None:
    for path in paths:
        project, version, name = path.split("/", 2)
        recorded = lock.setdefault(project, {}).setdefault(version, {}).setdefault("files", {})
        recorded[name] = f"sha256:{sha256(FILES[path])}"


def image_spec(server: WebServer, **more: Any) -> dict[str, Any]:
    registries = {"karmadaRegistry": "karmada", "kubeRegistry": "k8s", "etcdRegistry": "coreos"}
    return {"images": {field: f"{server.host}/{path}" for field, path in registries.items()}, **more}


def bring(
    source: Source,
    cache: Path,
    wanted: tuple[types.Component, ...] = THREE,
    spec: Mapping[str, Any] | None = None,
    architecture: str = "amd64",
    logins: Logins | None = None,
    held: Held | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Program]:
    access = Access(Https(authority()), logins or Logins()).until(stopped)
    settings = samples.spec_of(spec)
    return programs.programs(RELEASE, architecture, wanted, settings, source, cache, access, held)


def problems(source: Source, cache: Path, *args: Any, **more: Any) -> list[Problem]:
    """Problems of a source that is refused; a check beforehand must not find more than the attempt."""
    with pytest.raises(ProblemsError) as error:
        bring(source, cache, *args, **more)
    assert all(problem.what and problem.remedy for problem in error.value.problems)
    assert unfinished(cache) == []
    return error.value.problems


ACCESS = Access(Https(authority()), Logins())


def check(
    source: Source,
    cache: Path,
    spec: Mapping[str, Any] | None = None,
    held: Held | None = None,
    architecture: str = "amd64",
) -> list[Problem]:
    settings = samples.spec_of(spec)
    return programs.check(RELEASE, architecture, THREE, settings, source, cache, ACCESS, held)


def contents(found: Mapping[str, Program]) -> dict[str, bytes]:
    for each in found.values():
        content = each.path.read_bytes()
        assert (each.sha256, each.size) == (sha256(content), len(content))
    return {name: each.path.read_bytes() for name, each in found.items()}


def unfinished(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and not program_file(path)]


def program_file(path: Path) -> bool:
    return path.parent.name == "found" or (path.parent.name == "sha256" and sha256(path.read_bytes()) == path.name)


def directory(folder: Path, *paths: str, sums: bool = True) -> Source:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(FILES[path])
    if sums:
        (folder / "sha256sums").write_text("".join(f"{sha256(FILES[path])}  ./{path}\n" for path in paths))
    return Source("Directory", None, folder)
