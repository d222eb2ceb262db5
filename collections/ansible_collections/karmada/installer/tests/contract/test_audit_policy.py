# SPDX-License-Identifier: Apache-2.0
"""A kube-apiserver takes our audit policy, and logs what the policy is meant to log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components import audit_policy
from ansible_collections.karmada.installer.tests.contract.conftest import running_api_server
from ansible_collections.karmada.installer.tests.unit.support.samples import flags, pods, rendered


def _object(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}


def test_who_changed_what_is_logged_without_what_was_in_it(tmp_path: Path) -> None:
    found = rendered()
    told = flags(pods(found.workloads)["karmada-apiserver"])
    policy = tmp_path / "policy.yaml"
    policy.write_text(found.one("ConfigMap", "prod-apiserver-audit")["data"][audit_policy.FILE], encoding="utf-8")
    ours = [f"--{name}={value}" for name, value in told.items() if name.startswith("audit-log")]
    assert ours
    with running_api_server(tmp_path, *ours, f"--audit-policy-file={policy}") as server:
        core = "/api/v1/namespaces/default"
        secret = _object("Secret", "s", stringData={"password": "canary-7d1e"})
        assert server.request("POST", f"{core}/secrets", secret)[0] == 201
        assert server.request("GET", f"{core}/secrets/s")[0] == 200
        assert (
            server.request("POST", f"{core}/configmaps", _object("ConfigMap", "c", data={"a": "canary-7d1e"}))[0] == 201
        )
        assert server.request("GET", f"{core}/configmaps/c")[0] == 200
        assert server.request("GET", "/readyz")[0] == 200
        assert server.request("GET", "/debug/nothing")[0] in (403, 404)
    output = (tmp_path / "kube-apiserver.log").read_text(encoding="utf-8")
    assert "canary-7d1e" not in output
    events = [json.loads(line) for line in output.splitlines() if line.startswith('{"kind":"Event"')]
    ours_of_people = {
        (each["verb"], each["objectRef"]["resource"])
        for each in events
        if "objectRef" in each and each["user"]["username"] != "system:apiserver"
    }
    assert ours_of_people == {("create", "secrets"), ("get", "secrets"), ("create", "configmaps")}
    assert {each["level"] for each in events} == {"Metadata"}
    assert {each["stage"] for each in events} == {"ResponseComplete"}
    # what the API server does for itself is in the log only where it gives access to something
    by_itself = {each["objectRef"].get("apiGroup") for each in events if each["user"]["username"] == "system:apiserver"}
    assert by_itself <= {"rbac.authorization.k8s.io", None}
