# SPDX-License-Identifier: Apache-2.0
"""Programs out of images: what a tag led to is held to, and all problems of registries are told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import (
    image_files,
    programs,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Logins
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.programs import (
    ACCESS,
    CONTENT,
    RELEASE,
    SCHEDULER,
    THREE,
    bring,
    check,
    contents,
    image_spec,
    problems,
)
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    RegistryFiles,
    Response,
    WebServer,
    authority,
    docker_config,
    program,
    tar,
)

pytestmark = pytest.mark.usefixtures("lock")


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
