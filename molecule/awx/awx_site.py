# SPDX-License-Identifier: Apache-2.0
"""An AWX on the lab's clusters: its project, its credentials, its jobs, and what it keeps of them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "molecule/shared/tools"))

import audit  # noqa: E402
import awx_runner  # noqa: E402
from awx_credentials import Credential, bearer_token  # noqa: E402
from awx_runner import Awx, Done  # noqa: E402

SOURCE = "sites/prod.karmada.yml"
#: Seconds without output after which AWX ends a job, as many a site has it.
IDLE_SECONDS = 30
#: Exit code of ansible-playbook when a play has failed.
FAILED = 2
#: Seconds from a cancel to the first write of the next job: the goal, beside which each figure is told.
UNTIL_NEXT_SECONDS = 45.0


class Unseen(Exception):  # noqa: N818 - what main() tells
    """Something that was to be seen is not there."""


@dataclass
class Site:
    """One AWX with a project, beside the host cluster that its credential names."""

    work: Path
    logs: Path
    lab: str
    kubeconfig: Path
    artifacts: Path
    document: Path
    figures: Path

    @cached_property
    def numbers(self) -> Iterator[int]:
        """Numbers of jobs, which go on where the last command has stopped."""
        return itertools.count(41 + len(list(self.root.glob("awx_*"))))

    @cached_property
    def namespace(self) -> str:
        """Namespace of the document, which has the accounts of credentials, too."""
        return str(self._metadata["namespace"])

    @cached_property
    def name(self) -> str:
        """Name of the control plane."""
        return str(self._metadata["name"])

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        """Metadata of the first document; others may stand beside it."""
        found: dict[str, Any] = next(yaml.safe_load_all(self.document.read_text(encoding="utf-8")))["metadata"]
        return found

    @cached_property
    def kubectl(self) -> str:
        return output([self.lab, "artifacts", "path", "kubectl"])

    @cached_property
    def audit_log(self) -> Path:
        return Path(output([self.lab, "audit-log", "host"]))

    @property
    def root(self) -> Path:
        return self.work / "awx"

    @property
    def canceled(self) -> Path:
        """The last job that was ended."""
        return self.root / "canceled.json"

    @property
    def course(self) -> Path:
        """When the tasks of an install began that nothing disturbed."""
        return self.root / "course.json"

    def awx(self, user: str = "jane", *, old: bool = False, bare: bool = False) -> Awx:
        """The AWX, for jobs that this user starts; each has a number of its own."""
        project = self.root / ("old" if old else "checkout")
        if not project.is_dir():
            shutil.copytree(PROJECT / "examples/awx", project)
            shutil.copy(self.document, project / "sites/prod.yaml")
            # No network: what the publisher has is in the execution environment.
            with (project / SOURCE).open("a", encoding="utf-8") as source:
                source.write(f"artifacts: {self.artifacts}\n")
            if old:
                # It names no folder of the execution environment that the Ansible of today would look into.
                (project / "collections/ansible_collections").symlink_to(PROJECT / "collections/ansible_collections")
        seen = None if bare else (self.artifacts,)
        return Awx(self.root, project, PROJECT / "collections", user, old, seen, IDLE_SECONDS, self.numbers)

    def credential(self, account: str = "first") -> Credential:
        """Credential with a new token of an account, as after a renewal."""
        cluster = json.loads(self.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
        asked = ["create", "token", account, f"--namespace={self.namespace}", "--duration=1h"]
        token = output([self.kubectl, f"--kubeconfig={self.kubeconfig}", *asked])
        # For whoever looks whether an output shows one.
        file = os.open(self.kubeconfig.parent / "tokens", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(file, "a") as tokens:
            tokens.write(f"{token}\n")
        return bearer_token(cluster["server"], token, b64decode(cluster["certificate-authority-data"]).decode())

    def of_update(self) -> Sequence[Credential]:
        """Credentials of the source of the inventory."""
        return [self.credential()]

    @cached_property
    def inventory(self) -> dict[str, Any]:
        """Inventory as AWX has it stored."""
        found: dict[str, Any] = json.loads((self.root / "inventory.json").read_text(encoding="utf-8"))
        return found

    def keep(self, name: str, done: Done, more: str = "") -> None:
        """Keep all that AWX keeps of an update or a job, and what its worker has left in its folder."""
        texts = {**done.texts(), "stored": more}
        for path in sorted(done.folder.rglob("*")):
            # Credentials are in env; AWX has put them there, and deletes the folder.
            own = path.relative_to(done.folder).parts[0] not in ("env", "artifacts")
            if own and path.is_file() and not _is_program(path):
                texts[str(path)] = path.read_text(encoding="utf-8", errors="replace")
        kept = "\n".join(f"--- {where}\n{text}" for where, text in texts.items())
        (self.logs / f"{done.number}-{name}.log").write_text(kept, encoding="utf-8")

    def run(
        self,
        verb: str,
        variables: Mapping[str, Any] | None = None,
        *,
        awx: Awx | None = None,
        account: str = "first",
        key: Credential | None = None,
        watch: awx_runner.Watch | None = None,
        arguments: Sequence[str] = (),
    ) -> Done:
        """Run a job of the template for a playbook, and tell of it in a line. ``key`` opens backups."""
        credentials = [self.credential(account), *([key] if key else [])]
        done = (awx or self.awx()).job(
            f"playbooks/{verb}.yml",
            self.inventory,
            *credentials,
            variables=variables,
            arguments=arguments,
            watch=watch,
        )
        self.keep(verb, done)
        print(
            f"job {done.number} {verb}: {done.status} after {done.seconds:.1f} s, changed={done.changed}, "
            f"silent for at most {done.silence:.1f} s",
            flush=True,
        )
        if done.silence > IDLE_SECONDS:
            raise Unseen(f"job {done.number} was silent for {done.silence:.1f} s")
        return done

    def succeeded(self, verb: str, variables: Mapping[str, Any] | None = None, **more: Any) -> Done:
        """Run a job that has to succeed."""
        done = self.run(verb, variables, **more)
        if (done.status, done.rc) != ("successful", 0):
            raise Unseen(f"{verb} ended with {done.status}:\n{done.output[-6000:]}")
        return done

    # -- the audit log -------------------------------------------------------------------------------------------------

    def writes(self, since: str) -> Iterator[tuple[datetime, str]]:
        """When one of our jobs has written to the host cluster since a mark, and whose account it was; but no Lease."""
        for line in audit.lines_since(self.audit_log, since):
            if not line.endswith("\n"):
                continue
            event = json.loads(line)
            written = audit.is_write(event) and (event.get("responseStatus") or {}).get("code", 500) < 400
            other = (event.get("objectRef") or {}).get("resource") != "leases"
            if written and other and event.get("userAgent", "").startswith(audit.OUR_AGENT):
                yield time_of(event["requestReceivedTimestamp"]), event["user"]["username"].rpartition(":")[2]

    def first_write(self, since: str) -> datetime | None:
        return next((when for when, _account in self.writes(since)), None)


def template(name: str) -> dict[str, Any]:
    """Template of the project, by its name without that of the site, which stands before it."""
    templates = yaml.safe_load((PROJECT / "examples/awx/controller/templates.yml").read_text(encoding="utf-8"))
    named: dict[str, dict[str, Any]] = {
        each["name"].partition("}} ")[2]: each for each in templates["controller_templates"]
    }
    return named[name]


def answered(verb: str, answers: Mapping[str, str]) -> dict[str, str]:
    """Variables of a job with these answers of its survey, in which everything else is left empty."""
    asked = {each["variable"]: "" for each in template(verb.replace("_", " "))["survey_spec"]["spec"]}
    if unknown := set(answers) - set(asked):
        raise Unseen(f"the survey of {verb} does not ask for {', '.join(sorted(unknown))}")
    return {**asked, **answers}


def failed(done: Done) -> None:
    """Raise Unseen unless a play of the job has failed."""
    if done.rc != FAILED:
        raise Unseen(f"job {done.number} ended with {done.rc}:\n{done.output[-3000:]}")


def says(done: Done, *texts: str) -> None:
    """Raise Unseen unless the page of the job has all these texts, whatever blanks are in them."""
    said = " ".join(done.output.split())
    if lacking := [each for each in texts if each not in said]:
        raise Unseen(f"job {done.number} does not say {lacking}:\n{done.output[-3000:]}")


def _is_program(path: Path) -> bool:
    """Return whether a file is one that was published, and a job has kept for the next one in its folder."""
    with path.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def until(seen: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Wait until it is seen. Raises Unseen after these seconds."""
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise Unseen(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def output(command: Sequence[str]) -> str:
    """Output of a command. Raises CalledProcessError."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def created(event: Mapping[str, Any]) -> datetime:
    """When an event of a job was made."""
    return time_of(str(event["created"]))


def time_of(text: str) -> datetime:
    """Time of an API server or of ansible-runner."""
    return datetime.fromisoformat(re.sub("Z$", "+00:00", text))
