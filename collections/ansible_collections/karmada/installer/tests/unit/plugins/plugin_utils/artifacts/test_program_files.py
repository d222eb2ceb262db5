# SPDX-License-Identifier: Apache-2.0
"""Programs out of release downloads, mirrors and directories: with a checksum that somebody has given, or refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import (
    release_files,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import table
from ansible_collections.karmada.installer.tests.unit.support.programs import (
    APISERVER,
    APISERVER_PATH,
    CONTENT,
    ETCD,
    ETCD_FOLDER,
    ETCD_PATH,
    FILES,
    SCHEDULER,
    SCHEDULER_PATH,
    bring,
    check,
    contents,
    directory,
    problems,
    record,
    sha256,
)
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    WebServer,
    files,
    program,
    tar,
)

pytestmark = pytest.mark.usefixtures("lock")


@pytest.fixture
def web(served: dict[str, bytes]) -> Iterator[WebServer]:
    with WebServer(files(served)) as running:
        yield running


# -- release downloads and mirrors -------------------------------------------------------------------------------------


def test_release_downloads(
    web: WebServer,
    served: dict[str, bytes],
    lock: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publishers = {"kubernetes": f"{web.url}/k8s", "etcd": f"{web.url}/etcd-io"}
    monkeypatch.setattr(release_files, "PUBLISHERS", publishers)
    served["/k8s/v9.2.0/bin/linux/amd64/kube-apiserver"] = FILES[APISERVER_PATH]
    served[f"/etcd-io/v9.3.0/{ETCD_FOLDER}.tar.gz"] = FILES[ETCD_PATH]
    record(lock, APISERVER_PATH, ETCD_PATH)
    found = bring(Source("URL"), tmp_path, (ETCD, APISERVER))
    assert contents(found) == {name: CONTENT[name] for name in ("etcd", "karmada-apiserver")}
    web.requests.clear()
    assert bring(Source("URL"), tmp_path, (ETCD, APISERVER)) == found
    assert web.asked == []


def test_karmada_publishes_no_programs(tmp_path: Path) -> None:
    found = problems(Source("URL"), tmp_path, table.COMPONENTS)
    assert check(Source("URL"), tmp_path)[0].where == "spec.artifacts.source"
    (problem,) = found
    assert "no release downloads exist for karmada-aggregated-apiserver, " in problem.what
    assert "etcd" not in problem.what
    assert "Image or GoModules" in problem.remedy


def test_karmada_may_be_prepared_and_the_rest_downloaded(
    web: WebServer,
    served: dict[str, bytes],
    lock: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release_files, "PUBLISHERS", {"kubernetes": f"{web.url}/kubernetes"})
    served[f"/{APISERVER_PATH}"] = FILES[APISERVER_PATH]
    record(lock, APISERVER_PATH)
    prepared = directory(tmp_path / "prepared", SCHEDULER_PATH).directory
    found = bring(Source("URL", None, prepared), tmp_path / "cache", (APISERVER, SCHEDULER))
    assert contents(found) == {name: CONTENT[name] for name in ("karmada-apiserver", "karmada-scheduler")}


def test_a_mirror_with_checksums_of_the_site(web: WebServer, served: dict[str, bytes], tmp_path: Path) -> None:
    served.update({f"/mirror/{path}": content for path, content in FILES.items()})
    folder = tmp_path / "prepared"
    directory(folder, *FILES)
    shutil.rmtree(folder / "karmada")
    shutil.rmtree(folder / "kubernetes")
    shutil.rmtree(folder / "etcd")
    assert contents(bring(Source("URL", f"{web.url}/mirror/", folder), tmp_path / "cache")) == CONTENT


def test_a_mirror_may_have_etcd_unpacked(web: WebServer, served: dict[str, bytes], tmp_path: Path) -> None:
    served["/etcd/v9.3.0/bin/linux/amd64/etcd"] = program("etcd")
    (tmp_path / "sha256sums").write_text(f"{sha256(program('etcd'))}  etcd/v9.3.0/bin/linux/amd64/etcd\n")
    found = bring(Source("URL", web.url, tmp_path), tmp_path / "cache", (ETCD,))
    assert contents(found) == {"etcd": program("etcd")}


def test_nothing_is_fetched_without_a_checksum(web: WebServer, served: dict[str, bytes], tmp_path: Path) -> None:
    served.update({f"/{path}": content for path, content in FILES.items()})
    found = problems(Source("URL", web.url), tmp_path)
    assert [problem.what for problem in found] == [
        f"no checksum is recorded for {path}" for path in (ETCD_PATH, APISERVER_PATH, SCHEDULER_PATH)
    ]
    assert check(Source("URL", web.url), tmp_path) == found
    assert web.asked == []


def test_other_files_than_recorded_are_refused(
    web: WebServer, served: dict[str, bytes], lock: dict[str, Any], tmp_path: Path
) -> None:
    record(lock, *FILES)
    served.update({f"/{path}": content + b"!" for path, content in FILES.items()})
    found = problems(Source("URL", web.url), tmp_path)
    assert ["has the checksum" in problem.what for problem in found] == [True] * 3
    assert list((tmp_path / "sha256").iterdir()) == []


def test_what_is_not_there_is_told_before(
    web: WebServer, served: dict[str, bytes], lock: dict[str, Any], tmp_path: Path
) -> None:
    record(lock, *FILES)
    served[f"/{APISERVER_PATH}"] = FILES[APISERVER_PATH]
    found = check(Source("URL", web.url), tmp_path)
    assert [problem.what.partition(":")[0] for problem in found] == [
        "etcd v9.3.0 cannot be fetched",
        "karmada-scheduler v9.1.0 cannot be fetched",
    ]
    assert {request.method for request in web.requests} == {"HEAD"}
    assert [problem.what for problem in problems(Source("URL", web.url), tmp_path)] == [each.what for each in found]


def test_an_archive_without_the_program(
    web: WebServer, served: dict[str, bytes], lock: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, ETCD_PATH, tar((f"{ETCD_FOLDER}/README.md", b"read")))
    record(lock, ETCD_PATH)
    served[f"/{ETCD_PATH}"] = FILES[ETCD_PATH]
    (problem,) = problems(Source("URL", web.url), tmp_path, (ETCD,))
    assert f"has no file {ETCD_FOLDER}/etcd" in problem.what


# -- a directory -------------------------------------------------------------------------------------------------------


def test_a_directory_with_its_own_checksums(tmp_path: Path) -> None:
    found = bring(directory(tmp_path / "prepared", *FILES), tmp_path / "cache")
    assert contents(found) == CONTENT
    assert found["karmada-scheduler"].origin == str(tmp_path / "prepared" / SCHEDULER_PATH)


def test_the_publishers_checksum_counts_more(lock: dict[str, Any], tmp_path: Path) -> None:
    source = directory(tmp_path / "prepared", *FILES, sums=False)
    record(lock, APISERVER_PATH, ETCD_PATH)
    (problem,) = problems(source, tmp_path / "cache")
    assert problem.what == f"no checksum is recorded for {SCHEDULER_PATH}"
    changed = program("changed")
    (tmp_path / "prepared" / APISERVER_PATH).write_bytes(changed)
    sums = {SCHEDULER_PATH: sha256(FILES[SCHEDULER_PATH]), APISERVER_PATH: sha256(changed)}
    (tmp_path / "prepared" / "sha256sums").write_text("".join(f"{one} *{path}\n" for path, one in sums.items()))
    # What was verified before is in the cache, and the directory does not matter.
    assert contents(bring(source, tmp_path / "cache")) == CONTENT
    (problem,) = problems(source, tmp_path / "other")
    assert f"has the checksum sha256:{sha256(changed)}, not" in problem.what


def test_what_a_directory_lacks_is_all_named(tmp_path: Path) -> None:
    source = directory(tmp_path / "prepared", APISERVER_PATH)
    found = problems(source, tmp_path / "cache")
    assert [problem.what for problem in found] == [
        "the directory holds no etcd v9.3.0 for amd64",
        "the directory holds no karmada-scheduler v9.1.0 for amd64",
    ]
    assert SCHEDULER_PATH in found[1].remedy
    assert check(source, tmp_path / "cache") == found


def test_source_directory_without_a_directory(tmp_path: Path) -> None:
    (problem,) = problems(Source("Directory"), tmp_path)
    assert "names none" in problem.what


def test_a_checksum_file_that_is_none(tmp_path: Path) -> None:
    source = directory(tmp_path / "prepared", APISERVER_PATH)
    with (tmp_path / "prepared" / "sha256sums").open("a") as file:
        file.write("rubbish\n")
    (problem,) = problems(source, tmp_path / "cache")
    assert problem.what == "line 2 is not a checksum and a path"
    assert check(source, tmp_path / "cache") == [problem]


def test_files_of_the_directory_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = directory(tmp_path / "prepared", *FILES)
    original = Path.open

    def refusing(path: Path, *args: Any, **more: Any) -> Any:
        if path.name == "sha256sums" or path.name.startswith("karmada-"):
            raise PermissionError(13, "Permission denied")
        return original(path, *args, **more)

    sums = release_files.read_sums(tmp_path / "prepared" / "sha256sums")
    monkeypatch.setattr(Path, "open", refusing)
    (problem,) = problems(source, tmp_path / "cache")
    assert (problem.what, problem.where) == (
        "it cannot be read: Permission denied",
        str(tmp_path / "prepared" / "sha256sums"),
    )
    monkeypatch.setattr(release_files, "read_sums", lambda _: sums)
    (problem,) = problems(source, tmp_path / "cache")
    assert problem.where == str(tmp_path / "prepared" / SCHEDULER_PATH)
