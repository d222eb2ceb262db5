# SPDX-License-Identifier: Apache-2.0
"""Inventories of several control planes that AWX keeps: slices, disabled hosts, smart ones, two sources in one.

Whatever is lacking or too much there, a run works on what was chosen, as a whole, or it does not begin.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

from .test_instances import OBJECTS, ON_HOSTS, instance, listed, played, site

BEGIN = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer/playbooks/_begin.yml"


def on_hosts(*names: str) -> dict[str, Any]:
    """Specification of a control plane on these plain hosts, whose keys an agent has."""
    listed_hosts = [{"name": name, "address": f"192.0.2.{at}"} for at, name in enumerate(names, 1)]
    return {**{key: value for key, value in ON_HOSTS.items() if key != "ssh"}, "hosts": listed_hosts}


def without(inventory: dict[str, Any], *hosts: str) -> dict[str, Any]:
    """The inventory as AWX gives it to a job if these hosts are disabled, or in another slice."""
    kept = copy.deepcopy(inventory)
    for name, group in kept.items():
        if name != "_meta" and "hosts" in group:
            group["hosts"] = [each for each in group["hosts"] if each not in hosts]
    kept["_meta"]["hostvars"] = {key: each for key, each in kept["_meta"]["hostvars"].items() if key not in hosts}
    return kept


def both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The inventory that two sources have filled."""
    found = copy.deepcopy(one)
    for name, group in other.items():
        if name == "_meta":
            found["_meta"]["hostvars"].update(group["hostvars"])
            continue
        mine = found.setdefault(name, {})
        for key in ("hosts", "children"):
            if group.get(key):
                mine[key] = sorted({*mine.get(key, ()), *group[key]})
        if group.get("vars"):
            mine.setdefault("vars", {}).update(group["vars"])
    return found


def script(directory: Path, inventory: dict[str, Any]) -> str:
    """Script that gives the inventory, as AWX makes one for each job."""
    path = directory / "hosts"
    path.write_text(f"#!/usr/bin/env python3\nprint({json.dumps(inventory)!r})\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def refused(directory: Path, inventory: dict[str, Any], *arguments: str) -> str:
    """What is told of this inventory, by a run that nothing was done in."""
    done = played(directory, script(directory, inventory), *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "found " not in done.stdout
    return " ".join(done.stdout.split())


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        stub.types["installer.karmada.io/v1alpha1"] = [
            {"name": "karmadadeployments", "kind": "KarmadaDeployment", "namespaced": True, "verbs": ["list", "get"]}
        ]
        yield stub


@pytest.fixture
def two(tmp_path: Path, api: StubApi) -> dict[str, Any]:
    """Stored inventory of one in pods, and of one on three hosts."""
    api.put(OBJECTS, instance("team-a", "prod", {"members": [{"name": "m1", "secretRef": {"name": "m1"}}]}))
    api.put(OBJECTS, instance("team-b", "hosts", on_hosts("cp1", "cp2", "cp3")))
    return listed(tmp_path, site(tmp_path, api))


@pytest.mark.parametrize("gone", ["team-a.prod", "team-b.hosts"])
def test_what_is_left_of_several_is_not_the_only_one(gone: str, tmp_path: Path, two: dict[str, Any]) -> None:
    """Somebody disables the host of a control plane to protect it, and would have chosen the other one."""
    told = refused(tmp_path, without(two, gone))
    assert f"it lacks control planes of its source: {gone.replace('.', '/')}" in told
    assert "-e karmada_instance=<namespace>/<name>" in told


@pytest.mark.parametrize("part", [0, 1])
def test_a_slice_of_several_is_refused_without_a_choice(part: int, tmp_path: Path, two: dict[str, Any]) -> None:
    every = sorted(two["_meta"]["hostvars"])
    told = refused(tmp_path, without(two, *every[1 - part :: 2]))
    assert "it lacks control planes of its source" in told
    assert "set Job slicing to 1" in told


def test_the_chosen_one_is_worked_on_while_another_is_disabled(tmp_path: Path, two: dict[str, Any]) -> None:
    inventory = without(two, "team-a.prod", "m1@team-a.prod")
    done = played(tmp_path, script(tmp_path, inventory), "-e", "karmada_instance=team-b/hosts")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " ".join(done.stdout.split()).count("found ") == 4
    told = refused(tmp_path, inventory, "-e", "karmada_instance=team-a/prod")
    assert 'there is no "team-a/prod" in the inventory; it has team-b/hosts' in told


def test_the_report_of_all_says_which_are_not_here(tmp_path: Path, api: StubApi) -> None:
    for name in ("one", "three", "two"):
        api.put(OBJECTS, instance("a", name))
    inventory = without(listed(tmp_path, site(tmp_path, api)), "a.three")
    command = ("ansible-playbook", "-i", script(tmp_path, inventory), "karmada.installer.report")
    done = ansible_commands.run(*command, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a/three  not here      its host is disabled, or in another slice of the inventory" in done.stdout


def test_a_disabled_plain_host_of_the_chosen_one_is_told(tmp_path: Path, two: dict[str, Any]) -> None:
    told = refused(tmp_path, without(two, "cp2@team-b.hosts"), "-e", "karmada_instance=team-b/hosts")
    assert "it lacks plain hosts of the document: cp2" in told
    assert "switch on what somebody has disabled" in told
    assert (
        played(
            tmp_path, script(tmp_path, without(two, "cp2@team-b.hosts")), "-e", "karmada_instance=team-a/prod"
        ).returncode
        == 0
    ), "it is none of its hosts"


def test_a_smart_inventory_of_several_is_told_what_to_do_in_awx(tmp_path: Path, two: dict[str, Any]) -> None:
    """It has hosts with their variables and no group."""
    smart = {"all": {"hosts": sorted(two["_meta"]["hostvars"])}, "_meta": two["_meta"]}
    for answer in ((), ("-e", "karmada_instance=team-b/hosts")):
        told = refused(tmp_path, smart, *answer)
        assert "none in their groups karmada_instances and karmada_broken" in told
        assert "not a smart or constructed one" in told
    only_members = without(two, "team-a.prod", "team-b.hosts")
    assert "none in their groups karmada_instances" in refused(tmp_path, only_members)


@pytest.mark.parametrize("answer", ["team-b/two", "team-b/pods"])
@pytest.mark.parametrize("host", ["p1", "cp1"])
def test_hosts_of_another_source_are_not_worked_on(answer: str, host: str, tmp_path: Path, api: StubApi) -> None:
    """Nothing else would notice where both have a host of the same name."""
    api.put(OBJECTS, instance("team-b", "two", on_hosts("cp1")))
    api.put(OBJECTS, instance("team-b", "pods"))
    several = listed(tmp_path, site(tmp_path, api))
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(instance("karmada", "prod", on_hosts(host))), encoding="utf-8")
    source = tmp_path / "prod.karmada.yml"
    source.write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n", encoding="utf-8")
    told = refused(tmp_path, both(listed(tmp_path, str(source)), several), "-e", f"karmada_instance={answer}")
    assert f"hosts of another one, which {answer} would be worked on with: " in told
    assert host in told


@pytest.mark.parametrize("second", ["team-b/two", "team-b/pods"])
def test_a_run_works_on_one_of_several(second: str, tmp_path: Path, api: StubApi) -> None:
    """What a site playbook may do for all of them: hosts, keys and observations would be those of the first."""
    api.put(OBJECTS, instance("team-a", "one", on_hosts("cp1")))
    api.put(OBJECTS, instance("team-b", "two", on_hosts("cp1")))
    api.put(OBJECTS, instance("team-b", "pods"))
    source = site(tmp_path, api)

    def ran(*chosen: str) -> tuple[int, str]:
        show = {"name": "Show it", "ansible.builtin.debug": {"msg": "found {{ inventory_hostname }}"}}
        plays: list[dict[str, Any]] = []
        for each in chosen:
            plays.append({"import_playbook": str(BEGIN), "vars": {"karmada_instance": each}})
            plays.append({"hosts": "karmada_in_pods:karmada_on_hosts", "gather_facts": False, "tasks": [show]})
        (tmp_path / "twice.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
        done = ansible_commands.run("ansible-playbook", "-i", source, "twice.yml", directory=tmp_path)
        return done.returncode, " ".join(done.stdout.split())

    code, told = ran("team-a/one", second)
    assert code == 2, told
    assert "this run has worked on team-a/one already, and a run works on one control plane" in told
    assert told.count("found ") == 2
    code, told = ran("team-a/one", "team-a/one")
    assert code == 0, told
    assert told.count("found ") == 4
