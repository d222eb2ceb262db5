# SPDX-License-Identifier: Apache-2.0
"""The first step of each playbook, run by ansible-playbook itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.require_document import _of_environment, _of_limit
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands, corpus_files
from ansible_collections.karmada.installer.tests.unit.support.samples import document

PLAYBOOK = """\
---
- name: Read the document
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Fail unless a KarmadaDeployment was loaded
      karmada.installer.require_document:
        report: "{{ karmada_report | default('json') }}"
        fail_on_drift: "{{ karmada_fail_on_drift | default(false) }}"

- name: Use it
  hosts: karmada_control
  gather_facts: false
  tasks:
    - name: Show the name
      ansible.builtin.debug:
        msg: "the name is {{ karmada_deployment.metadata.name }}"
"""

ON_HOSTS = {"mode": "Binary", "hosts": [{"name": "cp1", "address": "192.0.2.1"}]}
SOURCE = "plugin: karmada.installer.karmada\nmanifest: {}\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "play.yml").write_text(PLAYBOOK, encoding="utf-8")
    shutil.copy(corpus_files.named("reserved_member_names").path, tmp_path / "prod.yaml")
    (tmp_path / "site.karmada.yml").write_text(SOURCE.format("prod.yaml"), encoding="utf-8")
    return tmp_path


def play(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # YAML keeps the lines of a message as they are
    more = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml", **environment}
    return ansible_commands.run("ansible-playbook", "play.yml", *arguments, directory=site, **more)


def message(done: subprocess.CompletedProcess[str]) -> str:
    """What the task says, apart from the warnings with which Ansible announces the same."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the name is" not in done.stdout
    return " ".join(done.stdout.partition("TASK [Fail unless")[2].split())


def test_output_that_would_show_keys_whatever_no_log_says_is_refused(site: Path) -> None:
    said = message(play(site, "-i", "site.karmada.yml", ANSIBLE_DEBUG="1"))
    assert "ANSIBLE_DEBUG: it prints what tasks with no_log read and write, private keys" in said
    assert "leave it out; -vvv tells much" in said
    assert play(site, "-i", "site.karmada.yml", ANSIBLE_DEBUG="0").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_loaded_document_passes(site: Path, arguments: tuple[str, ...]) -> None:
    done = play(site, "-i", "site.karmada.yml", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the name is prod" in done.stdout
    assert "changed=0" in done.stdout


def test_a_server_that_the_environment_leaves_unverified_is_warned_of_once(site: Path) -> None:
    done = play(site, "-i", "site.karmada.yml", K8S_AUTH_VERIFY_SSL="False")
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert said.count("environment variable K8S_AUTH_VERIFY_SSL: it switches off the verification") == 1
    assert "AWX sets it when its credential has no CA" in said
    for more in ({}, {"K8S_AUTH_VERIFY_SSL": "True"}):
        assert "K8S_AUTH" not in play(site, "-i", "site.karmada.yml", **more).stdout


@pytest.mark.parametrize(
    ("spec", "connection", "warned"),
    [
        ({}, {}, True),
        ({}, {"secrets": "secrets"}, True),
        ({}, {"kubeconfig": "site/kubeconfig"}, False),
        ({"hostCluster": {"secretRef": {"name": "site"}}}, {}, True),
        ({"hostCluster": {"secretRef": {"name": "site"}}}, {"secrets": "secrets"}, False),
        (ON_HOSTS, {"secrets": "secrets"}, False),
        (ON_HOSTS, {}, True),
    ],
)
def test_it_is_told_where_the_environment_has_a_part_in_the_run(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], connection: dict[str, str], *, warned: bool
) -> None:
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "no")
    control = {"karmada_deployment": document(spec), "karmada_connection": connection}
    assert bool(list(_of_environment({"hostvars": {"karmada_control": control}}, ""))) is warned
    of_several = {"hostvars": {"a.prod": {}, "b.prod": control}}
    assert bool(list(_of_environment(of_several, "b.prod"))) is warned
    assert list(_of_environment(of_several, "")) == [], "none is chosen where all are shown"


def test_a_form_of_the_report_that_there_is_not_is_refused_at_once(site: Path) -> None:
    said = message(play(site, "-i", "site.karmada.yml", "-e", "karmada_report=pdf"))
    assert "karmada_report: 'pdf' is no form of a report. json for the report as JSON" in said
    assert play(site, "-i", "site.karmada.yml", "-e", "karmada_report=html").returncode == 0


def test_what_is_for_a_check_is_refused_at_once_where_there_is_none(site: Path) -> None:
    asked = ("-i", "site.karmada.yml", "-e", "karmada_fail_on_drift=true")
    said = message(play(site, *asked))
    assert "karmada_fail_on_drift: it is for a check, and this run is none" in said
    assert "Add --check" in said
    assert play(site, *asked, "--check").returncode == 0


@pytest.mark.parametrize("given", ["", "false"])
def test_who_asks_for_nothing_of_a_check_is_refused_nothing(site: Path, given: str) -> None:
    assert play(site, "-i", "site.karmada.yml", "-e", f"karmada_fail_on_drift={given}").returncode == 0


def test_a_broken_document_fails_with_all_of_the_plugins_message(site: Path) -> None:
    (site / "prod.yaml").write_text(
        "apiVersion: installer.karmada.io/v1alpha1\nkind: KarmadaDeployment\nmetadata: {name: prod}\n"
        "spec: {modee: x, components: {etcd: {local: {replicas: 2}}}}\n",
        encoding="utf-8",
    )
    said = message(play(site, "-i", "site.karmada.yml"))
    assert "2 problems; nothing was changed:" in said
    assert "prod.yaml: spec.modee: is not a field of this document. Did you mean mode?" in said
    assert "prod.yaml: spec.components.etcd.local.replicas: 2 must be odd" in said


def test_no_source_at_all_shows_what_to_write(site: Path) -> None:
    said = message(play(site))
    assert "no KarmadaDeployment was given" in said
    assert " ".join(inventory_source.EXAMPLE.split()) in said


def test_a_source_that_is_not_there_is_named(site: Path) -> None:
    assert "sit.karmada.yml: cannot be read: no such file or directory" in message(play(site, "-i", "sit.karmada.yml"))
    said = message(play(site, "-i", "hosts.ini"))
    assert "hosts.ini: no KarmadaDeployment was given, and there is no file of this name" in said


def test_an_inventory_of_other_hosts_shows_what_to_write(site: Path) -> None:
    assert "no KarmadaDeployment was given" in message(play(site, "-i", "host1,host2"))


def test_the_document_given_as_the_inventory_is_recognized(site: Path) -> None:
    said = message(play(site, "-i", "prod.yaml"))
    assert "prod.yaml: is a KarmadaDeployment, not an inventory source" in said
    assert "manifest: prod.yaml" in said


def test_a_source_with_another_name_is_recognized(site: Path) -> None:
    (site / "site.karmada.yml").rename(site / "site.yml")
    said = message(play(site, "-i", "site.yml"))
    assert "site.yml: is not read by the inventory plugin because of its name" in said


def test_what_ansible_itself_has_against_a_source_is_told(site: Path) -> None:
    (site / "site.karmada.yml").write_text(
        SOURCE.format("prod.yaml") + "strict: true\ncompose: {a: nothing.there}\n", encoding="utf-8"
    )
    assert "Could not set a for host karmada_control" in message(play(site, "-i", "site.karmada.yml"))


def test_a_plugin_that_is_not_enabled_is_told(site: Path) -> None:
    said = message(play(site, "-i", "site.karmada.yml", ANSIBLE_INVENTORY_ENABLED="host_list,ini"))
    assert "the inventory plugin was not asked for it" in said


def test_two_documents_are_one_too_many(site: Path) -> None:
    (site / "inventory").mkdir()
    for name in ("a", "b"):
        (site / "inventory" / f"{name}.karmada.yml").write_text(SOURCE.format("../prod.yaml"), encoding="utf-8")
    said = message(play(site, "-i", "inventory"))
    assert "inventory/a.karmada.yml, inventory/b.karmada.yml: a run works on one control plane" in said


def test_a_host_that_an_inventory_beside_it_adds_is_refused_at_once(site: Path) -> None:
    spec = "{mode: Binary, hosts: [{name: cp1, address: 192.0.2.1}], ssh: {user: karmada}}"
    (site / "prod.yaml").write_text(
        f"apiVersion: installer.karmada.io/v1alpha1\nkind: KarmadaDeployment\nmetadata: {{name: prod}}\nspec: {spec}\n",
        encoding="utf-8",
    )
    more = site / "more.yml"
    more.write_text("karmada_hosts: {hosts: {cp1: {ansible_port: 2222}}}\n", encoding="utf-8")
    done = play(site, "-i", "site.karmada.yml", "-i", "more.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    more.write_text("karmada_hosts: {hosts: {cp1: {}, cp9: {ansible_host: 192.0.2.9}}}\n", encoding="utf-8")
    said = message(play(site, "-i", "site.karmada.yml", "-i", "more.yml"))
    assert "it has plain hosts that are not in the document: cp9" in said
    assert "Hosts of a control plane are those of its document (spec.hosts); take others out of karmada_hosts" in said


def test_a_member_called_localhost_does_not_take_the_place_of_localhost(site: Path) -> None:
    done = play(site, "-i", "site.karmada.yml", "--list-hosts")
    assert "member_localhost" not in done.stdout.partition("Use it")[0]
    assert "localhost" in done.stdout.partition("Use it")[0]


GROUPS = {"karmada_members": ["m1", "m2"], "karmada_hosts": []}


def of_limit(limit: str, within: list[str], hosts: tuple[str, ...] = (), *, takes_members: bool) -> list[str]:
    groups = {**GROUPS, "karmada_hosts": [*hosts]}
    known = {"ansible_limit": limit, "groups": groups, "ansible_play_hosts_all": within}
    return [f"{each.where}: {each.what}; {each.remedy}" for each in _of_limit(known, takes_members=takes_members)]


@pytest.mark.parametrize(
    ("within", "hosts", "takes_members"),
    [
        (["karmada_control"], (), False),
        (["karmada_control", "m1"], (), False),
        (["karmada_control", "cp1"], ("cp1",), False),
        (["m1"], (), True),
        (["karmada_control", "m1"], (), True),
        (["karmada_control"], (), True),
        (["karmada_control", "cp1"], ("cp1",), True),
    ],
)
def test_a_limit_that_leaves_what_the_run_needs_is_taken(
    within: list[str], hosts: tuple[str, ...], takes_members: bool
) -> None:
    assert of_limit("x", within, hosts, takes_members=takes_members) == []


def test_a_limit_that_leaves_out_the_control_plane_is_refused() -> None:
    whole = "and this playbook works on the control plane as a whole"
    remedy = "leave it out; for single members: karmada.installer.members -e karmada_members=m1"
    (told,) = of_limit("m1", ["m1"], takes_members=False)
    assert told == f"--limit m1: it leaves out karmada_control, {whole}; {remedy}"
    for takes_members in (False, True):
        assert of_limit("cp1", ["cp1"], ("cp1", "cp2"), takes_members=takes_members) == [
            f"--limit cp1: it leaves out karmada_control, cp2, {whole}; leave it out"
        ]


def test_where_there_are_plain_hosts_members_are_chosen_by_name() -> None:
    what = "a control plane on plain hosts is worked on with all of them, so that a limit cannot choose members"
    for within in (["m2", "m1"], ["karmada_control", "cp1", "m1", "m2"]):
        (told,) = of_limit("x", within, ("cp1",), takes_members=True)
        assert told == f"--limit x: {what}; choose them with -e karmada_members=m1,m2"


def test_of_many_members_some_are_named() -> None:
    many = [f"m{number}" for number in range(10, 40)]
    groups = {"karmada_members": many, "karmada_hosts": ["cp1"]}
    known = {"ansible_limit": "x", "groups": groups, "ansible_play_hosts_all": many}
    (problem,) = _of_limit(known, takes_members=True)
    assert problem.remedy.endswith("m28,m29,…")
