# SPDX-License-Identifier: Apache-2.0
"""Digests of images that programs of hosts come out of: on record first, and held to until somebody accepts another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import host_programs as host_programs_action
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import programs
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Program
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.tools import ETCDUTL
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Object,
    Runs,
    deployment,
    remembered,
    seen,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import TOKEN

# -- what a host is to be ------------------------------------------------------------------------------------


def test_what_hosts_lack_is_told_by_the_names_that_releases_have_for_architectures(installed: Runs) -> None:
    run = installed.step()
    paths = {component.name: units.program(run.instance, component) for component in wanted_components(run.spec)}
    installed.see(
        cp1={"programs": dict.fromkeys(paths.values(), "")},
        cp2={"programs": {path: "" for name, path in paths.items() if name != "karmada-webhook"}},
        etcd2={"programs": dict.fromkeys(paths.values(), "")},
        etcd1={"facts": {"architecture": "aarch64"}},
    )
    found = host_programs.missing(installed.step())
    named = {
        host: {architecture: [component.name for component in lacking] for architecture, lacking in each.items()}
        for host, each in found.items()
    }
    assert named == {"cp2": {"amd64": ["karmada-webhook"]}, "etcd1": {"arm64": ["etcd"]}}


def test_a_restore_brings_what_makes_data_to_hosts_with_etcd_until_that_is_made(runs: Runs) -> None:
    etcd = EtcdState(TOKEN, storage="directory", bootstrapped=True)
    name, members = "prod-20261125t020000z-1f3a9c", ("cp1", "etcd1", "etcd2")
    under_way = RestoreState("back", "nightly", name, "", "0d6c", 2, 10**9, etcd, members=members)
    for operation, prepared, hosts in (
        ("restore", (), members),
        ("restore", members, ()),
        ("release", (), ()),
        ("install", (), ()),
    ):
        restore = replace(under_way, prepared=prepared)
        runs.see_all(seen(Stored().after(remembered(etcd=etcd, restore=restore), on_hosts=False)))
        run = runs.step()
        run.operation = operation
        there = {units.program(run.instance, component): "" for component in wanted_components(run.spec)}
        runs.see(**{host["name"]: {"programs": there} for host in HOSTS})
        run = runs.step()
        run.operation = operation
        found = {
            host: [component.name for each in lacking.values() for component in each]
            for host, lacking in host_programs.missing(run).items()
        }
        assert found == {key: ["etcdutl"] for key in hosts}
        assert units.program(run.instance, ETCDUTL).endswith("/etcdutl")


# -- what programs came out of -------------------------------------------------------------------------------

DIGEST, OTHER = f"sha256:{1:064}", f"sha256:{2:064}"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Object]:
    """What was asked for: architecture, components, and what tags were held to. Every tag leads to DIGEST."""
    asked: list[Object] = []

    def fetch(
        _release: Any, architecture: str, lacking: Any, _spec: Any, _source: Any, *, held: Held, access: Any
    ) -> Any:
        del access
        asked.append({"for": architecture, "held": dict(held.digests), "accepted": set(held.accepted)})
        return {
            each.name: Program(Path("/cache"), "0" * 64, 1, "v1", f"registry/{each.name}:v1", DIGEST)
            for each in lacking
        }

    monkeypatch.setattr(programs, "programs", fetch)
    return asked


def test_what_tags_led_to_is_on_record_before_any_host_has_a_program(runs: Runs, fetched: list[Object]) -> None:
    runs.see_all(seen(Stored()))
    runs.see(etcd2={"facts": {"architecture": "aarch64"}})
    run = runs.step()
    run.save(run.state)
    host_programs.fetch(runs.step())
    names = {each.name for each in wanted_components(run.spec)}
    assert runs.step().state.digests == {f"registry/{name}:v1": DIGEST for name in names}
    # It is in what is written to hosts before programs are sent there, and survives what comes after it.
    runs.step().begin()
    assert len(runs.step().state.digests) == len(names)
    first, second = fetched
    assert (first["for"], first["held"]) == ("amd64", {})
    assert (second["for"], second["held"]["registry/etcd:v1"]) == ("arm64", DIGEST)


def test_a_host_that_comes_later_is_held_to_what_the_first_were(runs: Runs, fetched: list[Object]) -> None:
    recorded = {"registry/karmada-webhook:v1": OTHER}
    runs.see_all(seen(Stored(4).after(remembered(digests=recorded))))
    host_programs.fetch(runs.step())
    assert fetched == [{"for": "amd64", "held": recorded, "accepted": set()}]


def test_a_name_that_is_accepted_is_recorded_anew_and_once_for_all_architectures(
    runs: Runs, fetched: list[Object]
) -> None:
    name = "registry/etcd:v1"
    runs.see_all(seen(Stored(4).after(remembered(digests={name: OTHER}))))
    runs.see(etcd2={"facts": {"architecture": "aarch64"}})
    run = runs.step()
    run.confirmed_images = {name}
    host_programs.fetch(run)
    first, second = fetched
    assert (first["held"][name], first["accepted"]) == (OTHER, {name})
    assert (second["held"][name], second["accepted"]) == (DIGEST, set()), "another one for arm64 would be a third"
    assert runs.step().state.digests[name] == DIGEST


def test_a_second_run_and_a_check_record_nothing(installed: Runs, fetched: list[Object]) -> None:
    paths = [units.program(installed.step().instance, each) for each in wanted_components(Spec(deployment()["spec"]))]
    check = installed.step(check=True)
    assert host_programs.fetch(check)
    assert fetched == []
    installed.see_all({"programs": dict.fromkeys(paths, "0" * 64)})
    host_programs.fetch(installed.step())
    assert fetched == []
    assert installed.step().store.stored.serial == 5
    assert installed.step().begin() is False


def test_a_program_that_was_sent_is_known_with_its_checksum(installed: Runs) -> None:
    lacking = {"/usr/local/lib/karmada/v1/etcd": {"sha256": "2" * 64, "file": "/cache/etcd"}}
    installed.see(cp1={"programs": {"/usr/local/lib/karmada/v1/other": "1" * 64}, "lacking": lacking})
    action = host_programs_action.ActionModule.__new__(host_programs_action.ActionModule)
    action.karmada, action.variables = installed.step(), {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    action._send = lambda file: f"/tmp/{file.name}"
    action.on_host = lambda _module, **arguments: {"changed": True, **arguments}
    assert action.perform({"state": "present"})["arrived"] == {"2" * 64: "/tmp/etcd"}
    known = installed.handover.observed("cp1")
    assert (known.lacking, [*known.programs.values()]) == ({}, ["1" * 64, "2" * 64])


# -- uninstall -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "crds", "programs"),
    [
        ({"source": "URL"}, None, None),
        ({"source": "URL", "url": "https://mirror/a/"}, "https://mirror/a/karmada", "https://mirror/a/"),
        ({"source": "Image", "url": "https://mirror/a"}, "https://mirror/a/karmada", "https://mirror/a"),
        ({"source": "GoModules", "url": "https://proxy"}, "https://proxy", "https://proxy"),
    ],
)
def test_a_mirror_has_the_crds_beside_the_programs_of_karmada(
    installed: Runs, source: Object, crds: str | None, programs: str | None
) -> None:
    run = installed.step(deployment(artifacts=source))
    assert (run.place.crd_source.url, run.artifact_source.url) == (crds, programs)
    assert run.place.crd_source.kind == run.artifact_source.kind == source["source"]
