# SPDX-License-Identifier: Apache-2.0
"""The operator's chart as the real Helm renders it: an API server takes it; its account gets no more than it needs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer
from karmada_operator import jobs
from karmada_operator.executor import RunSpec
from karmada_operator.start import arguments

OPTIONS = {
    "defaults": (),
    "everything": (
        "--set=namespaces={team-a,team-b}",
        "--set=rights.endpoints={NodePort,Ingress,Route}",
        "--set=rights.hostPath=true",
        "--set=selector=site=berlin",
        "--set=artifacts=/opt/artifacts",
        "--set=image.digest=sha256:" + "0" * 64,
        "--set=environment.HTTPS_PROXY=http://proxy:3128",
        "--set=imagePullSecrets[0].name=pull",
        "--set=cache.existingClaim=artifacts",
        "--set=priorityClassName=system-cluster-critical",
        "--set=nodeSelector.disktype=ssd",
        "--set=tolerations[0].operator=Exists",
        "--set=podLabels.team=a",
        "--set=podAnnotations.note=b",
    ),
    "jobs": (
        "--set=runs.executor=Jobs",
        "--set=namespaces={team-a}",
        "--set=artifacts=/opt/artifacts",
        "--set=environment.HTTPS_PROXY=http://proxy:3128",
        "--set=podAnnotations.note=b",
    ),
    "bare": ("--set=podDisruptionBudget=false", "--set=networkPolicy=false", "--set-json=rights.endpoints=[]"),
}
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{0}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{0}/configmaps",
    "Job": "/apis/batch/v1/namespaces/{0}/jobs",
    "Service": "/api/v1/namespaces/{0}/services",
    "Deployment": "/apis/apps/v1/namespaces/{0}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{0}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{0}/networkpolicies",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{0}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{0}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


@pytest.fixture(scope="module")
def manifests() -> ModuleType:
    spec = importlib.util.spec_from_file_location("operator_manifests", CHECKOUT / "tools/operator_manifests.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def namespaces(api_server: ApiServer) -> None:
    for name in ("karmada-system", "team-a", "team-b"):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        api_server.request("POST", PATHS["Namespace"], {"metadata": {"name": name, "labels": labels}})


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def of(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


def test_the_committed_manifest_is_what_the_chart_renders(manifests: ModuleType) -> None:
    assert manifests.FILE.read_text(encoding="utf-8") == manifests.manifest(), "run `make manifests`"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.usefixtures("namespaces")
def test_an_api_server_takes_every_object_as_it_is(options: str, manifests: ModuleType, api_server: ApiServer) -> None:
    found = objects(manifests.rendered(*OPTIONS[options]))
    assert {"Deployment", "Role", "ClusterRole"} <= {each["kind"] for each in found}
    for each in found:
        path = PATHS[each["kind"]].format(each["metadata"].get("namespace", ""))
        code, answer = api_server.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", each)
        assert code == 201, (each["kind"], answer)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.usefixtures("namespaces")
def test_its_pods_are_admitted_where_only_restricted_ones_are(
    options: str, manifests: ModuleType, api_server: ApiServer
) -> None:
    (deployment,) = of("Deployment", objects(manifests.rendered(*OPTIONS[options])))
    template = deployment["spec"]["template"]
    # Which class of priority there is, is for the cluster to say.
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    pod = {"metadata": {"name": "probe", "labels": template["metadata"]["labels"]}, "spec": spec}
    code, answer = api_server.request("POST", "/api/v1/namespaces/karmada-system/pods?dryRun=All", pod)
    assert code == 201, answer


@pytest.mark.parametrize("options", OPTIONS)
def test_the_operator_knows_its_arguments(options: str, manifests: ModuleType) -> None:
    (deployment,) = of("Deployment", objects(manifests.rendered(*OPTIONS[options])))
    found = arguments(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    more = {"everything": ["team-a", "team-b"], "jobs": ["team-a"]}.get(options, [])
    assert found.namespace == ["karmada-system", *more]
    assert found.jobs == (Path("/etc/karmada-operator/job.yaml") if options == "jobs" else None)
    assert found.artifacts == (Path("/opt/artifacts") if options == "everything" else None)
    assert found.selector == ("site=berlin" if options == "everything" else None)


@pytest.mark.usefixtures("namespaces")
def test_a_run_as_a_job_is_taken_and_its_pod_admitted(
    manifests: ModuleType, api_server: ApiServer, tmp_path: Path
) -> None:
    found = objects(manifests.rendered(*OPTIONS["jobs"]))
    (template,) = of("ConfigMap", found)
    (tmp_path / "job.yaml").write_text(template["data"]["job.yaml"])
    spec = RunSpec("run-1", "team-a", "prod", "karmada.installer.install", kind="KarmadaDeployment")
    job = jobs.job_of(jobs.load(tmp_path / "job.yaml"), spec, "karmada-system", "karmada-installer")
    path = PATHS["Job"].format("karmada-system")
    code, answer = api_server.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", job)
    assert code == 201, answer
    pod = job["spec"]["template"]
    path = "/api/v1/namespaces/karmada-system/pods?dryRun=All"
    code, answer = api_server.request("POST", path, {**pod, "metadata": {**pod["metadata"], "name": "probe"}})
    assert code == 201, answer
    (deployment,) = of("Deployment", found)
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= pod["metadata"]["labels"].items(), "it would count as a pod of the operator"


def test_beside_jobs_the_operator_itself_may_change_next_to_nothing(manifests: ModuleType) -> None:
    found = objects(manifests.rendered(*OPTIONS["jobs"]))
    accounts = {each["metadata"]["name"] for each in of("ServiceAccount", found)}
    (deployment,), (template,) = of("Deployment", found), of("ConfigMap", found)
    runs = yaml.safe_load(template["data"]["job.yaml"])["spec"]["template"]["spec"]["serviceAccountName"]
    operator = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert accounts == {operator, runs}
    assert len(accounts) == 2
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"], each["metadata"].get("namespace", ""))
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for each in of(kind, found)
        if [subject["name"] for subject in each["subjects"]] == [operator]
    }
    changed = {
        resource
        for kind in ("Role", "ClusterRole")
        for each in of(kind, found)
        if (kind, each["metadata"]["name"], each["metadata"].get("namespace", "")) in bound
        for rule in each["rules"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
        for resource in rule["resources"]
    }
    statuses = {f"{each}/status" for each in ("karmadadeployments", "etcdbackups", "etcdrestores")}
    assert changed == {"karmadadeployments", *statuses, "events", "leases", "jobs"}


def test_rights_name_everything_and_make_nobody_mightier(manifests: ModuleType) -> None:
    found = objects(manifests.rendered(*OPTIONS["everything"]))
    rules = [rule for each in found if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    words = {word for rule in rules for key in ("apiGroups", "resources", "verbs") for word in rule[key]}
    assert not words & {"*", "escalate", "bind", "impersonate", "approve", "sign"}
    groups = {group for rule in rules for group in rule["apiGroups"]}
    assert not groups & {"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"}
    # What may be changed is in namespaces; of the cluster, marks of objects, and volumes where that was asked for.
    (cluster,) = of("ClusterRole", found)
    assert {
        resource for rule in cluster["rules"] if set(rule["verbs"]) - {"get", "list"} for resource in rule["resources"]
    } == {"persistentvolumes", "karmadadeployments", "karmadadeployments/status"}
    assert {each["metadata"]["namespace"] for each in of("Role", found)} == {"karmada-system", "team-a", "team-b"}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--set=replica=3", "replica"),
        ("--set=rights.endpoints={LoadBalancer}", "endpoints"),
        ("--set=namespaces={Team_A}", "namespaces"),
        ("--set=artifacts=artifacts", "artifacts"),
        ("--set=runs.executor=Threads", "executor"),
    ],
)
def test_values_that_mean_nothing_are_refused(
    option: str, words: str, manifests: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        manifests.rendered(option)
    assert words in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (("--set=resources.limits.memory=2771Mi",), 2772),
        (("--set=resources.limits.memory=2.7Gi",), 2772),
        (("--set=resources.limits.memory=2G",), 2772),
        (("--set-json=resources.limits.memory=2e9",), 2772),
        (("--set=runs.changes=5",), 2992),
        (("--set=runs.deletions=3", "--set=runs.restores=3", "--set=runs.backups=3"), 3432),
        (("--set=runs.memory=1Gi",), 3540),
    ],
)
def test_a_limit_below_what_all_runs_at_once_take_is_refused(
    options: tuple[str, ...], needed: int, manifests: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        manifests.rendered(*options)
    told = capfd.readouterr().err
    assert f"{needed}Mi are needed" in told
    assert f"Set resources.limits.memory={needed}Mi, fewer runs, or runs.executor=Jobs." in told
    # What it says is enough.
    assert manifests.rendered(*options, f"--set=resources.limits.memory={needed}Mi")


@pytest.mark.parametrize(
    "options",
    [
        ("--set=runs.changes=40", "--set=resources.limits.memory=null"),
        ("--set=runs.changes=40", "--set=resources=null"),
        ("--set=runs.changes=40", "--set=resources.limits.memory=512Mi", "--set=runs.executor=Jobs"),
        ("--set=runs.changes=1", "--set=resources.limits.memory=2112Mi"),
        ("--set-json=resources.limits.memory=3e9",),
    ],
    ids=["no limit", "no resources", "Jobs", "fewer runs", "bytes"],
)
def test_any_other_limit_is_taken(options: tuple[str, ...], manifests: ModuleType) -> None:
    assert manifests.rendered(*options)


def test_two_releases_in_a_namespace_are_two_operators(manifests: ModuleType) -> None:
    names = []
    for release in ("karmada-installer", "berlin"):
        command = [manifests.helm.program(), "template", release, manifests.CHART, "--namespace=karmada-system"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = objects(done.stdout)
        (deployment,) = of("Deployment", found)
        pod = deployment["spec"]["template"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        lease = next(each for each in pod["spec"]["containers"][0]["args"] if each.startswith("--lease-name="))
        names.append((deployment["metadata"]["name"], json.dumps(pod["metadata"]["labels"]), lease))
    assert all(len(set(each)) == 2 for each in zip(*names, strict=True))


def test_helm_finds_nothing_wrong_with_it(manifests: ModuleType) -> None:
    command = [manifests.helm.program(), "lint", "--strict", manifests.CHART]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_definition_is_that_of_the_collection() -> None:
    schemas = CHECKOUT / "collections/ansible_collections/karmada/installer/schemas"
    for each in schemas.glob("*.yaml"):
        assert (CHECKOUT / "operator/chart/crds" / each.name).read_text() == each.read_text()
