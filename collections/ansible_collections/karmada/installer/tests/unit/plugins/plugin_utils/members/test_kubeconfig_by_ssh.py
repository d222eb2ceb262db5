# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig of a member from one of its hosts: read by ssh as it should be called, judged like any other, told in
words that quote nothing of it.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import kubeconfig_by_ssh
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import private_folder
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.samples import document, rendered

CA = rendered().material.authorities["karmada-ca"].certificate
FROM = {"address": "192.0.2.21", "port": 22, "path": "/etc/kubernetes/admin.conf"}
FINGERPRINT = "SHA256:" + "A" * 43


def config(server: str = "https://192.0.2.9:6443", **user: Any) -> dict[str, Any]:
    found = pki_kubeconfig.kubeconfig("k", server, CA, "admin", "the-token", context="k")
    if user:
        found["users"][0]["user"] = user
    return found


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of ssh a program that notes what it is called with, and answers as the test says."""
    program = tmp_path / "ssh"
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/called\n"
        f'for each in "$@"; do case $each in {tmp_path}/*/ssh-privatekey) cat $each > {tmp_path}/key;; esac; done\n'
        f"cat {tmp_path}/content; cat {tmp_path}/words >&2; exit $(cat {tmp_path}/code)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(private_folder.constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    return tmp_path


def read(where: Path, content: Any = "", words: str = "", code: int = 0, **source: Any) -> Any:
    """The member's API server, as a run comes to it."""
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    for name, value in (("content", text), ("words", words), ("code", str(code))):
        (where / name).write_text(value)
    entry = {"name": "m1", "mode": "Push", "kubeconfigFrom": {**FROM, **source}}
    run: Any = fake_run(document({"members": [entry]}), FakeCluster("host cluster"))
    run.connection = Connection(secrets=str(where / "secrets") if (where / "secrets").is_dir() else None)
    run.secret = lambda name, _where: {"ssh-privatekey": f"the key of {name}".encode()}
    with member_join.connected(run, MemberEntry(entry)) as cluster:
        return cluster.access


def told(where: Path, *answer: Any, **more: Any) -> str:
    with pytest.raises(ProblemsError) as raised:
        read(where, *answer, **more)
    (problem,) = raised.value.problems
    assert "the-token" not in str(problem)
    return str(problem)


def test_it_is_what_the_host_has(fake_ssh: Path) -> None:
    access = read(fake_ssh, config())
    assert access.server == "https://192.0.2.9:6443"
    assert access.headers()["Authorization"] == "Bearer the-token"
    assert [file.name for file in fake_ssh.rglob("*") if "the-token" in str(file.is_file() and file.read_text())] == [
        "content"
    ]


def test_another_address_takes_the_place_of_that_of_the_host_itself(fake_ssh: Path) -> None:
    access = read(fake_ssh, config("https://127.0.0.1:6443"), server="https://192.0.2.21:6443")
    assert access.server == "https://192.0.2.21:6443"


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
def test_an_address_of_the_host_itself_is_refused(server: str, fake_ssh: Path) -> None:
    found = told(fake_ssh, config(server))
    assert "spec.members[m1].kubeconfigFrom" in found
    assert f"/etc/kubernetes/admin.conf on 192.0.2.21 leads to {server}, which means that host itself" in found
    assert "Write server:" in found


def test_a_kubeconfig_that_may_not_be_used_is_named_by_its_file_and_host(fake_ssh: Path) -> None:
    found = told(fake_ssh, config("http://192.0.2.21:8080"))
    place = "spec.members[m1].kubeconfigFrom, /etc/kubernetes/admin.conf on 192.0.2.21"
    assert found.startswith(f"{place}: it leads to an address without TLS")


def test_ssh_gets_keys_only_and_no_host_whose_key_is_not_known(fake_ssh: Path) -> None:
    (fake_ssh / "secrets").mkdir()
    references = {"privateKeySecretRef": {"name": "key"}, "knownHostsSecretRef": {"name": "hosts"}}
    read(fake_ssh, config(), **references, port=2222, user="admin")
    called = (fake_ssh / "called").read_text().splitlines()
    assert {"-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oPasswordAuthentication=no"} <= set(called)
    assert {"-oIdentitiesOnly=yes", f'-oUserKnownHostsFile="{fake_ssh}/secrets/hosts/known_hosts"'} <= set(called)
    assert called[called.index("-i") + 1] == f"{fake_ssh}/secrets/key/ssh-privatekey"
    assert called[called.index("-p") + 1 :][:3] == ["2222", "-l", "admin"]
    *_, separator, address, remote = called
    assert (separator, address) == ("--", "192.0.2.21")
    assert "sudo -n cat /etc/kubernetes/admin.conf" in remote
    read(fake_ssh, config(), hostKeyFingerprint=FINGERPRINT)
    assert FINGERPRINT in (fake_ssh / "called").read_text()


def test_a_key_of_a_secret_of_a_cluster_is_a_file_for_the_time_of_the_connection(fake_ssh: Path) -> None:
    read(fake_ssh, config(), privateKeySecretRef={"name": "key"})
    assert (fake_ssh / "key").read_text() == "the key of key\n"
    assert list((fake_ssh / "run").rglob("ssh-privatekey")) == []


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        ("No ED25519 host key is known for 192.0.2.21", 255, "its SSH host key is not known"),
        ("admin@192.0.2.21: Permission denied (publickey).", 255, "it accepts none of our keys"),
        ("ssh: connect to host 192.0.2.21 port 22: Connection refused", 255, "nothing accepts connections on the port"),
        (
            "ssh: Could not resolve hostname edge: Name or service not known",
            255,
            "ssh finds no address for the name edge",
        ),
        ("sudo: a password is required", 1, "sudo asks the user that logs in for a password"),
        (
            "cat: /etc/kubernetes/admin.conf: No such file or directory",
            1,
            "there is no file /etc/kubernetes/admin.conf",
        ),
        ("cat: /etc/kubernetes: Is a directory", 1, "/etc/kubernetes/admin.conf is a directory"),
        ("something else", 3, "it cannot be looked at: something else"),
    ],
)
def test_why_it_cannot_be_read_is_told_with_the_member(words: str, code: int, what: str, fake_ssh: Path) -> None:
    found = told(fake_ssh, "", words, code)
    assert "spec.members[m1].kubeconfigFrom: the kubeconfig cannot be read from 192.0.2.21: " in found
    assert what in found


def test_fields_in_remedies_are_those_of_the_member(fake_ssh: Path) -> None:
    found = told(fake_ssh, "", "admin@192.0.2.21: Permission denied (publickey).", 255)
    assert "kubeconfigFrom.privateKeySecretRef" in found
    assert " ssh." not in found


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "the kubeconfig is empty"),
        ("a: [", "is not YAML"),
        ("x" * (1024 * 1024 + 1), "more than the 1024 KiB of the largest kubeconfig"),
        (config(exec={"command": "aws"}), "a kubeconfig of a host may not start programs"),
        (config(tokenFile="/etc/passwd"), "it names a file of that host, of which nothing else is read"),
        (config("http://192.0.2.9:8080"), "an address without TLS"),
    ],
)
def test_what_it_holds_is_judged_as_that_of_a_secret(content: Any, what: str, fake_ssh: Path) -> None:
    found = told(fake_ssh, content)
    assert "spec.members[m1].kubeconfigFrom" in found
    assert what in found


def test_a_host_that_says_nothing_is_given_up(fake_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake_ssh / "ssh").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(kubeconfig_by_ssh, "SECONDS", 0.2)
    assert "it did not send /etc/kubernetes/admin.conf within 0 s" in told(fake_ssh)


@pytest.mark.parametrize("answer", ["exec cat /dev/zero", "cat /dev/zero; true"])
def test_a_host_that_never_stops_is_not_listened_to(
    answer: str, fake_ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake_ssh / "ssh").write_text(f"#!/bin/sh\n{answer}\n")
    monkeypatch.setattr(kubeconfig_by_ssh, "SECONDS", 300.0)
    assert "more than the 1024 KiB" in told(fake_ssh)


def test_what_ssh_has_started_is_given_up_with_it(fake_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = fake_ssh / "child"
    (fake_ssh / "ssh").write_text(f"#!/bin/sh\nsleep 600 & echo $! >{number}.new; mv {number}.new {number}; wait\n")

    class OnceItHasBegun(threading.Timer):
        def run(self) -> None:
            until(number.exists, "its child")
            self.function()

    monkeypatch.setattr(kubeconfig_by_ssh.threading, "Timer", OnceItHasBegun)
    assert f"within {kubeconfig_by_ssh.SECONDS:.0f} s" in told(fake_ssh)
    child = Path("/proc") / number.read_text().strip() / "stat"

    def is_gone() -> bool:
        try:
            return child.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    until(is_gone, "its end")


def test_without_ssh_that_is_told(fake_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "ssh cannot be started here" in told(fake_ssh)


@pytest.mark.parametrize("user", [0, 1000])
def test_the_command_reads_what_it_may_and_else_asks_sudo(user: int, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("content")
    *_, remote = kubeconfig_by_ssh.command({**FROM, "path": str(file)}, None, None)
    done = subprocess.run(["sh", "-c", remote], capture_output=True, text=True, check=True)
    assert done.stdout == "content"
    (tmp_path / "sudo").write_text('#!/bin/sh\nprintf "%s " "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path / "id").chmod(0o755)
    *_, remote = kubeconfig_by_ssh.command({**FROM, "path": "/nothing"}, None, None)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", remote], capture_output=True, text=True, check=False, env=path)
    assert done.stdout.strip() == ("" if user == 0 else "-n cat /nothing")
