# SPDX-License-Identifier: Apache-2.0
"""Updates and jobs of an AWX in pods of a container group, and what is to be seen of them. Exit code 1: it is not.

    jobs_in_pods.py WHERE pod                           how soon a pod runs, and what somebody inside is and has
    jobs_in_pods.py WHERE update                        an inventory from a source of the project, of AWX old and new
    jobs_in_pods.py WHERE workflow                      check, install, join members, report, with artifacts handed on
    jobs_in_pods.py WHERE job VERB [--answer NAME=VALUE]... [--unchanged]
    jobs_in_pods.py WHERE delete [--seed SEED]          an install loses its pod in the middle; the next job goes on
    jobs_in_pods.py WHERE bearer                        where a token of AWX's own type of credential can be read

WHERE is --work FOLDER --logs FOLDER --lab LAB --kubeconfig FILE --artifacts FOLDER --document FILE --image REFERENCE
--figures FILE; the folder of artifacts is one in the image. What is to be seen on the machine itself, molecule/awx
shows. In the logs is all that AWX would keep, and all that the cluster shows of each pod.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "molecule/shared/tools"), str(PROJECT / "molecule/awx")]

import audit  # noqa: E402
import awx_credentials  # noqa: E402
import command_line  # noqa: E402
import jobs  # noqa: E402
from awx_credentials import Credential  # noqa: E402
from awx_runner import SOMEBODY, Awx, Done  # noqa: E402
from awx_site import UNTIL_NEXT_SECONDS, Site, Unseen  # noqa: E402
from container_group import CONTAINER, AwxInPods, Group, Worker, words  # noqa: E402
from figures import keep_figure  # noqa: E402
from interrupt import Trigger, within_course  # noqa: E402

NAMESPACE = "awx"
#: Where the execution environment has collections.
COLLECTIONS = Path("/usr/share/ansible/collections")
#: Seconds until a pod runs, of the fastest: others wait for this machine.
RUNS_SECONDS = 5.0
#: Accounts of the job that loses its pod, and of the next one, by which the audit log tells them apart.
LOST, NEXT = "first", "second"
#: Shares of an install between which it loses its pod.
MIDDLE = (0.3, 0.7)


@dataclass
class SiteOfPods(Site):
    """AWX without a node of its own. ``artifacts`` is a folder in the image."""

    image: str

    @cached_property
    def group(self) -> Group:
        """The only container group."""
        return Group(self.kubectl, self.kubeconfig, NAMESPACE, self.image, self.logs)

    def awx(self, user: str = "jane", *, old: bool = False, bare: bool = False) -> Awx:
        """The AWX, for jobs that this user starts."""
        if bare:
            raise ValueError("there is no node here that could run it")
        # Old and new work on the same project: what either of them needs is in the image.
        given = super().awx(user)
        same = {each.name: getattr(given, each.name) for each in fields(given)}
        return AwxInPods(**{**same, "old": old, "collections": COLLECTIONS, "container": None}, group=self.group)

    def credential(self, account: str = "first") -> Credential:
        """Credential of the type that users copy: a kubeconfig, with a new token."""
        given = self.bearer(account).inputs
        cluster = {
            "server": given["host"],
            "certificate-authority-data": b64encode(given["ssl_ca_cert"].encode()).decode(),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "host", "cluster": cluster}],
            "users": [{"name": "job", "user": {"token": given["bearer_token"]}}],
            "contexts": [{"name": "host", "context": {"cluster": "host", "user": "job"}}],
            "current-context": "host",
        }
        return awx_credentials.kubeconfig(json.dumps(content))

    def bearer(self, account: str = "first") -> Credential:
        """Credential of AWX's own type, with a new token."""
        return super().credential(account)

    def keep(self, name: str, done: Done, more: str = "") -> None:
        """Keep all that AWX keeps, and ansible-runner's record of the command, too: a kubeconfig is not in it."""
        super().keep(name, done, more)
        command = done.artifacts / "command"
        if command.exists():
            (self.logs / f"{done.number}-command.log").write_text(command.read_text(encoding="utf-8"), encoding="utf-8")


# -- what is to be seen ------------------------------------------------------------------------------------------------


def pod(site: SiteOfPods) -> None:
    """A pod runs soon. Somebody inside is of no list, and has neither a token nor a home folder of their own."""
    group, name = site.group, "automation-job-0"
    tell = "id -u; id -g; tr '\\0' '\\n' </proc/1/environ | grep ^HOME= || echo HOME=; ls /var/run/secrets 2>&1 || true"
    for _ in range(3):
        group.start(name)
        told = group.output("exec", name, f"--container={CONTAINER}", "--", "sh", "-c", tell).splitlines()
        mounted = group.output("get", f"pod/{name}", "--output=jsonpath={.spec.volumes}{..volumeMounts}")
        group.output("delete", f"pod/{name}", "--now")
    keep_figure(site.figures, "seconds from a pod's creation until it runs", words(group.started))
    print(f"user {told[0]}, group {told[1]}, {told[2]} by its entry point; {' '.join(told[3:])}")
    if told[:2] != [str(SOMEBODY), "0"] or mounted:
        raise Unseen(f"this is no pod of a container group: {told} {mounted}")
    if min(group.started) > RUNS_SECONDS:
        raise Unseen("no pod ran soon enough")


def delete(site: SiteOfPods, seed: str) -> None:
    """An install loses its pod in the middle. The next job waits for the lock, says whose it is, and goes on."""
    course = [(at, line) for at, line in json.loads(site.course.read_text(encoding="utf-8"))]
    share = random.Random(seed).uniform(*MIDDLE)  # noqa: S311 - moments are no secret
    task, after = within_course(course, share)
    print(f"SEED={seed}; {after} s after {task}", flush=True)
    since = audit.mark(site.audit_log)
    ending = Deletion(lambda: site.first_write(since), Trigger(task=task, after=after))
    lost = site.run("install", account=LOST, watch=ending.watch)
    deleted = ending.deleted()
    if deleted is None:
        raise Unseen(f"job {lost.number} ended before its pod was deleted:\n{lost.output[-3000:]}")
    # As soon as the stream ends AWX knows; what the pod was doing may go on until the cluster has ended it.
    print(f"the stream ended {(datetime.now(UTC) - deleted).total_seconds():.1f} s after the deletion")
    done = site.succeeded("install", account=NEXT)
    writes = list(site.writes(since))
    by_next = [when for when, account in writes if account == NEXT]
    after_deletion = [when for when, account in writes if account == LOST and when > deleted]
    print(f"writes of job {lost.number} after the deletion: {len(after_deletion)}")
    if not by_next:
        raise Unseen(f"job {done.number} has written nothing")
    seconds = (by_next[0] - deleted).total_seconds()
    print(f"from the deletion of its pod to the first write of job {done.number}: {seconds:.1f} s")
    step = "from the deletion of a job's pod to the first write of the next job"
    keep_figure(site.figures, step, f"{seconds:.1f} s, goal {UNTIL_NEXT_SECONDS:.0f} s")
    if after_deletion and after_deletion[-1] > by_next[0]:
        raise Unseen("two have written at once")
    held = f"AWX job {lost.number} (install, started by jane)"
    if held not in " ".join(done.output.split()):
        raise Unseen(f"job {done.number} does not say that {held} has the lock:\n{done.output[-3000:]}")
    site.group.output("wait", "--for=delete", f"pod/automation-job-{lost.number}", "--timeout=60s")


def bearer(site: SiteOfPods) -> None:
    """A token of AWX's own type is in the environment: ansible-runner tells it to AWX, and so the pod's log has it."""
    credential = site.bearer()
    token = credential.inputs["bearer_token"]
    done = site.awx().job("playbooks/report.yml", site.inventory, credential)
    if done.rc != 0:
        raise Unseen(f"report with a bearer token ended with {done.status}:\n{done.output[-3000:]}")
    log = site.logs / f"automation-job-{done.number}.log"
    # The only log that may have a secret is looked at here and not kept.
    text = log.read_text(encoding="utf-8")
    log.unlink()
    lines = [line for line in text.splitlines() if token in line]
    told = [line for line in lines if json.loads(line).get("status") == "starting"]
    print(f"lines of the pod's log with the token: {len(lines)}; of ansible-runner's own about the start: {len(told)}")
    if lines != told:
        raise Unseen("the token is in another line than the one that ansible-runner writes when it starts")
    Site.keep(site, "report", done)


# -- inside ------------------------------------------------------------------------------------------------------------


class Deletion:
    """Watches a job and deletes its pod when it is time, but not before it has written."""

    def __init__(self, written: Callable[[], object], trigger: Trigger) -> None:
        self._written, self._trigger = written, trigger
        self._watching: threading.Thread | None = None
        self._deleted: datetime | None = None

    def watch(self, event: Mapping[str, Any], worker: Any) -> None:
        """Take note of an event of the job."""
        if not self._watching:
            self._watching = threading.Thread(target=self._wait, args=(worker,), daemon=True)
            self._watching.start()
        if event["event"] == "playbook_on_task_start":
            self._trigger.see(f"TASK [{event['event_data']['task']}]")

    def deleted(self) -> datetime | None:
        """When the pod was deleted; None if the job ended before. To be asked when the stream has ended."""
        if self._watching:
            self._watching.join()
        return self._deleted

    def _wait(self, worker: Worker) -> None:
        while worker.poll() is None and not (self._trigger.due() and self._written()):
            time.sleep(0.2)
        if worker.poll() is None:
            self._deleted = worker.delete()


def main() -> int:
    """Run one command."""
    parser, commands = command_line.parser(__doc__, "pod", "update", "workflow", "bearer")
    parser.add_argument("--image", required=True)
    one = commands.add_parser("delete")
    one.add_argument("--seed", default="1")
    given = parser.parse_args()
    site = SiteOfPods(**command_line.where(given), image=given.image)
    steps: dict[str, Callable[[], None]] = {
        "pod": lambda: pod(site),
        "update": lambda: jobs.update(site),
        "workflow": lambda: jobs.workflow(site),
        "job": lambda: jobs.job(site, given.verb, dict(given.answer), unchanged=given.unchanged),
        "delete": lambda: delete(site, given.seed),
        "bearer": lambda: bearer(site),
    }
    try:
        return command_line.carried_out(steps[given.command])
    finally:
        if started := site.group.started:
            print(f"seconds until the pods ran: {words(started)}")


if __name__ == "__main__":
    sys.exit(main())
