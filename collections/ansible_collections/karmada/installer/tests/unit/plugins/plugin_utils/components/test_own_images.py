# SPDX-License-Identifier: Apache-2.0
"""Images of single components: used or refused, and judged by the version that their tag tells of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import own_images, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.hosts import CONTROL_PLANE_ROLE
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    ETCD,
    KARMADA_APISERVER,
    KARMADA_SCHEDULER,
    ON_HOSTS,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import entry
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host, installed, problems
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, deployment, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document, spec_of

RELEASE = releases.Release(karmada="v1.18.2", kubernetes="v1.35.4", etcd="v3.6.16")
PULL = {
    "endpoint": {"type": "NodePort"},
    "members": [{"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}}],
}


def tags(**fields: str) -> dict[str, Any]:
    """Components with these tags, by their field of the document."""
    return {name: {"local": {"imageTag": tag}} if name == "etcd" else {"imageTag": tag} for name, tag in fields.items()}


def told(before: Mapping[str, Any] | None = None, running: Sequence[str] = (), **fields: str) -> list[Problem]:
    spec = spec_of({"components": tags(**fields), **PULL})
    former = spec_of({"components": before}) if before is not None else None
    found = [
        *own_images.problems(spec, RELEASE, former),
        *own_images.etcd_problems(spec, RELEASE, former, running),
    ]
    assert all(problem.where.endswith(".imageTag") and problem.remedy for problem in found)
    return found


@pytest.mark.parametrize(
    ("tag", "project", "minor"),
    [
        ("v1.35.4", "kubernetes", (1, 35)),
        ("v1.35.4-patched.1", "kubernetes", (1, 35)),
        ("v1.35.4_build7", "kubernetes", (1, 35)),
        ("v1.18.0-alpha.1", "karmada", (1, 18)),
        ("3.6.8-0", "etcd", (3, 6)),
        ("v3.5.24", "etcd", (3, 5)),
        ("2024.01.15", "karmada", None),
        ("2024.01.15", "etcd", None),
        ("1.18.2", "karmada", None),
        ("v2.0.0", "karmada", None),
        ("patched", "kubernetes", None),
        ("v1.35", "kubernetes", None),
        ("latest", "etcd", None),
    ],
)
def test_what_a_tag_tells(tag: str, project: str, minor: tuple[int, int] | None) -> None:
    assert own_images.minor_of(tag, project) == minor


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kubeControllerManager": "v1.34.9"},
        {"kubeControllerManager": "v1.35.0"},
        {"karmadaAPIServer": "v1.36.0"},
        {"karmadaAPIServer": "v1.34.1", "kubeControllerManager": "v1.34.1"},
        {"karmadaAPIServer": "own-build", "kubeControllerManager": "v1.20.0"},
        {"karmadaAPIServer": "v1.20.0", "kubeControllerManager": "own-build"},
        {"karmadaScheduler": "v1.18.7", "karmadaWebhook": "v1.18.0-patched"},
        {"karmadaScheduler": "own-build"},
        {"karmadaAgent": "v1.17.3"},
        {"etcd": "v3.5.33"},
        {"etcd": "v3.6.16-0"},
        {"etcd": "v3.8.0"},
        {"etcd": "own-build"},
    ],
    ids=str,
)
def test_what_goes_together_is_let_pass(fields: dict[str, str]) -> None:
    assert told(**fields) == []


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"kubeControllerManager": "v1.36.0"}, "kubeControllerManager", "the first may not be newer"),
        ({"kubeControllerManager": "v1.33.0"}, "kubeControllerManager", "v1.33 and karmada-apiserver v1.35 do not go"),
        (
            {"karmadaAPIServer": "v1.34.4"},
            "karmadaAPIServer",
            "kube-controller-manager v1.35 and karmada-apiserver v1.34",
        ),
        (
            {"karmadaAPIServer": "v1.37.0", "kubeControllerManager": "v1.35.1"},
            "kubeControllerManager",
            "v1.35 and karmada-apiserver v1.37 do not go together",
        ),
        (
            {"karmadaScheduler": "v1.17.0"},
            "karmadaScheduler",
            "karmada-scheduler v1.17 does not go with Karmada v1.18.2",
        ),
        ({"karmadaWebhook": "v1.19.0"}, "karmadaWebhook", "v1.19 does not go"),
        ({"karmadaAgent": "v1.16.0"}, "karmadaAgent", "an agent may be one minor older"),
        ({"karmadaAgent": "v1.19.0"}, "karmadaAgent", "v1.19 does not go"),
        ({"etcd": "v3.5.32"}, "etcd.local", "etcd 3.5.32 has known vulnerabilities"),
        ({"etcd": "3.6.8-0"}, "etcd.local", "etcd 3.6.8 has known vulnerabilities"),
        ({"etcd": "v3.7.0"}, "etcd.local", "etcd 3.7.0 has known vulnerabilities"),
        ({"etcd": "v3.4.99"}, "etcd.local", "etcd 3.4.99 has known vulnerabilities"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, str], where: str, what: str) -> None:
    (problem,) = told(**fields)
    assert problem.where == f"spec.components.{where}.imageTag"
    assert what in problem.what


@pytest.mark.parametrize(
    ("former", "now", "what"),
    [
        ("v1.35.4", "v1.36.0", ""),
        ("v1.35.4", "v1.35.0", ""),
        ("own-build", "v1.20.0", ""),
        ("v1.36.0", "v1.35.0", "karmada-apiserver is v1.36 now, and v1.35 would be older"),
        ("v1.34.0", "v1.36.0", "would be more than one minor version newer"),
    ],
)
def test_data_is_read_by_the_next_minor_and_by_no_older_one(former: str, now: str, what: str) -> None:
    beside = {"kubeControllerManager": "own-build"}
    found = told(tags(karmadaAPIServer=former, **beside), karmadaAPIServer=now, **beside)
    assert [what in problem.what for problem in found] == ([True] if what else [])


def test_taking_a_tag_out_is_a_change_too() -> None:
    (problem,) = told({"etcd": {"local": {"imageTag": "v3.7.1"}}})
    assert (problem.where, "etcd is v3.7 now, and v3.6 would be older" in problem.what) == (
        "spec.components.etcd.local.imageTag",
        True,
    )
    assert told({"etcd": {"local": {"imageTag": "v3.5.24"}}}) == []


@pytest.mark.parametrize(
    ("running", "wanted", "what"),
    [
        # A run has come as far as etcd, and then failed: the last finished one was of another version.
        (["3.7.3", "3.7.3", "3.7.3"], "v3.6.16", "etcd is v3.7 now, and v3.6 would be older"),
        (["3.7.3", "3.7.3", "3.7.3"], "v3.7.4", ""),
        (["3.7.3"], "v3.8.0", ""),
        (["3.7.3"], "v3.9.0", "etcd is v3.7 now, and v3.9 would be more than one minor version newer"),
        # It has not come to all of them, so what the older ones run is still the way back.
        (["3.7.3", "3.6.16", "3.7.3"], "v3.6.16", ""),
        (["3.7.3", "3.6.16"], "v3.8.0", "etcd is v3.6 now, and v3.8 would be more"),
        (["not a version"], "v3.6.16", ""),
        ([], "v3.8.0", "etcd is v3.6 now, and v3.8 would be more"),
    ],
)
def test_what_members_run_counts_whatever_the_last_finished_run_had(
    running: Sequence[str], wanted: str, what: str
) -> None:
    found = told({"etcd": {"local": {"imageTag": "v3.6.16"}}}, running, etcd=wanted)
    assert [what in problem.what for problem in found] == ([True] if what else [])
    # Not even a first install has come to its end.
    assert bool(told(None, running, etcd=wanted)) == bool(what and running)


def test_an_api_server_far_from_what_the_release_is_tested_with_is_told() -> None:
    spec = spec_of({"components": tags(karmadaAPIServer="v1.33.0", kubeControllerManager="v1.33.0")})
    (hint,) = own_images.hints(spec, RELEASE)
    assert hint == (
        "karmada-apiserver is Kubernetes v1.33 (spec.components.karmadaAPIServer.imageTag), and Karmada v1.18.2 is "
        "tested with v1.35"
    )
    for tag in ("v1.34.0", "own-build"):
        assert list(own_images.hints(spec_of({"components": tags(karmadaAPIServer=tag)}), RELEASE)) == []


def test_preflight_tells_it_and_knows_what_runs() -> None:
    first = {"components": tags(karmadaScheduler="v1.10.0")}
    (problem,) = problems(fake_run(document(first), host()))
    assert problem.where == "spec.components.karmadaScheduler.imageTag"
    (problem,) = problems(installed({}, {"components": tags(etcd="v3.5.33")}))
    assert "older: it may not read what is stored" in problem.what


def test_preflight_judges_etcd_by_what_its_members_run(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = SimpleNamespace(versions=frozenset({"3.7.3"}))
    monkeypatch.setattr(members_wanted, "look_before", lambda _run: looked)
    same = {"components": tags(etcd="v3.6.16")}
    (problem,) = problems(installed(same, same))
    assert problem.where == "spec.components.etcd.local.imageTag"
    assert "etcd is v3.7 now, and v3.6 would be older" in problem.what


# -- on hosts ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Hosts that have every program of the release."""
    found = Runs(tmp_path / "run")
    of = found.step().instance
    programs = [units.program(of, each) for each in component_hosts.all_components(of)]
    found.see_all(seen(Stored(4).after(remembered()), programs=programs))
    return found


def with_image(**settings: str) -> dict[str, Any]:
    return deployment(components={"karmadaScheduler": settings})


def unit_of(run: Run) -> str:
    host = component_hosts.hosts_of(run.spec, CONTROL_PLANE_ROLE)[0]
    return units.component_unit(
        run.instance, KARMADA_SCHEDULER, units.layout(run.instance, host, KARMADA_SCHEDULER, ""), ""
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"imageTag": "v1.18.9"},
        {"imageTag": "patched"},
        {"imageRepository": "registry.example.com/ours/scheduler"},
        {"imageRepository": "registry.example.com/ours/scheduler", "imageTag": "patched"},
    ],
    ids=str,
)
def test_another_image_is_another_program_that_is_fetched_and_started(settings: dict[str, str], runs: Runs) -> None:
    before, after = runs.step(), runs.step(with_image(**settings))
    assert host_programs.missing(before) == {}
    (path,) = {
        units.program(after.instance, each)
        for found in host_programs.missing(after).values()
        for (each,) in found.values()
    }
    assert path != units.program(before.instance, KARMADA_SCHEDULER)
    assert path.startswith(f"{units.PROGRAMS}/{settings.get('imageTag', before.instance.release.karmada)}~")
    assert f'ExecStart="{path}"' in unit_of(after)
    # The next image is another one again, and the same is the same.
    other = runs.step(with_image(**{**settings, "imageTag": "other"}))
    assert units.program(other.instance, KARMADA_SCHEDULER) != path
    assert units.program(runs.step(with_image(**settings)).instance, KARMADA_SCHEDULER) == path
    assert units.program(after.instance, ON_HOSTS["karmada-webhook"]) == units.program(
        before.instance, ON_HOSTS["karmada-webhook"]
    )


def test_the_tag_of_the_release_is_no_other_image(runs: Runs) -> None:
    same = with_image(imageTag=releases.newest().karmada)
    assert host_programs.missing(runs.step(same)) == {}


def test_two_registries_with_one_tag_are_two_programs(runs: Runs) -> None:
    one, other = (
        runs.step(with_image(imageRepository=f"{name}.example.com/scheduler", imageTag="v1.18.2")) for name in "ab"
    )
    assert units.program(one.instance, KARMADA_SCHEDULER) != units.program(other.instance, KARMADA_SCHEDULER)


@pytest.mark.parametrize("source", ["URL", "Directory", "GoModules"])
@pytest.mark.parametrize("field", ["imageRepository", "imageTag"])
def test_where_programs_come_out_of_no_images_they_are_refused(source: str, field: str) -> None:
    components = {
        "karmadaScheduler": {field: "v1.18.9"},
        "etcd": {"local": {field: "v3.6.16"}},
        "karmadaAgent": {field: "v1.18.9"},
    }
    artifacts = {"source": source}
    hosts = [{"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]}]
    spec = Spec(deployment(components=components, artifacts=artifacts, hosts=hosts)["spec"])
    found = list(own_images.problems(spec, RELEASE, None))
    assert [each.where for each in found] == [
        f"spec.components.etcd.local.{field}",
        f"spec.components.karmadaScheduler.{field}",
    ]
    assert f"artifacts.source {source}" in found[0].what
    gateway = {"name": "gw1", "address": "192.0.2.9", "roles": ["agent"]}
    members = [entry("m1", "gw1")]
    spec = Spec(
        deployment(components=components, artifacts=artifacts, hosts=[*hosts, gateway], members=members)["spec"]
    )
    assert f"spec.components.karmadaAgent.{field}" in [each.where for each in own_images.problems(spec, RELEASE, None)]
    pods = spec_of({"components": components, "artifacts": {"source": "URL"}, **PULL})
    assert list(own_images.problems(pods, RELEASE, None)) == []


def test_programs_of_the_store_and_the_api_server_have_folders_of_their_own_too(runs: Runs) -> None:
    changed = runs.step(deployment(components=tags(etcd="v3.6.99", karmadaAPIServer="v1.35.99")))
    for component, tag in ((ETCD, "v3.6.99"), (KARMADA_APISERVER, "v1.35.99")):
        assert f"/{tag}~" in units.program(changed.instance, component)
