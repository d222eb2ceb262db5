# SPDX-License-Identifier: Apache-2.0
"""Bad input as objects: refused at apply or told by a condition, before any change; and nothing of it runs anywhere.

A real API server judges, the operator runs as a process, and the runs are the collection's own. Rows of
``molecule/run_bad_input/cases.yaml`` that need no lab are here as objects, with the words that they have there; what
files alone can say, or objects alone, is below. Its host cluster and its member are the same API server.
"""

from __future__ import annotations

import copy
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import cases
import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer, Certificates, binary
from ansible_collections.karmada.installer.tests.contract.test_operator import Site, operator, server, until
from ansible_collections.karmada.installer.tests.unit.collection import test_hostile_document as hostile_document
from ansible_collections.karmada.installer.tests.unit.support import document_fields as fields
from ansible_collections.karmada.installer.tests.unit.support.samples import document

__all__ = ["server"]

FOLDER = CHECKOUT / "molecule/run_bad_input"
TABLE: dict[str, Any] = yaml.safe_load((FOLDER / "cases.yaml").read_text())
ROWS: dict[str, Any] = TABLE["cases"]
GOOD: dict[str, Any] = yaml.safe_load((FOLDER / "karmada.yaml").read_text())
#: Rows that an API server refuses by itself, with the path that it names.
REFUSED = {
    "a misspelt field": "spec.hostClutser",
    "a value that is not one of those allowed": "spec.endpoint.type",
    "several problems of the document": "spec.endpoint.typ",
    "templates in a document": "spec.hostCluster.secretRef.name",
}
#: Rows that a run finds.
FOUND = (
    "an unknown version",
    "a host cluster with a closed port",
    "a host cluster behind a firewall that drops",
    "a host cluster that never speaks",
    "a host cluster with a certificate of another authority",
    "an account that may only read",
    "an account that may do nothing",
    "a member with a closed port",
    "a member that does not know the token",
    "a member behind a proxy without TLS",
    "one cluster under two names",
    "a context that is not there",
    "a StorageClass that is not there",
    "settings that the release or the host cluster does not have",
    "several problems of clusters",
    "templates where any text may stand",
)
#: Rows about files alone: the document as a text, the inventory source, the secrets directory, the lab.
OF_FILES = frozenset(
    {
        "no manifest file",
        "not YAML",
        "another kind",
        "no directory for a Secret",
        "an inventory source of another plugin",
        "an inventory source that is the document",
        "an inventory source that is not there",
        "no inventory at all",
        "a misspelt option of the inventory source",
        "the lab as another user than root",
        "the lab on a disk that is too small",
    }
)
#: Rows that nodes have to answer, of which there are none here.
OF_NODES = frozenset(
    {"a range for Services of a family that the host cluster does not have, before there is a namespace"}
)
#: Ends of long lists, for which a status has no room: its remedy names the page with the whole list.
CUT = {
    "an account that may only read": (
        "update leases.coordination.k8s.io in namespace karmada-bad",
        "list storageclasses.storage.k8s.io",
        "list nodes",
    ),
    "an account that may do nothing": (
        "get pods/log in namespace karmada-bad",
        "list events in namespace karmada-bad",
        "get leases.coordination.k8s.io in namespace karmada-bad",
        "get namespaces karmada-bad",
    ),
}
#: Parts of what rows say that a playbook prints around problems, or that are about the secrets directory.
PRINTED = (
    "nothing was changed",
    "there is no directory missing among the secrets of this run",
)
#: Neither the private key nor the host keys are there.
NO_KEYS = {"user": "k", "privateKeySecretRef": {"name": "no-key"}, "knownHostsSecretRef": {"name": "no-hosts"}}
HOSTILE = "{{{{ lookup('pipe', 'touch {mark}') }}}} $(touch {mark}) `touch {mark}`"


def kubeconfig(authority: bytes, **user: Any) -> str:
    """Of a server that does not answer."""
    server = {"server": "https://127.0.0.1:1", "certificate-authority-data": b64encode(authority).decode()}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "host", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "host",
        }
    )


def laid_over(row: str) -> dict[str, Any]:
    """Document of a row."""
    difference = ROWS[row].get("document", {})
    if isinstance(difference, str):
        return dict(yaml.safe_load(difference))
    return dict(cases.laid_over(copy.deepcopy(GOOD), copy.deepcopy(difference)))


def spoilt_kubeconfigs(place: Site, server: ApiServer, servers: dict[str, str], kubectl: str) -> dict[str, str]:
    """Kubeconfigs of the rows, by the names of their Secrets."""
    whole = yaml.safe_load(server.kubeconfig_for_secret())
    whole["contexts"][0]["name"] = whole["current-context"] = "host"
    strange = place.here / "strange"
    strange.mkdir()
    other = copy.deepcopy(whole)
    authority = b64encode(Certificates(strange).file("ca.crt").read_bytes()).decode()
    other["clusters"][0]["cluster"]["certificate-authority-data"] = authority
    for name, config in {"host": whole, "member1": whole, "other": other}.items():
        file = place.here / "site/secrets" / name / "kubeconfig"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(config))
    of_cases = cases.Place(place.here / "site", place.here, "", kubectl, servers)
    table = {**TABLE["kubeconfigs"], "other-ca": {"of": "host", "ca_of": "other"}}
    made = {name: json.dumps(cases.kubeconfig(of_cases, wanted)) for name, wanted in table.items()}
    return {**made, "host": json.dumps(whole), "member1": json.dumps(whole)}


@pytest.fixture(scope="module")
def place(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A namespace in which an operator works with the collection's own playbooks, and some Secrets."""
    site = Site(server, tmp_path_factory.mktemp("bad"), "karmada-bad")
    site.with_real_playbooks()
    mark = site.here / "executed"
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(mark)]}
    authority = server.ca.read_bytes()
    put_accounts(server)
    with cases.odd_servers(kubectl := binary("kubectl", "TEST_KUBECTL"), server.kubeconfig) as servers:
        secrets = {
            "exec": kubeconfig(authority, exec={**program, "interactiveMode": "Never"}),
            "file": kubeconfig(authority, tokenFile="/etc/shadow"),
            "empty": "",
            **spoilt_kubeconfigs(site, server, servers, kubectl),
        }
        for name, text in secrets.items():
            body = {"metadata": {"name": name}, "stringData": {"kubeconfig": text}}
            assert server.request("POST", f"/api/v1/namespaces/{site.namespace}/secrets", body)[0] == 201
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "of-others"}})
        with operator(site):
            # All at once, because some wait long until nobody has answered.
            for row in FOUND:
                given = laid_over(row)
                text = json.loads(json.dumps(given["spec"]).replace("@", str(site.here)))
                code, answer = create(site, name_of(row), text, annotations=given["metadata"].get("annotations", {}))
                assert code == 201, answer
            yield site
    assert not mark.exists(), "something of it was run"


def put_accounts(server: ApiServer) -> None:
    """Accounts that may do too little, and the one StorageClass."""
    paths = {
        "Namespace": "/api/v1/namespaces",
        "ServiceAccount": "/api/v1/namespaces/karmada-bad/serviceaccounts",
        "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-bad/roles",
        "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-bad/rolebindings",
        "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    }
    local = {"kind": "StorageClass", "metadata": {"name": "local-path"}, "provisioner": "example.com/local"}
    for each in [*yaml.safe_load_all((FOLDER / "accounts.yaml").read_text()), local]:
        code, answer = server.request("POST", paths[each["kind"]], each)
        assert code in (201, 409), answer


def name_of(row: str) -> str:
    return f"row-{FOUND.index(row)}"


def create(place: Site, name: str, spec: dict[str, Any], **meta: Any) -> tuple[int, Any]:
    head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": name, **meta}}
    return place.server.request("POST", f"{place.path}?fieldValidation=Strict", {**head, "spec": spec})


def status_of(place: Site, name: str) -> dict[str, Any]:
    found = place.server.request("GET", f"{place.path}/{name}")[1]
    return dict(found.get("status") or {})


def condition(place: Site, name: str, kind: str) -> dict[str, Any]:
    conditions = status_of(place, name).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {"status": "", "message": "", "reason": ""})


def everything(place: Site) -> set[str]:
    """Names of what a run could have made here."""
    found = set()
    for path in ("api/v1/*/secrets", "api/v1/*/services", "apis/apps/v1/*/deployments", "apis/apps/v1/*/statefulsets"):
        _, listed = place.server.request("GET", "/" + path.replace("*", f"namespaces/{place.namespace}"))
        found |= {f"{path.rpartition('/')[2]}/{each['metadata']['name']}" for each in listed["items"]}
    return found


def sentence(problem: dict[str, str]) -> str:
    """A problem of a status in the words in which a playbook prints it."""
    where, remedy = problem.get("where", ""), problem.get("remedy", "")
    return f"{where + ': ' if where else ''}{problem['what']} {remedy}"


def said(place: Site, row: str) -> list[str]:
    """What a row says, of an object: its Secrets have no files, and its servers are on loopback."""
    left_out = CUT.get(row, ())
    found = [each for each in ROWS[row]["says"] if not each.endswith(PRINTED) and each not in left_out]
    for before, after in (
        ("https://10.", "https://127.0.0.1"),
        ("(@/secrets/", "(Secret karmada-bad/"),
        ("/kubeconfig)", ", key kubeconfig)"),
        ("@", str(place.here)),
    ):
        found = [each.replace(before, after) for each in found]
    return found


def is_told(place: Site, name: str, words: list[str], kind: str = "Degraded") -> None:
    """Wait for the condition, and see these words in it or in the problems, and that nothing else was made."""
    until(lambda: condition(place, name, kind)["status"] == "True", f"{name}: {kind}")
    told = [condition(place, name, kind)["message"], *map(sentence, status_of(place, name).get("problems", ()))]
    # A playbook makes a sentence of each remedy.
    text = " ".join(" ".join(told).split()).lower()
    assert [each for each in words if " ".join(each.split()).lower() not in text] == [], text
    assert not [each for each in everything(place) if f"/{name}-" in each], "nothing was changed"
    # Without runs that would try it again, while others wait for their first.
    paused = {"metadata": {"annotations": {"installer.karmada.io/paused": "true"}}}
    place.server.request("PATCH", f"{place.path}/{name}", paused, "application/merge-patch+json")


def test_each_row_of_the_scenario_is_here() -> None:
    assert {*REFUSED, *FOUND, *OF_FILES, *OF_NODES} == ROWS.keys()


@pytest.mark.parametrize("row", sorted(REFUSED))
def test_an_api_server_refuses_it(row: str, place: Site) -> None:
    code, answer = create(place, "refused", laid_over(row)["spec"])
    assert code in (400, 422), answer
    assert REFUSED[row] in answer["message"]


@pytest.mark.parametrize("row", FOUND)
def test_a_run_finds_it_before_it_changes_anything(row: str, place: Site) -> None:
    words = said(place, row)
    assert words, "or nothing is seen"
    is_told(place, name_of(row), words)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hostCluster": {"secretRef": {"name": "exec"}}}, ["exec"]),
        ({"hostCluster": {"secretRef": {"name": "file"}}}, ["tokenFile"]),
        ({"hostCluster": {"secretRef": {"name": "empty"}}}, ["kubeconfig"]),
        ({"hostCluster": {"secretRef": {"name": "missing"}}}, ["missing"]),
        ({"members": [{"name": "m1", "secretRef": {"name": "missing"}}]}, ["missing", "spec.members[m1].secretRef"]),
        ({"artifacts": {"source": "Directory"}}, ["spec.artifacts.source is Directory, but no directory is named"]),
        (
            {"mode": "Binary", "hosts": [{"name": "cp1", "address": "192.0.2.1"}], "ssh": NO_KEYS},
            ["no-key", "no-hosts"],
        ),
    ],
    ids=["exec", "file", "empty", "missing", "member", "directory", "ssh"],
)
def test_what_only_objects_could_be_misused_for_is_refused(
    spec: dict[str, Any], words: list[str], place: Site, request: pytest.FixtureRequest
) -> None:
    name = f"own-{request.node.callspec.id}"
    assert create(place, name, spec)[0] == 201
    is_told(place, name, words)


def test_the_namespace_of_others_and_annotations_that_mean_nothing_start_no_run(place: Site) -> None:
    hostile = HOSTILE.format(mark=place.here / "executed")
    prefix = "installer.karmada.io/"
    bad = {
        "elsewhere": ({"hostCluster": {"namespace": "of-others"}}, {}, "of-others"),
        "hostile": ({}, {f"{prefix}abandon-members": hostile}, "abandon-members"),
        "lines": ({}, {f"{prefix}run-now": "a\n- b"}, "run-now"),
        "long": ({}, {f"{prefix}confirm-leave": "m," * 100_000}, "confirm-leave"),
    }
    for name, (spec, asked, _) in bad.items():
        assert create(place, name, spec, annotations=asked)[0] == 201
    for name, (_, _, word) in bad.items():
        is_told(place, name, [word], "Paused")
        assert "finalizers" not in place.server.request("GET", f"{place.path}/{name}")[1]["metadata"]
        assert "lastRun" not in status_of(place, name)


def with_text_in_every_field(text: str) -> dict[str, Any]:
    """Spec with this text wherever a field of a control plane in pods takes any, as long as it stays a valid one."""
    spec: dict[str, Any] = {"hostCluster": {"secretRef": {"name": "closed"}, "context": text}}
    for path, row in fields.ROWS.items():
        for value in hostile_document.hostile(row[1]):
            tried = {"spec": copy.deepcopy(spec)}
            with suppress(ProblemsError, KeyError, TypeError, AttributeError):
                fields.put(tried, path, value)
                document(tried["spec"])
                spec = tried["spec"]
                break
    return spec


def test_strings_that_could_be_run_somewhere_run_nowhere(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = HOSTILE.format(mark=place.here / "executed")
    for name, text in (("short", hostile), ("lines", f"{hostile}\n- {hostile}"), ("long", hostile * 100)):
        monkeypatch.setattr(hostile_document, "HOSTILE", text)
        spec = with_text_in_every_field(text if name == "short" else hostile)
        assert json.dumps(spec).count(json.dumps(hostile)[1:-1]) > 50, "or it would prove little"
        code, answer = create(place, f"strings-{name}", spec, annotations={"note": f"{hostile}\n{hostile * 1000}"})
        assert code == 201, answer
    for name in ("short", "lines", "long"):
        is_told(place, f"strings-{name}", ["there is no context"])
    assert not (place.here / "executed").exists()


@pytest.mark.parametrize("text", [hostile_document.HOSTILE, "a" * 64 * 1024], ids=["hostile", "64 KiB"])
def test_an_api_server_takes_no_text_that_the_engine_refuses(
    text: str, place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of each text and each key of each field. The engine refuses more: what history or hosts decide."""
    monkeypatch.setattr(hostile_document, "HOSTILE", text)
    judged = []
    for path, (value, around) in hostile_document.ROWS.items():
        for each in hostile_document.hostile(value):
            whole: dict[str, Any] = {"metadata": {"name": "prod"}, "spec": copy.deepcopy(around)}
            fields.put(whole, path, each)
            head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND}
            code, _ = place.server.request("POST", f"{place.path}?fieldValidation=Strict&dryRun=All", {**head, **whole})
            judged.append((path, code == 201, hostile_document.refusal(path, each)))
    assert len(judged) > 200
    assert [(path, told) for path, taken, told in judged if not taken and not told] == [], "refused by one alone"
    assert any(taken for _, taken, _ in judged)
    by_schema_alone = [(path, told) for path, taken, told in judged if taken and told]
    assert by_schema_alone == [], "taken by one alone"
