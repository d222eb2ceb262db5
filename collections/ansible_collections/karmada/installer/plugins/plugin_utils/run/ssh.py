# SPDX-License-Identifier: Apache-2.0
"""Ansible connection variables for the plain hosts of a document. No I/O."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ..components.spec import HostEntry, Spec
from ..document import secret_folder
from ..document.crd import shown
from ..problems import Problem, ProblemsError, Reason

#: Keys of the Secrets that the document may name.
PRIVATE_KEY, KNOWN_HOSTS = "ssh-privatekey", "known_hosts"
#: Forms of words on ssh's command line, wherever they come from. The schema is no laxer than these.
_FORMS = {
    "address": re.compile(r"[A-Za-z0-9:][-A-Za-z0-9.:]*"),
    "user": re.compile(r"[a-z_][-a-z0-9_]*"),
    "port": re.compile(r"[1-9][0-9]{0,4}"),
    "hostKeyFingerprint": re.compile(r"SHA256:[A-Za-z0-9+/]{43}"),
}
#: Field of the document → key of its Secret.
REFERENCES = {"privateKeySecretRef": PRIVATE_KEY, "knownHostsSecretRef": KNOWN_HOSTS}
#: Option by which ssh refuses hosts whose key is not known.
CHECKED = "StrictHostKeyChecking=yes"
#: Folder of the Secrets' files (``ssh_files``), as a template: the inventory may be read by another process than the
#: one that connects, which knows only its own folder.
OF_THIS_RUN = "{{ lookup('karmada.installer.ssh_folder') }}"
_PLACE = "/folder-of-this-run"
#: Folder for the sockets of persistent connections, as a template for the same reason.
CONTROL_FOLDER = "{{ lookup('karmada.installer.ssh_folder', 'connections') }}"
#: Texts of our own, so a value that contains one may be marked as a template.
TEMPLATES = (OF_THIS_RUN, CONTROL_FOLDER)


def file_of(reference: str, settings: Mapping[str, Any], secrets: str | None, of_this_run: str) -> str | None:
    """Path of the file that a field of ``spec.ssh`` refers to; None if the field is not set.

    Raises ProblemsError if the name is not valid for a Secret.
    """
    if reference not in settings:
        return None
    name = str(settings[reference]["name"])
    folder = secret_folder.path(secrets, name, reference) if secrets else of_this_run
    return f"{folder}/{REFERENCES[reference]}"


def word(entry: Mapping[str, Any], field: str) -> str:
    """Field of a host, as a word for ssh's command line; empty if it is not set.

    Raises ProblemsError if it does not have the form that the schema requires: an entry may come from a record that
    others can write, and options of ssh can start programs.
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
    host: Mapping[str, Any],
    settings: Mapping[str, Any],
    secrets: str | None,
    of_this_run: str = OF_THIS_RUN,
    working_directory: str = "",
) -> dict[str, Any]:
    """Connection variables of a host. ``secrets`` is the directory that stands for Secrets, or None.

    Without it, files of Secrets are in ``of_this_run``; a value that contains this contains nothing from the document.
    ``working_directory`` is the one that a relative ``secrets`` is meant from.
    Logins by key only, and the refusal of unknown host keys, do not depend on the user's own SSH configuration.
    """
    # The template is inserted after all quoting, which would break it.
    folder = _PLACE if of_this_run == OF_THIS_RUN else of_this_run
    key, known_hosts = (file_of(reference, settings, secrets, folder) for reference in REFERENCES)
    found: dict[str, Any] = {
        "ansible_host": word(host, "address"),
        "ansible_port": int(word(host, "port") or word(settings, "port")),
        "ansible_pipelining": True,
        # ansible-runner and AWX switch the check off in the environment. Ansible then puts an option to that effect
        # before ours, and ssh takes the first of two equal options.
        "ansible_host_key_checking": True,
        # Ansible puts these first, so no option that it adds later overrides the check. Its own default enables
        # compression, which slows down the transfer of programs on any network of a data centre.
        "ansible_ssh_args": f"-o {CHECKED} -o ControlMaster=auto -o ControlPersist=60s",
        # Hosts with systemd have it there; the discovery of another one takes a round trip to each host.
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    if user := word(settings, "user"):
        found["ansible_user"] = user
    if key:
        found["ansible_ssh_private_key_file"] = key.replace(_PLACE, OF_THIS_RUN)
    options = options_of(key, known_hosts, word(host, "hostKeyFingerprint"))
    # Quoted by the shell's rules, by which Ansible splits these options.
    found["ansible_ssh_common_args"] = shlex.join(options).replace(_PLACE, OF_THIS_RUN)
    # A persistent connection that another playbook opened, perhaps without host key checks, would be reused.
    # Equal relative paths are other files in another folder.
    looked_at = hashlib.sha256(f"{working_directory}{found['ansible_ssh_common_args']}".encode()).hexdigest()
    found["ansible_control_path_dir"] = f"{CONTROL_FOLDER}/k{looked_at[:6]}"
    return found


def options_of(key: str | None, known_hosts: str | None, fingerprint: str) -> list[str]:
    """Options of ssh apart from the key itself, one argument each; ``known_hosts`` is a file.

    ``fingerprint`` is a ``word``, or empty.
    """
    options = [CHECKED, "PasswordAuthentication=no", "KbdInteractiveAuthentication=no"]
    # A dead host is noticed after half a minute, instead of the quarter of an hour that the kernel retransmits.
    options += ["ServerAliveInterval=10", "ServerAliveCountMax=3"]
    if key:
        options.append("IdentitiesOnly=yes")
    # A fingerprint decides alone; ssh would also accept any key in known_hosts files.
    if fingerprint:
        options += ["UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null"]
        options.append(f"KnownHostsCommand={_accepting(fingerprint)}")
    elif known_hosts:
        options.append(f"UserKnownHostsFile={_file(known_hosts)}")
    return [f"-o{option}" for option in options]


def roles(spec: Spec, host: HostEntry) -> list[str]:
    """Roles of a host; loadBalancer is added if the endpoint needs one and no host has that role."""
    given = list(host.roles)
    if spec.endpoint.type != "VirtualIP" or any("loadBalancer" in each.roles for each in spec.hosts):
        return given
    return [*given, "loadBalancer"] if "controlPlane" in given else given


def _accepting(fingerprint: str) -> str:
    """Command that prints the key a host has just shown if, and only if, it has this fingerprint.

    ssh replaces %f, %H, %t and %K by fingerprint, name, type and key. It runs the command twice, first before it has
    seen any key, and gives up when the command fails, so an unknown key must not be a failure. A fingerprint has only
    characters of base64 (``word``).
    """
    return f'/bin/sh -c "test %f != {fingerprint} || echo %H %t %K"'


def _file(path: str) -> str:
    """Path as one word of ssh's configuration, which splits words at blanks and expands what follows %."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
