# SPDX-License-Identifier: Apache-2.0
"""Work of AWX with a project, a source of an inventory and a job, without its server.

Every step is ansible-runner's `transmit | worker | process`, as AWX calls them, and each worker is a process of its own
in a folder of its own, which stands for /runner: what one leaves there, the next does not see. Between an update and a
job the inventory is kept in the form in which AWX's database has it. Read in the sources of AWX 24 and of its plugins.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_runner import interface

#: Where a container has the private data of a job.
INSIDE = "/runner"
#: What a run has of the machine: in a pod of a container group there is no more.
PASSED = ("PATH", "LANG")
_SCRIPT = "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\nprint({!r})\n"


@dataclass(frozen=True)
class Credential:
    """Credential as AWX injects it: variables, and files whose name ``{file}`` in a variable stands for."""

    environment: Mapping[str, str]
    file: str = ""


def bearer_token(host: str, token: str, ca: str = "") -> Credential:
    """Credential of the type "OpenShift or Kubernetes API Bearer Token"; without a CA, AWX has nothing verified."""
    verified = {"K8S_AUTH_VERIFY_SSL": "True", "K8S_AUTH_SSL_CA_CERT": "{file}"}
    more = verified if ca else {"K8S_AUTH_VERIFY_SSL": "False"}
    return Credential({"K8S_AUTH_HOST": host, "K8S_AUTH_API_KEY": token, **more}, ca)


def kubeconfig(content: str) -> Credential:
    """Credential of the type that the guide on AWX has one make."""
    return Credential({"K8S_AUTH_KUBECONFIG": "{file}"}, content)


@dataclass(frozen=True)
class Done:
    """Result of a run that AWX keeps: its status, events and artifacts. ``folder`` is what its worker has left."""

    status: str
    rc: int | None
    events: Sequence[dict[str, Any]]
    artifacts: Path
    folder: Path

    @property
    def output(self) -> str:
        """Output as the page of a job shows it."""
        return "\n".join(each["stdout"] for each in self.events if each.get("stdout"))

    @property
    def statistics(self) -> dict[str, Any]:
        """Data that ``set_stats`` has left, which later nodes of a workflow get as variables."""
        found = [each["event_data"] for each in self.events if each.get("event") == "playbook_on_stats"]
        return dict(found[0].get("artifact_data", {})) if found else {}

    def texts(self) -> dict[str, str]:
        """Everything that is kept, by where it is: events and artifacts, but for ansible-runner's own record.

        The record ``command`` has the environment; AWX keeps it with the values of credentials taken out.
        """
        found = {f"event {each.get('counter')}": json.dumps(each) for each in self.events}
        for path in sorted(self.artifacts.rglob("*")):
            if path.is_file() and path.name != "command":
                found[str(path.relative_to(self.artifacts))] = path.read_text(encoding="utf-8", errors="replace")
        return found


@dataclass
class Awx:
    """One AWX with one project. ``collections`` is the folder that its execution environment has collections in."""

    root: Path
    project: Path
    collections: Path
    user: str = "jane"
    _count: int = field(default=40, init=False)

    def update(self, source: str, *credentials: Credential, verbosity: int = 1) -> tuple[Done, dict[str, Any]]:
        """Update an inventory from a file of the project; returns what ansible-inventory has written, too."""
        number, private, inside = self._private_data()
        output = f"{inside}/artifacts/{number}/output.json"
        command = [
            *("ansible-inventory", "--list", "--export", "-i", f"{inside}/project/{source}", "--output", output),
            *("--playbook-dir", f"{inside}/project/{Path(source).parent}", f"-{'v' * (2 * verbosity + 1)}"),
        ]
        (private / "args").write_text(shlex.join(command), encoding="utf-8")
        environment = {
            **self._environment(inside),
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
            "ANSIBLE_INVENTORY_EXPORT": "True",
            "ANSIBLE_VERBOSE_TO_STDERR": "True",
            "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
            "INVENTORY_SOURCE_ID": "7",
            "INVENTORY_UPDATE_ID": str(number),
        }
        done = self._run(number, private, inside, environment, credentials, {})
        written = done.artifacts / "output.json"
        return done, json.loads(written.read_text(encoding="utf-8")) if written.exists() and done.rc == 0 else {}

    def job(
        self,
        playbook: str,
        stored: Mapping[str, Any],
        *credentials: Credential,
        variables: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
    ) -> Done:
        """Run a job of a template: a playbook of the project on an inventory in its ``stored`` form."""
        number, private, inside = self._private_data()
        script = private / "inventory" / "hosts"
        script.write_text(_SCRIPT.format(json.dumps(stored)), encoding="utf-8")
        script.chmod(0o700)
        (private / "env" / "cmdline").write_text(shlex.join(["-u", "root", *arguments]), encoding="utf-8")
        told = {"job_id": number, "job_template_name": Path(playbook).stem, "user_name": self.user}
        extra = {f"{prefix}_{name}": value for prefix in ("awx", "tower") for name, value in told.items()}
        # AWX marks as unsafe what stands not in the template itself; JSON is YAML.
        (private / "env" / "extravars").write_text(json.dumps({**extra, **(variables or {})}), encoding="utf-8")
        environment = {
            **self._environment(inside),
            "JOB_ID": str(number),
            "INVENTORY_ID": "3",
            "PROJECT_REVISION": "0" * 40,
            "AWX_HOST": "https://awx.example.com",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{inside}/cp",
        }
        run = {"playbook": playbook, "inventory": str(script)}
        return self._run(number, private, inside, environment, credentials, run)

    def _private_data(self) -> tuple[int, Path, Path]:
        """Number of a new run, the folder that AWX prepares for it, and the one that its worker will have."""
        self._count += 1
        private = Path(tempfile.mkdtemp(prefix=f"awx_{self._count}_", dir=self.root))
        for name in ("env", "inventory", "cp", "requirements_collections"):
            (private / name).mkdir(mode=0o700)
        shutil.copytree(self.project, private / "project", symlinks=True, ignore=shutil.ignore_patterns(".git"))
        return self._count, private, Path(tempfile.mkdtemp(prefix=f"runner_{self._count}_", dir=self.root))

    def _environment(self, inside: Path) -> dict[str, str]:
        folders = (inside / "requirements_collections", inside / ".ansible/collections", self.collections)
        return {
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(map(str, folders)),
            "ANSIBLE_FORCE_COLOR": "True",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_PARAMIKO_RECORD_HOST_KEYS": "False",
            "AWX_PRIVATE_DATA_DIR": str(self.root),
        }

    def _run(
        self,
        number: int,
        private: Path,
        inside: Path,
        environment: dict[str, str],
        credentials: Sequence[Credential],
        run: Mapping[str, Any],
    ) -> Done:
        for each in credentials:
            environment |= _injected(each, private, inside)
        common = {"private_data_dir": str(private), "ident": number}
        settings = {"suppress_ansible_output": True, "pexpect_timeout": 0.5}
        kept = {name: os.environ[name] for name in PASSED if name in os.environ}
        # Nothing of whoever starts this: no kubeconfig, no settings of Ansible, no keys.
        kept |= {"HOME": str(inside), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}
        events: list[dict[str, Any]] = []
        with tempfile.NamedTemporaryFile(dir=self.root) as sent, tempfile.NamedTemporaryFile(dir=self.root) as answered:
            interface.run(
                streamer="transmit", _output=sent, envvars=environment, settings=settings, suppress_env_files=True,
                **common, **run,
            )  # fmt: skip
            sent.seek(0)
            subprocess.run(
                [str(Path(sys.executable).with_name("ansible-runner")), "worker", f"--private-data-dir={inside}"],
                stdin=sent, stdout=answered, env=kept, cwd=inside, check=False,
            )  # fmt: skip
            answered.seek(0)
            # AWX keeps events in its database and has ansible-runner write none of them.
            processed = interface.run(
                streamer="process", _input=answered, quiet=True, event_handler=events.append, **common
            )
        artifacts = private / "artifacts" / str(number)
        rc = artifacts / "rc"
        code = int(rc.read_text(encoding="ascii")) if rc.exists() else None
        return Done(processed.status, code, events, artifacts, inside)


def _injected(credential: Credential, private: Path, inside: Path) -> dict[str, str]:
    """Environment of a credential. Its file has another name in each run."""
    name = ""
    if credential.file:
        handle, path = tempfile.mkstemp(dir=private / "env")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(credential.file)
        name = str(inside / "env" / Path(path).name)
    return {key: value.replace("{file}", name) for key, value in credential.environment.items()}


def stored(exported: Mapping[str, Any]) -> dict[str, Any]:
    """Output of the script of a job for an inventory that ansible-inventory has exported and AWX has kept.

    Each group has its own hosts, children and variables; one with neither hosts nor children is named among the
    children of ``all`` only.
    """
    hosts = dict(exported.get("_meta", {}).get("hostvars", {}))
    groups: dict[str, Any] = {}
    for name, group in exported.items():
        if name == "_meta":
            continue
        kept = {key: group[key] for key in ("hosts", "children", "vars") if group.get(key)}
        for host in kept.get("hosts", ()):
            hosts.setdefault(host, {})
        if name == "all":
            groups["all"] = {key: each for key, each in kept.items() if key == "vars"}
        elif kept.keys() & {"hosts", "children"}:
            groups[name] = kept
    everything = {name for group in exported.values() for name in group.get("children", ())} - {"all"}
    groups.setdefault("all", {})["children"] = sorted(everything)
    about = {"remote_tower_enabled": "true", "remote_host_enabled": "true"}
    numbered = {
        host: {**variables, **about, "remote_tower_id": number, "remote_host_id": number}
        for number, (host, variables) in enumerate(sorted(hosts.items()), 1)
    }
    return {**groups, "_meta": {"hostvars": numbered}}
