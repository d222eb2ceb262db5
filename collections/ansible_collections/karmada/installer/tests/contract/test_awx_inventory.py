# SPDX-License-Identifier: Apache-2.0
"""Jobs of AWX that need no cluster: the inventory lacks something, an answer cannot be, or hosts are plain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.contract.awx_repository import HOST_KEYS, awx_in, smart, without
from awx_runner import Awx, stored

#: In the place of ssh: says what it was called with, and what the file with keys of hosts holds.
SSH = """#!/bin/sh
folder=$(dirname "$0")
printf '%s\\n' "$@" >"$folder/arguments"
for word in "$@"; do
  case "$word" in *UserKnownHostsFile=*) cat "$(echo "${word#*=}" | tr -d '"')" >"$folder/hosts" ;; esac
done
echo "Host key verification failed." >&2
exit 255
"""


@pytest.fixture(scope="module")
def awx(tmp_path_factory: pytest.TempPathFactory) -> Awx:
    return awx_in(tmp_path_factory.mktemp("awx"))


def test_a_job_on_plain_hosts_lets_in_only_those_whose_keys_the_project_has(awx: Awx) -> None:
    """AWX has the check of host keys switched off by a variable that is stronger than the project's settings."""
    updated, exported = awx.update("sites/hosts.karmada.yml")
    assert updated.rc == 0, updated.output
    seen = awx.root / "ssh"
    seen.mkdir()
    (seen / "ssh").write_text(SSH)
    (seen / "ssh").chmod(0o755)
    instead = {"ansible_ssh_executable": str(seen / "ssh")}
    done = awx.job("playbooks/report.yml", stored(exported), variables=instead)
    assert (done.rc, "Host key verification failed" in done.output) == (4, True), done.output
    arguments = (seen / "arguments").read_text().splitlines()
    checks = [each.partition("=")[2] for each in arguments if "StrictHostKeyChecking=" in each]
    # ssh takes the first.
    assert checks[0] == "yes"
    assert 'User="karmada"' in arguments
    assert (seen / "hosts").read_text() == HOST_KEYS, "the folder of the update is not there any more"


@pytest.fixture(scope="module")
def of_document(awx: Awx) -> dict[str, Any]:
    """Inventory of the document in the project, as AWX keeps it. Nothing of it needs a server."""
    done, exported = awx.update("sites/prod.karmada.yml")
    assert done.rc == 0, done.output
    return stored(exported)


def test_a_job_with_a_slice_or_without_the_disabled_control_host_is_refused(
    awx: Awx, of_document: dict[str, Any]
) -> None:
    done = awx.job("playbooks/install.yml", without(of_document, "karmada_control"))
    assert done.rc == 2, done.output
    said = " ".join(done.output.split())
    assert "inventory: it has groups of a control plane, and not the host karmada_control. In AWX" in said
    assert "set Job slicing to 1, and switch karmada_control on" in said


def test_a_job_with_a_smart_inventory_is_refused(awx: Awx, of_document: dict[str, Any]) -> None:
    done = awx.job("playbooks/install.yml", smart(of_document))
    assert done.rc == 2, done.output
    assert "not its groups karmada_in_pods" in " ".join(done.output.split())
    assert "not a smart or constructed one" in " ".join(done.output.split())


def test_a_job_that_lacks_a_plain_host_of_the_document_is_refused(awx: Awx) -> None:
    done, exported = awx.update("sites/hosts.karmada.yml")
    assert done.rc == 0, done.output
    done = awx.job("playbooks/install.yml", without(stored(exported), "cp1"))
    assert done.rc == 2, done.output
    assert "it lacks plain hosts of the document: cp1" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "answers", "told"),
    [
        (["-l", "member1"], {}, "--limit member1: it leaves out karmada_control"),
        ([], {"karmada_instance": "other/prod"}, "and the inventory has karmada-prod/prod"),
        ([], {"karmada_report": "pdf"}, "karmada_report"),
        ([], {"karmada_lock_wait": "soon"}, "karmada_lock_wait: is no time to wait: 'soon'. Give a whole number"),
    ],
    ids=["limit", "another-instance", "form-of-report", "time-to-wait"],
)
def test_what_somebody_asks_of_a_job_that_cannot_be_is_refused_before_it_needs_a_credential(
    awx: Awx, of_document: dict[str, Any], arguments: list[str], answers: dict[str, str], told: str
) -> None:
    done = awx.job("playbooks/install.yml", of_document, arguments=arguments, variables=answers)
    assert done.rc == 2, done.output
    assert told in " ".join(done.output.split())


#: What AWX writes for a constructed inventory whose maker has asked for these groups.
CONSTRUCTED = """\
plugin: ansible.builtin.constructed
strict: true
groups:
  chosen_members: "'karmada_members' in group_names"
  chosen_hosts: "'karmada_hosts' in group_names"
keyed_groups:
  - key: karmada_deployment.spec.mode | default('none')
    prefix: mode
"""


def constructed(awx: Awx, name: str, *sources: str) -> dict[str, Any]:
    """What AWX keeps of an inventory that it constructs of stored ones, each a script to it, one after the other."""
    folder = awx.project / name
    folder.mkdir()
    for number, source in enumerate(sources):
        done, exported = awx.update(source)
        assert done.rc == 0, done.output
        script = folder / f"{number}_input"
        script.write_text(f"#!/usr/bin/env python3\nprint({json.dumps(stored(exported))!r})\n", encoding="utf-8")
        script.chmod(0o755)
    (folder / "constructed.yml").write_text(CONSTRUCTED, encoding="utf-8")
    done, exported = awx.update(name)
    assert done.rc == 0, done.output
    return stored(exported)


def test_a_constructed_inventory_has_all_that_its_source_has_and_groups_of_its_own(
    awx: Awx, of_document: dict[str, Any]
) -> None:
    found = constructed(awx, "of-one", "sites/prod.karmada.yml")
    own = {"chosen_members", "mode_Container", "mode_none"}
    assert found.keys() - of_document.keys() == own, "a group without hosts is named among the children of all only"
    assert found["chosen_members"]["hosts"] == ["member1"]
    assert found["mode_Container"]["hosts"] == ["karmada_control"]
    for name in of_document.keys() - {"_meta", "all"}:
        assert found[name] == of_document[name], name
    assert set(found["all"]["children"]) - {*own, "chosen_hosts"} == set(of_document["all"]["children"])
    for host, variables in of_document["_meta"]["hostvars"].items():
        assert found["_meta"]["hostvars"][host] == variables, "no text of the document has become a template"
    # A job gets as far with it as with its source: to an answer that cannot be.
    done = awx.job("playbooks/install.yml", found, variables={"karmada_report": "pdf"})
    assert (done.rc, "inventory: it" in done.output) == (2, False), done.output
    assert "karmada_report" in done.output


def test_a_job_with_a_constructed_inventory_works_on_the_plain_hosts_of_its_source(awx: Awx) -> None:
    found = constructed(awx, "of-hosts", "sites/hosts.karmada.yml")
    assert found["chosen_hosts"]["hosts"] == found["karmada_hosts"]["hosts"] == ["cp1"]
    seen = awx.root / "ssh-of-constructed"
    seen.mkdir()
    (seen / "ssh").write_text(SSH)
    (seen / "ssh").chmod(0o755)
    done = awx.job("playbooks/report.yml", found, variables={"ansible_ssh_executable": str(seen / "ssh")})
    assert (done.rc, "Host key verification failed" in done.output) == (4, True), done.output
    assert (seen / "hosts").read_text() == HOST_KEYS


def test_a_job_with_an_inventory_constructed_of_two_control_planes_is_refused(awx: Awx) -> None:
    """Both have a host of the name karmada_control: one of them is lost, and its hosts are not."""
    found = constructed(awx, "of-two", "sites/hosts.karmada.yml", "sites/prod.karmada.yml")
    done = awx.job("playbooks/install.yml", found)
    assert done.rc == 2, done.output
    assert "it has plain hosts that are not in the document: cp1" in " ".join(done.output.split())
