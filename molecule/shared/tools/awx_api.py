# SPDX-License-Identifier: Apache-2.0
"""Stub of AWX's ``/api/v2``: keeps objects and answers as AWX does, also where it refuses.

What it knows of AWX was read in the sources of AWX 24 (``awx/api``, ``awx/main/models``): which fields name other
objects, what is hidden, and the rules for surveys, injectors, credentials of a job and recurrences. It starts no job.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from jinja2 import StrictUndefined, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: Kind of object → fields that hold the id of another one, with its kind.
REFERENCES: Mapping[str, Mapping[str, str]] = {
    "organizations": {},
    "credential_types": {},
    "credentials": {"organization": "organizations", "credential_type": "credential_types"},
    "execution_environments": {"organization": "organizations", "credential": "credentials"},
    "projects": {"organization": "organizations", "credential": "credentials"},
    "inventories": {"organization": "organizations"},
    "inventory_sources": {
        "inventory": "inventories",
        "source_project": "projects",
        "credential": "credentials",
        "execution_environment": "execution_environments",
    },
    "job_templates": {
        "organization": "organizations",
        "inventory": "inventories",
        "project": "projects",
        "execution_environment": "execution_environments",
    },
    "workflow_job_templates": {"organization": "organizations", "inventory": "inventories"},
    "workflow_job_template_nodes": {
        "workflow_job_template": "workflow_job_templates",
        "unified_job_template": "unified_job_templates",
    },
    "workflow_approval_templates": {},
    "schedules": {"unified_job_template": "unified_job_templates"},
}
#: What a job, a node or a schedule can be of.
UNIFIED = ("job_templates", "workflow_job_templates", "projects", "inventory_sources", "workflow_approval_templates")
#: Lists of other objects that an object has.
ASSOCIATIONS = {
    "job_templates": {"credentials": "credentials"},
    "workflow_job_template_nodes": dict.fromkeys(
        ("success_nodes", "failure_nodes", "always_nodes"), "workflow_job_template_nodes"
    ),
}
HIDDEN = "$encrypted$"
ANSWERS = {"text": str, "textarea": str, "password": str, "multiplechoice": str, "multiselect": str} | {
    "integer": int,
    "float": float,
}


class Refused(Exception):  # noqa: N818 - an answer, as AWX gives it
    """Answer with a status of an error."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(body)
        self.status, self.body = status, body


@dataclass
class AwxApi:
    """The server, for as long as the context lasts. ``playbooks`` are those that its project has after an update.

    ``writes`` are the method, path and body of each request that changed something or was to.
    """

    token: str
    playbooks: Collection[str]
    objects: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {kind: {} for kind in REFERENCES})
    surveys: dict[int, dict[str, Any]] = field(default_factory=dict)
    writes: list[tuple[str, str, Any]] = field(default_factory=list)
    _linked: dict[tuple[str, int, str], list[int]] = field(default_factory=dict)
    _number: int = 0

    def __enter__(self) -> Self:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                text = self.rfile.read(length)
                status, body = api.answer(self.command, self.path, self.headers.get("Authorization", ""), text)
                content = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("X-API-Product-Name", "AWX")
                self.send_header("X-API-Product-Version", "24.6.1")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Keep silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.add("organizations", {"name": "Default"})
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Address, as in CONTROLLER_HOST."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, kind: str) -> dict[str, dict[str, Any]]:
        """Objects of a kind by name, or nodes by identifier."""
        return {str(each.get("name") or each.get("identifier")): each for each in self.objects[kind].values()}

    def linked(self, kind: str, number: int, association: str) -> list[str]:
        """Names of what an object has in one of its lists."""
        other = ASSOCIATIONS[kind][association]
        found = [self.objects[other][each] for each in self._linked.get((kind, number, association), ())]
        return [str(each.get("name") or each.get("identifier")) for each in found]

    def add(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object, as a request would."""
        self._number += 1
        made = {"id": self._number, "type": kind.removesuffix("s"), **fields}
        made["type"] = {"inventories": "inventory"}.get(kind, made["type"])
        self.objects[kind][self._number] = made
        return made

    def answer(self, method: str, address: str, authorization: str, text: bytes) -> tuple[int, Any]:
        """Status and body of an answer."""
        parts = urlsplit(address)
        if authorization != f"Bearer {self.token}":
            return 401, {"detail": "Authentication credentials were not provided."}
        steps = parts.path.removeprefix("/api/v2/").strip("/").split("/")
        body = json.loads(text or b"{}")
        if method != "GET":
            self.writes.append((method, parts.path, body))
        try:
            return self._routed(method, steps, dict(parse_qsl(parts.query)), body)
        except Refused as refused:
            return refused.status, refused.body

    def _routed(self, method: str, steps: list[str], query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:  # noqa: PLR0911 - a route each
        match method, steps:
            case "GET", ["project_updates", _]:
                return 200, {"status": "successful", "failed": False, "finished": "now"}
            case "GET", [kind]:
                return 200, self._list(kind, query)
            case "POST", [kind]:
                return 201, self._shown(kind, self.add(kind, self._checked(kind, body, None)))
            case _, [kind, number, "survey_spec"]:
                return self._survey(method, self._object(kind, number)["id"], body)
            case "POST", ["workflow_job_template_nodes", number, "create_approval_template"]:
                made = self.add("workflow_approval_templates", body)
                self._object(steps[0], number)["unified_job_template"] = made["id"]
                return 201, self._shown("workflow_approval_templates", made)
            case "GET", [kind, number]:
                return 200, self._shown(kind, self._object(kind, number))
            case "PATCH", [kind, number]:
                found = self._object(kind, number)
                found.update(self._checked(kind, body, found))
                return 200, self._shown(kind, found)
            case _, [kind, number, association] if association in ASSOCIATIONS.get(kind, ()):
                return self._associated(method, kind, self._object(kind, number)["id"], association, body)
        raise Refused(404, {"detail": "Not found."})

    # -- objects -------------------------------------------------------------------------------------------------------

    def _object(self, kind: str, number: str) -> dict[str, Any]:
        try:
            return self.objects[kind][int(number)]
        except (KeyError, ValueError):
            raise Refused(404, {"detail": "Not found."}) from None

    def _all(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for each in UNIFIED if kind == "unified_job_templates" else (kind,):
            if each not in self.objects:
                raise Refused(404, {"detail": "Not found."})
            yield from ((each, found) for found in self.objects[each].values())

    def _list(self, kind: str, query: Mapping[str, str]) -> dict[str, Any]:
        found = [self._shown(each, one) for each, one in self._all(kind) if _matches(one, query)]
        return {"count": len(found), "next": None, "previous": None, "results": found}

    def _shown(self, kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
        url = f"/api/v2/{kind}/{found['id']}/"
        related, summary = {"survey_spec": f"{url}survey_spec/"}, {}
        if kind == "projects":
            summary["current_update"] = {"id": found["id"]}
        if kind == "workflow_job_template_nodes" and (other := found.get("unified_job_template")):
            there = next(each for each, one in self._all("unified_job_templates") if one["id"] == other)
            related["unified_job_template"] = f"/api/v2/{there}/{other}/"
        shown = {**found, "url": url, "related": related, "summary_fields": summary}
        if kind == "credentials":
            secret = self._secret_fields(found["credential_type"])
            inputs = found.get("inputs") or {}
            shown["inputs"] = {key: HIDDEN if key in secret else value for key, value in inputs.items()}
        return {"scm_revision": "", **shown} if kind == "projects" else shown

    def _secret_fields(self, credential_type: int) -> set[str]:
        fields = self.objects["credential_types"][credential_type]["inputs"]["fields"]
        return {each["id"] for each in fields if each.get("secret")}

    def _checked(self, kind: str, body: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Fields as they are kept. Raises Refused as AWX refuses them."""
        if kind not in REFERENCES:
            raise Refused(404, {"detail": "Not found."})
        whole = {**(before or {}), **body}
        name = "identifier" if kind == "workflow_job_template_nodes" else "name"
        if not whole.get(name):
            raise Refused(400, {name: ["This field is required."]})
        for one, other in REFERENCES[kind].items():
            if body.get(one) is not None and body[one] not in {each["id"] for _, each in self._all(other)}:
                raise Refused(400, {one: [f'Invalid pk "{body[one]}" - object does not exist.']})
        if kind == "job_templates" and whole.get("playbook") not in self.playbooks:
            raise Refused(400, {"playbook": ["Playbook not found for project."]})
        if kind == "credential_types":
            _check_injectors(whole)
        if kind == "schedules":
            _check_recurrence(str(whole.get("rrule")))
        return dict(body)

    def _associated(
        self, method: str, kind: str, number: int, association: str, body: Mapping[str, Any]
    ) -> tuple[int, Any]:
        other = ASSOCIATIONS[kind][association]
        linked = self._linked.setdefault((kind, number, association), [])
        if method == "GET":
            found = [self._shown(other, self.objects[other][each]) for each in linked]
            return 200, {"count": len(found), "next": None, "previous": None, "results": found}
        if body["id"] not in self.objects[other]:
            raise Refused(400, {"error": "it does not exist"})
        if body.get("disassociate"):
            linked.remove(body["id"])
        else:
            if other == "credentials":
                kinds = [self.objects[other][each]["credential_type"] for each in (*linked, body["id"])]
                if len(kinds) != len(set(kinds)):
                    raise Refused(400, {"error": "Cannot assign multiple credentials of one type."})
            linked.append(body["id"])
        return 204, None

    def _survey(self, method: str, number: int, body: dict[str, Any]) -> tuple[int, Any]:
        if method == "POST":
            _check_survey(body)
            self.surveys[number] = body
        elif method == "DELETE":
            self.surveys.pop(number, None)
        return 200, self.surveys.get(number, {}) if method == "GET" else {}


def _matches(found: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    asked = {key: value for key, value in query.items() if not key.startswith("or__")}
    return all(str(found.get(key)) == value for key, value in asked.items())


def _check_injectors(body: Mapping[str, Any]) -> None:
    fields = {each["id"]: "text" for each in body["inputs"]["fields"]}
    if set(body["inputs"].get("required", ())) - set(fields):
        raise Refused(400, {"inputs": ["required has a name that no field has"]})
    injectors = body["injectors"]
    known: dict[str, Any] = {**fields, **({"tower": {"filename": "the file"}} if "file" in injectors else {})}
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    for section in injectors.values():
        for name, template in section.items():
            if name.startswith("ANSIBLE_") or not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise Refused(400, {"injectors": [f"Environment variable {name} is not allowed to be used"]})
            try:
                shown = environment.from_string(template).render(**known)
            except UndefinedError as error:
                raise Refused(400, {"injectors": [str(error)]}) from error
            if shown == template:
                raise Refused(400, {"injectors": [f"{template} is no template"]})


def _check_recurrence(rule: str) -> None:
    """The rules of AWX for one recurrence (``validate_rrule``)."""
    found = re.fullmatch(r"DTSTART(;TZID=[\w/+-]+:\d{8}T\d{6}|:\d{8}T\d{6}Z) RRULE:(\S+)", rule)
    parts = dict(each.partition("=")[::2] for each in found[2].split(";")) if found else {}
    if not {"FREQ", "INTERVAL"} <= parts.keys() or parts["FREQ"] == "SECONDLY":
        raise Refused(400, {"rrule": ["DTSTART and one RRULE with FREQ and INTERVAL are required in rrule."]})


def _check_survey(body: Mapping[str, Any]) -> None:
    if {type(body.get(key)) for key in ("name", "description")} != {str} or not body.get("spec"):
        raise Refused(400, {"error": "name, description and a spec with items are required"})
    variables = [each.get("variable") for each in body["spec"]]
    if len(variables) != len(set(variables)):
        raise Refused(400, {"error": "'variable' duplicated"})
    for each in body["spec"]:
        types = [type(each.get(key)) for key in ("type", "question_name", "variable", "required")]
        wanted = ANSWERS.get(each.get("type", ""))
        if types != [str, str, str, bool] or wanted is None:
            raise Refused(400, {"error": f"a field is missing from survey question {each}"})
        choices = each.get("choices")
        if each["type"] in ("multiplechoice", "multiselect") and not choices:
            raise Refused(400, {"error": f"{each['variable']} must specify choices"})
        if each.get("default", "") != "" and not isinstance(each["default"], wanted):
            raise Refused(400, {"error": f"Default value of {each['variable']} expected to be {wanted.__name__}"})
        if choices and each.get("default") and each["default"] not in choices:
            raise Refused(400, {"error": "Default choice must be answered from the choices listed."})
