# SPDX-License-Identifier: Apache-2.0
"""A mistake in the document is told once, and never looks like success, whatever command meets it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

SENTENCE = "prod.yaml: spec.modee: is not a field of this document. Did you mean mode?"
DOCUMENT = """\
apiVersion: installer.karmada.io/v1alpha1
kind: KarmadaDeployment
metadata: {name: prod}
spec: {modee: Binary}
"""
OURS = "karmada.installer.install"
CALLBACK = {"ANSIBLE_STDOUT_CALLBACK": "karmada.installer.report", "COLUMNS": "80"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "prod.yaml").write_text(DOCUMENT)
    (tmp_path / "site.karmada.yml").write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    (tmp_path / "wrapper.yml").write_text(
        f"---\n- name: Install\n  ansible.builtin.import_playbook: {OURS}\n"
        "- name: More\n  hosts: karmada_no_document\n  gather_facts: false\n  tasks: []\n"
    )
    (tmp_path / "other.yml").write_text(
        "---\n- name: Other\n  hosts: karmada_control\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n"
    )
    return tmp_path


def run(command: str, *arguments: str, site: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], str]:
    done = ansible_commands.run(command, "-i", "site.karmada.yml", *arguments, directory=site, **environment)
    return done, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("playbook", [OURS, "wrapper.yml"])
def test_a_playbook_tells_it_once_and_fails(site: Path, playbook: str) -> None:
    done, said = run("ansible-playbook", playbook, site=site, **CALLBACK)
    assert done.returncode == 2
    assert said.count(SENTENCE) == 1
    assert "WARNING" not in said
    assert "nothing was changed" in said
    lines = (done.stdout + done.stderr).splitlines()
    assert len(lines) <= 6, done.stdout
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (["hosts.yml"], "hosts.yml: is not read by the inventory plugin because of its name. Call it karmada.yml"),
        (["good.karmada.yml", "more.karmada.yml"], "a run works on one control plane, and these name more."),
        (["good.karmada.yml", "hosts.yml"], "good.karmada.yml, hosts.yml: a run works on one control plane"),
        (["hosts.yml", "good.karmada.yml"], "hosts.yml, good.karmada.yml: a run works on one control plane"),
    ],
    ids=["another name", "two", "second of another name", "first of another name"],
)
def test_a_source_that_cannot_be_used_is_told_once(site: Path, sources: list[str], sentence: str) -> None:
    (site / "prod.yaml").write_text(DOCUMENT.replace("modee: Binary", "mode: Container"))
    for name in sources:
        (site / name).write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    given = [argument for name in sources for argument in ("-i", name)]
    done = ansible_commands.run("ansible-playbook", *given, OURS, directory=site, **CALLBACK)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert said.count(sentence) == 1, said
    assert "WARNING" not in said
    assert len((done.stdout + done.stderr).splitlines()) <= 7


def test_the_default_callback_fails_as_well(site: Path) -> None:
    done, said = run("ansible-playbook", OURS, site=site)
    assert done.returncode == 2
    assert SENTENCE in said
    assert "inventory" not in said.replace("ansible_inventory_sources", "")


@pytest.mark.parametrize("more", [("--limit", "m1"), ("--list-hosts",), ("--tags", "join")])
def test_where_no_task_would_tell_it_the_inventory_does(site: Path, more: tuple[str, ...]) -> None:
    _done, said = run("ansible-playbook", OURS, *more, site=site, **CALLBACK)
    assert SENTENCE in said


@pytest.mark.parametrize("command", [("ansible-inventory", "--list"), ("ansible-playbook", "other.yml")])
def test_other_commands_warn_as_before(site: Path, command: tuple[str, ...]) -> None:
    done, said = run(*command, site=site, **CALLBACK)
    assert SENTENCE in said
    assert "WARNING" in said
    assert "karmada_no_document" not in done.stdout


def test_who_asks_for_failure_gets_it(site: Path) -> None:
    """As AWX asks for an inventory source."""
    for command in (("ansible-inventory", "--list"), ("ansible-playbook", OURS)):
        done, said = run(*command, site=site, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="1")
        assert done.returncode not in (0, 2)
        assert SENTENCE in said
