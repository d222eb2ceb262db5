# SPDX-License-Identifier: Apache-2.0
"""Components that could not run as the document wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    etcd_configuration,
    known_flags,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    BY_NAME,
    COMPONENTS,
    ETCD,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component, settings_path
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host, problems
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    MEMBER,
    OPTIONAL,
    SPECS,
    document,
    rendered,
    settings_in,
    spec_of,
)


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)
def test_a_priority_class_that_is_not_there_is_refused_where_it_is_named(component: Component) -> None:
    def spec(name: str) -> dict[str, Any]:
        return {"components": {component.field: settings_in(component, priorityClassName=name)}}

    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    assert problems(fake_run(document(spec("high")), host(high))) == []
    assert problems(fake_run(document(spec("")), host())) == []
    (problem,) = problems(fake_run(document(spec("high")), host()))
    assert problem.what == "there is no PriorityClass high"
    assert problem.where.endswith(f"{component.field}{'.local' if component.field == 'etcd' else ''}.priorityClassName")


def test_a_pull_secret_that_is_not_there_is_said_with_whom_it_concerns() -> None:
    there = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mirror", "namespace": "karmada"}}
    spec = {
        "images": {"pullSecrets": [{"name": "mirror"}]},
        "components": {
            "karmadaWebhook": {"imagePullSecrets": [{"name": "own"}]},
            "karmadaScheduler": {"imagePullSecrets": []},
        },
    }
    run, said = fake_run(document(spec), host(there)), []
    run.say = said.append
    assert problems(run) == []
    (line,) = said
    assert line.startswith(
        "warning: there is no Secret karmada/own in the host cluster, which is to pull images of karmada-webhook: "
    )


def test_an_audit_policy_that_is_not_there_is_refused_and_is_not_missed_by_an_uninstall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Run, "config_maps", {})
    run = fake_run(document({"audit": {"configMapRef": {"name": "own"}}}), host())
    (problem,) = problems(run)
    assert (problem.what, problem.where) == ("there is no ConfigMap own", "spec.audit.configMapRef")
    assert run.instance.object_name("karmada-webhook") == "prod-webhook"


GATES = [component for component in COMPONENTS if component.takes_feature_gates]


@pytest.mark.parametrize("component", GATES, ids=lambda each: each.name)
def test_a_gate_that_the_component_does_not_have_is_refused_with_the_nearest(component: Component) -> None:
    known = known_flags.feature_gates(component, releases.newest())
    fine = {"components": {component.field: {"featureGates": {known[0]: True, known[-1]: False}}}}
    assert problems(fake_run(document(fine), host())) == []
    misspelt = {"components": {component.field: {"featureGates": {known[0]: True, known[-1].lower()[:-1]: True}}}}
    (problem,) = problems(fake_run(document(misspelt), host()))
    assert problem.where == f"spec.components.{component.field}.featureGates.{known[-1].lower()[:-1]}"
    assert f"{component.name} of Karmada v1.18.2 has no feature gate" in problem.what
    assert f"did you mean {known[-1]}?" in problem.remedy
    assert "it has" in problem.remedy
    assert known[0] in problem.remedy


def test_every_unknown_gate_is_told_and_gates_of_other_components_are_unknown() -> None:
    spec = {
        "components": {
            "karmadaScheduler": {"featureGates": {"WatchList": True, "Nonsense": False}},
            "karmadaWebhook": {"featureGates": {"WatchList": True}},
        }
    }
    places = {problem.where.removeprefix("spec.components.") for problem in problems(fake_run(document(spec), host()))}
    assert places == {
        "karmadaScheduler.featureGates.WatchList",
        "karmadaScheduler.featureGates.Nonsense",
        "karmadaWebhook.featureGates.WatchList",
    }


OWN_FLAGS = [(component, flag) for component in COMPONENTS for flag in component.own_flags]


@pytest.mark.parametrize(
    ("component", "flag"), OWN_FLAGS, ids=[f"{component.name}-{flag}" for component, flag in OWN_FLAGS]
)
def test_a_flag_by_which_the_installer_knows_members_and_their_data_is_refused(component: Component, flag: str) -> None:
    spec = {"components": {component.field: settings_in(component, extraArgs={flag: "x"}, imageTag="own")}}
    found = [each for each in problems(fake_run(document(spec), host())) if each.reason is Reason.INVALID_FLAG]
    (problem,) = found
    assert problem.where == f"{settings_path(component)}.extraArgs.{flag}"
    assert problem.remedy.startswith("take it out")
    assert ("backup" in problem.remedy) == (component is ETCD)


def test_own_flags_are_of_etcd_and_of_every_client_of_it() -> None:
    found = rendered({"components": OPTIONAL})
    clients = {
        each.name for each in COMPONENTS if "etcd-servers" in each.arguments(found.spec, found.layout, each.ports)
    }
    assert {component.name for component, _flag in OWN_FLAGS} == {ETCD.name, *clients}
    for component, flag in OWN_FLAGS:
        assert flag in known_flags.flags(component, releases.newest())


def test_flags_and_gates_are_known_of_every_release_and_component() -> None:
    for release in releases.RELEASES:
        for component in COMPONENTS:
            gates, flags = known_flags.feature_gates(component, release), known_flags.flags(component, release)
            assert bool(gates) == component.takes_feature_gates
            assert len(flags) > 20
            assert list(gates) == sorted(set(gates))
            assert list(flags) == sorted(set(flags))
    unknown = replace(releases.newest(), karmada="v0.0.1")
    assert known_flags.flags(BY_NAME["karmada-scheduler"], unknown) == ()


@pytest.mark.parametrize("release", releases.RELEASES, ids=lambda each: each.karmada)
@pytest.mark.parametrize("spec", [*SPECS.values(), {"components": OPTIONAL}], ids=[*SPECS, "optional"])
def test_every_flag_that_is_rendered_is_known_to_the_programs_of_every_release(
    release: releases.Release, spec: dict[str, Any]
) -> None:
    found = rendered({**spec, "version": release.karmada})
    for component in COMPONENTS:
        if component is not ETCD and component.is_wanted(found.spec):
            flags = {argument[2:].partition("=")[0] for argument in component.flags(found.spec, found.layout)}
            assert flags - set(known_flags.flags(component, release)) == set(), component.name


def test_the_settings_of_etcd_that_are_rendered_are_known() -> None:
    found = rendered()
    configuration = etcd_configuration.of_member(
        found.layout.etcd_members[0], found.layout, token="t", existing=False, generation=1, extra={}
    )
    sections = {"client-transport-security", "peer-transport-security"}
    for release in releases.RELEASES:
        assert set(configuration) - sections - set(known_flags.flags(ETCD, release)) == set()
        assert not {"cert-file", "peer-key-file", "client-cert-auth", "config-file"} & set(
            known_flags.flags(ETCD, release)
        )


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)
def test_a_flag_that_the_program_does_not_have_is_refused_with_the_nearest(component: Component) -> None:
    known = known_flags.flags(component, releases.newest())
    wrong = next(flag for flag in known if flag + "s" not in known and len(flag) > 12) + "s"

    def spec(**settings: Any) -> dict[str, Any]:
        return {"components": {component.field: {"local": settings} if component is ETCD else settings}}

    (problem,) = problems(fake_run(document(spec(extraArgs={wrong: "1", known[0]: "x"})), host()))
    assert problem.where == f"{settings_path(component)}.extraArgs.{wrong}"
    assert f"has no {'setting' if component is ETCD else 'flag'} {wrong}" in problem.what
    assert f"did you mean {wrong[:-1]}?" in problem.remedy
    assert problems(fake_run(document(spec(extraArgs={wrong: "1"}, imageTag="own-build")), host())) == []
    # A digest says which image of the release it is, and not that it is another one.
    tag = f"{getattr(releases.newest(), component.image.release)}@sha256:{'0' * 64}"
    assert len(problems(fake_run(document(spec(extraArgs={wrong: "1"}, imageTag=tag)), host()))) == 1


@pytest.mark.parametrize("component", [each for each in COMPONENTS if each.optional], ids=lambda each: each.name)
def test_a_name_matters_only_when_the_component_is_wanted(component: Component) -> None:
    spec = {"components": {component.field: {}}, "members": [MEMBER]}
    name = next(each.name for each in wanted_components(spec_of(spec)) if each.row == component.name)
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"prod-{name.removeprefix('karmada-')}", "namespace": "karmada"},
        "spec": {"template": {"spec": {"containers": [{"name": "x", "image": "example.com/x"}]}}},
    }

    def foreign(spec: dict[str, Any]) -> list[str]:
        found = [problem.what for problem in problems(fake_run(document(spec), host(theirs)))]
        return [what for what in found if "is not of this control plane" in what]

    assert foreign({"members": [MEMBER]}) == []
    assert len(foreign(spec)) == 1
