# SPDX-License-Identifier: Apache-2.0
"""Updates and jobs of an AWX on the lab's clusters, and what is to be seen of them. Exit code 1: it is not to be seen.

    jobs.py WHERE update                            an inventory from a source of the project, of AWX old and new
    jobs.py WHERE workflow                          check, install, join members, report, with artifacts handed on
    jobs.py WHERE job VERB [--answer NAME=VALUE]... [--unchanged]
    jobs.py WHERE compare [--rounds N]              how much longer a job takes than ansible-playbook
    jobs.py WHERE refresh                           the inventory, after documents were added to the project
    jobs.py WHERE drift                             the check of each night, before and after somebody changes things
    jobs.py WHERE backups --key FILE                take, list, verify and try out a backup
    jobs.py WHERE restores --key FILE               restore it, take that back; restore it again, and release it
    jobs.py WHERE handed                            stop for another place, and take that back
    jobs.py WHERE cancel --part first|second [--times N] [--seed SEED]
                                                    an install is ended at as many moments of the first or second half
                                                    of its time; each time the next job goes on
    jobs.py WHERE together                          it goes on to its end in one of two jobs at once: the other waits
    jobs.py WHERE refused                           a job that may not wait long is refused, and says whose lock it is

WHERE is --work FOLDER --logs FOLDER --lab LAB --kubeconfig FILE --artifacts FOLDER --document FILE --figures FILE. In
the logs is all that AWX would keep, one file for each update and job. Workers run as containers of AWX do, each with a
new token in a file of another name; two of three that are canceled run on the machine itself, as on a node of AWX
without containers.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "molecule/shared/tools"))

import awx_runner  # noqa: E402
import backups  # noqa: E402
import cancels  # noqa: E402
import command_line  # noqa: E402
import drift  # noqa: E402
from awx_runner import stored  # noqa: E402
from awx_site import SOURCE, Site, Unseen, answered, created  # noqa: E402
from figures import keep_figure  # noqa: E402

#: Seconds that a job is to take longer than ansible-playbook at most. It is told, and fails nothing: two cores with a
#: lab of clusters on them may need some for themselves.
GOAL_SECONDS = 3.0


def update(site: Site) -> None:
    """Both AWX have the same inventory, in which nothing is of the folder or of the credential of the update."""
    shutil.rmtree(site.root, ignore_errors=True)
    site.root.mkdir(mode=0o711)
    found = {}
    for old in (True, False):
        done, exported = site.awx(old=old).update(SOURCE, *site.of_update())
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


def refresh(site: Site) -> None:
    """The project has what is in the document by now, and so has the inventory after its next update."""
    awx = site.awx()
    shutil.copy(site.document, awx.project / "sites/prod.yaml")
    done, exported = awx.update(SOURCE, *site.of_update())
    site.keep("update", done, json.dumps(exported))
    if done.rc != 0:
        raise Unseen(f"the update failed:\n{done.output}")
    (site.root / "inventory.json").write_text(json.dumps(stored(exported)), encoding="utf-8")


def workflow(site: Site) -> None:
    """Each node has the artifacts of those before it as variables; they tell how far the control plane is."""
    artifacts: dict[str, Any] = {}
    phases = {}
    for verb in ("preflight", "install", "members", "report"):
        done = site.succeeded(verb, artifacts)
        artifacts |= done.statistics
        phases[verb] = artifacts.get("karmada_status", {}).get("phase")
        if verb == "install":
            began = created(done.events[0])
            course = [
                ((created(each) - began).total_seconds(), f"TASK [{each['event_data']['task']}]")
                for each in done.events
                if each["event"] == "playbook_on_task_start"
            ]
            site.course.write_text(json.dumps(course), encoding="utf-8")
    print(f"phases in artifacts: {phases}")
    # install and members have compared it with what they were to carry out.
    if not artifacts.get("karmada_document_seen", {}).get("parts"):
        raise Unseen("the check has not said what it has checked")
    if phases["report"] != "Completed" or phases["install"] != "Completed":
        raise Unseen("the artifacts do not tell that the control plane is there")


def job(site: Site, verb: str, answers: Mapping[str, str], *, unchanged: bool) -> None:
    """One job, with these answers of its survey."""
    done = site.succeeded(verb, answered(verb, answers))
    if unchanged and done.changed:
        raise Unseen(f"job {done.number} has changed something")


def compare(site: Site, rounds: int) -> None:
    """Keep as a figure how much longer a job takes than the playbook by hand, in the same folder and credential."""
    inside = site.root / "by-hand"
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(site.root / "checkout", inside / "project")
    (inside / "env").mkdir()
    environment = {name: os.environ[name] for name in awx_runner.PASSED if name in os.environ}
    environment |= site.credential().inject(inside, inside)[0]
    environment |= {"HOME": str(inside), "ANSIBLE_COLLECTIONS_PATH": str(PROJECT / "collections")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["ansible-playbook", "-i", SOURCE, "playbooks/install.yml"]

    def by_hand() -> float:
        began = time.monotonic()
        subprocess.run(command, check=True, cwd=inside / "project", env=environment, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    pairs = []
    for number in range(rounds):
        # In turns: what else the machine does grows or ceases, and would make one of them slow each time.
        if number % 2:
            as_job = site.succeeded("install").seconds
            pairs.append((by_hand(), as_job))
        else:
            pairs.append((by_hand(), site.succeeded("install").seconds))
    shutil.rmtree(inside)
    told = comparison(pairs)
    print(told)
    keep_figure(site.figures, "a job beside ansible-playbook", told)


def comparison(pairs: Sequence[tuple[float, float]]) -> str:
    """Words for how much longer a job takes, from pairs of seconds by hand and as a job.

    The median of the differences: the least one is of the round in which something held up the run by hand.
    """
    longer = statistics.median(as_job - by_hand for by_hand, as_job in pairs)
    each = ", ".join(f"{by_hand:.1f} s and {as_job:.1f} s" for by_hand, as_job in pairs)
    return f"by hand and as a job {each}: {longer:.1f} s longer (median of {len(pairs)}; goal {GOAL_SECONDS:.0f})"


def main() -> int:
    """Run one command."""
    parser, commands = command_line.parser(
        __doc__, "update", "refresh", "workflow", "drift", "handed", "together", "refused"
    )
    for name in ("backups", "restores"):
        commands.add_parser(name).add_argument("--key", type=Path, required=True)
    one = commands.add_parser("cancel")
    one.add_argument("--part", choices=cancels.PARTS, required=True)
    one.add_argument("--times", type=int, default=3)
    one.add_argument("--seed", default="1")
    one = commands.add_parser("compare")
    one.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    site = Site(**command_line.where(given))
    steps: dict[str, Callable[[], None]] = {
        "update": lambda: update(site),
        "refresh": lambda: refresh(site),
        "workflow": lambda: workflow(site),
        "job": lambda: job(site, given.verb, dict(given.answer), unchanged=given.unchanged),
        "drift": lambda: drift.drift(site),
        "backups": lambda: backups.backups(site, given.key),
        "restores": lambda: backups.restores(site, given.key),
        "handed": lambda: backups.handed(site),
        "cancel": lambda: cancels.cancel(site, given.part, given.times, given.seed),
        "together": lambda: cancels.together(site),
        "refused": lambda: cancels.refused(site),
        "compare": lambda: compare(site, given.rounds),
    }
    return command_line.carried_out(steps[given.command])


if __name__ == "__main__":
    sys.exit(main())
