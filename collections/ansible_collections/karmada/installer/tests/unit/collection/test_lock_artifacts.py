# SPDX-License-Identifier: Apache-2.0
"""What maintainers record of a release: computed from the publisher's files, and nothing that the publisher denies."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import go_modules, programs, release_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Registry
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins, releases, table
from ansible_collections.karmada.installer.plugins.plugin_utils.components.releases import Release
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Images, Settings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import (
    Problem,
    ProblemsError,
    Reason,
)
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    RegistryFiles,
    WebServer,
    authority,
    files,
    program,
    tar,
)

REPOSITORY = Path(__file__).resolve().parents[7]
RELEASE = Release(karmada="v9.1.0", kubernetes="v9.2.0", etcd="v9.3.0")
NAMES = ("kube-apiserver", "kube-controller-manager")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock_artifacts", REPOSITORY / "tools/lock_artifacts.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setattr(found, "LOCK_FILE", tmp_path / "lock.json")
    (tmp_path / "lock.json").write_text('{"karmada": {"v9.1.0": {"crds": "sha256:kept"}}}')
    for variable in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return found


@pytest.fixture
def served() -> dict[str, bytes]:
    """A publisher's files with what it says of them."""
    found = {}
    sums = ""
    for architecture in ("amd64", "arm64"):
        for name in NAMES:
            path = f"/kubernetes/v9.2.0/bin/linux/{architecture}/{name}"
            found[path] = f"{name} {architecture}".encode()
            found[f"{path}.sha256"] = sha256(found[path]).encode()
        archive = f"etcd-v9.3.0-linux-{architecture}.tar.gz"
        found[f"/etcd/v9.3.0/{archive}"] = architecture.encode()
        sums += f"{sha256(architecture.encode())}  {archive}\n"
    found["/etcd/v9.3.0/SHA256SUMS"] = sums.encode()
    return found


@pytest.fixture
def publisher(served: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    with WebServer(files(served)) as running:
        monkeypatch.setattr(
            release_files, "PUBLISHERS", {project: f"{running.url}/{project}" for project in ("kubernetes", "etcd")}
        )
        yield running


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def lock(tool: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tool.LOCK_FILE.read_text())
    return found


def test_files_are_hashed_and_compared_with_the_publisher(
    tool: Any, served: dict[str, bytes], publisher: WebServer
) -> None:
    tool.lock_files(RELEASE, Https(authority()))
    found = lock(tool)
    assert found["karmada"] == {"v9.1.0": {"crds": "sha256:kept"}}
    for project, version, count in (("kubernetes", "v9.2.0", 4), ("etcd", "v9.3.0", 2)):
        recorded = found[project][version]["files"]
        assert len(recorded) == count
        for path, hashed in recorded.items():
            assert hashed == f"sha256:{sha256(served[f'/{project}/{version}/{path}'])}"
    assert all(path.startswith(("GET /kubernetes/", "GET /etcd/")) for path in publisher.asked)


@pytest.mark.parametrize(
    "changed", ["/etcd/v9.3.0/SHA256SUMS", "/kubernetes/v9.2.0/bin/linux/amd64/kube-apiserver.sha256"]
)
def test_what_the_publisher_denies_is_not_recorded(
    tool: Any, served: dict[str, bytes], publisher: WebServer, changed: str
) -> None:
    served[changed] = served[changed].translate(bytes.maketrans(b"0123", b"1230"))
    with pytest.raises(ProblemsError, match="not what its publisher says"):
        tool.lock_files(RELEASE, Https(authority()))
    project = changed.split("/")[1]
    recorded = lock(tool).get(project, {})
    assert not recorded
    assert publisher.asked


def test_digests_of_images(tool: Any) -> None:
    images = RegistryFiles()
    expected = {}
    for component in table.PROGRAMS:
        version = getattr(RELEASE, component.image.release)
        layers = {name: [tar((component.binary, program(name, number)))] for name, number in programs.MACHINES.items()}
        images.image(component.image.repository, version, layers)
        digest = images.digest(component.image.repository, version)
        expected[component.image.release, version, component.image.repository] = digest
    with WebServer(images) as server:
        registries = dict.fromkeys(("karmadaRegistry", "kubeRegistry", "etcdRegistry"), server.host)
        tool.lock_images(RELEASE, Registry(Https(authority())), Images(registries))
    found = lock(tool)
    for (project, version, name), digest in expected.items():
        assert found[project][version]["images"][name] == digest
    assert found["karmada"]["v9.1.0"]["crds"] == "sha256:kept"
    # What is recorded is what is asked for: each image of the table, at its publisher and at each mirror.
    pins = image_pins.of_release(RELEASE, found)
    assert len(pins) == len(expected) * (1 + len(releases.MIRRORS))
    for component in table.PROGRAMS:
        image = component.image.reference(Images({}), RELEASE, Settings({}))
        assert pins[image] == pins[f"m.daocloud.io/{image}"] != ""


def test_an_image_that_lacks_an_architecture_is_not_recorded(tool: Any) -> None:
    images = RegistryFiles()
    for component in table.PROGRAMS:
        layers = {"amd64": [tar((component.binary, program()))]}
        images.image(component.image.repository, getattr(RELEASE, component.image.release), layers)
    with WebServer(images) as server:
        registries = dict.fromkeys(("karmadaRegistry", "kubeRegistry", "etcdRegistry"), server.host)
        with pytest.raises(ProblemsError, match="not for linux on arm64"):
            tool.lock_images(RELEASE, Registry(Https(authority())), Images(registries))
    assert lock(tool) == {"karmada": {"v9.1.0": {"crds": "sha256:kept"}}}


KINDS = ("crds", "modules", "images", "files")


def release_of(argument: Release | str) -> str:
    return argument if isinstance(argument, str) else argument.karmada


def noted(tool: Any, monkeypatch: pytest.MonkeyPatch, failing: tuple[str, str] | None = None) -> list[tuple[str, str]]:
    """What is recorded from here on: kind and release. The one named fails, as where no publisher answers."""
    asked = []
    for kind in KINDS:

        def record(release: Release | str, *_more: object, kind: str = kind) -> None:
            asked.append((kind, release_of(release)))
            if asked[-1] == failing:
                raise ProblemsError(
                    Problem("no answer", "https://publisher.example", "look", reason=Reason.ARTIFACT_NOT_AVAILABLE)
                )

        monkeypatch.setattr(tool, f"lock_{kind}", record)
    return asked


@pytest.mark.parametrize(
    ("arguments", "kinds", "versions"),
    [
        ((), KINDS, None),
        (("all", "all"), KINDS, None),
        (("images", "all"), ("images",), None),
        (("all", "v1.18.2"), KINDS, ["v1.18.2"]),
        (("crds", "v1.18.2"), ("crds",), ["v1.18.2"]),
    ],
)
def test_what_is_not_named_is_every_one(
    tool: Any,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    kinds: tuple[str, ...],
    versions: list[str] | None,
) -> None:
    asked = noted(tool, monkeypatch)
    tool.main(*arguments)
    known = [release.karmada for release in releases.RELEASES]
    assert len(known) > 1
    assert asked == [(kind, version) for kind in kinds for version in versions or known]


def test_one_that_fails_stops_no_other(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = releases.RELEASES[0].karmada, releases.RELEASES[-1].karmada
    asked = noted(tool, monkeypatch, ("images", first))
    with pytest.raises(SystemExit, match=f"images {first}: .*\n.*no answer"):
        tool.main()
    assert len(asked) == len(KINDS) * len(releases.RELEASES)
    assert asked[-1] == ("files", last)
    assert "no answer" in capsys.readouterr().err


def test_an_unknown_kind_is_told(tool: Any) -> None:
    with pytest.raises(SystemExit, match=r"lock_artifacts\.py crds"):
        tool.main("everything")


def test_what_releases_have_in_common_is_asked_for_once(tool: Any, publisher: WebServer) -> None:
    done: set[tuple[str, str, str]] = set()
    tool.lock_files(RELEASE, Https(authority()), done)
    once = list(publisher.asked)
    assert once
    tool.lock_files(replace(RELEASE, karmada="v9.1.1"), Https(authority()), done)
    assert publisher.asked == once


def test_make_lock_names_everything() -> None:
    """Without VERSION and WHAT, `make lock` asks for all of every known release."""
    asked = {
        (): "all all",
        ("VERSION=v1.18.2",): "all v1.18.2",
        ("WHAT=files",): "files all",
        ("WHAT=crds", "VERSION=v1.18.2", "SOURCE=GoModules"): "crds v1.18.2 GoModules",
    }
    for words, expected in asked.items():
        command = ["make", "--no-print-directory", "--dry-run", "lock", *words]
        # make takes variables from the environment, too.
        clean = {"PATH": os.environ["PATH"]}
        said = subprocess.run(command, cwd=REPOSITORY, env=clean, capture_output=True, text=True, check=True).stdout
        assert said.splitlines()[-1].rstrip().endswith(f"tools/lock_artifacts.py {expected}")


def test_every_known_release_can_be_built_from_go_modules() -> None:
    for release in releases.RELEASES:
        for component in table.PROGRAMS:
            project, program_name = component.image.release, component.binary.rpartition("/")[2]
            assert program_name in go_modules.PROJECTS[project].packages
            folder = go_modules.MODULES / project / getattr(release, project)
            modules = go_modules.PROJECTS[project].modules
            assert all(f"{module} " in (folder / "go.mod").read_text() for module in modules)
            assert all(f"\n{module} " in "\n" + (folder / "go.sum").read_text() for module in modules)
