# SPDX-License-Identifier: Apache-2.0
"""Credentials as AWX injects them into an update or a job, by its own code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import awx_packages
import yaml

#: Type with a key for hosts, of which AWX's own task makes something, and no code of the type.
MACHINE = "ssh"
#: Where a container has the private data of a job.
INSIDE = "/runner"
#: The types of credentials that users copy.
TYPES = Path(__file__).resolve().parents[3] / "examples/awx/controller/credential_types.yml"


@dataclass(frozen=True)
class Credential:
    """Credential of AWX: what somebody has typed into the fields of a type, by the name of that."""

    type: str
    inputs: Mapping[str, Any]

    def inject(self, private: Path, inside: Path) -> tuple[dict[str, str], list[str]]:
        """Environment and arguments for a job with this private data. Its files have other names each time.

        An update takes the environment alone.
        """
        if self.type == MACHINE:
            return {}, self._of_a_machine(private)
        interfaces = "awx_plugins.interfaces._temporary_private_"
        given = _of_awx(f"{interfaces}credential_api").Credential(dict(self.inputs))
        environment: dict[str, str] = {}
        arguments: list[str] = []
        inject = _of_awx(f"{interfaces}inject_api").inject_credential
        inject(_type_of(self.type), given, environment, {}, arguments, str(private))
        # Variables are in a file, too, which names the other one.
        for variables in (each for each in arguments if each.startswith("@")):
            path = private / Path(variables[1:]).relative_to(INSIDE)
            text = path.read_text(encoding="utf-8")
            path.unlink()
            path.write_text(text.replace(f"{INSIDE}/", f"{inside}/"), encoding="utf-8")
            path.chmod(0o400)
        moved = {name: value.replace(f"{INSIDE}/", f"{inside}/") for name, value in environment.items()}
        return moved, [each.replace(f"@{INSIDE}/", f"@{inside}/") for each in arguments]

    def _of_a_machine(self, private: Path) -> list[str]:
        """Arguments for a job whose key ansible-runner is to give to an ssh-agent, from this file and no other."""
        text = self.inputs["ssh_key_data"]
        file = private / "env" / "ssh_key"
        # ssh-add takes none of OpenSSH's own form without the end of its last line.
        file.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
        file.chmod(0o600)
        return ["-u", self.inputs["username"]]


def _of_awx(module: str) -> Any:
    if (folder := str(awx_packages.folder())) not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(module)


def _type_of(name: str) -> Any:
    """A type that AWX brings along, by the name of its definition there, or one of those that users copy."""
    if found := getattr(_of_awx("awx_plugins.credentials.plugins"), name, None):
        return found
    # The role that makes the objects joins the braces.
    text = TYPES.read_text(encoding="utf-8").replace("{  {", "{{")
    (own,) = (each for each in yaml.safe_load(text)["controller_credential_types"] if each["name"] == name)
    return SimpleNamespace(managed=False, custom_injectors=None, **own)


def bearer_token(host: str, token: str, ca: str = "") -> Credential:
    """Credential of the type "OpenShift or Kubernetes API Bearer Token"; without a CA, AWX has nothing verified."""
    typed = {"host": host, "bearer_token": token, "verify_ssl": True, "ssl_ca_cert": ca}
    return Credential("kubernetes_bearer_token", typed)


def machine(username: str, key: str) -> Credential:
    """Credential of the type "Machine": who logs in to hosts, and with which private key."""
    return Credential(MACHINE, {"username": username, "ssh_key_data": key})


def backup_key(content: str) -> Credential:
    """Credential of the type with the private key of backups that users copy."""
    return Credential("Karmada backup key", {"identity": content})


def kubeconfig(content: str, name: str = "Karmada host cluster") -> Credential:
    """Credential of a type with a kubeconfig that users copy."""
    return Credential(name, {"kubeconfig": content})
