# SPDX-License-Identifier: Apache-2.0
"""Which release runs, and which images belong to it."""

from __future__ import annotations

from dataclasses import fields

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.samples import MEMBER, OPTIONAL, pods, rendered
from hypothesis import given
from hypothesis import strategies as st

KNOWN = [release.karmada for release in releases.RELEASES]


def test_newest_compares_numbers_and_not_text(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [releases.Release(version, "v1.35.4", "v3.6.16") for version in ("v1.9.9", "v1.10.0", "v1.2.30")]
    monkeypatch.setattr(releases, "RELEASES", tuple(several))
    assert releases.newest().karmada == "v1.10.0"


@given(st.tuples(*[st.integers(0, 10**6)] * 3))
def test_a_version_reads_back_as_its_numbers(numbers: tuple[int, int, int]) -> None:
    assert releases.parse_version("v" + ".".join(map(str, numbers))) == numbers


@pytest.mark.parametrize("text", ["1.18.2", "v1.18", "v1.18.2-rc.0", "v1.18.2\n", "v1.18.٢", "latest", ""])
def test_what_is_no_release_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        releases.parse_version(text)


def test_every_release_is_whole() -> None:
    assert len(set(KNOWN)) == len(KNOWN)
    for release in releases.RELEASES:
        assert all(releases.parse_version(getattr(release, each.name)) for each in fields(release))
        assert crd_files.locked_hash(release.karmada).startswith("sha256:")


def test_a_first_installation_gets_the_newest() -> None:
    assert releases.choose(None, None) == releases.newest()


@pytest.mark.parametrize("version", KNOWN)
def test_what_is_asked_for_and_what_was_recorded_is_taken(version: str) -> None:
    assert releases.choose(version, None).karmada == version
    assert releases.choose(None, version).karmada == version, "an installed version must not move by itself"
    assert releases.choose(version, version).karmada == version


def test_another_version_than_the_running_one_is_refused() -> None:
    with pytest.raises(ProblemsError) as refused:
        releases.choose("v1.18.2", "v1.18.1")
    (problem,) = refused.value.problems
    assert problem.where == "spec.version"
    assert "v1.18.1" in problem.remedy


@pytest.mark.parametrize("arguments", [("v1.18.9", None), (None, "v1.18.9")])
def test_an_unknown_version_is_refused_with_those_that_are_known(arguments: tuple[str | None, str | None]) -> None:
    with pytest.raises(ProblemsError) as refused:
        releases.choose(*arguments)
    assert all(version in str(refused.value) for version in KNOWN)


def images(spec: dict[str, object]) -> dict[str, str]:
    found = rendered({**spec, "members": [MEMBER]})
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in pods(found.workloads).items()}


def test_default_images() -> None:
    assert images({"version": "v1.18.1"}) == {
        "etcd": "quay.io/coreos/etcd:v3.6.16",
        "karmada-apiserver": "registry.k8s.io/kube-apiserver:v1.35.4",
        "karmada-aggregated-apiserver": "docker.io/karmada/karmada-aggregated-apiserver:v1.18.1",
        "kube-controller-manager": "registry.k8s.io/kube-controller-manager:v1.35.4",
        "karmada-controller-manager": "docker.io/karmada/karmada-controller-manager:v1.18.1",
        "karmada-scheduler": "docker.io/karmada/karmada-scheduler:v1.18.1",
        "karmada-webhook": "docker.io/karmada/karmada-webhook:v1.18.1",
    }


def test_registries_replace_the_public_ones_and_nothing_is_left_public() -> None:
    mirror = "registry.example.com:5000"
    found = images(
        {
            "images": {f"{kind}Registry": f"{mirror}/{kind}" for kind in ("karmada", "kube", "etcd")},
            "version": "v1.18.2",
        }
    )
    public = images({"version": "v1.18.2"})
    assert all(image.startswith(f"{mirror}/") for image in found.values())
    # the last part and the tag stay, which is what a mirror keeps
    assert {name: image.rpartition("/")[2] for name, image in found.items()} == {
        name: image.rpartition("/")[2] for name, image in public.items()
    }


@pytest.mark.parametrize("name", [component.name for component in COMPONENTS])
def test_a_component_can_have_an_image_of_its_own_and_no_other_gets_it(name: str) -> None:
    component = BY_NAME[name]
    own = {"imageRepository": "own.example.com/deep/er", "imageTag": "t_1"}
    settings = {"local": own} if component.field == "etcd" else own
    found, public = images({"components": {**OPTIONAL, component.field: settings}}), images({"components": OPTIONAL})
    assert found.pop(name) == "own.example.com/deep/er:t_1"
    assert found == {other: image for other, image in public.items() if other != name}
    tag = {"local": {"imageTag": "t"}} if component.field == "etcd" else {"imageTag": "t"}
    assert images({"components": {component.field: tag}})[name] == public[name].rpartition(":")[0] + ":t"
