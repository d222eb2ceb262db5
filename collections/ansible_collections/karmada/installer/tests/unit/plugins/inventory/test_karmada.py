# SPDX-License-Identifier: Apache-2.0
"""From an inventory source to hosts, groups and variables."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.inventory import karmada as plugin
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_names, inventory_values
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands, corpus_files
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

CANARY = Path("/tmp/karmada-installer-was-here")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with documents; the working directory is another one."""
    for name in ("empty_spec", "full", "hostile_strings", "reserved_member_names", "directory"):
        shutil.copy(corpus_files.named(name).path, tmp_path / f"{name}.yaml")
    for name in ("secrets", "config-maps", "artifacts"):
        (tmp_path / name).mkdir()
    return tmp_path


def write(directory: Path, **options: Any) -> str:
    path = directory / "site.karmada.yml"
    path.write_text(yaml.safe_dump({"plugin": "karmada.installer.karmada", **options}), encoding="utf-8")
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(ProblemsError) as error:
        inventory_source.load(path)
    return str(error.value)


def inventory(directory: Path, source: str, **more: Any) -> dict[str, Any]:
    done = ansible_commands.run("ansible-inventory", "-i", source, "--list", "--export", directory=directory, **more)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout, object_hook=_without_marks)
    return found


def _without_marks(value: dict[str, Any]) -> Any:
    return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else value


# -- the source -------------------------------------------------------------------------------------------------------


def test_paths_are_relative_to_the_source(site: Path) -> None:
    (site / "kubeconfig").touch()
    path = write(
        site,
        manifest="full.yaml",
        kubeconfig="kubeconfig",
        secrets="./secrets",
        config_maps="config-maps",
        artifacts="secrets/../artifacts",
        backups="../mounted",
    )
    source = inventory_source.load(path)
    assert source.connection == {
        "kubeconfig": str(site / "kubeconfig"),
        "context": None,
        "secrets": str(site / "secrets"),
        "config_maps": str(site / "config-maps"),
        "artifacts": str(site / "artifacts"),
        "kubeconfig_output": None,
        "report_output": None,
        "beside": str(site / "prod"),
        "backups": str(site.parent / "mounted"),
        "object_uid": None,
    }
    assert source.deployment == manifest.resolve(manifest.parse(corpus_files.named("full").text))


def test_nothing_is_made_up_where_nothing_is_said(site: Path) -> None:
    connection = inventory_source.load(write(site, manifest="empty_spec.yaml")).connection
    assert connection.pop("beside") == str(site / "prod")
    assert set(connection.values()) == {None}


def test_the_kubeconfig_is_written_beside_the_document(site: Path) -> None:
    (site / "documents").mkdir()
    (site / "full.yaml").rename(site / "documents" / "full.yaml")
    loaded = inventory_source.load(write(site, manifest="documents/full.yaml"))
    assert Connection.of(loaded.connection).kubeconfig_output == str(site / "documents" / "prod.kubeconfig")
    loaded = inventory_source.load(write(site, manifest="documents/full.yaml", kubeconfig_output="out/admin.conf"))
    assert Connection.of(loaded.connection).kubeconfig_output == str(site / "out" / "admin.conf")


def test_of_an_object_the_uid_is_known_and_no_kubeconfig_is_written_unless_one_is_named(
    tmp_path: Path, api: StubApi
) -> None:
    api.types["installer.karmada.io/v1alpha1"] = [
        {"name": "karmadadeployments", "kind": "KarmadaDeployment", "namespaced": True}
    ]
    made = api.put(
        "apis/installer.karmada.io/v1alpha1/karmadadeployments",
        {
            "apiVersion": "installer.karmada.io/v1alpha1",
            "kind": "KarmadaDeployment",
            "metadata": {"name": "prod", "namespace": "ns", "generation": 3},
            "spec": {},
        },
    )
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig()))
    named = {"kubeconfig": "kubeconfig", "namespace": "ns", "name": "prod"}
    connection = Connection.of(inventory_source.load(write(tmp_path, **named)).connection)
    assert connection.object_uid == made["metadata"]["uid"]
    assert connection.kubeconfig_output is None
    assert connection.report_output == str(tmp_path / "prod.report.json")
    wanted = Connection.of(inventory_source.load(write(tmp_path, **named, kubeconfig_output="admin.conf")).connection)
    assert wanted.kubeconfig_output == str(tmp_path / "admin.conf")
    uid, generation = made["metadata"]["uid"], str(made["metadata"]["generation"])
    same = inventory_source.load(write(tmp_path, **named, uid=uid, generation=generation))
    assert Connection.of(same.connection) == connection
    for changed, words in (
        ({"uid": "another", "generation": generation}, f"its uid is {uid}, not another"),
        ({"uid": uid, "generation": "7"}, f"its generation is {generation}, not 7"),
    ):
        with pytest.raises(ProblemsError, match=words) as caught:
            inventory_source.load(write(tmp_path, **named, **changed))
        assert [each.reason for each in caught.value.problems] == [Reason.DOCUMENT_CHANGED]


def test_nothing_of_the_environment_is_kept(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = inventory_source.load(write(site, manifest="full.yaml")).connection
    for name, value in {
        "K8S_AUTH_KUBECONFIG": str(site / "absent"),
        "K8S_AUTH_CONTEXT": "from-awx",
        "K8S_AUTH_HOST": "https://192.0.2.1",
        "K8S_AUTH_API_KEY": "canary",
        "JOB_ID": "41",
        "AWX_ISOLATED_DATA_DIR": "/runner/artifacts/41",
    }.items():
        monkeypatch.setenv(name, value)
    assert inventory_source.load(write(site, manifest="full.yaml")).connection == before


def test_paths_below_the_working_directory_are_kept_relative_to_it(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites, elsewhere = site / "project" / "sites", site / "another" / "place"
    sites.mkdir(parents=True)
    shutil.copy(site / "full.yaml", sites)
    monkeypatch.chdir(site / "project")
    (sites / "own").touch()
    path = write(
        sites, manifest="full.yaml", kubeconfig="own", secrets="../../secrets", report_output="out/report.json"
    )
    kept = inventory_source.load(path).connection
    assert kept["kubeconfig"] == "sites/own"
    assert kept["secrets"] == str(site / "secrets"), "it is not below the working directory"
    assert kept["report_output"] == "sites/out/report.json"
    assert kept["beside"] == "sites/prod"
    assert kept["artifacts"] is None
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    used = Connection.of(kept)
    assert used.kubeconfig == str(elsewhere / "sites" / "own")
    assert used.kubeconfig_output == str(elsewhere / "sites" / "prod.kubeconfig")
    assert Connection.of(asdict(used)) == used, "what is absolute stays"


def test_a_source_that_names_no_kubeconfig_reads_the_object_with_what_the_environment_has(
    tmp_path: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.types["installer.karmada.io/v1alpha1"] = [
        {"name": "karmadadeployments", "kind": "KarmadaDeployment", "namespaced": True}
    ]
    document = {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "KarmadaDeployment",
        "metadata": {"name": "prod", "namespace": "ns"},
        "spec": {},
    }
    api.put("apis/installer.karmada.io/v1alpha1/karmadadeployments", document)
    monkeypatch.setenv("K8S_AUTH_HOST", api.url)
    monkeypatch.setenv("K8S_AUTH_API_KEY", "of-awx")
    found = inventory_source.load(write(tmp_path, namespace="ns", name="prod"))
    assert found.deployment["metadata"]["name"] == "prod"
    assert api.headers[-1]["Authorization"] == "Bearer of-awx"
    assert found.connection["kubeconfig"] is None


@pytest.mark.parametrize(
    ("uid", "membership", "kubeconfig", "warned"),
    [
        ("1", "spec", None, True),
        (None, "live", None, True),
        (None, "spec", None, False),
        ("1", "live", "site/kubeconfig", False),
    ],
)
def test_an_update_warns_of_a_server_that_it_asks_and_does_not_verify(
    monkeypatch: pytest.MonkeyPatch, uid: str | None, membership: str, kubeconfig: str | None, *, warned: bool
) -> None:
    connection = {"object_uid": uid, "kubeconfig": kubeconfig, "secrets": None}
    source = inventory_source.Source(document(), connection, membership)
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "False")
    assert (plugin.InventoryModule()._unverified(source) is not None) is warned
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "True")
    assert plugin.InventoryModule()._unverified(source) is None


@pytest.mark.parametrize(
    ("environment", "written"),
    [
        ({}, True),
        ({"AWX_ISOLATED_DATA_DIR": "/runner/artifacts/1"}, True),
        ({"JOB_ID": "41"}, True),
        ({"JOB_ID": "41", "AWX_ISOLATED_DATA_DIR": "/runner/artifacts/41"}, False),
    ],
)
def test_a_job_of_awx_leaves_nothing_beside_the_document(environment: dict[str, str], *, written: bool) -> None:
    used = Connection.of({"beside": "/project/prod"}, environment)
    assert used.kubeconfig_output == ("/project/prod.kubeconfig" if written else None)
    assert used.report_output == ("/project/prod.report.json" if written else "/runner/artifacts/41/report.json")
    asked_for = {"beside": "/project/prod", "kubeconfig_output": "/a/k", "report_output": "/a/r"}
    used = Connection.of(asked_for, environment)
    assert (used.kubeconfig_output, used.report_output) == ("/a/k", "/a/r")


def test_the_documentation_names_every_option() -> None:
    documented = yaml.safe_load(plugin.DOCUMENTATION)["options"]
    assert set(documented) == {"plugin", *inventory_source.OPTIONS}
    assert documented["plugin"]["choices"] == list(inventory_source.PLUGIN_NAMES)


def test_every_example_is_accepted(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [example for example in yaml.safe_load_all(plugin.EXAMPLES) if "manifest" in example]
    assert len(examples) >= 4
    shutil.copy(site / "full.yaml", site / "prod.yaml")
    (site / ".kube").mkdir()
    (site / ".kube" / "site-a").touch()
    monkeypatch.setenv("HOME", str(site))
    for example in [*examples, yaml.safe_load(inventory_source.EXAMPLE)]:
        assert inventory_source.load(write(site, **example)).deployment["metadata"]["name"] == "prod"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"manifset": "full.yaml"}, "manifset is not an option. Did you mean manifest?"),
        ({"manifest": "full.yaml", "password": "canary"}, "password is not an option. There are: manifest,"),
        ({}, "does not say where the document is"),
        ({"name": "prod"}, "does not say where the document is"),
        ({"manifest": "full.yaml", "name": "prod"}, "names a file (manifest) and an object of a cluster (name)"),
        ({"manifest": "full.yaml", "uid": "u"}, "names a file (manifest) and an object of a cluster (uid)"),
        ({"namespace": "ns", "generation": "1"}, "does not say where the document is"),
        ({"manifest": ["full.yaml"]}, "manifest must be a string, not a list"),
        ({"manifest": "full.yaml", "context": 5}, "context must be a string, not an integer. Put it in quotes."),
        (
            {"manifest": "nothing.yaml"},
            "nothing.yaml: cannot be read: no such file or directory. Write a document there",
        ),
        ({"manifest": "secrets"}, "secrets: cannot be read: is a directory"),
        ({"manifest": "full.yaml", "secrets": "secret"}, "site.karmada.yml: secrets: there is no directory"),
        ({"manifest": "full.yaml", "config_maps": "cm"}, "site.karmada.yml: config_maps: there is no directory"),
        ({"manifest": "full.yaml", "artifacts": "a"}, "site.karmada.yml: artifacts: there is no directory"),
        ({"manifest": "full.yaml", "kubeconfig": "k"}, "site.karmada.yml: kubeconfig: there is no file"),
        ({"namespace": "a", "name": "b", "kubeconfig": "k"}, "site.karmada.yml: kubeconfig: there is no file"),
        ({"manifest": "directory.yaml"}, "spec.artifacts.source is Directory, but no directory is named"),
        ({"plugin": "karmada.installer.karmda", "manifest": "full.yaml"}, "Write plugin: karmada.installer.karmada"),
    ],
)
def test_what_is_wrong_with_a_source_is_told(site: Path, options: dict[str, Any], part: str) -> None:
    message = refusal(write(site, **options))
    assert part in message
    assert "canary" not in message


def test_problems_of_source_and_document_are_told_together(site: Path) -> None:
    (site / "bad.yaml").write_text("kind: KarmadaDeployment\napiVersion: installer.karmada.io/v1alpha1\nspec: {a: b}\n")
    message = refusal(write(site, manifest="bad.yaml", secrets="nowhere"))
    assert message.startswith("3 problems; nothing was changed:\n")
    assert "there is no directory" in message
    assert "bad.yaml: spec.a: is not a field" in message
    assert "bad.yaml: metadata.name: is required" in message


@pytest.mark.parametrize("text", ["", "- a", "a: [", "plugin: karmada.installer.karmada\n---\nplugin: x", "\x00"])
def test_a_source_that_is_no_mapping_is_refused(site: Path, text: str) -> None:
    (site / "site.karmada.yml").write_text(text, encoding="utf-8")
    assert "site.karmada.yml" in refusal(str(site / "site.karmada.yml"))


def test_messages_name_files_as_the_user_would(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site)
    assert "  - nothing.yaml: cannot be read" in refusal(write(site, manifest="nothing.yaml"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("site.karmada.yml", True),
        ("a.b.karmada.yaml", True),
        ("karmada.yml", True),
        ("karmada.yaml", True),
        ("site.yml", False),
        ("sitekarmada.yml", False),
        ("karmada.json", False),
        ("site.karmada.yml.bak", False),
    ],
)
def test_files_are_recognized_by_name(tmp_path: Path, name: str, wanted: bool) -> None:
    (tmp_path / name).touch()
    assert plugin.InventoryModule().verify_file(str(tmp_path / name)) is wanted
    assert plugin.InventoryModule().verify_file(str(tmp_path / "absent" / name)) is False


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n", True),
        ("---\nmanifest: prod.yaml\nplugin:  'karmada'  # ours\n", True),
        ("plugin: karmada.installer.karmada2\n", False),
        ("all: {hosts: {plugin: karmada}}\n", False),
        ("all:\n  vars:\n    plugin: karmada\n", False),
        ("", False),
    ],
)
def test_a_file_of_another_name_that_says_so_is_answered_for(tmp_path: Path, text: str, wanted: bool) -> None:
    for name, answered in (("hosts.yml", wanted), ("hosts.yaml", wanted), ("hosts", False), ("hosts.json", False)):
        (tmp_path / name).write_text(text)
        assert plugin.InventoryModule().verify_file(str(tmp_path / name)) is answered


# -- the inventory, by Ansible itself ----------------------------------------------------------------------------------


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
