# SPDX-License-Identifier: Apache-2.0
"""Programs of a release from every source: for the right machine, kept once whatever is killed; built by Go."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import (
    go_modules,
    program_cache,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.program_cache import ProgramCache
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import LOCK_FILE, Source
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.programs import (
    APISERVER,
    APISERVER_PATH,
    CONTENT,
    ETCD,
    FILES,
    SCHEDULER,
    SCHEDULER_PATH,
    bring,
    check,
    contents,
    directory,
    image_spec,
    problems,
    record,
    sha256,
    unfinished,
)
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    Response,
    WebServer,
    program,
)

pytestmark = pytest.mark.usefixtures("lock")

# -- what every source has in common -----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [program("arm", 183), b"#!/bin/sh\n", b""], ids=["arm64", "script", "empty"])
def test_a_program_for_another_machine(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, SCHEDULER_PATH, content)
    source = directory(tmp_path / "prepared", SCHEDULER_PATH)
    (problem,) = problems(source, tmp_path / "cache", (SCHEDULER,))
    assert "is not a program for linux on amd64" in problem.what


def test_other_architectures(tmp_path: Path) -> None:
    (problem,) = problems(Source("Image"), tmp_path, architecture="s390x")
    assert "s390x" in problem.what
    path = "karmada/v9.1.0/bin/linux/arm64/karmada-scheduler"
    content = program("arm", 183)
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes(content)
    (tmp_path / "sha256sums").write_text(f"{sha256(content)}  {path}\n")
    source = Source("Directory", None, tmp_path)
    found = bring(source, tmp_path / "cache", (SCHEDULER,), architecture="arm64")
    assert contents(found) == {"karmada-scheduler": content}


@pytest.mark.parametrize("damage", ["changed", "cut", "removed"])
def test_a_damaged_cache_is_mended(tmp_path: Path, damage: str) -> None:
    source = directory(tmp_path / "prepared", *FILES)
    cache = tmp_path / "cache"
    for each in bring(source, cache).values():
        if damage == "removed":
            each.path.unlink()
        else:
            each.path.write_bytes(b"x" * each.size if damage == "changed" else each.path.read_bytes()[:-1])
    assert contents(bring(source, cache)) == CONTENT


def test_notes_of_the_cache_that_cannot_be_read_are_made_anew(registry: WebServer, tmp_path: Path) -> None:
    first = bring(Source("Image"), tmp_path, spec=image_spec(registry))
    for note in (tmp_path / "found").iterdir():
        note.write_text("[]")
    assert bring(Source("Image"), tmp_path, spec=image_spec(registry)) == first


def test_a_note_that_stands_for_another_source_is_none(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    cache.remember({"image": "a"}, "0" * 64)
    (note,) = (tmp_path / "found").iterdir()
    other = {"image": "b"}
    cache.remember(other, "1" * 64)
    (second,) = [each for each in (tmp_path / "found").iterdir() if each != note]
    second.write_text(note.read_text())
    assert cache.recall(other) is None
    assert cache.recall({"image": "a"}) == "0" * 64


def test_the_cache_is_its_owners(tmp_path: Path) -> None:
    ProgramCache(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (problem,) = check(directory(tmp_path / "prepared", *FILES), tmp_path / "file")
    assert "cannot be kept" in problem.what
    assert "XDG_CACHE_HOME" in problem.remedy


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(program_cache.os, "fsync", full)
    source = directory(tmp_path / "prepared", *FILES)
    (problem,) = problems(source, tmp_path / "cache")
    assert "No space left on device" in problem.what


def test_files_of_killed_runs_go_after_a_day(tmp_path: Path) -> None:
    ProgramCache(tmp_path)
    old, young = tmp_path / "sha256" / ".unfinished-old", tmp_path / "sha256" / ".unfinished-young"
    for path in (old, young):
        path.write_bytes(b"half")
    day_ago = time.time() - 86400 - 60
    os.utime(old, (day_ago, day_ago))
    ProgramCache(tmp_path)
    assert not old.exists()
    assert young.exists()


def test_a_killed_download_leaves_no_half_file(served: dict[str, bytes], lock: dict[str, Any], tmp_path: Path) -> None:
    record(lock, APISERVER_PATH)
    started, killed = threading.Event(), threading.Event()

    def answer(_: Any) -> Response:
        started.set()
        return Response(content=FILES[APISERVER_PATH][:10], announced=10_000_000, end=killed)

    with WebServer(answer) as server:
        source = Source("URL", server.url)

        def run() -> None:
            bring(source, tmp_path, (APISERVER,))

        child = multiprocessing.get_context("fork").Process(target=run)
        child.start()
        assert started.wait(60)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join(60)
        killed.set()
    assert child.exitcode == -signal.SIGKILL
    assert unfinished(tmp_path) == []


def test_runs_side_by_side(registry: WebServer, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()

    def run() -> None:
        found = bring(Source("Image"), tmp_path, spec=image_spec(registry))
        results.put({name: each.sha256 for name, each in found.items()})

    children = [context.Process(target=run) for _ in range(4)]
    for child in children:
        child.start()
    found = [results.get(timeout=120) for _ in children]
    for child in children:
        child.join(60)
    assert found == [{name: sha256(content) for name, content in CONTENT.items()}] * 4
    assert unfinished(tmp_path) == []


# -- Go modules --------------------------------------------------------------------------------------------------------


def test_go_modules_that_are_not_recorded(tmp_path: Path) -> None:
    found = problems(Source("GoModules"), tmp_path)
    assert ["it is not recorded how" in problem.what for problem in found] == [True] * 3


def test_a_machine_without_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_modules, "MODULES", module(tmp_path / "modules"))
    for version, said in (("", "no go command"), ("go1.20.3", "go1.20.3")):
        monkeypatch.setattr(go_modules, "_go_version", lambda version=version: version)
        (problem,) = problems(Source("GoModules"), tmp_path / "cache", (ETCD,))
        assert said in problem.what
        assert "install Go 1.21 or newer" in problem.remedy


def module(folder: Path) -> Path:
    target = folder / "etcd" / "v9.3.0"
    target.mkdir(parents=True)
    (target / "go.mod").write_text("module installer.karmada.io/build\n\ngo 1.21\n")
    (target / "go.sum").write_text("")
    return folder


def test_a_build_is_made_once_and_of_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_modules, "MODULES", module(tmp_path / "modules"))
    monkeypatch.setattr(go_modules, "_go_version", lambda: "go1.26.1")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    log = tmp_path / "log"
    (tmp_path / "built").write_bytes(program("etcd"))
    go.write_text(
        "#!/bin/sh\n"
        f'echo "$GOFLAGS|$GOTOOLCHAIN|$GOOS/$GOARCH|$CGO_ENABLED|$GOPROXY|$*" >>{log}\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'test -f go.sum && cp {tmp_path}/built "$2"\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    source = Source("GoModules", "https://proxy.example.com")
    for _ in range(2):
        assert contents(bring(source, tmp_path / "cache", (ETCD,))) == {"etcd": program("etcd")}
    (said,) = log.read_text().splitlines()
    assert said.startswith("|local|linux/amd64|0|https://proxy.example.com|build -mod=readonly -trimpath")
    assert said.endswith(" go.etcd.io/etcd/server/v3")
    (tmp_path / "modules" / "etcd" / "v9.3.0" / "go.sum").write_text("other sums\n")
    bring(source, tmp_path / "cache", (ETCD,))
    assert len(log.read_text().splitlines()) == 2
    go.write_text("#!/bin/sh\necho 'go: verifying module: checksum mismatch' >&2\nexit 1\n")
    (tmp_path / "modules" / "etcd" / "v9.3.0" / "go.sum").write_text("more\n")
    with pytest.raises(ProblemsError, match="checksum mismatch"):
        bring(source, tmp_path / "cache", (ETCD,))


def test_a_build_ends_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_modules, "MODULES", module(tmp_path / "modules"))
    monkeypatch.setattr(go_modules, "_go_version", lambda: "go1.26.1")
    monkeypatch.setattr(go_modules, "_LOOK_SECONDS", 0.05)
    begun = tmp_path / "begun"
    (tmp_path / "go").write_text(f"#!/bin/sh\necho $$ >{begun}\nexec sleep 60\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    started = time.monotonic()
    with pytest.raises(ProblemsError, match="cannot be built"):
        bring(Source("GoModules"), tmp_path / "cache", (ETCD,), stopped=begun.exists)
    assert time.monotonic() - started < 20


def test_who_waits_for_the_build_of_another_run_waits_no_longer_than_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_cache, "_LOOK_SECONDS", 0.01)
    looks: list[int] = []

    def stopped() -> bool:
        looks.append(1)
        return len(looks) > 2

    first, second = ProgramCache(tmp_path / "cache"), ProgramCache(tmp_path / "cache")
    with first.alone("build") as folder:
        (folder / "half").touch()
        with pytest.raises(ProblemsError, match="the run has ended"), second.alone("build", stopped):
            pass
        # What the other one builds is left alone.
        assert (folder / "half").exists()
    with second.alone("build", stopped) as folder:
        assert list(folder.iterdir()) == []


def test_karmada_is_built_with_the_tags_of_its_publisher() -> None:
    command = go_modules.Build("karmada", "v1.18.2", "karmada-scheduler", "amd64").command
    # Without it a scheduler that asks an estimator ends with a panic.
    assert command[command.index("-tags") + 1] == "kubernetes_protomessage_one_more_release"
    assert "-tags" not in go_modules.Build("etcd", "v3.6.16", "etcd", "amd64").command


def test_the_lock_file_of_the_collection_has_the_form_that_is_read() -> None:
    for versions in json.loads(LOCK_FILE.read_text()).values():
        for recorded in versions.values():
            assert set(recorded) <= {"crds", "files", "images"}
