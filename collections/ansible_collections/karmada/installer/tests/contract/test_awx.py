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
from ansible_collections.karmada.installer.tests.contract.awx_repository import EXAMPLE, NAMESPACE, awx_in, smart
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, Certificates, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from awx_credentials import Credential, backup_key, bearer_token, kubeconfig
from awx_runner import Awx, Done, stored

#: Namespace of a control plane whose installation somebody approves.
APPROVED = "karmada-approved"
NODE = {
    "metadata": {"name": "node-a"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    },
}
OBJECTS = f"/apis/{manifest.API_VERSION}/namespaces/{NAMESPACE}/karmadadeployments"
#: A template in a document makes it, if it is ever taken for one.
CANARY = Path("/tmp/karmada-installer-was-here-awx")


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
    return awx_in(tmp_path_factory.mktemp("awx"))


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


def test_nor_does_anything_at_the_highest_verbosity_that_templates_are_given(
    awx: Awx, inventory: dict[str, Any], credential: Credential, server: ApiServer, token: str
) -> None:
    """Updates are as verbose by AWX's default; a template is so when somebody looks for a fault."""
    source = {"plugin": "karmada.installer.karmada", "instances": "all", "namespace": NAMESPACE, "membership": "live"}
    (awx.project / "sites/live.karmada.yml").write_text(yaml.safe_dump(source), encoding="utf-8")
    update, exported = awx.update("sites/live.karmada.yml", credential)
    job = awx.job("playbooks/report.yml", inventory, credential, arguments=["-vvv"])
    refused = awx.job(
        "playbooks/install.yml", inventory, kubeconfig(server.kubeconfig_for_secret()), arguments=["-vvv"]
    )
    assert (update.rc, job.rc, refused.rc) == (0, 0, 2), (update.output, job.output, refused.output)
    assert "task path: " in job.output, "it is as verbose as that"
    secrets = {"token": {token}, "kubeconfig": leaks.texts_of(server.client_key.read_bytes())}
    texts = [(f"{each.number} {name}", text) for each in (update, job, refused) for name, text in each.texts().items()]
    for name, text in [*texts, ("stored inventory", json.dumps(exported))]:
        assert list(leaks.leaks(text, secrets)) == [], name


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


@pytest.fixture(scope="module")
def approved(awx: Awx, server: ApiServer) -> Iterator[str]:
    """Path of an object without members, in a cluster that can take a control plane, and a source that names it."""
    path = f"/apis/{manifest.API_VERSION}/namespaces/{APPROVED}/karmadadeployments"
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": APPROVED}})
    server.request("POST", "/api/v1/nodes", NODE)
    found = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}}
    # Its CRDs would have to be fetched.
    status, made = server.request("POST", path, {**found, "spec": {"installCRD": False}})
    assert status == 201, made
    source = {"plugin": "karmada.installer.karmada", "namespace": APPROVED, "name": "prod"}
    (awx.project / "sites/approved.karmada.yml").write_text(yaml.safe_dump(source), encoding="utf-8")
    yield f"{path}/prod"
    server.request("DELETE", "/api/v1/nodes/node-a")


@pytest.mark.usefixtures("approved")
def test_a_job_whose_credential_leads_to_another_cluster_than_at_the_update_installs_nothing_there(
    awx: Awx, credential: Credential, tmp_path: Path
) -> None:
    """One that could take the control plane, and of which nothing else says that it is not the right one."""
    done, exported = awx.update("sites/approved.karmada.yml", credential)
    assert done.rc == 0, done.output
    with running_api_server(tmp_path) as another:
        another.request("POST", "/api/v1/namespaces", {"metadata": {"name": APPROVED}})
        another.request("POST", "/api/v1/nodes", NODE)
        refused = awx.job("playbooks/install.yml", stored(exported), kubeconfig(another.kubeconfig_for_secret()))
        assert refused.rc == 2, refused.output
        said = " ".join(refused.output.split())
        assert f"KarmadaDeployment {APPROVED}/prod, from which the inventory was made" in said
        assert f"host cluster at {another.url}" in said
        assert "give the job template and the inventory source the same credential" in said
        assert "nothing was changed" in said
        for kind in ("/api/v1/namespaces/{}/secrets", "/apis/coordination.k8s.io/v1/namespaces/{}/leases"):
            status, found = another.request("GET", kind.format(APPROVED))
            assert (status, found["items"]) == (200, [])


def test_what_was_not_approved_is_not_installed(
    awx: Awx, server: ApiServer, credential: Credential, approved: str
) -> None:
    """As in a workflow, where artifacts of one node are variables of the next, and each reads the object anew."""

    def inventory_of_now() -> dict[str, Any]:
        done, exported = awx.update("sites/approved.karmada.yml", credential)
        assert done.rc == 0, done.output
        return stored(exported)

    before = inventory_of_now()
    seen = awx.job("playbooks/preflight.yml", before, credential)
    assert seen.rc == 0, seen.output
    assert seen.statistics["karmada_document_seen"]["instance"] == f"{APPROVED}/prod"
    same = awx.job("playbooks/install.yml", before, credential, variables=seen.statistics, arguments=["--check"])
    assert same.rc == 0, same.output
    # Somebody may as well approve what a check of the installation has told.
    assert same.statistics["karmada_document_seen"] == seen.statistics["karmada_document_seen"]
    change = {"spec": {"components": {"karmadaWebhook": {"replicas": 3}}}}
    status, made = server.request("PATCH", approved, change, "application/merge-patch+json")
    assert status == 200, made
    after = inventory_of_now()
    for arguments in ([], ["--check", "--diff"]):
        refused = awx.job("playbooks/install.yml", after, credential, variables=seen.statistics, arguments=arguments)
        assert refused.rc == 2, refused.output
        said = " ".join(refused.output.split())
        assert "it is not what was checked before this run; changed since: spec.components" in said
        assert "In AWX, launch the workflow anew" in said
        assert "nothing was changed" in said
    empty = {"karmada_document_seen": ""}
    alone = awx.job("playbooks/install.yml", after, credential, variables=empty, arguments=["--check"])
    assert alone.rc == 0, alone.output
    anew = awx.job("playbooks/preflight.yml", after, credential, variables=seen.statistics)
    assert anew.rc == 0, anew.output
    assert anew.statistics["karmada_document_seen"] == alone.statistics["karmada_document_seen"]
    assert anew.statistics["karmada_document_seen"] != seen.statistics["karmada_document_seen"]


def test_a_job_with_a_smart_inventory_of_several_is_told_of_the_whole_one(
    awx: Awx, several: dict[str, Any], credential: Credential
) -> None:
    chosen = {"karmada_instance": f"{NAMESPACE}/second"}
    done = awx.job("playbooks/install.yml", smart(several), credential, variables=chosen)
    assert done.rc == 2, done.output
    said = " ".join(done.output.split())
    assert "it has hosts of control planes, and none in their groups karmada_instances and karmada_broken" in said
    assert "not a smart or constructed one" in said


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
    said = " ".join(done.output.split())
    assert "K8S_AUTH_KUBECONFIG: it leads to https://192.0.2.1:6443, and is not used" in said
    assert "in AWX, give the job template one of the two credentials" in said


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
