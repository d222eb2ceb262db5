# SPDX-License-Identifier: Apache-2.0
"""How Ansible gets to the plain hosts of a document. No I/O."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ..document import secret_folder
from ..document.crd import shown
from ..problems import Problem, ProblemsError, Reason

#: Keys of the Secrets that the document may name.
PRIVATE_KEY, KNOWN_HOSTS = "ssh-privatekey", "known_hosts"
#: What is a word of ssh's command line has this form, wherever it comes from. The schema asks for no less.
_FORMS = {
    "address": re.compile(r"[A-Za-z0-9:][-A-Za-z0-9.:]*"),
    "user": re.compile(r"[a-z_][-a-z0-9_]*"),
    "port": re.compile(r"[1-9][0-9]{0,4}"),
    "hostKeyFingerprint": re.compile(r"SHA256:[A-Za-z0-9+/]{43}"),
}
#: Field of the document → that key.
REFERENCES = {"privateKeySecretRef": PRIVATE_KEY, "knownHostsSecretRef": KNOWN_HOSTS}
#: The option by which ssh refuses a host whose key is not known.
CHECKED = "StrictHostKeyChecking=yes"
#: Where a run keeps their content if they are objects of a cluster (``ssh_files``), as a template: an inventory may be
#: read by another process than the one that connects, and that knows its own folder only.
OF_THIS_RUN = "{{ lookup('karmada.installer.ssh_folder') }}"
_PLACE = "/folder-of-this-run"
#: Where Ansible keeps the sockets of connections that stay open, as a template for the same reason.
CONTROL_FOLDER = "{{ lookup('karmada.installer.ssh_folder', 'connections') }}"
#: Our own text, so that a value with it in it may be marked as a template.
TEMPLATES = (OF_THIS_RUN, CONTROL_FOLDER)


def file_of(reference: str, settings: Mapping[str, Any], secrets: str | None, of_this_run: str) -> str | None:
    """The file with what a field of ``spec.ssh`` refers to; None if it is not given.

    Raises ProblemsError if its name is none that a Secret can have.
    """
    if reference not in settings:
        return None
    name = str(settings[reference]["name"])
    folder = secret_folder.path(secrets, name, reference) if secrets else of_this_run
    return f"{folder}/{REFERENCES[reference]}"


def word(entry: Mapping[str, Any], field: str) -> str:
    """What this field of a host says, as a word for ssh; empty if it is not given.

    Raises ProblemsError if it is not of the form that the schema asks for: an entry may come from a record that others
    can write, and ssh starts programs that it is told to.
    """
    value = entry.get(field)
    if value is None:
        return ""
    if not _FORMS[field].fullmatch(str(value)):
        raise ProblemsError(
            Problem(
                f"{shown(value)} is not used",
                field,
                f"write {field} of a host in the form of the reference",
                reason=Reason.INVALID_DOCUMENT,
            )
        )
    return str(value)


def variables(
    host: Mapping[str, Any], settings: Mapping[str, Any], secrets: str | None, of_this_run: str = OF_THIS_RUN
) -> dict[str, Any]:
    """Connection variables of a host. ``secrets`` is the directory that stands for Secrets, or None.

    Without it, files of Secrets are in ``of_this_run``; a value with that in it has nothing of the document beside it.

    Keys only, and no host whose key is not known: these are not left to the configuration of who runs the playbook.
    """
    # A template is put in after all quoting, which it would not survive.
    folder = _PLACE if of_this_run == OF_THIS_RUN else of_this_run
    key, known_hosts = (file_of(reference, settings, secrets, folder) for reference in REFERENCES)
    found: dict[str, Any] = {
        "ansible_host": word(host, "address"),
        "ansible_port": int(word(host, "port") or word(settings, "port")),
        "ansible_pipelining": True,
        # ansible-runner and AWX switch the check off in the environment. Ansible then tells ssh not to check, before it
        # passes on our options, and of an option that is there twice ssh takes the first.
        "ansible_host_key_checking": True,
        # Ansible passes these on before anything else, so nothing that it adds later comes before the check.
        # Its own default compresses, which for programs takes longer than any network of a data centre.
        "ansible_ssh_args": f"-o {CHECKED} -o ControlMaster=auto -o ControlPersist=60s",
        # Hosts with systemd have it there; to look for another one takes a round trip to each host.
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    if user := word(settings, "user"):
        found["ansible_user"] = user
    if key:
        found["ansible_ssh_private_key_file"] = key.replace(_PLACE, OF_THIS_RUN)
    options = options_of(key, known_hosts, word(host, "hostKeyFingerprint"))
    # By the shell's rules, by which Ansible takes these options apart.
    found["ansible_ssh_common_args"] = shlex.join(options).replace(_PLACE, OF_THIS_RUN)
    # A connection that another playbook has opened, perhaps without looking who is there, would be taken over from it.
    looked_at = hashlib.sha256(found["ansible_ssh_common_args"].encode()).hexdigest()
    found["ansible_control_path_dir"] = f"{CONTROL_FOLDER}/k{looked_at[:6]}"
    return found


def options_of(key: str | None, known_hosts: str | None, fingerprint: str) -> list[str]:
    """Options of ssh apart from the key itself, each an argument; ``known_hosts`` is a file.

    ``fingerprint`` is a ``word``, or empty.
    """
    options = [CHECKED, "PasswordAuthentication=no", "KbdInteractiveAuthentication=no"]
    # A host that is gone without a word is known to be after half a minute, and not after the quarter of an hour that
    # the kernel goes on sending.
    options += ["ServerAliveInterval=10", "ServerAliveCountMax=3"]
    if key:
        options.append("IdentitiesOnly=yes")
    # A fingerprint decides by itself; ssh would take the first of several files, and any key that one of them has.
    if fingerprint:
        options += ["UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null"]
        options.append(f"KnownHostsCommand={_accepting(fingerprint)}")
    elif known_hosts:
        options.append(f"UserKnownHostsFile={_file(known_hosts)}")
    return [f"-o{option}" for option in options]


def roles(spec: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """The roles of a host, with loadBalancer where no host is given it and the endpoint wants one."""
    given = list(host["roles"])
    if spec["endpoint"]["type"] != "VirtualIP" or any("loadBalancer" in each["roles"] for each in spec["hosts"]):
        return given
    return [*given, "loadBalancer"] if "controlPlane" in given else given


def _accepting(fingerprint: str) -> str:
    """A command that knows the key which a host has just shown if, and only if, it has this fingerprint.

    ssh puts fingerprint, name, type and key in the places of %f, %H, %t and %K. It asks twice, the first time before it
    has seen any key, and gives up when the command fails: not to know a key is no failure. A fingerprint has no other
    characters than those of base64 (``word``).
    """
    return f'/bin/sh -c "test %f != {fingerprint} || echo %H %t %K"'


def _file(path: str) -> str:
    """A path as one word of ssh's own configuration, which takes words apart at blanks and fills in what follows %."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
