# SPDX-License-Identifier: Apache-2.0
"""What ssh, sudo, Python and Ansible say when a host cannot be looked at, word for word, and what we make of it."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access

BY_SSH = "Failed to connect to the host via ssh: "
CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
It is also possible that a host key has just been changed.
The fingerprint for the ED25519 key sent by the remote host is
SHA256:YdZVbL+LrYWOfpKbVIAcFfKVsnQsFGaaokKCrkXVRRo.
Please contact your system administrator.
Add correct host key in /root/.ssh/known_hosts to get rid of this message.
Offending ED25519 key in /root/.ssh/known_hosts:1
  remove with:
  ssh-keygen -f "/root/.ssh/known_hosts" -R "192.0.2.1"
Host key for 192.0.2.1 has changed and you have requested strict checking.
Host key verification failed."""
UNPROTECTED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Permissions 0644 for 'id' are too open.
It is required that your private key files are NOT accessible by others.
This private key will be ignored.
Load key "id": bad permissions
anna@192.0.2.1: Permission denied (publickey)."""

#: What was said → the name of the reason, and a part of what we say.
SAID = [
    (
        (
            "No ED25519 host key is known for 192.0.2.1 and you have requested strict checking.\r\n"
            "Host key verification failed."
        ),
        "unknown host key",
        "not known",
    ),
    ("Host key verification failed.", "unknown host key", "hostKeyFingerprint"),
    (CHANGED, "changed host key", "known (SHA256:YdZVbL+LrYWOfpKbVIAcFfKVsnQsFGaaokKCrkXVRRo)"),
    (
        "No user exists for uid 1000660000\r\n",
        "user of no list",
        "the user that runs it (uid 1000660000)",
    ),
    (
        'unix_listener: path "/srv/a-long-folder/cp/1c2d3e4f5a.Xy12" too long for Unix domain socket',
        "control path",
        "the socket /srv/a-long-folder/cp/1c2d3e4f5a.Xy12, whose name is too long",
    ),
    (
        "ControlPath too long ('/srv/a-long-folder/cp/1c2d3e4f5a' >= 108 bytes)",
        "control path",
        "the socket /srv/a-long-folder/cp/1c2d3e4f5a, whose name is too long",
    ),
    (
        "ED25519 host key for 192.0.2.1 was revoked and you have requested strict checking.",
        "revoked host key",
        "marked as revoked",
    ),
    (
        "Unable to negotiate with 192.0.2.1 port 22: no matching host key type found. Their offer: ssh-rsa,ssh-dss",
        "host key of another kind",
        "ed25519",
    ),
    ("anna@192.0.2.1: Permission denied (publickey).", "key refused", "authorized_keys of anna"),
    (
        "anna@192.0.2.1: Permission denied (publickey,password).",
        "key refused",
        "(it offers: publickey,password)",
    ),
    (UNPROTECTED, "readable private key", "0600"),
    (
        'Load key "id": error in libcrypto\nanna@192.0.2.1: Permission denied (publickey).',
        "unusable private key",
        "agent",
    ),
    (
        "Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures",
        "too many keys",
        "IdentitiesOnly",
    ),
    ("Bad owner or permissions on /home/anna/.ssh/config", "ssh configuration", "ssh 192.0.2.1"),
    ("ssh: Could not resolve hostname host1.invalid: Name or service not known", "name not found", "host1.invalid"),
    ("ssh: connect to host 192.0.2.1 port 22: Connection refused", "refused", "Start sshd"),
    ("ssh: connect to host 192.0.2.1 port 22: No route to host", "no route", "switched on"),
    ("ssh: connect to host 192.0.2.1 port 22: Network is unreachable", "no route", "route"),
    ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", "timed out", "firewall"),
    ("Connection timed out during banner exchange", "timed out", "does not answer"),
    ("Timeout, server 192.0.2.1 not responding.", "timed out", "does not answer"),
    ("Timeout (12s) waiting for privilege escalation prompt: ", "silent", "does not answer any more"),
    (
        'Data could not be sent to remote host "192.0.2.1". Make sure this host can be reached over ssh: ',
        "lost",
        "the connection to it was lost",
    ),
    ("cp1: it answered more than 32 MiB; nothing of that is used", "answer without end", "32 MiB are allowed"),
    ("cp1: it did not end its answer within 300 s; nothing of that is used", "answer without end", "300 s are allowed"),
    ("kex_exchange_identification: Connection closed by remote host", "closed", "MaxStartups"),
    ("Connection reset by 192.0.2.1 port 22", "closed", "log of sshd"),
    ("sudo: a password is required", "sudo wants a password", "NOPASSWD"),
    (
        "sudo: unable to resolve host vm: Name or service not known\nsudo: a password is required",
        "sudo wants a password",
        "",
    ),
    ("Task failed: Missing sudo password", "sudo wants a password", "asks anna for a password"),
    ("sudo: interactive authentication is required", "sudo wants a password", "NOPASSWD"),
    ("sudo-rs: I'm sorry anna. I'm afraid I can't do that", "sudo denied", "does not allow anna"),
    ("anna is not in the sudoers file.", "sudo denied", "NOPASSWD"),
    (
        "Sorry, user anna is not allowed to execute '/bin/sh -c id' as root on host1.",
        "sudo denied",
        "does not allow anna",
    ),
    ("sudo: sorry, you must have a tty to run sudo", "no terminal", "Defaults:anna !requiretty"),
    ("/bin/sh: 1: sudo: not found", "no sudo", "log in as root"),
    ("bash: line 1: sudo: command not found", "no sudo", "Install it"),
    ("/bin/sh: 1: /usr/bin/python3: not found", "no Python", "python3-minimal"),
    ("The module interpreter '/usr/bin/python3.11' was not found.", "no Python", "3.9 or newer"),
    ("bash: line 1: /usr/bin/python3: No such file or directory", "no Python", "install python3"),
    (
        "ansible-core requires a minimum of Python version 3.9. Current version: 3.6.8 (default, Nov 15 2024)",
        "Python too old",
        "ansible_python_interpreter",
    ),
    (
        "SyntaxError: future feature annotations is not defined",
        "Python too old",
        "older than 3.9",
    ),
    ("mkdir: cannot create directory '/home/anna/.ansible': No space left on device", "no space", "Make room"),
]


@pytest.mark.parametrize(
    ("said", "name", "part"), SAID, ids=[f"{name}-{number}" for number, (_, name, _) in enumerate(SAID)]
)
@pytest.mark.parametrize("prefix", ["", BY_SSH])
def test_the_reason_is_told_by_what_was_said(said: str, name: str, part: str, prefix: str) -> None:
    reason = host_access.reason_of(prefix + said)
    assert reason is not None
    assert reason.name == name
    problem = host_access.problem(prefix + said, host="host1", address="192.0.2.1", user="anna")
    assert problem.where == "host host1 (192.0.2.1)"
    assert part in str(problem)
    assert problem.remedy
    assert "{" not in str(problem)


def test_every_reason_is_tried() -> None:
    assert {each.name for each in host_access.REASONS} - {name for _, name, _ in SAID} == {
        "locked",
        "locked by a step",
        "lost lock",
    }


def test_who_holds_the_lock_is_told(tmp_path: Path) -> None:
    """In the words of the lock itself."""
    system = System(str(tmp_path))
    host_lock.take(system, "prod", "ben@two:4711", now=1000)
    with pytest.raises(HostError) as refusal:
        host_lock.take(system, "prod", "anna@one:1", now=1100)
    problem = host_access.problem(str(refusal.value), host="host1", address="192.0.2.1")
    assert "another run works on this control plane: ben@two:4711 " in problem.what
    assert "last seen 100 s ago" in problem.what
    assert f"free after {host_lock.LOCK_SILENCE - 100} s " in problem.remedy
    assert problem.remedy.endswith("-e karmada_confirm_dead=ben@two:4711")


@pytest.mark.parametrize(
    "words",
    [
        "{} is working on prod (last seen 100 s ago, free after 500 s more",
        "{} has a step at work on prod here",
    ],
)
def test_a_job_of_awx_that_holds_the_lock_is_told_as_awx_names_it(words: str) -> None:
    holder = "node1/0/4711/1/awx-job-41.install@jane"
    problem = host_access.problem(words.format(holder), host="host1", address="192.0.2.1")
    assert f"AWX job 41 (install, started by jane), {holder} " in problem.what
    other = host_access.problem(words.format("node1/0/4711/1/nightly"), host="host1", address="192.0.2.1")
    assert "AWX" not in other.what


@pytest.mark.parametrize("holder", ["x;id", "$(id)", "`id`", "a'b", 'a"b', "a|b", "a&b", "a>b", "a*", "${IFS}", "a\\b"])
@pytest.mark.parametrize(
    "words", ["{} is working on prod (last seen 1 s ago, free after 9 s more", "{} has a step at work on prod here"]
)
def test_the_name_of_a_holder_that_root_of_a_host_made_up_is_no_part_of_a_command(holder: str, words: str) -> None:
    """Somebody may copy it into a shell."""
    problem = host_access.problem(words.format(holder), host="host1", address="192.0.2.1")
    assert "karmada_confirm_dead" not in problem.remedy
    assert problem.what.startswith(f"it cannot be looked at: {holder} ")


def test_who_has_lost_the_lock_is_told_in_the_words_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lock, "STEP_SECONDS", 0)
    system = System(str(tmp_path))

    def told(holder: str, dead: str = "") -> Problem:
        with pytest.raises(HostError) as refusal:
            host_lock.take(system, "prod", holder, dead) if dead else host_lock.renew(system, "prod", holder)
        return host_access.problem(str(refusal.value), host="host1", address="192.0.2.1")

    assert "lost its lock, and changes nothing more there: the host was booted" in told("anna@one:1").what
    host_lock.take(system, "prod", "ben@two:4711")
    assert "lost its lock, and changes nothing more there: ben@two:4711 has it" in told("anna@one:1").what
    assert "run again" in told("anna@one:1").remedy
    with host_lock.working(system, "prod", "ben@two:4711"):
        assert "a step of another run is at work there, that of ben@two:4711" in told("anna@one:1", "ben@two:4711").what


def test_what_nobody_thought_of_is_told_as_it_was_said() -> None:
    said = "something\n\n  quite new  \n" + "x" * 1000
    problem = host_access.problem(said, host="host1", address="192.0.2.1")
    assert problem.what.startswith("it cannot be looked at: something; quite new; xxx")
    assert len(problem.what) < 600
    assert host_access.problem(" \n", host="host1", address="192.0.2.1") == Problem(
        "it cannot be looked at: nothing was said why", "host host1 (192.0.2.1)", reason=Reason.HOST_UNREACHABLE
    )


def test_without_a_name_the_user_is_the_one_who_logs_in() -> None:
    problem = host_access.problem("sudo: a password is required", host="host1", address="192.0.2.1")
    assert "asks the user that logs in for a password" in problem.what


def test_texts_fill_in_what_exists_only() -> None:
    for each in host_access.REASONS:
        names = {name for text in (each.what, each.remedy) for _, name, _, _ in string.Formatter().parse(text) if name}
        known = {"host", "address", "user", "job", *each.more, *_groups(each.pattern)}
        assert names <= known, each.name


def _groups(pattern: str) -> set[str]:
    return set(re.compile(pattern).groupindex)
