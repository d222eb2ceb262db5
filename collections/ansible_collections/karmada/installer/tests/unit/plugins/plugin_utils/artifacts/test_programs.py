# SPDX-License-Identifier: Apache-2.0
"""Programs of a release from every source: verified or refused, kept once, and all problems told at once."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import (
    go_modules,
    https,
    image_files,
    program_cache,
    programs,
    release_files,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import source as artifact_source
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.program_cache import ProgramCache
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Access, Program
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Logins
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import LOCK_FILE, Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins, table, types
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.plugins.plugin_utils.components.releases import Release
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    RegistryFiles,
    Response,
    WebServer,
    authority,
    docker_config,
    files,
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


@pytest.fixture(autouse=True)
def lock(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is recorded; nothing yet."""
    recorded: dict[str, Any] = {}
    monkeypatch.setattr(artifact_source, "read_lock", lambda: recorded)
    monkeypatch.setattr(https.time, "sleep", lambda _: None)
    for variable in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return recorded


def record(lock: dict[str, Any], *paths: str) -> None:
    for path in paths:
        project, version, name = path.split("/", 2)
        recorded = lock.setdefault(project, {}).setdefault(version, {}).setdefault("files", {})
        recorded[name] = f"sha256:{sha256(FILES[path])}"


@pytest.fixture
def served() -> dict[str, bytes]:
    """Path → content of the web server."""
    return {}


@pytest.fixture
def web(served: dict[str, bytes]) -> Iterator[WebServer]:
    with WebServer(files(served)) as running:
        yield running


@pytest.fixture
def images() -> RegistryFiles:
    found = RegistryFiles()
    for name, version, path in (
        ("coreos/etcd", "v9.3.0", "usr/local/bin/etcd"),
        ("k8s/kube-apiserver", "v9.2.0", "usr/local/bin/kube-apiserver"),
        ("karmada/karmada-scheduler", "v9.1.0", "bin/karmada-scheduler"),
    ):
        content = program(path.rpartition("/")[2])
        found.image(name, version, {"amd64": [tar(("etc/passwd", b"root")), tar((path, content))]})
    return found


@pytest.fixture
def registry(images: RegistryFiles) -> Iterator[WebServer]:
    with WebServer(images) as running:
        yield running


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
) -> dict[str, Program]:
    access = Access(Https(authority()), logins or Logins())
    settings = samples.spec_of(spec)
    return programs.programs(RELEASE, architecture, wanted, settings, source, cache, access, held)


def problems(source: Source, cache: Path, *args: Any, **more: Any) -> list[Problem]:
    """What is refused; a check beforehand must not find more than the attempt."""
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


# -- images ------------------------------------------------------------------------------------------------------------


def test_programs_out_of_images(registry: WebServer, tmp_path: Path) -> None:
    found = bring(Source("Image"), tmp_path, spec=image_spec(registry))
    assert contents(found) == CONTENT
    assert {name: each.version for name, each in found.items()} == {
        "etcd": "v9.3.0",
        "karmada-apiserver": "v9.2.0",
        "karmada-scheduler": "v9.1.0",
    }
    assert found["karmada-scheduler"].origin == f"{registry.host}/karmada/karmada-scheduler:v9.1.0"


def test_the_second_time_only_tags_are_looked_up(registry: WebServer, tmp_path: Path) -> None:
    first = bring(Source("Image"), tmp_path, spec=image_spec(registry))
    registry.requests.clear()
    assert bring(Source("Image"), tmp_path, spec=image_spec(registry)) == first
    assert sorted(registry.asked) == [
        "HEAD /v2/coreos/etcd/manifests/v9.3.0",
        "HEAD /v2/k8s/kube-apiserver/manifests/v9.2.0",
        "HEAD /v2/karmada/karmada-scheduler/manifests/v9.1.0",
    ]


def test_a_registry_that_tells_no_digest_in_its_headers(
    registry: WebServer, images: RegistryFiles, tmp_path: Path
) -> None:
    images.tells_digests = False
    for _ in range(2):
        assert contents(bring(Source("Image"), tmp_path, spec=image_spec(registry))) == CONTENT
    assert len([path for path in registry.asked if "/blobs/" in path]) == 6


def moved(images: RegistryFiles) -> str:
    """Have the tag of the scheduler lead to another image; returns the digest of that."""
    layers = [tar(("bin/karmada-scheduler", program("new")))]
    images.image("karmada/karmada-scheduler", "v9.1.0", {"amd64": layers, "arm64": layers})
    return images.digest("karmada/karmada-scheduler", "v9.1.0")


def test_what_a_tag_led_to_is_told_and_held_to(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    spec, name = image_spec(registry), f"{registry.host}/karmada/karmada-scheduler:v9.1.0"
    first = bring(Source("Image"), tmp_path, spec=spec)
    held = Held({each.origin: each.digest for each in first.values()})
    before = held.digests[name]
    assert before == images.digest("karmada/karmada-scheduler", "v9.1.0")
    assert bring(Source("Image"), tmp_path, spec=spec, held=held) == first
    now = moved(images)
    (problem,) = problems(Source("Image"), tmp_path, spec=spec, held=held)
    assert problem.where == name
    assert problem.what == f"its tag leads to {now} now, and led to {before} when it was first used here"
    assert f"-e karmada_confirm_images={name} " in problem.remedy
    assert f"imageTag: v9.1.0@{before}" in problem.remedy
    assert check(Source("Image"), tmp_path, spec, held) == [problem]
    # For both architectures it is one problem.
    assert check(Source("Image"), tmp_path, spec, held, "arm64")[-1] == problem
    # Another name may be accepted, and this one is not.
    assert problems(Source("Image"), tmp_path, spec=spec, held=Held(held.digests, {f"{name}0"})) == [problem]
    accepted = bring(Source("Image"), tmp_path, spec=spec, held=Held(held.digests, {name}))
    assert contents(accepted)["karmada-scheduler"] == program("new")
    assert accepted["karmada-scheduler"].digest == now


def test_another_registry_is_another_name(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    first = bring(Source("Image"), tmp_path, spec=image_spec(registry))
    held = Held({each.origin: each.digest for each in first.values()})
    images.image("mirror/karmada-scheduler", "v9.1.0", {"amd64": [tar(("bin/karmada-scheduler", program("other")))]})
    own = {"imageRepository": f"{registry.host}/mirror/karmada-scheduler"}
    spec = image_spec(registry, components={"karmadaScheduler": own})
    assert contents(bring(Source("Image"), tmp_path, spec=spec, held=held))["karmada-scheduler"] == program("other")


def test_a_digest_in_the_document_counts_whatever_the_tag_leads_to(
    registry: WebServer, images: RegistryFiles, tmp_path: Path
) -> None:
    name, digest = f"{registry.host}/karmada/karmada-scheduler", images.digest("karmada/karmada-scheduler", "v9.1.0")
    spec = image_spec(registry, components={"karmadaScheduler": {"imageTag": f"v9.1.0@{digest}"}})
    moved(images)
    found = bring(Source("Image"), tmp_path, spec=spec, held=Held({f"{name}:v9.1.0": f"sha256:{'0' * 64}"}))
    assert contents(found) == CONTENT
    assert found["karmada-scheduler"].version == "v9.1.0"
    assert found["karmada-scheduler"].digest == "", "it is in the document, and nothing is to be recorded"
    registry.requests.clear()
    bring(Source("Image"), tmp_path, (SCHEDULER,), spec=spec)
    assert registry.asked == []
    spec = image_spec(registry, components={"karmadaScheduler": {"imageTag": f"v9.1.0@sha256:{'0' * 64}"}})
    (problem,) = problems(Source("Image"), tmp_path, spec=spec)
    assert "404" in problem.what


def test_what_a_registry_answers_for_a_digest_has_to_have_it(
    registry: WebServer, images: RegistryFiles, tmp_path: Path
) -> None:
    digest = images.digest("karmada/karmada-scheduler", "v9.1.0")
    other = moved(images)
    manifests = "/v2/karmada/karmada-scheduler/manifests"
    images.paths[f"{manifests}/{digest}"] = images.paths[f"{manifests}/{other}"]
    spec = image_spec(registry, components={"karmadaScheduler": {"imageTag": f"v9.1.0@{digest}"}})
    (problem,) = problems(Source("Image"), tmp_path, spec=spec)
    assert f"answered with {other} when it was asked for {digest}" in problem.what


def test_two_components_of_one_image_see_one_tag(
    registry: WebServer, images: RegistryFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = iter([f"sha256:{number:064}" for number in range(9)])
    monkeypatch.setattr(programs.Registry, "digest", lambda *_: next(answers))
    finder = programs._Finder(Source("Image"), samples.spec_of(image_spec(registry)), ACCESS, Held())
    (wanted,) = finder.wanted(RELEASE, "amd64", (SCHEDULER,))
    assert {finder.locate(wanted).digest for _ in range(3)} == {f"sha256:{0:064}"}


def test_a_digest_of_the_lock_file_is_what_its_publisher_is_asked_for(
    registry: WebServer,
    images: RegistryFiles,
    lock: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    publisher = {"karmadaRegistry": f"{registry.host}/karmada", "kubeRegistry": "k8s", "etcdRegistry": "coreos"}
    monkeypatch.setattr(image_pins, "REGISTRIES", publisher)
    repository = "karmada/karmada-scheduler"
    digest = images.digest(repository, "v9.1.0")
    lock["karmada"] = {"v9.1.0": {"images": {"karmada-scheduler": digest}}}
    spec, wrong = image_spec(registry), Held({f"{registry.host}/{repository}:v9.1.0": f"sha256:{'0' * 64}"})
    moved(images)
    found = bring(Source("Image"), tmp_path, spec=spec, held=wrong)
    assert contents(found) == CONTENT, "what is in the lock file counts, not what was seen once"
    assert found["karmada-scheduler"].origin == f"{registry.host}/{repository}:v9.1.0@{digest}"
    assert found["karmada-scheduler"].digest == ""
    del images.paths[f"/v2/{repository}/manifests/{digest}"]
    (problem,) = problems(Source("Image"), tmp_path / "empty", spec=spec)
    assert problem.where.endswith(f"v9.1.0@{digest}")
    images.image("own/karmada-scheduler", "v9.1.0", {"amd64": [tar(("bin/karmada-scheduler", program("other")))]})
    own = image_spec(registry)
    own["images"]["karmadaRegistry"] = f"{registry.host}/own"
    assert contents(bring(Source("Image"), tmp_path, spec=own))["karmada-scheduler"] == program("other")


def test_a_components_own_image(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    images.image("ours/scheduler", "patched", {"amd64": [tar(("bin/karmada-scheduler", program("patched")))]})
    own = {"imageRepository": f"{registry.host}/ours/scheduler", "imageTag": "patched"}
    found = bring(Source("Image"), tmp_path, spec=image_spec(registry, components={"karmadaScheduler": own}))
    assert contents(found)["karmada-scheduler"] == program("patched")
    assert found["karmada-scheduler"].version == "patched"


def test_pull_secrets(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    images.login = "user:secret"
    spec = image_spec(registry)
    assert len(problems(Source("Image"), tmp_path, spec=spec)) == 3
    logins = Logins.read({"pull": docker_config({registry.host: "user:secret"})})
    assert contents(bring(Source("Image"), tmp_path, spec=spec, logins=logins)) == CONTENT


def test_images_are_pulled_as_who_runs_this_is_logged_in(
    registry: WebServer, images: RegistryFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images.login = "user:secret"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(programs, "Https", lambda: Https(authority()))
    settings, cache = samples.spec_of(image_spec(registry)), tmp_path / "cache"
    refused = programs.check(RELEASE, "amd64", THREE, settings, Source("Image"), cache)
    assert len(refused) == 3, refused
    (tmp_path / "config.json").write_bytes(docker_config({registry.host: "user:secret"}))
    assert programs.check(RELEASE, "amd64", THREE, settings, Source("Image"), cache) == []
    assert contents(programs.programs(RELEASE, "amd64", THREE, settings, Source("Image"), cache)) == CONTENT


def test_a_registry_that_does_not_answer_is_told_once_with_the_other_sources(tmp_path: Path) -> None:
    nobody = "nobody.invalid:5000"
    registries = dict.fromkeys(("karmadaRegistry", "kubeRegistry", "etcdRegistry"), nobody)
    (found,) = problems(Source("Image"), tmp_path, spec={"images": registries})
    assert found.where == nobody
    assert "does not answer" in found.what
    for other in ("spec.images", "spec.artifacts.url", "GoModules", "artifacts: ./artifacts"):
        assert other in found.remedy


def test_everything_wrong_with_images_is_told_at_once(
    registry: WebServer, images: RegistryFiles, tmp_path: Path
) -> None:
    images.image("coreos/etcd", "v9.3.0", {"arm64": [tar(("usr/local/bin/etcd", program()))]})
    del images.paths["/v2/k8s/kube-apiserver/manifests/v9.2.0"]
    images.image("karmada/karmada-scheduler", "v9.1.0", {"amd64": [tar(("bin/other", program()))]})
    spec = image_spec(registry)
    found = problems(Source("Image"), tmp_path, spec=spec)
    assert [problem.what for problem in found] == [
        "the image cannot be had: it is not for linux on amd64, only for arm64",
        "the image cannot be had: 404 Not Found",
        "it has no file /bin/karmada-scheduler",
    ]
    assert found[2].where.endswith("karmada-scheduler:v9.1.0")
    # What is inside an image is not known before it is fetched.
    assert check(Source("Image"), tmp_path, spec) == found[:2]


def test_layers_are_limited_together(registry: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(image_files, "MOST_BYTES", 15000)
    (problem,) = problems(Source("Image"), tmp_path, (SCHEDULER,), spec=image_spec(registry))
    assert "unpacks to more than" in problem.what


def test_a_damaged_layer_is_never_kept(registry: WebServer, images: RegistryFiles, tmp_path: Path) -> None:
    def change(request: Any, response: Response) -> Response:
        if "/blobs/" in request.path:
            response.content = response.content[:-1] + b"!"
        return response

    images.changed = change
    assert len(problems(Source("Image"), tmp_path, spec=image_spec(registry))) == 3
    assert list((tmp_path / "sha256").iterdir()) == []


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


def test_karmada_is_built_with_the_tags_of_its_publisher() -> None:
    command = go_modules.Build("karmada", "v1.18.2", "karmada-scheduler", "amd64").command
    # Without it a scheduler that asks an estimator ends with a panic.
    assert command[command.index("-tags") + 1] == "kubernetes_protomessage_one_more_release"
    assert "-tags" not in go_modules.Build("etcd", "v3.6.16", "etcd", "amd64").command


def test_the_lock_file_of_the_collection_has_the_form_that_is_read() -> None:
    for versions in json.loads(LOCK_FILE.read_text()).values():
        for recorded in versions.values():
            assert set(recorded) <= {"crds", "files", "images"}
