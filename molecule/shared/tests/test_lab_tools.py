# SPDX-License-Identifier: Apache-2.0
"""Those of the tools that look at an account's rights and at what a lab leaves."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
import time
from pathlib import Path

import footprint
import interrupt
import kill_tree
import pytest
import rights
import yaml
from karmada_lab.state import Lab

USER = "system:serviceaccount:a:b"


def event(verb, resource, code, user=USER, **target):
    return (
        json.dumps(
            {
                "verb": verb,
                "requestURI": f"/{resource}",
                "user": {"username": user},
                "objectRef": {"resource": resource, **target},
                "responseStatus": {"code": code},
            }
        )
        + "\n"
    )


def test_requests_are_those_of_the_account_and_no_questions():
    lines = [
        event("get", "pods", 200, subresource="log"),
        event("list", "pods", 403),
        event("list", "pods", 403, user="somebody"),
        event("create", "selfsubjectaccessreviews", 201, apiGroup="authorization.k8s.io"),
        '{"cut off',
    ]
    found = list(rights.requests_of(lines, USER))
    assert [(right, code) for right, code, _line in found] == [
        (("", "pods/log", "get"), 200),
        (("", "pods", "list"), 403),
    ]


def test_a_refused_request_is_an_error(tmp_path, monkeypatch, capsys):
    log, granted = tmp_path / "audit.log", tmp_path / "rights.yaml"
    log.write_text(event("list", "nodes", 403))
    granted.write_text("{kind: Role, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}")
    arguments = ["rights.py", str(log), "--since=0:0", f"--user={USER}", f"--rights={granted}"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert rights.main() == 1
    said = capsys.readouterr().out
    assert "refused: list /nodes" in said
    assert "not used in this run: get pods (core)" in said


ROLES = """
{kind: Role, metadata: {name: own, namespace: a}, rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]}
---
{kind: Role, metadata: {name: other, namespace: a}, rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]}
---
{kind: ClusterRole, metadata: {name: own}, rules: [{apiGroups: [apps], resources: [deployments], verbs: [create]}]}
---
kind: RoleBinding
metadata: {name: own, namespace: a}
roleRef: {kind: Role, name: own}
subjects: [{kind: ServiceAccount, name: b, namespace: a}]
---
kind: ClusterRoleBinding
metadata: {name: own}
roleRef: {kind: ClusterRole, name: own}
subjects: [{kind: ServiceAccount, name: b, namespace: a}, {kind: User, name: somebody}]
"""


def test_the_rights_of_an_account_are_those_that_bindings_give_it():
    objects = [*yaml.safe_load_all(ROLES), None]
    created = ("apps", "deployments", "create")
    assert rights.granted(objects, USER) == {("", "pods", "get"), ("", "pods", "list"), created}
    assert rights.granted(objects, "somebody") == {created}


def test_a_right_that_is_not_used_and_not_accounted_for_is_an_error(tmp_path, monkeypatch, capsys):
    log, granted, known = (tmp_path / each for each in ("audit.log", "rights.yaml", "known.yaml"))
    log.write_text(event("get", "pods", 200))
    granted.write_text(ROLES)
    arguments = ["rights.py", str(log), "--since=0:0", f"--user={USER}", f"--rights={granted}"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert rights.main() == 0
    monkeypatch.setattr(sys, "argv", [*arguments, f"--unused-allowed={known}"])
    known.write_text("[{why: as a patch, rights: [create deployments (apps)]}]")
    assert rights.main() == 1
    assert "nothing says what it is for: list pods (core)\n" in capsys.readouterr().out
    known.write_text("[{why: as a patch, rights: [create deployments (apps), list pods (core)]}]")
    assert rights.main() == 0
    known.write_text("[{rights: [create deployments (apps), list pods (core)]}]")
    with pytest.raises(ValueError, match="does not say why"):
        rights.main()


def test_the_operator_has_each_right_that_it_may_leave_unused():
    """One that it does not have any more is no excuse for others."""
    checkout = Path(__file__).resolve().parents[3]
    account = "system:serviceaccount:karmada-system:karmada-installer"
    objects = list(yaml.safe_load_all((checkout / "operator/deploy/operator.yaml").read_text()))
    has = set(map(rights.words, rights.granted(objects, account)))
    known = rights.allowed(checkout / "molecule/shared/unused_rights.yaml")
    assert known - has == set()
    assert len(known) < len(has) / 2, "or the list would prove little"


def test_a_command_is_killed_with_what_it_started_in_other_sessions():
    script = "setsid sleep 321 & echo begun; sleep 321; true"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        while len(below := kill_tree.descendants(running.pid)) != 2:
            time.sleep(0.05)
        assert kill_tree.kill(running.pid) == 3
    # They are killed, and gone a moment later; a test that hangs here has found that they live on.
    while set(below) & set(interrupt.parents()):
        time.sleep(0.05)


def test_what_other_labs_have_is_left_out(tmp_path):
    lab = Lab(
        tmp_path, tmp_path, "klab12ab", ipaddress.IPv4Network("10.99.0.0/16"), ipaddress.IPv6Network("fd99:1:2::/48")
    )
    assert not footprint._of_another(lab, "link klab12ab-0")
    assert not footprint._of_another(lab, "link veth0")
    assert footprint._of_another(lab, "link klab")
    assert footprint._of_another(lab, "network namespace klab99ff-host")
