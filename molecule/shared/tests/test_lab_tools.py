# SPDX-License-Identifier: Apache-2.0
"""Those of the tools that look at an account's rights and at what a lab leaves."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
import time

import footprint
import interrupt
import kill_tree
import rights
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
