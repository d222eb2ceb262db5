# SPDX-License-Identifier: Apache-2.0
"""Work of AWX with a project, a source of an inventory and a job, without its server.

Every step is ansible-runner's `transmit | worker | process`, as AWX calls them, and each worker is a process of its own
in a folder of its own, which stands for /runner: what one leaves there, the next does not see. Between an update and a
job the inventory is kept in the form in which AWX's database has it. Credentials are injected by AWX's own code. Read
in the sources of AWX 24 and of its plugins.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kill_tree
from ansible_runner import interface
from awx_credentials import Credential

HERE = Path(__file__).resolve().parent
#: What a run has of the machine: in a pod of a container group there is no more.
PASSED = ("PATH", "LANG")
#: User of a container, of no list, as OpenShift draws one.
SOMEBODY = 1000660000
_CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_SCRIPT = "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\nprint({!r})\n"
#: Told of each event of a job, with the process of its worker, which it may kill.
Watch = Callable[[Mapping[str, Any], "subprocess.Popen[bytes]"], None]


@dataclass(frozen=True)
class Done:
    """Result of a run that AWX keeps: its status, events and artifacts. ``folder`` is what its worker has left.

    ``began`` and ``ended`` are the times of its worker.
    """

    status: str
    rc: int | None
    events: Sequence[dict[str, Any]]
    artifacts: Path
    folder: Path
    began: datetime
    ended: datetime
    seconds: float = 0.0

    @property
    def number(self) -> int:
        """Number of the update or job."""
        return int(self.artifacts.name)

    @property
    def changed(self) -> int:
        """Number of steps that changed something, by Ansible's count at the end."""
        found = [each["event_data"] for each in self.events if each.get("event") == "playbook_on_stats"]
        return sum(found[0].get("changed", {}).values()) if found else 0

    @property
    def silence(self) -> float:
        """Most seconds without output, from the start of the worker to its end, as an idle timeout counts them."""
        told = [moment(each["created"]) for each in self.events if each.get("stdout")]
        return max((b - a).total_seconds() for a, b in itertools.pairwise([self.began, *told, self.ended]))

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
    """One AWX with one project. ``collections`` is the folder that its execution environment has collections in.

    ``old`` is one of 2024: it names collections by a variable that Ansible does not know any more. ``container`` has
    workers run as in one (see awx_container.sh), which shows them no home folder but what is named here; without it
    they are processes of this machine. ``idle_timeout`` is AWX's setting: seconds without output that kill a job.
    ``listed`` has the user of a container added to the list of users, as the entry point of an execution environment
    does: ssh starts for no other.
    """

    root: Path
    project: Path
    collections: Path
    user: str = "jane"
    old: bool = False
    container: Sequence[Path] | None = None
    idle_timeout: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(41))
    listed: bool = False

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
        watch: Watch | None = None,
        timeout: int = 0,
    ) -> Done:
        """Run a job of a template: a playbook of the project on an inventory in its ``stored`` form.

        ``timeout`` is the one of a template: seconds after which AWX has the job killed.
        """
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
        return self._run(number, private, inside, environment, credentials, run, watch, timeout)

    def _private_data(self) -> tuple[int, Path, Path]:
        """Number of a new run, the folder that AWX prepares for it, and the one that its worker will have."""
        number = next(self.numbers)
        private = Path(tempfile.mkdtemp(prefix=f"awx_{number}_", dir=self.root))
        for name in ("env", "inventory", "cp", "requirements_collections"):
            (private / name).mkdir(mode=0o700)
        shutil.copytree(self.project, private / "project", symlinks=True, ignore=shutil.ignore_patterns(".git"))
        return number, private, Path(tempfile.mkdtemp(prefix=f"runner_{number}_", dir=self.root))

    def _environment(self, inside: Path) -> dict[str, str]:
        folders = (inside / "requirements_collections", inside / ".ansible/collections", self.collections)
        return {
            f"ANSIBLE_COLLECTIONS_PATH{'S' if self.old else ''}": os.pathsep.join(map(str, folders)),
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
        watch: Watch | None = None,
        timeout: int = 0,
    ) -> Done:
        began = time.monotonic()
        cmdline = private / "env" / "cmdline"
        for each in credentials:
            injected, arguments = each.inject(private, inside)
            environment |= injected
            # Of a job, which has a command line; an update gets no variables of a credential.
            if arguments and cmdline.exists():
                cmdline.write_text(f"{cmdline.read_text(encoding='utf-8')} {shlex.join(arguments)}", encoding="utf-8")
        common = {"private_data_dir": str(private), "ident": number}
        settings = {"suppress_ansible_output": True, "pexpect_timeout": 0.5, "idle_timeout": self.idle_timeout}
        settings["job_timeout"] = timeout
        # ansible-runner forgets what it is given by argument where there is no file.
        (private / "env" / "settings").write_text(json.dumps(settings), encoding="utf-8")
        events: list[dict[str, Any]] = []
        with tempfile.NamedTemporaryFile(dir=self.root) as sent, tempfile.NamedTemporaryFile(dir=self.root) as answered:
            interface.run(
                streamer="transmit", _output=sent, envvars=environment, suppress_env_files=True,
                **common, **run,
            )  # fmt: skip
            sent.seek(0)
            started = datetime.now(UTC)
            with self._worker(inside, sent) as worker:
                for line in worker.stdout or ():
                    answered.write(line)
                    if watch and (event := _event(line)):
                        watch(event, worker)
            ended = datetime.now(UTC)
            answered.seek(0)
            # AWX keeps events in its database and has ansible-runner write none of them.
            processed = interface.run(
                streamer="process", _input=answered, quiet=True, event_handler=events.append, **common
            )
        artifacts = private / "artifacts" / str(number)
        rc = artifacts / "rc"
        code = int(rc.read_text(encoding="ascii")) if rc.exists() else None
        return Done(processed.status, code, events, artifacts, inside, started, ended, time.monotonic() - began)

    def _worker(self, inside: Path, sent: Any) -> subprocess.Popen[bytes]:
        """Process of a worker, which reads what was transmitted."""
        kept = {name: os.environ[name] for name in PASSED if name in os.environ}
        # Nothing of whoever starts this: no kubeconfig, no settings of Ansible, no keys.
        kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        command = [str(Path(sys.executable).with_name("ansible-runner")), "worker", f"--private-data-dir={inside}"]
        if self.container is None:
            kept["HOME"] = str(inside)
        else:
            os.chown(inside, SOMEBODY, 0)
            # Of a virtual environment both names: programs in it begin with the one that it was made under.
            python = {Path(sys.prefix), Path(sys.prefix).resolve(), Path(sys.base_prefix)}
            shown = map(str, [*python, *self.container, inside])
            user = (*(["--listed"] if self.listed else []), str(SOMEBODY))
            command = [*_CONTAINER, str(HERE / "awx_container.sh"), *user, *shown, "--", *command]
        return subprocess.Popen(
            command, stdin=sent, stdout=subprocess.PIPE, env=kept, cwd=inside, start_new_session=True
        )


def deleted(worker: subprocess.Popen[bytes]) -> None:
    """End a worker as a container group does, which deletes its pod: every process of it by SIGKILL.

    The signal that unshare would hand on is forgotten by a process that becomes another user.
    """
    kill_tree.kill(worker.pid)


def canceled(worker: subprocess.Popen[bytes]) -> None:
    """End a worker as a node of AWX does: it is told, and ansible-runner sends SIGKILL to Ansible's process group."""
    worker.send_signal(signal.SIGINT)


def _event(line: bytes) -> dict[str, Any]:
    """Event of a job that a worker has sent; empty for all else that it sends."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "event" in found else {}


def moment(created: str) -> datetime:
    """Time of an event; ansible-runner writes it in UTC, and some of its versions do not say so."""
    found = datetime.fromisoformat(created)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


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
