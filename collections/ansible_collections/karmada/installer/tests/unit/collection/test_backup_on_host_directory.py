# SPDX-License-Identifier: Apache-2.0
"""A step delegated to the host with the backups: Ansible runs for real, and its module on a host that is here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.collection.test_lying_host import ANSWER
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.backup_series import document
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, deployment

#: Opens the target as the steps of a backup do, and does with it what they do. Pieces are small; the folder for them is
#: one of the test.
STEP = """\
import hashlib, io, os
from ansible_collections.karmada.installer.plugins.module_utils import host_backup
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series, targets
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, RECORD, SNAPSHOT, StoredFile
from ansible_collections.karmada.installer.plugins.plugin_utils.run.delegated_host import DelegableAction

host_backup.FOLDER = os.environ["KARMADA_TEST"] + "/way"
host_backup.PIECE = 200_000
NAME = "prod-20261125t120000z-1f3a9c"

class ActionModule(DelegableAction):
    OPTIONS = {"backups": {"type": "list", "elements": "dict"}}

    def perform(self, run, arguments):
        (wanted,) = series.wanted(run, arguments["backups"])
        target = series.opened(run, wanted)
        found = {"before": target.names()}
        if run.check:
            return found
        target.check()
        target.require_room(1)
        for file, content in {SNAPSHOT: os.urandom(500_000), KEYS: b"keys", RECORD: b"{}"}.items():
            target.put(NAME, file, io.BytesIO(content), len(content))
            expected = StoredFile(len(content), hashlib.sha256(content).hexdigest(), 0, "")
            targets.read_back(target, NAME, file, expected)
        found |= {"after": target.names(), "where": target.where}
        return {**found, "login": run.delegated.login, "changed": True}
"""


class Site:
    """A control plane on plain hosts, with backups in a directory of the host ``etcd1``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / "srv"
        self.place.mkdir()
        target = {"hostDirectory": {"host": "etcd1", "path": str(self.place), "prefix": "site-a"}}
        texts = [deployment(), document(target=target)]
        (folder / "prod.yaml").write_text(yaml.safe_dump_all(texts))
        (folder / "site.karmada.yml").write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
        (folder / "action_plugins").mkdir()
        (folder / "action_plugins/try_backups.py").write_text(STEP)
        self.host: dict[str, Any] = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

    def played(self, *arguments: str, delegate: str = "etcd1") -> tuple[dict[str, Any], str]:
        """Result of the step, and the output of the play."""
        step = {
            "name": "Try",
            "try_backups": {"backups": "{{ karmada_backups }}"},
            "delegate_to": delegate,
            "run_once": True,
            "register": "found",
            "ignore_errors": True,
        }
        end = {"name": "End", "ansible.builtin.copy": {"dest": str(self.folder / "found"), "content": "{{ found }}"}}
        end |= {"run_once": True, "delegate_to": "karmada_control", "check_mode": False}
        play = {"hosts": "karmada_control", "gather_facts": False, "tasks": [step, end]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([play]))
        mine = {host["name"]: {"ansible_connection": "local"} for host in HOSTS} | {"etcd1": self.host}
        (self.folder / "mine.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": mine}}))
        done = ansible_commands.run(
            *("ansible-playbook", "-i", "site.karmada.yml", "-i", "mine.yml", "play.yml", *arguments),
            directory=self.folder,
            KARMADA_TEST=str(self.folder),
            XDG_CACHE_HOME=str(self.folder / "cache"),
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return json.loads((self.folder / "found").read_text()), output

    @property
    def files(self) -> set[str]:
        """Files of the directory."""
        return {str(path.relative_to(self.place)) for path in self.place.rglob("*") if path.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_backups_are_stored_and_read_over_the_connection_of_the_host(site: Site) -> None:
    found, output = site.played()
    assert not found.get("failed"), output
    assert (found["before"], found["after"]) == ([], ["prod-20261125t120000z-1f3a9c"])
    assert found["where"] == f"host etcd1: {site.place}/site-a/prod"
    assert found["login"]
    name = "site-a/prod/prod-20261125t120000z-1f3a9c"
    assert site.files == {f"{name}/{file}" for file in ("snapshot.age", "keys.age", "manifest.json")}
    # Nothing is under way any more, here or there.
    assert not (site.folder / "way").exists()
    assert list((site.folder / "cache/karmada-installer/backups").iterdir()) == []
    # A run in check mode looks, too.
    found, _ = site.played("--check")
    assert found["before"] == ["prod-20261125t120000z-1f3a9c"]


def test_a_host_that_is_away_is_a_problem_of_the_step_and_its_place_goes_on(site: Site) -> None:
    ssh = site.folder / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host 192.0.2.3 port 22: Connection refused' >&2\nexit 255\n")
    ssh.chmod(0o755)
    site.host = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_ssh_retries": 0}
    found, output = site.played()
    assert found["failed"]
    (problem,) = found["problems"]
    assert (problem["reason"], problem["where"]) == ("HostUnreachable", "host etcd1 (192.0.2.3)")
    assert problem["remedy"]
    assert "unreachable=0" in output
    assert "UNREACHABLE" not in output


def test_what_a_host_answers_that_lies_becomes_nothing(site: Site) -> None:
    (site.folder / "answer.json").write_text(json.dumps(ANSWER))
    liar = site.folder / "liar"
    liar.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {site.folder / 'answer.json'}\n")
    liar.chmod(0o755)
    site.host["ansible_python_interpreter"] = str(liar)
    found, output = site.played()
    assert found["failed"]
    (problem,) = found["problems"]
    assert (problem["reason"], problem["where"]) == ("HostStepFailed", "host etcd1")
    assert problem["what"] == "it did not answer with a list"
    assert "\x1b" not in output
    # Ansible itself tells of the host that it did not add.
    del found["warnings"]
    assert "lied" not in json.dumps(found)
    assert "ansible_facts" not in found


def test_a_directory_that_everybody_may_write_is_refused(site: Site) -> None:
    site.place.chmod(0o777)
    found, _ = site.played()
    (problem,) = found["problems"]
    assert problem["reason"] == "BackupTargetUnusable"
    assert problem["where"] == f"host etcd1: {site.place}"
    assert "others than root may write in it" in problem["what"]
    assert site.files == set()


def test_a_step_that_another_host_has_does_not_reach_it(site: Site) -> None:
    found, _ = site.played(delegate="cp2")
    (problem,) = found["problems"]
    assert "lie on host etcd1, and this step is delegated to cp2" in problem["what"]
    assert site.files == set()
