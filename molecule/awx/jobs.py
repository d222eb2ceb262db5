# SPDX-License-Identifier: Apache-2.0
"""Updates and jobs of an AWX on the lab's clusters, and what is to be seen of them. Exit code 1: it is not to be seen.

    jobs.py WHERE update                            an inventory from a source of the project, of AWX old and new
    jobs.py WHERE workflow                          check, install, join members, report, with artifacts handed on
    jobs.py WHERE job VERB [--answer NAME=VALUE]... [--unchanged]
    jobs.py WHERE cancel [--times N] [--seed SEED]  an install is ended at as many moments; each time the next goes on
    jobs.py WHERE together                          it goes on to its end in one of two jobs at once: the other waits
    jobs.py WHERE refused                           a job that may not wait long is refused, and says whose lock it is
    jobs.py WHERE compare [--rounds N]              how much longer a job takes than ansible-playbook

WHERE is --work FOLDER --logs FOLDER --lab LAB --kubeconfig FILE --artifacts FOLDER --document FILE. In the logs is all
that AWX would keep, one file for each update and job. Workers run as containers of AWX do, each with a new token in a
file of another name; two of three that are canceled run on the machine itself, as on a node of AWX without containers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "molecule/shared/tools"))

import audit  # noqa: E402
import awx_runner  # noqa: E402
from awx_credentials import Credential, bearer_token  # noqa: E402
from awx_runner import Awx, Done, stored  # noqa: E402
from interrupt import Trigger, within_course  # noqa: E402
from kill_tree import descendants  # noqa: E402

SOURCE = "sites/prod.karmada.yml"
#: Seconds without output after which AWX ends a job, as many a site has it.
IDLE_SECONDS = 30
#: Seconds from a cancel to the first write of the next job, at most.
UNTIL_NEXT_SECONDS = 45.0
#: Seconds that a job may take longer than ansible-playbook.
MORE_SECONDS = 3.0
#: Seconds for which a job waits that may not wait long, and the number of the job that it waits for.
SHORT_WAIT_SECONDS, HOLDING_JOB = 3, 4711


class Unseen(Exception):  # noqa: N818 - what main() tells
    """What was to be seen is not to be seen."""


@dataclass
class Site:
    """One AWX with a project, beside the host cluster that its credential names."""

    work: Path
    logs: Path
    lab: str
    kubeconfig: Path
    artifacts: Path
    document: Path

    @cached_property
    def numbers(self) -> Iterator[int]:
        """Numbers of jobs, which go on where the last command has stopped."""
        return itertools.count(41 + len(list(self.root.glob("awx_*"))))

    @cached_property
    def namespace(self) -> str:
        """Namespace of the document, which has the accounts of credentials, too."""
        return str(yaml.safe_load(self.document.read_text(encoding="utf-8"))["metadata"]["namespace"])

    @cached_property
    def kubectl(self) -> str:
        return _output([self.lab, "artifacts", "path", "kubectl"])

    @cached_property
    def audit_log(self) -> Path:
        return Path(_output([self.lab, "audit-log", "host"]))

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
        token = _output([self.kubectl, f"--kubeconfig={self.kubeconfig}", *asked])
        # For whoever looks whether an output shows one.
        file = os.open(self.kubeconfig.parent / "tokens", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(file, "a") as tokens:
            tokens.write(f"{token}\n")
        return bearer_token(cluster["server"], token, b64decode(cluster["certificate-authority-data"]).decode())

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
            if path.is_file() and path.relative_to(done.folder).parts[0] not in ("env", "artifacts"):
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
        watch: awx_runner.Watch | None = None,
    ) -> Done:
        """Run a job of the template for a playbook, and tell of it in a line."""
        done = (awx or self.awx()).job(
            f"playbooks/{verb}.yml", self.inventory, self.credential(account), variables=variables, watch=watch
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
                yield _time(event["requestReceivedTimestamp"]), event["user"]["username"].rpartition(":")[2]

    def first_write(self, since: str) -> datetime | None:
        return next((when for when, _account in self.writes(since)), None)


# -- what is to be seen ------------------------------------------------------------------------------------------------


def update(site: Site) -> None:
    """Both AWX have the same inventory, in which nothing is of the folder or of the credential of the update."""
    shutil.rmtree(site.root, ignore_errors=True)
    site.root.mkdir(mode=0o711)
    found = {}
    for old in (True, False):
        done, exported = site.awx(old=old).update(SOURCE, site.credential())
        if done.rc != 0:
            raise Unseen(f"the update of {'an old' if old else 'a new'} AWX failed:\n{done.output}")
        found[old] = stored(exported)
        text = json.dumps(found[old])
        site.keep("update", done, text)
        print(f"update {done.number}, AWX {'old' if old else 'new'}: {len(text)} bytes after {done.seconds:.1f} s")
        if str(done.folder) in text:
            raise Unseen("what is stored names the folder of the update")
    if found[True] != found[False]:
        raise Unseen("old and new AWX have stored different inventories")
    (site.root / "inventory.json").write_text(json.dumps(found[False]), encoding="utf-8")


def workflow(site: Site) -> None:
    """Each node has the artifacts of those before it as variables; they tell how far the control plane is."""
    artifacts: dict[str, Any] = {}
    phases = {}
    for verb in ("preflight", "install", "members", "report"):
        done = site.succeeded(verb, artifacts)
        artifacts |= done.statistics
        phases[verb] = artifacts.get("karmada_status", {}).get("phase")
        if verb == "install":
            began = _created(done.events[0])
            course = [
                ((_created(each) - began).total_seconds(), f"TASK [{each['event_data']['task']}]")
                for each in done.events
                if each["event"] == "playbook_on_task_start"
            ]
            site.course.write_text(json.dumps(course), encoding="utf-8")
    print(f"phases in artifacts: {phases}")
    if phases["report"] != "Completed" or phases["install"] != "Completed":
        raise Unseen("the artifacts do not tell that the control plane is there")


def job(site: Site, verb: str, answers: Mapping[str, str], *, unchanged: bool) -> None:
    """One job, with the answers of a survey, in which everything else is left empty."""
    templates = yaml.safe_load((PROJECT / "examples/awx/controller/templates.yml").read_text(encoding="utf-8"))
    named = {each["name"].partition("}} ")[2]: each for each in templates["controller_templates"]}
    survey = named[verb.replace("_", " ")]["survey_spec"]
    asked = {each["variable"]: "" for each in survey["spec"]}
    if unknown := set(answers) - set(asked):
        raise Unseen(f"the survey of {verb} does not ask for {', '.join(sorted(unknown))}")
    done = site.succeeded(verb, {**asked, **answers})
    if unchanged and done.changed:
        raise Unseen(f"job {done.number} has changed something")


def cancel(site: Site, times: int, seed: str) -> None:
    """However a job of an install ends, the next goes on in its time, and reads whose lock it waits for."""
    print(f"SEED={seed} CANCELS={times}")
    course = [(at, line) for at, line in json.loads(site.course.read_text(encoding="utf-8"))]
    drawn = random.Random(seed)  # noqa: S311 - moments are no secret
    # What follows needs something to do, for as long as it takes two more jobs to start.
    shares = sorted(drawn.uniform(0.1, 0.5) for _ in range(times))
    before: Ended | None = None
    waits: list[float] = []
    processes: list[int] = []
    for number, share in enumerate(shares):
        bare = number % 3 != 2
        task, after = within_course(course, share)
        since = audit.mark(site.audit_log)
        ending = Ending(site, since, Trigger(task=task, after=after), bare)
        done = site.run("install", awx=site.awx(bare=bare), watch=ending.watch)
        if before:
            waits.append(_went_on(site, before, done, since, bare=bare))
        if not ending.ended:
            raise Unseen(f"job {done.number} ended before it was canceled:\n{done.output[-3000:]}")
        how = "was canceled" if bare else "lost its pod"
        print(f"job {done.number} {how} {after} s after {task}")
        _until(lambda ended=ending: not ended.alive(), "the processes of the job to end")  # type: ignore[misc]
        before = Ended(done.number, ending.ended[0].isoformat(), bare)
        processes += ending.processes
    site.canceled.write_text(json.dumps([asdict(before) if before else {}, processes]), encoding="utf-8")
    print(f"in memory: {len(_in_memory(processes))} folders of these jobs")
    print(f"{times} cancels; the next job wrote after {', '.join(f'{each:.1f}' for each in waits)} s")


def together(site: Site) -> None:
    """Of two jobs on one control plane only one writes at a time."""
    since = audit.mark(site.audit_log)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.run, "install", awx=site.awx(bare=True))
        _until(lambda: site.first_write(since) or first.done(), "the first job to write", 300)
        second = pool.submit(site.run, "install", awx=site.awx("joe"), account="second")
    done = [each.result() for each in (first, second)]
    before, processes = json.loads(site.canceled.read_text(encoding="utf-8"))
    _went_on(site, Ended(**before), done[0], since, bare=True)
    if [each.rc for each in done] != [0, 0]:
        outputs = "\n\n".join(each.output[-3000:] for each in done)
        raise Unseen(f"they ended with {[each.rc for each in done]}:\n{outputs}")
    writers = [account for _when, account in site.writes(since)]
    turns = [account for account, _writes in itertools.groupby(writers)]
    print(f"{len(writers)} writes; who wrote, one after the other: {', '.join(turns)}")
    if turns not in (["first"], ["first", "second"]):
        raise Unseen("two have written at once")
    # Private files of runs that were killed on this machine are gone when a later one there has ended.
    if left := _in_memory(processes):
        raise Unseen(f"in memory: {', '.join(map(str, left))}")


def refused(site: Site) -> None:
    """A job that may not wait long is refused without a write, and names the job that has the lock; the next mends."""
    name = yaml.safe_load(site.document.read_text(encoding="utf-8"))["metadata"]["name"]
    kubectl = [site.kubectl, f"--kubeconfig={site.kubeconfig}", f"--namespace={site.namespace}"]
    # So that a job has something to do, and asks for the lock.
    _output([*kubectl, "delete", "deployment", f"{name}-scheduler"])
    # As another job has it that has just renewed it, somewhere that nobody here can look into.
    holder = f"elsewhere/0/1/1/awx-job-{HOLDING_JOB}.install@jane"
    held = {"holderIdentity": holder, "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    lease = [*kubectl, "patch", "lease", f"{name}-installer", "--type=merge"]
    _output([*lease, "--patch", json.dumps({"spec": held})])
    since = audit.mark(site.audit_log)
    done = site.run("install", {"karmada_lock_wait": str(SHORT_WAIT_SECONDS)}, awx=site.awx("ann"), account="second")
    if done.rc == 0 or "another run is writing" not in " ".join(done.output.split()):
        raise Unseen(f"job {done.number} was not refused:\n{done.output[-3000:]}")
    _says_who_has_the_lock(done, HOLDING_JOB)
    if written := list(site.writes(since)):
        raise Unseen(f"job {done.number} has written {len(written)} times")
    _output([*lease, "--patch", json.dumps({"spec": {"holderIdentity": None, "renewTime": None}})])
    if not site.succeeded("install").changed:
        raise Unseen("the next job has mended nothing")


def compare(site: Site, rounds: int) -> None:
    """A job takes hardly longer than the same playbook by hand, in the same folder with the same credential."""
    inside = site.root / "by-hand"
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(site.root / "checkout", inside / "project")
    (inside / "env").mkdir()
    environment = {name: os.environ[name] for name in awx_runner.PASSED if name in os.environ}
    environment |= site.credential().inject(inside, inside)
    environment |= {"HOME": str(inside), "ANSIBLE_COLLECTIONS_PATH": str(PROJECT / "collections")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["ansible-playbook", "-i", SOURCE, "playbooks/install.yml"]
    more = []
    for _ in range(rounds):
        began = time.monotonic()
        subprocess.run(command, check=True, cwd=inside / "project", env=environment, stdout=subprocess.DEVNULL)
        by_hand = time.monotonic() - began
        by_job = site.succeeded("install").seconds
        more.append(by_job - by_hand)
        print(f"ansible-playbook: {by_hand:.1f} s; over AWX's wire: {by_job:.1f} s")
    shutil.rmtree(inside)
    if min(more) > MORE_SECONDS:
        raise Unseen(f"a job takes {min(more):.1f} s longer")


# -- inside ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A job that was ended: its number, when (ISO 8601), and whether it ran on the machine itself."""

    number: int
    when: str
    bare: bool


class Ending:
    """Watches a job and ends it when it is time, but not before it has written since a mark."""

    def __init__(self, site: Site, since: str, trigger: Trigger, bare: bool) -> None:
        self._written: Callable[[], object] = lambda: site.first_write(since)
        self._trigger, self._end = trigger, awx_runner.canceled if bare else awx_runner.deleted
        self._began = False
        #: when it was ended
        self.ended: list[datetime] = []
        #: of its worker, at that moment
        self.processes: list[int] = []

    def watch(self, event: Mapping[str, Any], worker: subprocess.Popen[bytes]) -> None:
        """Take note of an event of the job."""
        if not self._began:
            self._began = True
            threading.Thread(target=self._wait, args=(worker,), daemon=True).start()
        if event["event"] == "playbook_on_task_start":
            self._trigger.see(f"TASK [{event['event_data']['task']}]")

    def alive(self) -> list[int]:
        """Processes of the job that are there although it was ended."""
        return [each for each in self.processes if Path(f"/proc/{each}").exists()]

    def _wait(self, worker: subprocess.Popen[bytes]) -> None:
        while worker.poll() is None and not (self._trigger.due() and self._written()):
            time.sleep(0.2)
        if worker.poll() is None:
            self.processes = descendants(worker.pid)
            self.ended.append(datetime.now(UTC))
            self._end(worker)


def _went_on(site: Site, before: Ended, done: Done, since: str, *, bare: bool) -> float:
    """Seconds from the end of a job to the first write of the next, which has waited for its lock."""
    first = site.first_write(since)
    if first is None:
        raise Unseen(f"job {done.number} has written nothing:\n{done.output[-3000:]}")
    seconds = (first - _time(before.when)).total_seconds()
    print(f"from the end of job {before.number} to the first write of job {done.number}: {seconds:.1f} s")
    if seconds > UNTIL_NEXT_SECONDS:
        raise Unseen("that is too long")
    # On the same machine a run is seen to be dead.
    if not (bare and before.bare):
        _says_who_has_the_lock(done, before.number)
    return seconds


def _in_memory(processes: Collection[int]) -> list[Path]:
    """Private folders of runs with these processes."""
    found = Path("/dev/shm").glob("karmada-installer-*-*-*")  # noqa: S108 - only looked at
    return [each for each in found if int(each.name.split("-")[-2]) in processes]


def _says_who_has_the_lock(done: Done, holder: int) -> None:
    held = f"AWX job {holder} (install, started by jane)"
    if held not in " ".join(done.output.split()):
        raise Unseen(f"job {done.number} does not say that {held} has the lock:\n{done.output[-3000:]}")


def _until(seen: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise Unseen(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _created(event: Mapping[str, Any]) -> datetime:
    return _time(str(event["created"]))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(re.sub("Z$", "+00:00", text))


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("work", "logs", "kubeconfig", "artifacts", "document"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--lab", required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("update", "workflow", "together", "refused"):
        commands.add_parser(name)
    one = commands.add_parser("job")
    one.add_argument("verb")
    one.add_argument("--answer", action="append", default=[], type=lambda text: text.partition("=")[::2])
    one.add_argument("--unchanged", action="store_true")
    one = commands.add_parser("cancel")
    one.add_argument("--times", type=int, default=3)
    one.add_argument("--seed", default="1")
    one = commands.add_parser("compare")
    one.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    site = Site(given.work, given.logs, given.lab, given.kubeconfig, given.artifacts, given.document)
    steps: dict[str, Callable[[], None]] = {
        "update": lambda: update(site),
        "workflow": lambda: workflow(site),
        "job": lambda: job(site, given.verb, dict(given.answer), unchanged=given.unchanged),
        "cancel": lambda: cancel(site, given.times, given.seed),
        "together": lambda: together(site),
        "refused": lambda: refused(site),
        "compare": lambda: compare(site, given.rounds),
    }
    try:
        steps[given.command]()
    except Unseen as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
