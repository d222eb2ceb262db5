# SPDX-License-Identifier: Apache-2.0
"""Bad input as objects: refused at apply or told by a condition, before any change; and nothing of it runs anywhere.

A real API server judges, the operator runs as a process, and the runs are the collection's own. Rows of
``molecule/run_bad_input/cases.yaml`` that need no lab are here as objects, with the words that they have there; what
files alone can say, or objects alone, is below.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer
from ansible_collections.karmada.installer.tests.contract.test_operator import Site, operator, server, until

__all__ = ["server"]

ROWS: dict[str, Any] = yaml.safe_load((CHECKOUT / "molecule/run_bad_input/cases.yaml").read_text())["cases"]
#: Rows that an API server refuses by itself, with the path that it names.
REFUSED = {
    "a misspelt field": "spec.hostClutser",
    "a value that is not one of those allowed": "spec.endpoint.type",
    "several problems of the document": "spec.endpoint.typ",
}
#: Rows that a run finds; those of their words that are about an object, too.
FOUND = {
    "an unknown version": ["Karmada v1.99.0 is not a release that this collection knows", "use one of", "v1.18.2"],
    "a host cluster with a closed port": [
        ":1: connection refused",
        "Check the address, the network and the credentials",
    ],
}
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


@pytest.fixture(scope="module")
def place(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A namespace in which an operator works with the collection's own playbooks, and some Secrets."""
    site = Site(server, tmp_path_factory.mktemp("bad"), "karmada-bad")
    site.with_real_playbooks()
    mark = site.here / "executed"
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(mark)]}
    authority = server.ca.read_bytes()
    secrets = {
        "closed": kubeconfig(authority, token="t"),
        "exec": kubeconfig(authority, exec={**program, "interactiveMode": "Never"}),
        "file": kubeconfig(authority, tokenFile="/etc/shadow"),
        "empty": "",
    }
    for name, text in secrets.items():
        body = {"metadata": {"name": name}, "stringData": {"kubeconfig": text}}
        assert server.request("POST", f"/api/v1/namespaces/{site.namespace}/secrets", body)[0] == 201
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "of-others"}})
    with operator(site):
        yield site
    assert not mark.exists(), "something of it was run"


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


def is_told(place: Site, name: str, words: list[str], kind: str = "Degraded") -> None:
    """Wait for the condition, and see these words in it or in the problems, and that nothing else was made."""
    until(lambda: condition(place, name, kind)["status"] == "True", f"{name}: {kind}")
    status = status_of(place, name)
    text = " ".join(
        [condition(place, name, kind)["message"], json.dumps(status.get("problems", ()), ensure_ascii=False)]
    )
    assert [each for each in words if " ".join(each.split()) not in " ".join(text.split())] == [], text
    assert not [each for each in everything(place) if f"/{name}-" in each], "nothing was changed"


@pytest.mark.parametrize("row", sorted(REFUSED))
def test_an_api_server_refuses_it(row: str, place: Site) -> None:
    code, answer = create(place, "refused", ROWS[row]["document"]["spec"])
    assert code in (400, 422), answer
    assert REFUSED[row] in answer["message"]


@pytest.mark.parametrize("row", sorted(FOUND))
def test_a_run_finds_it_before_it_changes_anything(row: str, place: Site) -> None:
    said = " ".join(ROWS[row]["says"])
    assert [each for each in FOUND[row] if each not in said] == [], "the words of the row"
    name = f"row-{sorted(FOUND).index(row)}"
    assert create(place, name, ROWS[row]["document"]["spec"])[0] == 201
    is_told(place, name, FOUND[row])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hostCluster": {"secretRef": {"name": "exec"}}}, ["exec"]),
        ({"hostCluster": {"secretRef": {"name": "file"}}}, ["tokenFile"]),
        ({"hostCluster": {"secretRef": {"name": "empty"}}}, ["kubeconfig"]),
        ({"hostCluster": {"secretRef": {"name": "missing"}}}, ["missing"]),
        ({"members": [{"name": "m1", "secretRef": {"name": "missing"}}]}, ["missing", "spec.members[m1].secretRef"]),
        ({"artifacts": {"source": "Directory"}}, ["spec.artifacts.source is Directory, but no directory is named"]),
    ],
    ids=["exec", "file", "empty", "missing", "member", "directory"],
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
        "other": ({"hostCluster": {"namespace": "of-others"}}, {}, "of-others"),
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


def test_strings_that_could_be_run_somewhere_run_nowhere(place: Site) -> None:
    hostile = HOSTILE.format(mark=place.here / "executed")
    spec = {
        "hostCluster": {"secretRef": {"name": "closed"}, "context": hostile},
        "components": {
            "karmadaScheduler": {"annotations": {"note": hostile}, "extraArgs": {"v": hostile}},
            "karmadaWebhook": {"extraArgs": {"v": f"{hostile}\n{hostile}"}},
        },
    }
    code, answer = create(place, "strings", spec, annotations={"note": f"{hostile}\n{hostile * 1000}"})
    assert code == 201, answer
    is_told(place, "strings", ["there is no context"])
    assert not (place.here / "executed").exists()
