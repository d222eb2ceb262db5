# SPDX-License-Identifier: Apache-2.0
"""CRDs from outside: nothing is used that does not have the recorded checksum, and every refusal says why."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import pwd
import random
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files, source
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.crd_files import content_hash
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

VERSION = "v9.9.9"
FILES = {
    "bases/work/works.yaml": b"kind: CustomResourceDefinition\nmetadata: {name: works}\n",
    "bases/policy/policies.yaml": b"---\nkind: CustomResourceDefinition\nmetadata: {name: policies}\n",
}


class Publisher:
    """A web server on loopback that hands out what the test puts into ``files``; ``asked`` is what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.lie = 0
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.asked.append(self.path)
                content = publisher.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"") + publisher.lie))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    found = Publisher()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(autouse=True)
def lock(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release of our own, with the checksum of FILES."""
    monkeypatch.setattr(crd_files, "locked_hash", lambda version: content_hash(FILES) if version == VERSION else "none")
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "GOPROXY"):
        monkeypatch.delenv(variable, raising=False)


def tar(entries: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            if change:
                change(entry)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def release(files: dict[str, bytes] | None = None) -> bytes:
    return tar({f"crds/{name}": content for name, content in (files or FILES).items()})


def refused(source: Source, cache: Path) -> str:
    with pytest.raises(ProblemsError) as error:
        crd_files.crds(VERSION, source, cache)
    assert not cache.exists() or not list(cache.iterdir()), "nothing unverified may be kept"
    (problem,) = error.value.problems
    assert problem.where
    assert problem.remedy
    return problem.what


def names(found: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["name"] for each in found}


# -- where they come from ----------------------------------------------------------------------------------------------


def test_the_release_archive(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = release()
    source = Source("URL", publisher.url)
    assert names(crd_files.crds(VERSION, source, tmp_path)) == {"works", "policies"}
    assert publisher.asked == [f"/{VERSION}/crds.tar.gz"]


def test_the_go_module_gives_the_same(publisher: Publisher, tmp_path: Path) -> None:
    packed = io.BytesIO()
    root = f"github.com/karmada-io/karmada@{VERSION}"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"{root}/charts/karmada/_crds/{name}", content)
        archive.writestr(f"{root}/charts/karmada/_crds/kustomization.yaml", b"kind: no")
        archive.writestr(f"{root}/bases/other.yaml", b"kind: no")
    publisher.files[f"/github.com/karmada-io/karmada/@v/{VERSION}.zip"] = packed.getvalue()
    assert names(crd_files.crds(VERSION, Source("GoModules", publisher.url + "/"), tmp_path)) == {"works", "policies"}


def test_the_go_proxy_is_the_one_of_the_machine(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOPROXY", f"off,{publisher.url}|direct")
    assert "cannot be fetched" in refused(Source("GoModules"), tmp_path)
    assert publisher.asked == [f"/github.com/karmada-io/karmada/@v/{VERSION}.zip"]


@pytest.mark.parametrize("packed", [True, False], ids=["archive", "files"])
def test_a_directory_needs_no_network(publisher: Publisher, tmp_path: Path, *, packed: bool) -> None:
    folder = tmp_path / "prepared" / "karmada" / VERSION
    for name, content in FILES.items():
        (folder / "crds" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "crds" / name).write_bytes(content)
    if packed:
        (folder / "crds").rename(tmp_path / "elsewhere")
        (folder / "crds.tar.gz").write_bytes(release())
    for kind in ("Directory", "URL"):
        source = Source(kind, publisher.url, tmp_path / "prepared")
        assert names(crd_files.crds(VERSION, source, tmp_path / kind)) == {"works", "policies"}
    assert publisher.asked == []


def test_a_directory_is_followed_through_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "prepared" / "karmada" / VERSION / "crds" / "bases"
    folder.mkdir(parents=True)
    (tmp_path / "outside.yaml").write_bytes(b"kind: Secret")
    (folder / "linked.yaml").symlink_to(tmp_path / "outside.yaml")
    found, _ = crd_files.fetch(VERSION, Source("Directory", None, tmp_path / "prepared"))
    assert found == {}


def test_a_directory_that_lacks_them_or_is_not_named(tmp_path: Path) -> None:
    assert "holds no CRDs" in refused(Source("Directory", None, tmp_path), tmp_path / "cache")
    assert "names none" in refused(Source("Directory"), tmp_path / "cache")


# -- checksums ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {**FILES, "bases/work/works.yaml": b"kind: CustomResourceDefinition\nmetadata: {name: evil}\n"},
        {"bases/work/works.yaml": FILES["bases/work/works.yaml"]},
        {**FILES, "bases/more.yaml": b"kind: ClusterRoleBinding\n"},
        {name.replace("work/", "other/"): content for name, content in FILES.items()},
    ],
    ids=["changed", "missing", "more", "moved"],
)
def test_anything_else_is_refused(publisher: Publisher, tmp_path: Path, files: dict[str, bytes]) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = release(files)
    assert "have the checksum" in refused(Source("URL", publisher.url), tmp_path)


@given(
    st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=4),
    st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=4),
)
def test_the_hash_tells_any_two_sets_of_files_apart(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert (content_hash(one) == content_hash(other)) == (one == other)
    assert content_hash(dict(reversed(list(one.items())))) == content_hash(one)


def test_a_name_cannot_stand_for_two_files() -> None:
    two = {"bases/a.yaml": b"a", "bases/b.yaml": b"b"}
    one = {f"bases/a.yaml\n{hashlib.sha256(b'b').hexdigest()}  bases/b.yaml": b"a"}
    assert content_hash(one) != content_hash(two)


def test_an_unknown_release_has_no_checksum_and_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps({"karmada": {VERSION: {"crds": content_hash(FILES)}}}))
    with pytest.raises(ProblemsError, match="no checksum is recorded"):
        _unpatched_locked_hash("v0.0.1", lock)
    assert _unpatched_locked_hash(VERSION, lock) == content_hash(FILES)


_unpatched_locked_hash = crd_files.locked_hash


# -- hostile archives --------------------------------------------------------------------------------------------------


def of_type(kind: bytes, target: str = "/etc/passwd") -> Callable[[tarfile.TarInfo], None]:
    def change(entry: tarfile.TarInfo) -> None:
        if "evil" in entry.name:
            entry.type, entry.linkname, entry.size = kind, target, 0

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("crds/bases/../../../../evil.yaml", None),
        ("/crds/bases/evil.yaml", None),
        ("crds/bases/evil.yaml", of_type(tarfile.SYMTYPE)),
        ("crds/bases/evil.yaml", of_type(tarfile.LNKTYPE, "crds/bases/work/works.yaml")),
        ("crds/bases/evil.yaml", of_type(tarfile.CHRTYPE)),
        ("crds/bases/evil.yaml", of_type(tarfile.BLKTYPE)),
        ("crds/bases/evil.yaml", of_type(tarfile.FIFOTYPE)),
        ("crds/bases/evil.yaml", of_type(tarfile.DIRTYPE)),
        ("elsewhere/bases/evil.yaml", None),
        ("crds/bases/evil.sh", None),
    ],
    ids=[
        "..",
        "absolute",
        "symlink",
        "hard link",
        "character device",
        "block device",
        "fifo",
        "folder",
        "beside",
        "other",
    ],
)
def test_what_is_no_crd_file_is_passed_over_and_writes_nothing(
    publisher: Publisher, tmp_path: Path, name: str, change: Callable[[tarfile.TarInfo], None] | None
) -> None:
    entries = {f"crds/{each}": content for each, content in FILES.items()}
    publisher.files[f"/{VERSION}/crds.tar.gz"] = tar({**entries, name: b"kind: Evil"}, change)
    cache = tmp_path / "a" / "b" / "c" / "cache"
    assert names(crd_files.crds(VERSION, Source("URL", publisher.url), cache)) == {"works", "policies"}
    assert not [each for each in tmp_path.rglob("*") if "evil" in each.name]


def test_a_bomb_is_not_unpacked(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crd_files, "MOST_BYTES", 1_000_000)
    bomb = tar({"crds/bases/big.yaml": bytes(2_000_000)})
    assert len(bomb) < 10_000
    publisher.files[f"/{VERSION}/crds.tar.gz"] = bomb
    assert "unpacks to more than" in refused(Source("URL", publisher.url), tmp_path)


def test_many_small_bombs_in_a_module_are_not_unpacked(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crd_files, "MOST_BYTES", 1_000_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            name = f"github.com/karmada-io/karmada@{VERSION}/charts/karmada/_crds/bases/{number}.yaml"
            archive.writestr(name, bytes(900_000))
    publisher.files[f"/github.com/karmada-io/karmada/@v/{VERSION}.zip"] = packed.getvalue()
    assert "unpacks to more than" in refused(Source("GoModules", publisher.url), tmp_path)


def test_an_answer_without_end_is_cut_off(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crd_files, "MOST_BYTES", 1000)
    publisher.files[f"/{VERSION}/crds.tar.gz"] = bytes(1001)
    assert "larger than" in refused(Source("URL", publisher.url), tmp_path)


#: Large enough that damage also falls into the middle of a file, where the decompressor finds it.
_NOISE = random.Random(1).randbytes(4000) + b"kind: A" * 300


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["tar", "zip"]))
def test_a_damaged_archive_is_refused_and_never_a_traceback(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    if kind == "tar":
        archive = release({"bases/a.yaml": _NOISE})
    else:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as written:
            written.writestr(f"{crd_files._MODULE}@{VERSION}/{crd_files._MODULE_FOLDER}/bases/a.yaml", _NOISE)
        archive = packed.getvalue()
    place = data.draw(st.integers(0, len(archive) - 1))
    damaged = (
        archive[:place]
        if data.draw(st.booleans())
        else archive[:place] + bytes([archive[place] ^ data.draw(st.integers(1, 255))]) + archive[place + 1 :]
    )
    read = crd_files._tar_entries if kind == "tar" else crd_files._zip_entries
    with contextlib.suppress(ProblemsError):
        assert all(isinstance(content, bytes) for content in dict(read(damaged, "here")).values())


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>404</html>", gzip.compress(b"no tar"), release()[:-40]],
    ids=["nothing", "a page", "no tar", "cut off"],
)
def test_what_is_no_archive_is_refused(publisher: Publisher, tmp_path: Path, content: bytes) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = content
    what = refused(Source("URL", publisher.url), tmp_path)
    assert "cannot be read" in what or "have the checksum" in what


def test_a_transfer_that_breaks_off_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = release()[:-100]
    publisher.lie = 100
    what = refused(Source("URL", publisher.url), tmp_path)
    assert "cannot be read" in what or "cannot be fetched" in what


# -- network -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://mirror.example.com", "ftp://mirror.example.com", "file:///etc", "http://localhost:80@evil.example"]
)
def test_only_https_is_fetched_from(tmp_path: Path, url: str) -> None:
    assert "over https only" in refused(Source("URL", url), tmp_path)


def test_what_is_not_there_is_told_with_the_ways_out(publisher: Publisher, tmp_path: Path) -> None:
    assert "Not Found" in refused(Source("URL", publisher.url), tmp_path)


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_what_was_verified_once_is_not_fetched_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = release()
    source = Source("URL", publisher.url)
    first = crd_files.crds(VERSION, source, tmp_path)
    assert crd_files.crds(VERSION, source, tmp_path) == first
    assert crd_files.crds(VERSION, Source("Directory"), tmp_path) == first
    assert len(publisher.asked) == 1


@pytest.mark.parametrize("damage", ["changed", "removed", "added"])
def test_a_damaged_cache_is_fetched_again_and_mended(publisher: Publisher, tmp_path: Path, damage: str) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = release()
    source = Source("URL", publisher.url)
    first = crd_files.crds(VERSION, source, tmp_path)
    (kept,) = tmp_path.iterdir()
    victim = kept / "bases" / "work" / "works.yaml"
    if damage == "removed":
        victim.unlink()
    else:
        (victim if damage == "changed" else victim.with_name("more.yaml")).write_bytes(b"kind: Evil\n")
    assert crd_files.crds(VERSION, source, tmp_path) == first
    assert len(publisher.asked) == 2
    assert crd_files.crds(VERSION, source, tmp_path) == first
    assert len(publisher.asked) == 2, "the cache was not mended"


def test_a_cache_that_cannot_be_written_costs_a_download_only(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files[f"/{VERSION}/crds.tar.gz"] = release()
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert names(crd_files.crds(VERSION, Source("URL", publisher.url), blocked)) == {"works", "policies"}


def test_who_has_no_home_is_told_how_to_name_a_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_user: int) -> Any:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("AWX_ISOLATED_DATA_DIR", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ProblemsError, match=r"this user has no home folder.* Set HOME or XDG_CACHE_HOME"):
        source.cache_directory()
    # A job of AWX in a pod is such a user, and has a folder of its own.
    monkeypatch.setenv("AWX_ISOLATED_DATA_DIR", "/runner/artifacts/41")
    assert source.cache_directory() == Path("/runner/.cache/karmada-installer/artifacts")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert source.cache_directory() == tmp_path / "karmada-installer/artifacts"
