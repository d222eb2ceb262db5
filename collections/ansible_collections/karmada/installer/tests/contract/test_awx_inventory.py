# SPDX-License-Identifier: Apache-2.0
"""Jobs of AWX that need no cluster: the inventory lacks something, an answer cannot be, or hosts are plain."""

from __future__ import annotations

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
