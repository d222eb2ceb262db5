# SPDX-License-Identifier: Apache-2.0
"""Updates and jobs as AWX runs them, with its own credentials, on the repository that users copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import leaks
import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import (
    CHECKOUT,
    ApiServer,
    Certificates,
    running_api_server,
)
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from awx_credentials import Credential, backup_key, bearer_token, kubeconfig
from awx_runner import Awx, Done, stored

NAMESPACE = "karmada-prod"
OBJECTS = f"/apis/{manifest.API_VERSION}/namespaces/{NAMESPACE}/karmadadeployments"
EXAMPLE = CHECKOUT / "examples/awx"
#: A template in a document makes it, if it is ever taken for one.
CANARY = Path("/tmp/karmada-installer-was-here-awx")
#: Of plain hosts whose keys are known, which is no secret. AWX has the key to log in with in an agent.
ON_HOSTS = {
    "apiVersion": manifest.API_VERSION,
    "kind": manifest.KIND,
    "metadata": {"name": "hosts", "namespace": NAMESPACE},
    "spec": {
        "mode": "Binary",
        "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
        "ssh": {"user": "karmada", "knownHostsSecretRef": {"name": "hosts"}},
    },
}
HOST_KEYS = "192.0.2.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINever\n"
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("host")) as found:
        found.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition())
        found.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        until(lambda: found.request("GET", OBJECTS)[0] == 200, "serving the CRD")
        prod = yaml.safe_load((EXAMPLE / "sites/prod.yaml").read_text())
        second = {**prod, "metadata": {**prod["metadata"], "name": "second", "labels": {"tier": "test"}}}
        hostile = "{{ lookup('pipe', 'touch " + str(CANARY) + "') }}"
        second["spec"] = {**prod["spec"], "members": [{**prod["spec"]["members"][0], "context": hostile}]}
        for each in (prod, second):
            status, made = found.request("POST", OBJECTS, each)
            assert status == 201, made
        yield found


def _definition() -> Any:
    return yaml.safe_load(manifest._SCHEMA_FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def token(server: ApiServer) -> str:
    """Token of a service account that may do everything, as one makes for AWX."""
    account = {"kind": "ServiceAccount", "name": "awx", "namespace": NAMESPACE}
    server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "awx"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "awx"}, "subjects": [account], "roleRef": role}
    server.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    status, made = server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/awx/token", {"spec": {}})
    assert status == 201, made
    return str(made["status"]["token"])


@pytest.fixture(scope="module")
def awx(tmp_path_factory: pytest.TempPathFactory) -> Awx:
    """AWX with the repository to copy, and beside its document sources of the object and of plain hosts."""
    root = tmp_path_factory.mktemp("awx")
    project = root / "checkout"
    shutil.copytree(EXAMPLE, project)
    of_object = {"plugin": "karmada.installer.karmada", "namespace": NAMESPACE, "name": "prod"}
    (project / "sites/object.karmada.yml").write_text(yaml.safe_dump(of_object), encoding="utf-8")
    of_all = {"plugin": "karmada.installer.karmada", "instances": "all", "namespace": NAMESPACE}
    (project / "sites/all.karmada.yml").write_text(yaml.safe_dump(of_all), encoding="utf-8")
    of_hosts = {"plugin": "karmada.installer.karmada", "manifest": "hosts.yaml", "secrets": "secrets"}
    (project / "sites/hosts.karmada.yml").write_text(yaml.safe_dump(of_hosts), encoding="utf-8")
    (project / "sites/hosts.yaml").write_text(yaml.safe_dump(ON_HOSTS), encoding="utf-8")
    (project / "sites/secrets/hosts").mkdir(parents=True)
    (project / "sites/secrets/hosts/known_hosts").write_text(HOST_KEYS, encoding="utf-8")
    return Awx(root, project, CHECKOUT / "collections")


@pytest.fixture(scope="module")
def credential(server: ApiServer, token: str) -> Credential:
    return bearer_token(server.url, token, server.ca.read_text())


@pytest.fixture
def another_ca(tmp_path: Path) -> str:
    """Certificate of an authority that has signed nothing here."""
    return Certificates(tmp_path).file("ca.crt").read_text()


@pytest.fixture(scope="module")
def updated(awx: Awx, credential: Credential) -> tuple[Done, dict[str, Any]]:
    return awx.update("sites/object.karmada.yml", credential)


@pytest.fixture(scope="module")
def inventory(updated: tuple[Done, dict[str, Any]]) -> dict[str, Any]:
    done, exported = updated
    assert done.rc == 0, done.output
    return stored(exported)


@pytest.fixture(scope="module")
def reported(awx: Awx, inventory: dict[str, Any], credential: Credential) -> Done:
    return awx.job("playbooks/report.yml", inventory, credential)


@pytest.fixture(scope="module")
def several(awx: Awx, credential: Credential) -> dict[str, Any]:
    """Inventory of all control planes of the namespace, as AWX keeps it."""
    CANARY.unlink(missing_ok=True)
    done, exported = awx.update("sites/all.karmada.yml", credential)
    assert done.rc == 0, done.output
    return stored(exported)


def test_a_job_works_on_the_one_of_several_that_a_survey_chooses(
    awx: Awx, several: dict[str, Any], credential: Credential
) -> None:
    assert several["karmada_instances"]["hosts"] == ["karmada-prod.prod", "karmada-prod.second"]
    assert several["karmada_label_tier_test"]["hosts"] == ["karmada-prod.second"]
    chosen = {"karmada_instance": f"{NAMESPACE}/second", "karmada_report": "", "karmada_members": ""}
    done = awx.job("playbooks/report.yml", several, credential, variables=chosen)
    assert done.rc == 0, done.output
    assert done.statistics["karmada_status"]["phase"] == "Preflight"
    assert "second" in done.output
    kept = several["_meta"]["hostvars"]["karmada-prod.second"]
    assert str(CANARY) in json.dumps(kept), "the template is in the stored inventory, as data"
    assert not CANARY.exists()
    table = awx.job("playbooks/report.yml", several, credential)
    assert table.rc == 0, table.output
    assert f"{NAMESPACE}/second  no phase yet  newest, Container, 1 member" in table.output
    unchosen = awx.job("playbooks/install.yml", several, credential, variables={"karmada_instance": ""})
    assert unchosen.rc == 2, unchosen.output
    assert f"it has {NAMESPACE}/prod, {NAMESPACE}/second" in " ".join(unchosen.output.split())


def test_an_update_of_all_without_a_credential_or_rights_leaves_the_stored_inventory_alone(
    awx: Awx, server: ApiServer
) -> None:
    status, made = server.request(
        "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "nobody"}}
    )
    assert status == 201, made
    _, made = server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/nobody/token", {"spec": {}})
    nobody = bearer_token(server.url, made["status"]["token"], server.ca.read_text())
    for given, told in (([], "In AWX, give the job template and the inventory source"), ([nobody], "cannot be read")):
        done, exported = awx.update("sites/all.karmada.yml", *given)
        assert done.rc not in (0, None)
        assert exported == {}
        assert told in " ".join(done.output.split())


def test_what_is_kept_of_an_update_is_right_in_a_job_of_another_folder_and_credential(
    updated: tuple[Done, dict[str, Any]], inventory: dict[str, Any], reported: Done
) -> None:
    assert reported.rc == 0, reported.output
    kept = inventory["_meta"]["hostvars"]["karmada_control"]
    connection = kept["karmada_connection"]
    assert {name for name, each in connection.items() if each} == {"beside", "object_uid"}
    assert connection["beside"] == "sites/prod"
    for folder in (updated[0].folder, reported.folder):
        assert str(folder) not in json.dumps(inventory), "a job has another one"


def test_the_report_is_an_artifact_of_the_job_and_nothing_is_left_in_the_project(awx: Awx, reported: Done) -> None:
    written = json.loads((reported.artifacts / "report.json").read_text())
    found = reported.statistics["karmada_status"]
    assert found["phase"] == written["phase"] == "Preflight"
    assert found == written, "it is small enough to be whole"
    results = [each["event_data"]["res"] for each in reported.events if "status" in each["event_data"].get("res", {})]
    assert [each["status"] for each in results] == [written]
    checked_out, used = awx.project, reported.folder / "project"
    assert {path.relative_to(used) for path in used.rglob("*")} == {
        path.relative_to(checked_out) for path in checked_out.rglob("*")
    }


def test_artifacts_of_a_job_are_variables_of_the_next(
    awx: Awx, inventory: dict[str, Any], credential: Credential, reported: Done
) -> None:
    done = awx.job("playbooks/report.yml", inventory, credential, variables=reported.statistics, arguments=["--check"])
    assert done.rc == 0, done.output
    assert done.statistics["karmada_status"]["phase"] == "Preflight"
    assert not (done.artifacts / "report.json").exists(), "a check writes none"


def test_nothing_that_awx_keeps_shows_a_credential(
    updated: tuple[Done, dict[str, Any]], inventory: dict[str, Any], reported: Done, token: str
) -> None:
    texts = {**updated[0].texts(), **reported.texts(), "stored inventory": json.dumps(inventory)}
    assert any("karmada_status" in text for text in texts.values())
    for name, text in texts.items():
        assert list(leaks.leaks(text, {"token": {token}})) == [], name


def test_one_without_a_ca_works_and_each_job_says_what_that_means(
    awx: Awx, inventory: dict[str, Any], server: ApiServer, token: str
) -> None:
    done = awx.job("playbooks/report.yml", inventory, bearer_token(server.url, token))
    assert done.rc == 0, done.output
    assert "K8S_AUTH_VERIFY_SSL: it switches off the verification" in done.output


def test_a_credential_type_with_a_kubeconfig_works(awx: Awx, inventory: dict[str, Any], server: ApiServer) -> None:
    done = awx.job("playbooks/report.yml", inventory, kubeconfig(server.kubeconfig_for_secret()))
    assert done.rc == 0, done.output
    key = leaks.texts_of(server.client_key.read_bytes())
    for name, text in done.texts().items():
        assert list(leaks.leaks(text, {"kubeconfig": key})) == [], name


def test_a_key_of_backups_is_a_file_of_the_job_that_its_variables_name(tmp_path: Path) -> None:
    private, inside = tmp_path / "private", Path("/somewhere/else")
    (private / "env").mkdir(parents=True)
    environment, arguments = backup_key("AGE-SECRET-KEY-1NEVER").inject(private, inside)
    assert environment == {}
    assert arguments[0] == "-e"
    given = private / Path(arguments[1].removeprefix("@")).relative_to(inside)
    variables = yaml.safe_load(given.read_text())
    assert set(variables) == {"backup_identity", "restore_identity"}
    (file,) = set(variables.values())
    key = private / Path(file).relative_to(inside)
    assert key.read_text() == "AGE-SECRET-KEY-1NEVER"
    assert {each.stat().st_mode & 0o077 for each in (given, key)} == {0}


def test_an_update_without_a_credential_fails_and_says_what_to_do_in_awx(awx: Awx) -> None:
    done, exported = awx.update("sites/object.karmada.yml")
    assert done.rc not in (0, None)
    assert exported == {}, "AWX would delete what it leaves out"
    said = " ".join(done.output.split())
    assert "In AWX, give the job template and the inventory source a credential of the cluster." in said


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (None, "In AWX, give the job template and the inventory source a credential of the cluster."),
        ({"bearer_token": "ended"}, "does not accept our certificate or token"),
        ({"host": "192.0.2.1:6443"}, "environment variable K8S_AUTH_HOST: is no address that can be"),
        ({"ssl_ca_cert": "another"}, "the server's certificate is not signed by the CA we were given"),
        ({"ssl_ca_cert": "no PEM"}, "K8S_AUTH_SSL_CA_CERT"),
    ],
)
def test_a_job_with_a_credential_that_does_not_lead_there_is_refused_in_words(
    awx: Awx,
    inventory: dict[str, Any],
    credential: Credential,
    another_ca: str,
    typed: dict[str, str] | None,
    told: str,
) -> None:
    if typed == {"ssl_ca_cert": "another"}:
        typed = {"ssl_ca_cert": another_ca}
    given = [replace(credential, inputs={**credential.inputs, **typed})] if typed is not None else []
    done = awx.job("playbooks/report.yml", inventory, *given)
    assert done.rc == 2, done.output
    assert told in " ".join(done.output.split())


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


def without(inventory: dict[str, Any], *hosts: str) -> dict[str, Any]:
    """The same but for hosts that are disabled, or are in another slice."""
    kept = json.loads(json.dumps(inventory))
    for group in kept.values():
        if "hosts" in group:
            group["hosts"] = [each for each in group["hosts"] if each not in hosts]
    kept["_meta"]["hostvars"] = {key: each for key, each in kept["_meta"]["hostvars"].items() if key not in hosts}
    return dict(kept)


def smart(inventory: dict[str, Any]) -> dict[str, Any]:
    """The hosts without their groups, as a smart inventory has them."""
    return {"all": {"hosts": sorted(inventory["_meta"]["hostvars"])}, "_meta": inventory["_meta"]}


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


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "get-token"}}, "exec"),
        ({"client-certificate": "/home/jane/client.crt", "client-key": "/home/jane/client.key"}, "/home/jane/client"),
        ({"tokenFile": "/home/jane/token"}, "/home/jane/token"),
    ],
    ids=["program", "files", "file-of-token"],
)
def test_a_kubeconfig_that_names_programs_or_files_of_another_machine_is_refused(
    awx: Awx, inventory: dict[str, Any], server: ApiServer, user: dict[str, Any], told: str
) -> None:
    config = yaml.safe_load(server.kubeconfig_for_secret())
    config["users"][0]["user"] = user
    done = awx.job("playbooks/report.yml", inventory, kubeconfig(yaml.safe_dump(config)))
    assert done.rc == 2, done.output
    assert told in " ".join(done.output.split())


def test_with_both_types_of_credentials_the_token_counts(
    awx: Awx, inventory: dict[str, Any], server: ApiServer, credential: Credential
) -> None:
    config = yaml.safe_load(server.kubeconfig_for_secret())
    config["clusters"][0]["cluster"]["server"] = "https://192.0.2.1:6443"
    done = awx.job("playbooks/report.yml", inventory, credential, kubeconfig(yaml.safe_dump(config)))
    assert done.rc == 0, done.output


def test_an_account_that_may_only_read_is_told_what_it_lacks(
    awx: Awx, inventory: dict[str, Any], server: ApiServer
) -> None:
    account = {"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}
    server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "reader"}})
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    server.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": "awx-reader"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "awx-reader"}
    binding = {"metadata": {"name": "awx-reader"}, "subjects": [account], "roleRef": role}
    server.request("POST", f"{rbac}/clusterrolebindings", binding)
    _, made = server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/reader/token", {"spec": {}})
    reader = bearer_token(server.url, made["status"]["token"], server.ca.read_text())
    done = awx.job("playbooks/install.yml", inventory, reader)
    assert done.rc == 2, done.output
    assert "nothing was changed" in done.output
    assert "create" in done.output


def test_a_job_that_takes_longer_than_its_template_allows_is_ended(
    awx: Awx, inventory: dict[str, Any], credential: Credential
) -> None:
    done = awx.job("playbooks/report.yml", inventory, credential, timeout=1)
    assert done.status == "timeout", done.output
    assert done.rc != 0


def test_an_awx_of_2024_finds_the_collection_in_the_project(awx: Awx, credential: Credential) -> None:
    project = awx.root / "of-2024"
    shutil.copytree(awx.project, project)
    (project / "collections/ansible_collections").symlink_to(awx.collections / "ansible_collections")
    old = Awx(awx.root, project, awx.collections, old=True, numbers=awx.numbers)
    done, exported = old.update("sites/object.karmada.yml", credential)
    assert done.rc == 0, done.output
    report = old.job("playbooks/report.yml", stored(exported), credential)
    assert report.rc == 0, report.output


def test_a_job_writes_nothing_into_a_project_that_it_may_only_read(
    awx: Awx, inventory: dict[str, Any], credential: Credential, tmp_path: Path
) -> None:
    """Only who is not root can be kept from writing: this job has no home either, and its user is of no list."""

    def make_read_only(_event: Mapping[str, Any], _worker: object) -> None:
        for folder in tmp_path.glob("runner_*/project"):
            # Ansible's own, which it takes for the home folder.
            for each in (folder, *(path for path in folder.rglob("*") if "~" not in path.parts)):
                each.chmod(each.stat().st_mode & ~0o222)

    tmp_path.chmod(0o755)
    within = Awx(tmp_path, awx.project, awx.collections, container=())
    done = within.job("playbooks/report.yml", inventory, credential, watch=make_read_only)
    assert done.rc == 0, done.output
    assert (done.folder / "project").stat().st_mode & 0o222 == 0
    assert done.statistics["karmada_status"]["phase"] == "Preflight"
