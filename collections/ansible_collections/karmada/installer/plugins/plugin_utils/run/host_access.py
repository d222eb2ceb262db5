# SPDX-License-Identifier: Apache-2.0
"""Reasons why a plain host could not be looked at, found in the words of ssh, sudo, Python and Ansible, with remedies.

The patterns are those of OpenSSH 9 and 10, sudo 1.9, sudo-rs and ansible-core 2.16 to 2.20, in any locale: these
programs do not translate the messages used here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import run_process
from ..problems import Problem, ProblemsError, Reason

#: Oldest Python that our modules run on.
OLDEST_PYTHON = (3, 9)
_PYTHON = ".".join(map(str, OLDEST_PYTHON))


@dataclass(frozen=True)
class Refusal:
    """One kind of failure. ``pattern`` is searched for in the message of the host.

    ``what`` and ``remedy`` may use the pattern's named groups and those of ``more`` (name → another pattern with a
    group ``value``), and ``{host}``, ``{address}``, ``{user}`` and ``{job}``, the job of AWX that a ``holder`` names.
    """

    name: str
    reason: Reason
    pattern: str
    what: str
    remedy: str
    more: Mapping[str, str] = field(default_factory=dict)


_KNOW_IT = (
    "on the host itself, `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints its fingerprint: write that to "
    "hostKeyFingerprint of the host, or add the key to the known_hosts file"
)
#: Name of a holder of a lock, of which no shell makes anything else.
_HOLDER = r"[A-Za-z0-9_.@:/+-]+"
_SUDOERS = "allow it with NOPASSWD: in a file of /etc/sudoers.d on the host"

#: The first match is taken, so specific reasons come before general ones.
REASONS: tuple[Refusal, ...] = (
    Refusal(
        "changed host key",
        Reason.HOST_KEY_NOT_TRUSTED,
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed",
        "it shows another SSH host key than the one that is known{fingerprint}",
        "find out whether the host was installed anew; if nobody can tell why, somebody may stand between. If it was, "
        "replace the old key in known_hosts or hostKeyFingerprint",
        {"fingerprint": r"The fingerprint for the \S+ key sent by the remote host is\s+(?P<value>SHA256:[^\s.]+)"},
    ),
    Refusal(
        "revoked host key",
        Reason.HOST_KEY_NOT_TRUSTED,
        r"REVOKED HOST KEY DETECTED|host key for \S+ (was|is marked as) revoked",
        "its SSH host key is marked as revoked",
        "give the host a new key, and take the old one out of known_hosts",
    ),
    Refusal(
        "unknown host key",
        Reason.HOST_KEY_NOT_TRUSTED,
        r"No (?P<kind>\S+) host key is known for|Host key verification failed|"
        r"authenticity of host .* can't be established",
        "its SSH host key is not known",
        _KNOW_IT,
    ),
    Refusal(
        "host key of another kind",
        Reason.HOST_KEY_NOT_TRUSTED,
        r"no matching host key type found",
        "it offers no kind of SSH host key that this machine accepts",
        "give it an ed25519 key (ssh-keygen -A on the host), or set HostKeyAlgorithms in your SSH configuration",
    ),
    Refusal(
        "readable private key",
        Reason.SSH_LOGIN_REFUSED,
        r"UNPROTECTED PRIVATE KEY FILE|Load key \"[^\"]*\": bad permissions",
        "the private key can be read by others, so ssh does not use it",
        "set its mode to 0600",
    ),
    Refusal(
        "unusable private key",
        Reason.SSH_LOGIN_REFUSED,
        r"Load key \"[^\"]*\": (?P<why>[^\r\n]+)|incorrect passphrase supplied to decrypt private key",
        "the private key cannot be used",
        "name one without passphrase in ssh.privateKeySecretRef, or add it to ssh-agent before the run",
    ),
    Refusal(
        "too many keys",
        Reason.SSH_LOGIN_REFUSED,
        r"Too many authentication failures",
        "ssh offered it more keys than it wants to try",
        "name the one to use in ssh.privateKeySecretRef, or set IdentitiesOnly in your SSH configuration",
    ),
    Refusal(
        "key refused",
        Reason.SSH_LOGIN_REFUSED,
        r"Permission denied \((?P<methods>[^)]*)\)",
        "it accepts none of our keys for this user (it offers: {methods})",
        "add the public key to ~/.ssh/authorized_keys of {user} on the host, or name the right ssh.user and "
        "ssh.privateKeySecretRef",
    ),
    Refusal(
        "ssh configuration",
        Reason.LOCAL_FILE_UNUSABLE,
        r"Bad owner or permissions on (?P<file>\S+)|Bad configuration option: (?P<option>\S+)",
        "ssh does not accept its own configuration on this machine",
        "mend it; `ssh {address}` shows the same",
    ),
    Refusal(
        "user of no list",
        Reason.SSH_LOGIN_REFUSED,
        r"No user exists for uid (?P<uid>\d+)",
        "ssh does not start here, as this machine has no name for the user that runs it (uid {uid})",
        "add the user to /etc/passwd here; in a container of AWX the entry point of the execution environment does, so "
        "let the container begin with that",
    ),
    # OpenSSH's words where it makes the socket, and where it reads the name (misc.c, ssh.c).
    Refusal(
        "control path",
        Reason.LOCAL_FILE_UNUSABLE,
        r"(?:unix_listener: (?:path )?\"|ControlPath too long \(')(?P<file>[^'\"]+)['\"] (?:too long|>=)",
        "ssh cannot make the socket {file}, whose name is too long",
        "have connections kept in a folder with a shorter name (control_path_dir in ansible.cfg, or "
        "ANSIBLE_SSH_CONTROL_PATH_DIR)",
    ),
    Refusal(
        "name not found",
        Reason.HOST_UNREACHABLE,
        r"Could not resolve hostname (?P<name>\S+): ",
        "ssh finds no address for the name {name}",
        "look at ansible_host of the host in your inventory and at Host in your SSH configuration",
    ),
    Refusal(
        "refused",
        Reason.HOST_UNREACHABLE,
        r"Connection refused",
        "nothing accepts connections on the port of SSH there",
        "start sshd on the host, or write its port to ssh.port or port of the host",
    ),
    Refusal(
        "no route",
        Reason.HOST_UNREACHABLE,
        r"No route to host|Network is unreachable|Host is down",
        "there is no way to its address from here",
        "see that it is switched on, that the address is right, and that this machine has a route there",
    ),
    Refusal(
        "timed out",
        Reason.HOST_UNREACHABLE,
        r"(Connection|Operation) timed out|Timed out during|Timeout, server \S+ not responding",
        "it does not answer at its address",
        "see that it is switched on, that the address is right, and that no firewall drops connections to its SSH port",
    ),
    # A persistent connection does not notice at once that its host has lost power.
    Refusal(
        "silent",
        Reason.HOST_UNREACHABLE,
        r"waiting for privilege escalation prompt",
        "it does not answer any more on the connection to it, or its sudo does not",
        "see that it is switched on, and that there is a way to it; if so, see what holds up `sudo true` there",
    ),
    Refusal(
        "closed",
        Reason.HOST_UNREACHABLE,
        r"Not allowed at this time|Connection (closed|reset) by|kex_exchange_identification|Broken pipe",
        "it closed the connection before anybody logged in",
        "look at the log of sshd on the host; MaxStartups, PerSourcePenalties, AllowUsers and fail2ban do this",
    ),
    Refusal(
        "no sudo",
        Reason.PRIVILEGES_REFUSED,
        r"sudo: (command )?not found|sudo: No such file or directory|sudo\S*: not found",
        "there is no sudo",
        "install it, or log in as root (ssh.user: root)",
    ),
    Refusal(
        "no terminal",
        Reason.PRIVILEGES_REFUSED,
        r"you must have a tty to run sudo",
        "its sudo wants a terminal (requiretty)",
        "add `Defaults:{user} !requiretty` to a file in /etc/sudoers.d on the host",
    ),
    Refusal(
        "sudo wants a password",
        Reason.PRIVILEGES_REFUSED,
        r"a password is required|[Mm]issing (sudo|become) password|Incorrect sudo password|"
        r"interactive authentication is required",
        "sudo asks {user} for a password, or allows nothing at all",
        _SUDOERS,
    ),
    Refusal(
        "sudo denied",
        Reason.PRIVILEGES_REFUSED,
        r"is not in the sudoers file|is not allowed to (execute|run sudo)|I'm sorry \S+\. I'm afraid I can't do that",
        "sudo does not allow {user} to do what is needed",
        _SUDOERS,
    ),
    Refusal(
        "Python too old",
        Reason.UNSUITABLE_HOST,
        r"requires a minimum of .*Python.*Current version: (?P<version>[\d.]+)|"
        r"future feature annotations is not defined",
        f"its Python is older than {_PYTHON}",
        f"install Python {_PYTHON} or newer beside it and name it in ansible_python_interpreter of the host",
    ),
    Refusal(
        "no Python",
        Reason.UNSUITABLE_HOST,
        r"module interpreter '[^']+' was not found|python[\d.]*: (command )?not found|"
        r"[Nn]o python interpreters found|python[\d.]*: No such file or directory",
        "there is no Python 3",
        f"install python3 ({_PYTHON} or newer); on Debian and Ubuntu, apt-get install python3-minimal is enough",
    ),
    Refusal(
        "no space",
        Reason.INSUFFICIENT_RESOURCES,
        r"No space left on device",
        "its disk is full",
        "make room; Ansible needs some below the home folder of {user}, too",
    ),
    Refusal(
        "locked",
        Reason.LOCKED,
        # Root of a host may say anything, and the remedy is a command that somebody may copy.
        rf"(?<!\S)(?P<holder>{_HOLDER}) is working on (?P<instance>\S+) "
        r"\(last seen (?P<seconds>\d+) s ago, free after (?P<left>\d+) s more",
        "another run works on this control plane: {job}{holder} (machine/boot/process/start[/run]), last seen "
        "{seconds} s ago",
        "wait for it to end; if it has died, the host is free after {left} s more of silence. If it is certain that it "
        "is dead, run again with its name: -e karmada_confirm_dead={holder}",
    ),
    Refusal(
        "locked by a step",
        Reason.LOCKED,
        rf"(?<!\S)(?P<holder>{_HOLDER}) has a step at work on (?P<instance>\S+) here",
        "a step of another run is at work there, that of {job}{holder} (machine/boot/process/start[/run])",
        "run again in a minute: it ends by itself, also where its run was killed. If it does not, see what holds up "
        "systemctl there",
    ),
    Refusal(
        "lost lock",
        Reason.LOCK_LOST,
        r"has lost the lock of (?P<instance>\S+) on this host, and changes nothing more there: (?P<why>[^;]+); ",
        "this run has lost its lock, and changes nothing more there: {why}",
        "see that no other run works on this control plane, and run again: it goes on from what is there",
    ),
    Refusal(
        "answer without end",
        Reason.HOST_STEP_FAILED,
        r"it answered more than (?P<most>\d+ MiB)|it did not end its answer within (?P<most_seconds>\d+ s)",
        "it did not end what it answered: {most}{most_seconds} are allowed, and nothing of it is used",
        "see what the shell of {user} and sudo print there, and what keeps Python busy; nothing of ours prints as much "
        "or takes as long, so see also who else is root there",
    ),
    # The message of ssh follows in the text, so any reason above is more specific.
    Refusal(
        "lost",
        Reason.HOST_UNREACHABLE,
        r"Data could not be sent to remote host",
        "the connection to it was lost",
        "see that it is switched on, and that there is a way to its address from here",
    ),
)


class LostError(ProblemsError):
    """A host is not reached, or not any more: whatever is asked of it next would only wait."""


def says_too_little(refusal: str) -> bool:
    """Return whether another attempt is likely to give a better reason.

    ssh may end before Ansible has sent it everything, and Ansible may then stop reading before ssh has said why.
    """
    reason = reason_of(refusal) if refusal else None
    return reason is not None and reason.name == "lost"


def reason_of(refusal: str) -> Refusal | None:
    """Reason that a message matches; None if it matches none."""
    return next((each for each in REASONS if re.search(each.pattern, refusal)), None)


def problem(refusal: str, *, host: str, address: str, user: str = "") -> Problem:
    """Problem for a host that could not be looked at, with a remedy if the reason is known."""
    where = f"host {host} ({address})"
    reason = reason_of(refusal)
    if reason is None:
        return Problem(f"it cannot be looked at: {_trimmed(refusal)}", where, "", reason=Reason.HOST_UNREACHABLE)
    said: dict[str, Any] = {"host": host, "address": address, "user": user or "the user that logs in"}
    found = re.search(reason.pattern, refusal)
    said.update({name: value or "" for name, value in (found.groupdict() if found else {}).items()})
    job = run_process.job_in_words(said.get("holder", ""))
    said["job"] = f"{job}, " if job else ""
    for name, pattern in reason.more.items():
        detail = re.search(pattern, refusal)
        said[name] = f" ({detail['value']})" if detail else ""
    return Problem(reason.what.format(**said), where, reason.remedy.format(**said), reason=reason.reason)


def _trimmed(text: str) -> str:
    """Text without empty lines, at most 500 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines)[:500] or "nothing was said why"
