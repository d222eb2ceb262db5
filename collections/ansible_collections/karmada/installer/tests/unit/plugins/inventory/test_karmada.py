# SPDX-License-Identifier: Apache-2.0
"""From an inventory source to hosts, groups and variables, by Ansible itself."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_names, inventory_values
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands, corpus_files, inventory_sources
from ansible_collections.karmada.installer.tests.unit.support.inventory_sources import refusal, write

CANARY = Path("/tmp/karmada-installer-was-here")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with documents; the working directory is another one."""
    return inventory_sources.site(tmp_path)


def inventory(directory: Path, source: str, **more: Any) -> dict[str, Any]:
    done = ansible_commands.run("ansible-inventory", "-i", source, "--list", "--export", directory=directory, **more)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout, object_hook=_without_marks)
    return found


def _without_marks(value: dict[str, Any]) -> Any:
    return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else value


def test_hosts_groups_and_variables(site: Path) -> None:
    path = write(
        site,
        manifest="full.yaml",
        secrets="secrets",
        keyed_groups=[{"key": "karmada_member.region", "prefix": "region"}],
        groups={"with_context": "karmada_member.context is defined"},
        compose={"where": "karmada_member.zones[0]"},
    )
    found = inventory(site, path)
    variables = found["_meta"]["hostvars"]
    assert set(variables) == {"karmada_control", "member1", "member2", "member3"}
    control = variables["karmada_control"]
    assert control["ansible_connection"] == "local"
    assert control["karmada_deployment"] == manifest.resolve(manifest.parse(corpus_files.named("full").text))
    assert control["karmada_connection"]["secrets"] == "secrets"
    assert control["ansible_python_interpreter"] == "{{ ansible_playbook_python }}"
    assert found["karmada_members"]["vars"]["ansible_python_interpreter"] == "{{ ansible_playbook_python }}"
    members = control["karmada_deployment"]["spec"]["members"]
    assert variables["member1"]["karmada_member"] == members[0]
    assert variables["member1"]["karmada_member_name"] == "member1"
    assert variables["member1"]["where"] == "eu-west-1a"
    assert found["karmada_members_join"]["hosts"] == ["member1", "member2", "member3"]
    assert set(found["karmada_members"]["children"]) >= {"karmada_members_join"}
    assert found["region_eu_west"]["hosts"] == ["member1"]
    assert found["with_context"]["hosts"] == ["member1"]
    for empty in ("karmada_members_leave", "karmada_members_keep", "karmada_etcd", "karmada_control_plane"):
        assert not found.get(empty, {}).get("hosts")


def test_backups_beside_the_document_are_a_variable_of_their_own(site: Path) -> None:
    (least,) = [file for file in corpus_files.good(corpus_files.BACKUPS) if file.path.stem == "least"]
    (site / "both.yaml").write_text(f"{corpus_files.named('empty_spec').text}\n{least.text}", encoding="utf-8")
    control = inventory(site, write(site, manifest="both.yaml"))["_meta"]["hostvars"]["karmada_control"]
    (backup,) = control["karmada_backups"]
    assert (backup["metadata"]["name"], backup["spec"]["retention"]["hourly"]) == ("nightly", 24)
    alone = inventory(site, write(site, manifest="full.yaml"))["_meta"]["hostvars"]["karmada_control"]
    assert alone["karmada_backups"] == []


def test_a_backup_that_is_wrong_is_a_problem_of_the_file(site: Path) -> None:
    (bad,) = [file for file in corpus_files.bad(corpus_files.BACKUPS) if file.path.stem == "interval_short"]
    (site / "both.yaml").write_text(f"{corpus_files.named('empty_spec').text}\n{bad.text}", encoding="utf-8")
    told = refusal(write(site, manifest="both.yaml"))
    assert "both.yaml: EtcdBackup nightly: spec.interval" in told


def test_the_same_source_gives_the_same_output(site: Path) -> None:
    path = write(site, manifest="full.yaml")
    outputs = {
        ansible_commands.run("ansible-inventory", "-i", path, "--list", directory=site, PYTHONHASHSEED=str(seed)).stdout
        for seed in (1, 2)
    }
    assert len(outputs) == 1
    assert "member1" in outputs.pop()


def test_no_secret_is_in_any_variable(site: Path) -> None:
    (site / "secrets" / "member1").mkdir()
    (site / "secrets" / "member1" / "kubeconfig").write_text("token: canary-5f3a", encoding="utf-8")
    found = inventory(site, write(site, manifest="full.yaml", secrets="secrets"))
    assert "canary-5f3a" not in json.dumps(found)


def test_names_that_ansible_keeps_for_itself(site: Path) -> None:
    found = inventory(site, write(site, manifest="reserved_member_names.yaml"))
    variables = found["_meta"]["hostvars"]
    assert {host: of_host.get("karmada_member_name") for host, of_host in variables.items()} == {
        "karmada_control": None,
        "member_localhost": "localhost",
        "member_all": "all",
        "member_ungrouped": "ungrouped",
        "1": "1",
        "member-localhost": "member-localhost",
    }


def test_strings_of_the_document_are_never_templates(site: Path) -> None:
    CANARY.unlink(missing_ok=True)
    path = write(
        site,
        manifest="hostile_strings.yaml",
        keyed_groups=[{"key": "karmada_member.context", "prefix": "context"}],
        compose={"copied": "karmada_member.context"},
    )
    shown = ansible_commands.run(
        *("ansible", "all", "-i", path, "-m", "ansible.builtin.debug", "-a", "msg={{ hostvars[inventory_hostname] }}"),
        directory=site,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "lookup('pipe', 'touch" in shown.stdout
    assert "{% if true %}x{% endif %}" in shown.stdout
    copied = ansible_commands.run(
        *("ansible", "member1", "-i", path, "-m", "ansible.builtin.debug", "-a", "msg={{ copied }}"), directory=site
    )
    assert "lookup('pipe', 'touch" in copied.stdout
    assert not CANARY.exists()


@pytest.mark.parametrize("link", ["directory", "file"])
def test_a_checkout_that_is_not_installed_as_a_collection(site: Path, link: str) -> None:
    """By ANSIBLE_INVENTORY_PLUGINS, and by a directory beside the playbook."""
    path = write(site, plugin="karmada", manifest="full.yaml")
    if link == "directory":
        plugins = ansible_commands.CHECKOUT / "inventory_plugins"
        found = inventory(site, path, collection=False, ANSIBLE_INVENTORY_PLUGINS=str(plugins))
    else:
        (site / "inventory_plugins").mkdir()
        plugin_file = ansible_commands.CHECKOUT / "inventory_plugins" / "karmada.py"
        (site / "inventory_plugins" / "karmada.py").symlink_to(plugin_file)
        done = ansible_commands.run(
            *("ansible-inventory", "--playbook-dir", str(site), "-i", path, "--list"), directory=site, collection=False
        )
        found = json.loads(done.stdout)
    assert set(found["_meta"]["hostvars"]) == {"karmada_control", "member1", "member2", "member3"}


def test_failures_end_with_an_error_where_ansible_is_told_so(site: Path) -> None:
    path = write(site, manifest="nothing.yaml")
    done = ansible_commands.run(
        "ansible-inventory", "-i", path, "--list", directory=site, ANSIBLE_INVENTORY_UNPARSED_FAILED="true"
    )
    assert done.returncode != 0
    assert "nothing.yaml: cannot be read" in done.stderr


BINARY = """\
apiVersion: installer.karmada.io/v1alpha1
kind: KarmadaDeployment
metadata: {name: prod, namespace: karmada}
spec:
  mode: Binary
  ssh: {user: operator, port: 2222, privateKeySecretRef: {name: key}}
  endpoint: {type: VirtualIP, virtualIP: {address: 192.0.2.100}}
  hosts:
    - {name: etcd1, address: 192.0.2.11, roles: [etcd]}
    - {name: cp1, address: 192.0.2.1, roles: [controlPlane]}
    - {name: cp2, address: 192.0.2.2, port: 22, roles: [controlPlane]}
"""


def listed(directory: Path, source: str, group: str) -> list[str]:
    """The hosts of a group, in the order in which a play goes through them."""
    done = ansible_commands.run("ansible", group, "-i", source, "--list-hosts", directory=directory)
    return [line.strip() for line in done.stdout.splitlines()[1:]]


def test_plain_hosts_are_in_groups_by_their_roles_after_the_host_that_steps_are_done_once_on(site: Path) -> None:
    (site / "binary.yaml").write_text(BINARY, encoding="utf-8")
    path = write(site, manifest="binary.yaml", secrets="secrets")
    assert listed(site, path, "karmada_on_hosts") == ["karmada_control", "etcd1", "cp1", "cp2"]
    found = inventory(site, path)
    groups = {
        group: found.get(group, {}).get("hosts", [])
        for group in ("karmada_in_pods", *inventory_names.ROLE_GROUPS.values())
    }
    assert groups == {
        "karmada_in_pods": [],
        "karmada_etcd": ["etcd1"],
        "karmada_control_plane": ["cp1", "cp2"],
        "karmada_load_balancer": ["cp1", "cp2"],
        "karmada_agent": [],
    }
    assert found["karmada_hosts"]["hosts"] == ["etcd1", "cp1", "cp2"]
    variables = found["_meta"]["hostvars"]
    assert variables["karmada_control"]["ansible_connection"] == "local"
    assert "ansible_connection" not in variables["cp1"]
    assert variables["cp1"]["karmada_host"]["name"] == "cp1"
    assert {
        name: (of["ansible_host"], of["ansible_port"]) for name, of in variables.items() if "ansible_host" in of
    } == {
        "etcd1": ("192.0.2.11", 2222),
        "cp1": ("192.0.2.1", 2222),
        "cp2": ("192.0.2.2", 22),
    }
    assert variables["cp1"]["ansible_user"] == "operator"
    assert variables["cp1"]["ansible_ssh_private_key_file"] == "secrets/key/ssh-privatekey"
    other = site.parent / "other"
    shutil.copytree(site, other)
    elsewhere = inventory(other, str(other / Path(path).name))["_meta"]["hostvars"]["cp1"]
    assert elsewhere["ansible_ssh_private_key_file"] == "secrets/key/ssh-privatekey"
    assert elsewhere["ansible_control_path_dir"] != variables["cp1"]["ansible_control_path_dir"], "the key is another"


def test_plain_hosts_beneath_a_control_plane_in_pods_are_in_its_play(site: Path) -> None:
    head = BINARY[: BINARY.index("spec:")]
    (site / "beneath.yaml").write_text(
        f"{head}spec: {{hosts: [{{name: etcd1, address: 192.0.2.11, roles: [etcd]}}]}}\n", encoding="utf-8"
    )
    path = write(site, manifest="beneath.yaml")
    assert listed(site, path, "karmada_in_pods") == ["karmada_control", "etcd1"]
    assert listed(site, path, "karmada_etcd") == ["etcd1"]
    assert listed(site, path, "karmada_on_hosts") == []


def test_a_control_plane_in_pods_has_no_plain_hosts(site: Path) -> None:
    path = write(site, manifest="full.yaml")
    found = inventory(site, path)
    assert found["karmada_in_pods"]["hosts"] == ["karmada_control"]
    assert listed(site, path, "karmada_on_hosts") == []


def test_strings_that_cannot_be_templates_are_shown_as_they_are_and_others_are_not_trusted(site: Path) -> None:
    """Each that is marked is a mapping of its own in the output, which is most of the time that thousands take."""
    source = write(site, manifest="hostile_strings.yaml")
    done = ansible_commands.run("ansible-inventory", "-i", source, "--list", directory=site)
    found = json.loads(done.stdout)["_meta"]["hostvars"]
    assert found["karmada_control"]["karmada_deployment"]["kind"] == "KarmadaDeployment"
    marked = re.findall(r'"__ansible_unsafe": "((?:[^"\\]|\\.)*)"', done.stdout)
    assert marked
    assert not [each for each in marked if re.fullmatch(r"[A-Za-z0-9_./:@+-]*", each)]
    templates = {each for each in re.findall(r'": "((?:[^"\\]|\\.)*)"', done.stdout) if "{{" in each} - {*marked}
    assert templates == {"{{ ansible_playbook_python }}"}, "only our own text is a template"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("karmada_member.region", "eu"),
        ("karmada_member.labels.tier", "prod"),
        ("karmada_member.zones", ["a"]),
        *(
            (each, inventory_values.NOT_PLAIN)
            for each in (
                *(
                    "karmada_member.labels.items",
                    "karmada_member.region.upper",
                    "karmada_member.absent",
                    "absent.region",
                ),
                *("karmada_member['region']", "karmada_member.region | upper", "karmada_member", "", 5),
            )
        ),
    ],
)
def test_only_what_is_surely_a_plain_path_is_looked_up_without_a_template(expression: Any, found: Any) -> None:
    member = {"region": "eu", "labels": {"tier": "prod", "items": "x"}, "zones": ["a"]}
    if hasattr(inventory_values.template, "trust_as_template"):
        assert inventory_values.at_path(expression, {"karmada_member": member}) == found
    else:
        assert inventory_values.at_path(expression, {"karmada_member": member}) is inventory_values.NOT_PLAIN
