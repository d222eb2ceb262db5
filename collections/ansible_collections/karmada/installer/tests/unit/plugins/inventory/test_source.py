# SPDX-License-Identifier: Apache-2.0
"""Inventory sources: where a document is and what lies beside it, and how one that is wrong is refused."""

from __future__ import annotations

import json
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
from ansible_collections.karmada.installer.tests.unit.support import corpus_files, inventory_sources
from ansible_collections.karmada.installer.tests.unit.support.inventory_sources import refusal, write
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with documents; the working directory is another one."""
    return inventory_sources.site(tmp_path)


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
        sites,
        manifest="full.yaml",
        kubeconfig="own",
        secrets="../../secrets",
        report_output="out/report.json",
        backups="share",
    )
    kept = inventory_source.load(path).connection
    assert kept["kubeconfig"] == "sites/own"
    assert kept["secrets"] == str(site / "secrets"), "it is not below the working directory"
    assert kept["report_output"] == "sites/out/report.json"
    assert kept["beside"] == "sites/prod"
    assert kept["backups"] == "sites/share"
    assert kept["artifacts"] is None
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    used = Connection.of(kept)
    assert used.kubeconfig == str(elsewhere / "sites" / "own")
    assert used.backups == str(elsewhere / "sites" / "share")
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
