# SPDX-License-Identifier: Apache-2.0
"""Backups and restores by objects: the operator as a process against a real API server, which judges each status.

The definitions and the inventory are the collection's; playbooks are small, and do what those of the collection tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups, manifest, restores
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import SCHEMAS
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.contract.test_operator import CRDS, SAMPLE, Site, operator
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.schema_judge import plural_of

BACKUPS, RESTORES = plural_of(backups.BACKUP), plural_of(restores.RESTORE)
BACKUP = "prod-20261125t020000z-1f3a9c"
RECIPIENT = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
_HEAD = "- name: P\n  hosts: karmada_control\n  gather_facts: false\n  tasks:\n"
_REPORT = """\
    - name: Report
      ansible.builtin.copy:
        src: {here}/{report}.json
        dest: "{{{{ karmada_connection.report_output | realpath }}}}"
        mode: "0600"
"""
_NOTE = """\
    - name: Write down what this is for
      ansible.builtin.shell: >-
        echo {word} {{{{ karmada_deployment.metadata.name }}}} {{{{ {variable} | default('-') }}}} >>{here}/{word}
"""


def _note(word: str, variable: str) -> str:
    return _NOTE.replace("{word}", word).replace("{variable}", variable)


PLAYBOOKS = {
    "install": _note("installs", "nothing_of_the_kind") + _REPORT.replace("{report}", "report"),
    "backup": _note("backups", "backup_now")
    + """\
    - name: Pass on how they are
      ansible.builtin.set_stats:
        data:
          karmada_backups_status: "{{{{ lookup('ansible.builtin.file', '{here}/status.json') | from_json }}}}"
""",
    "restore": _note("restores", "restore_name")
    + """\
    - ansible.builtin.import_role: {{name: restore}}
    - name: Pass on what members would get
      ansible.builtin.set_stats:
        data:
          karmada_restore_drift:
            members: [{{member: m1, counts: {{same: 1, older: 2}}, trouble: ""}}, {{member: m2, trouble: "away"}}]
"""
    + _REPORT.replace("{report}", "quarantined"),
    # Parts come to their end when they are let; without any it is a release of everything.
    "release": _note("releases", "restore_name")
    + """\
    - name: Write down what is to be released
      ansible.builtin.shell: >-
        echo {{{{ restore_release_parts | to_json | quote }}}} {{{{ restore_keep | default([]) | to_json | quote }}}}
        >>{here}/parts
      when: restore_release_parts is defined
    - ansible.builtin.wait_for: {{path: {here}/let, timeout: 900, sleep: 1}}
      when: restore_release_parts is defined
    - name: Pass on what is released
      ansible.builtin.set_stats:
        data:
          karmada_restore_released:
            restore: "{{{{ restore_name }}}}"
            held: [m9]
            clusters: >-
              {{{{ dict(restore_release_parts | map(attribute='clusters') | flatten | product([[]]))
              | dict2items(key_name='name', value_name='namespaces') }}}}
      when: restore_release_parts is defined
"""
    + _REPORT.replace("{report}", "{{{{ 'quarantined' if restore_release_parts is defined else 'report' }}}}"),
    # An operator that has just started looks whether a control plane in quarantine is held still.
    "report": _note("looks", "nothing_of_the_kind") + _REPORT.replace("{report}", "quarantined"),
}
ROLE = """
- name: Judge the backup, and ask for its confirmation
  refuse:
  when: not lookup('ansible.builtin.fileglob', '{here}/confirmed')
- name: Take the next step
  ansible.builtin.wait_for: {{path: {here}/go, timeout: 900, sleep: 1}}
"""
REFUSE = """#!/usr/bin/python
import json
reason = "RestoreNotConfirmed"
problem = {"severity": "error", "reason": reason, "what": "w", "where": "w", "remedy": ""}
msg = "restoring %s loses everything since yesterday"
print(json.dumps({"failed": True, "msg": msg, "reason": reason, "phase": "Installing", "problems": [problem]}))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("operator")) as found:
        for word in ("karmadadeployments", BACKUPS, RESTORES):
            definition = yaml.safe_load((SCHEMAS / f"{word}.yaml").read_text(encoding="utf-8"))
            assert found.request("POST", CRDS, definition)[0] == 201
            path = f"/apis/{manifest.API_VERSION}/{word}"
            until(lambda path=path: found.request("GET", path)[0] == 200, word)  # type: ignore[misc]
        yield found


class Place(Site):
    """A namespace with a control plane, and what belongs to it."""

    def __init__(self, server: ApiServer, here: Path, namespace: str) -> None:
        super().__init__(server, here, namespace)
        for name, tasks in PLAYBOOKS.items():
            (here / f"{name}.yml").write_text(_HEAD + tasks.format(here=here))
        (here / "roles/restore/tasks").mkdir(parents=True)
        (here / "roles/restore/tasks/main.yml").write_text(ROLE.format(here=here))
        (here / "library").mkdir()
        (here / "library/refuse.py").write_text(REFUSE % BACKUP)
        (here / "quarantined.json").write_text(json.dumps({**SAMPLE, "phase": "Quarantined"}))
        rows = yaml.safe_load((CHECKOUT / "operator/karmada_operator/watches.yaml").read_text())
        for row in rows:
            for word in ("playbook", "releasePlaybook", "reportPlaybook"):
                if word in row:
                    row[word] = str(here / f"{row[word].rpartition('.')[2]}.yml")
        rows[0]["finalizer"]["playbook"] = str(here / "remove.yml")
        (here / "watches.yml").write_text(yaml.safe_dump(rows))

    def taken(self) -> None:
        """What the next run finds in the target."""
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        newest = {"name": BACKUP, "startTime": moment, "sizeBytes": 7, "revision": 5, "durationSeconds": 2}
        status = [{"name": "hourly", "status": {"count": 1, "newest": newest}}]
        (self.here / "status.json").write_text(json.dumps(status))

    def make(self, kind: str, plural: str, name: str, spec: dict[str, Any]) -> None:
        head = {"apiVersion": manifest.API_VERSION, "kind": kind, "metadata": {"name": name}}
        spec = {"deploymentRef": {"name": "prod"}, **spec}
        code, answer = self.server.request("POST", self._of(plural), {**head, "spec": spec})
        assert code == 201, answer

    def change(self, plural: str, name: str, patch: dict[str, Any]) -> tuple[int, Any]:
        return self.server.request("PATCH", f"{self._of(plural)}/{name}", patch, "application/merge-patch+json")

    def status(self, plural: str, name: str) -> dict[str, Any]:
        return dict(self.server.request("GET", f"{self._of(plural)}/{name}")[1].get("status") or {})

    def _of(self, plural: str) -> str:
        return f"/apis/{manifest.API_VERSION}/namespaces/{self.namespace}/{plural}"


@pytest.fixture
def place(server: ApiServer, tmp_path: Path) -> Place:
    return Place(server, tmp_path, "backups")


def condition(status: dict[str, Any], kind: str) -> str:
    found = [f"{each['status']} {each['reason']}" for each in status.get("conditions", ()) if each["type"] == kind]
    return found[0] if found else ""


def text(status: dict[str, Any], kind: str) -> str:
    return next((str(each["message"]) for each in status.get("conditions", ()) if each["type"] == kind), "")


def test_from_a_backup_to_a_restore_and_its_release(place: Place) -> None:
    place.taken()
    with operator(place, "one") as first:
        place.create()
        until(lambda: place.condition("Ready")["status"] == "True", "a control plane")
        target = {"s3": {"bucket": "backups", "secretRef": {"name": "store"}}}
        place.make(backups.KIND, BACKUPS, "hourly", {"recipients": [RECIPIENT], "target": target})
        backup = lambda: place.status(BACKUPS, "hourly")  # noqa: E731 - read at each look
        until(lambda: condition(backup(), "BackupHealthy") == "True Recent", "a backup")
        assert place.lines("backups") == ["backups prod -"], "what is due is for the run to say"
        until(lambda: "nextTime" in backup(), "the next one")
        status = backup()
        assert (status["count"], status["newest"]["name"], status["lastRun"]["outcome"]) == (1, BACKUP, "succeeded")
        place.change(BACKUPS, "hourly", {"metadata": {"annotations": {"installer.karmada.io/run-now": "now"}}})
        until(lambda: backup().get("requested") == "now", "one for a word")
        assert place.lines("backups")[1:] == ["backups prod hourly"]
        # A restore tells the loss, and changes nothing.
        place.make(restores.KIND, RESTORES, "back", {"backupRef": {"name": "hourly"}})
        restore = lambda: place.status(RESTORES, "back")  # noqa: E731 - as above
        until(lambda: restore().get("phase") == "AwaitsConfirmation", "the loss")
        assert condition(restore(), "Confirmed") == "False NotConfirmed"
        # Who leads is killed in the middle of it.
        (place.here / "confirmed").touch()
        assert place.change(RESTORES, "back", {"spec": {"confirm": BACKUP}})[0] == 200
        until(lambda: restore().get("phase") == "Restoring", "the restore")
        until(lambda: place.phase == "Quarantined", "the word of it")
        first.kill()
    with operator(place, "two"):
        place.replicas(3)
        until(lambda: len(place.lines("restores")) == 3, "a run of the other")
        place.go()
        until(lambda: restore().get("phase") == "Quarantined", "the quarantine")
        drift = {each["member"]: each for each in restore()["drift"]}
        assert (drift["m1"]["older"], drift["m2"]["trouble"]) == (2, "away")
        until(lambda: place.condition("Progressing")["reason"] == "Quarantined", "an edit that waits")
        assert place.lines("installs") == ["installs prod -"]
        assert place.change(RESTORES, "back", {"spec": {"decision": "Release"}})[0] == 200
        until(lambda: condition(restore(), "Ready") == "True Released", "the release")
        assert place.lines("releases") == ["releases prod back"]
        until(lambda: len(place.lines("installs")) == 2, "the edit")
        code, answer = place.change(RESTORES, "back", {"spec": {"decision": "Undo"}})
        assert code == 422, answer
        assert "was carried out" in answer["message"]
        wanted = {"BackupTaken", "AwaitsConfirmation", "Quarantined", "Released"}
        until(lambda: wanted - {"BackupTaken"} <= place.events(), "what is told")


def test_parts_are_released_one_after_the_other_though_who_leads_is_killed(server: ApiServer, tmp_path: Path) -> None:
    place = Place(server, tmp_path, "parts")
    restore = lambda: place.status(RESTORES, "back")  # noqa: E731 - read at each look
    waits = lambda: condition(restore(), "Progressing")  # noqa: E731 - as above

    def decide(**spec: Any) -> tuple[int, str]:
        code, answer = place.change(RESTORES, "back", {"spec": spec})
        return code, str(answer.get("message", ""))

    one = {"clusters": ["m1"]}
    (place.here / "confirmed").touch()
    place.go()
    with operator(place, "one") as first:
        place.create()
        until(lambda: place.condition("Ready")["status"] == "True", "a control plane")
        early = {"backupRef": {"name": "hourly"}, "confirm": BACKUP, "decision": "Release", "release": [one]}
        place.make(restores.KIND, RESTORES, "back", early)
        until(lambda: waits() == "False DecidedTooEarly", "a decision of before the quarantine")
        assert len(restore()["earlierRelease"]) == 16
        assert place.lines("releases") == []
        # Other parts are another decision, which somebody has written who could read what differs.
        assert decide(release=[one, {"clusters": ["m2"]}], keep=["m3/web"])[0] == 200
        until(lambda: restore().get("phase") == "Releasing", "the release of a part")
        until(lambda: len(place.lines("parts")) == 1, "its run")
        assert "earlierRelease" not in restore()
        first.kill()
    with operator(place, "two"):
        # Nobody has to name it again.
        until(lambda: len(place.lines("parts")) == 2, "a run of the other")
        (place.here / "let").touch()
        until(lambda: waits() == "False PartlyReleased", "the end of the part")
        asked = '[{"clusters": ["m1"], "namespaces": []}, {"clusters": ["m2"], "namespaces": []}] ["m3/web"]'
        assert place.lines("parts") == [asked] * 2
        status = restore()
        assert (status["released"], status["held"]) == ([{"cluster": "m1"}, {"cluster": "m2"}], ["m9"])
        assert condition(status, "Ready") == "False PartlyReleased"
        assert place.phase == "Quarantined"
        place.replicas(3)
        until(lambda: place.condition("Progressing")["reason"] == "Quarantined", "an edit that waits")
        assert place.lines("installs") == ["installs prod -"]
        for spec, words in (
            ({"decision": "Undo", "release": None}, "comes too late: a part is released"),
            ({"release": [one, {}]}, "names neither clusters nor namespaces"),
            ({"release": [{"clusters": ["m_1"]}]}, "spec.release[0].clusters[0]"),
        ):
            code, said = decide(**spec)
            assert code == 422
            assert words in said
        # What is released stays so.
        assert decide(release=[one])[0] == 200
        until(lambda: "stays released: m2" in text(restore(), "Progressing"), "the word of it")
        assert len(place.lines("releases")) == 2
        assert decide(release=None)[0] == 200
        until(lambda: condition(restore(), "Ready") == "True Released", "the release of the rest")
        assert len(place.lines("releases")) == 3
        assert len(place.lines("parts")) == 2
        assert not {"released", "held"} & restore().keys()
        until(lambda: len(place.lines("installs")) == 2, "the edit")
        code, said = decide(release=[one])
        assert (code, "the restore is over" in said) == (422, True)
        until(lambda: {"Quarantined", "PartlyReleased", "Released"} <= place.events(), "what is told")
