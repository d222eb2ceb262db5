# SPDX-License-Identifier: Apache-2.0
"""Programs that a run starts itself: every source has them where it has the component that they belong to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import go_modules, release_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.tools import ETCDUTL
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.tests.unit.support.programs import (
    ETCD,
    ETCD_FOLDER,
    bring,
    contents,
    image_spec,
    problems,
    sha256,
)
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    RegistryFiles,
    WebServer,
    files,
    program,
    tar,
)

pytestmark = pytest.mark.usefixtures("lock")

BOTH = (ETCD, ETCDUTL)
CONTENT = {"etcd": program("etcd"), "etcdutl": program("etcdutl")}
ARCHIVE = tar(*((f"{ETCD_FOLDER}/{name}", content) for name, content in CONTENT.items()))


def test_out_of_the_image_of_etcd(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    layers = [tar((f"usr/local/bin/{name}", content)) for name, content in CONTENT.items()]
    images.image("coreos/etcd", "v9.3.0", {"amd64": layers})
    found = bring(Source("Image"), tmp_path, BOTH, spec=image_spec(registry))
    assert contents(found) == CONTENT
    assert found["etcdutl"].origin == found["etcd"].origin
    assert found["etcdutl"].digest == found["etcd"].digest


def test_an_image_of_ones_own_has_to_have_it(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    images.image("own/etcd", "v9.3.1", {"amd64": [tar(("usr/local/bin/etcd", CONTENT["etcd"]))]})
    own = {"imageRepository": f"{registry.host}/own/etcd", "imageTag": "v9.3.1"}
    (problem,) = problems(Source("Image"), tmp_path, BOTH, {"components": {"etcd": {"local": own}}})
    assert problem.what == "it has no file /usr/local/bin/etcdutl"
    assert problem.where == f"{registry.host}/own/etcd:v9.3.1"


@pytest.mark.parametrize("mirror", [False, True], ids=["publisher", "mirror"])
def test_out_of_the_archive_of_a_release(
    lock: dict[str, Any], tmp_path: Path, mirror: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"etcd/v9.3.0/{ETCD_FOLDER}.tar.gz"
    recorded = {f"{ETCD_FOLDER}.tar.gz": f"sha256:{sha256(ARCHIVE)}"}
    lock["etcd"] = {"v9.3.0": {"files": recorded}}
    with WebServer(files({f"/{path}": ARCHIVE})) as web:
        monkeypatch.setattr(release_files, "PUBLISHERS", {"etcd": f"{web.url}/etcd"})
        found = bring(Source("URL", web.url if mirror else None), tmp_path, BOTH)
    assert contents(found) == CONTENT


@pytest.mark.parametrize("unpacked", [False, True])
def test_out_of_a_directory(tmp_path: Path, unpacked: bool) -> None:
    folder = tmp_path / "prepared"
    plain = {f"etcd/v9.3.0/bin/linux/amd64/{name}": content for name, content in CONTENT.items()}
    given = plain if unpacked else {f"etcd/v9.3.0/{ETCD_FOLDER}.tar.gz": ARCHIVE}
    for path, content in given.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "sha256sums").write_text("".join(f"{sha256(content)}  {path}\n" for path, content in given.items()))
    assert contents(bring(Source("Directory", None, folder), tmp_path / "cache", BOTH)) == CONTENT


def test_built_from_the_modules_of_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "modules" / "etcd" / "v9.3.0"
    target.mkdir(parents=True)
    (target / "go.mod").write_text("module installer.karmada.io/build\n\ngo 1.21\n")
    (target / "go.sum").write_text("")
    monkeypatch.setattr(go_modules, "MODULES", tmp_path / "modules")
    monkeypatch.setattr(go_modules, "_go_version", lambda: "go1.26.1")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    go.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -o ]; do shift; done\n'
        f'case "$3" in go.etcd.io/etcd/etcdutl/v3) cp {tmp_path}/etcdutl "$2";; *) cp {tmp_path}/etcd "$2";; esac\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    assert contents(bring(Source("GoModules"), tmp_path / "cache", BOTH)) == CONTENT


@pytest.mark.parametrize("version", sorted({each.etcd for each in releases.RELEASES}))
def test_it_is_pinned_for_every_release(version: str) -> None:
    folder = go_modules.MODULES / "etcd" / version
    (required,) = [line for line in (folder / "go.mod").read_text().splitlines() if "etcdutl" in line]
    assert required == f"require go.etcd.io/etcd/etcdutl/v3 {version}"
    assert f"go.etcd.io/etcd/etcdutl/v3 {version} h1:" in (folder / "go.sum").read_text()
