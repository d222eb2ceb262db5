# SPDX-License-Identifier: Apache-2.0
"""One run: reads its spec, loads ansible-runner, and tells tasks and the result as lines of JSON on stdout.

``python -m karmada_operator.worker`` has the spec on stdin, and is in an empty private folder, which it leaves behind
for whoever made it to remove. In the pod of a Job, ``--order FILE`` names the spec, and it makes the folder itself. It
is a subreaper, and nothing below it lives when it says how the run ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

if __name__ == "__main__":
    # The first process of a pod gets no signal that it has no handler for, and the kubelet sends it once; but one that
    # is blocked waits. What follows takes a second or more to load.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

import ansible_runner
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import phases, said

from . import environment, process_tree
from .environment import ARTIFACTS
from .executor import LONGEST_LINE, Outcome, RunSpec, told

PARENT = "KARMADA_OPERATOR_PARENT"
#: Seconds between SIGTERM, on which a run gives its lock back, and SIGKILL.
GRACE = 10.0
#: Seconds between two looks at limits.
LOOK = 1.0
#: Problems that are passed on.
MOST_PROBLEMS = 64
_REASONS = frozenset(each.value for each in Reason)
#: Bytes of a result, with room for its other fields.
_LONGEST_REPORT = LONGEST_LINE - 512 * 1024


class _Stop:
    """Reason why the run is to end before its time, if it is; the first one counts."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.why = ""
        self.asked, self.begun = threading.Event(), threading.Event()

    def begin(self) -> bool:
        """Note that ansible-playbook runs. False, for ansible-runner: it kills at once, with the lock still held."""
        self.begun.set()
        return False

    def ask(self, outcome: Outcome, why: str) -> None:
        if not self.asked.is_set():
            self.outcome, self.why = outcome, why
            self.asked.set()


class _Heard:
    """Messages of ansible-runner on the way."""

    def __init__(self, out: TextIO, operation: str) -> None:
        self._out, self._operation = out, operation
        self.stats: dict[str, int] | None = None
        self.failed_task = self.message = ""
        self._task = dict.fromkeys(("play", "role", "task"), "")
        #: phase, reason and component of the failure
        self.failure: dict[str, str] = {}
        self.facts: dict[str, Any] = {}
        self.problems: list[dict[str, str]] = []

    def event(self, event: dict[str, Any]) -> bool:
        """Take one event; False keeps ansible-runner from writing it to a file."""
        kind, data = event.get("event", ""), event.get("event_data") or {}
        if kind == "playbook_on_task_start":
            role, path = str(data.get("role") or ""), str(data.get("task_path") or "")
            self._task = {key: str(data.get(key) or "") for key in ("play", "role", "task")}
            self.say("task", **self._task, phase=phases.begun(role, path, self._operation), waits="")
        elif kind == "verbose" and (waits := said.waited_for(str(event.get("stdout") or ""))):
            self.say("task", **self._task, phase="", waits=told(waits))
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            result = data.get("res") or {}
            self.failure = self._for_programs(kind, data, result)
            host, text = data.get("host", ""), result.get("msg") or "it failed without a message"
            self.failed_task, self.message = str(data.get("task") or ""), f"{host}: {text}"
            self.problems += [each for each in result.get("problems") or () if isinstance(each, dict)]
        elif kind == "playbook_on_stats":
            self.stats = {
                name: sum((data.get(key) or {}).values())
                for name, key in (("ok", "ok"), ("changed", "changed"), ("failed", "failures"), ("dark", "dark"))
            }
            self.facts = dict(data.get("artifact_data") or {})
        return False

    def _for_programs(self, kind: str, data: dict[str, Any], result: dict[str, Any]) -> dict[str, str]:
        """Phase, reason and component of a failed task, as an action of the collection returns them.

        Others' actions and hidden results have none, and a loop has those of its turns: then the phase is that of the
        task, and a host that was lost is a reason.
        """
        turns = [each for each in result.get("results") or () if isinstance(each, dict) and each.get("failed")]
        # Ansible's own results have texts of these names.
        found = next((each for each in (result, *turns) if each.get("reason") in _REASONS), {})
        action, role, path = (str(data.get(key) or "") for key in ("task_action", "role", "task_path"))
        phase = found.get("phase") if found.get("phase") in phases.ORDER else ""
        phase = phase or phases.of(action, role, path, self._operation)
        lost = Reason.HOST_UNREACHABLE.value if kind == "runner_on_unreachable" else ""
        return {
            "phase": phase,
            "reason": found.get("reason") or lost,
            "component": told(found.get("component") or ""),
        }

    def say(self, event: str, **fields: Any) -> None:
        """Write one line; nobody may be listening any more."""
        try:
            self._out.write(json.dumps({"event": event, **fields}) + "\n")
            self._out.flush()
        except (BrokenPipeError, ValueError):
            pass


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out a run; returns 0 whenever the result was told."""
    stop = _Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.ask(Outcome.CANCELLED, "it was cancelled"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    parser = argparse.ArgumentParser(prog="karmada-operator-worker", description=sys.modules[__name__].__doc__)
    parser.add_argument("--order", type=Path, help="file with the spec of the run, in the pod of a Job")
    order = parser.parse_args(argv).order
    # What else is written to stdout, by whichever library, would be no line.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    process_tree.become_subreaper()
    if order is not None:
        spec = RunSpec.of(order.read_text(encoding="utf-8"))
        _settle(spec)
    elif process_tree.end_with_parent(int(os.environ[PARENT])):
        spec = RunSpec.of(sys.stdin.read(LONGEST_LINE))
    else:
        return 1
    heard, peak = _Heard(out, spec.playbook.rpartition(".")[2]), _Peak(spec, stop)
    over = threading.Event()
    guards = [threading.Thread(target=each, args=(over,), daemon=True) for each in (peak.watch, _ender(stop))]
    for each in guards:
        each.start()
    rc = _play(spec, heard, stop) if not stop.asked.is_set() else 254
    # Whatever detached itself, such as SSH's masters.
    process_tree.end(lambda: process_tree.living(os.getpid()), GRACE)
    over.set()
    heard.say("result", **_result(rc, heard, stop), facts=_facts(heard.facts, spec.name), peak_mib=peak.mib)
    return 0


def _settle(spec: RunSpec) -> None:
    """Go into a private folder, with the environment of a run and nothing else of this one."""
    folder = Path(tempfile.mkdtemp(prefix="run-"))
    found = {**environment.passed(os.environ), **environment.of_run(spec.run_id, folder)}
    os.environ.clear()
    os.environ.update(found)
    os.chdir(folder)


def _ender(stop: _Stop) -> Any:
    def wait(over: threading.Event) -> None:
        stop.asked.wait()
        # Before that there is nothing to end, or a fork of this process that takes the signal and forgets it.
        stop.begun.wait()
        if not over.is_set():
            process_tree.end(lambda: process_tree.living(os.getpid()), GRACE)

    return wait


class _Peak:
    """Looks at time and memory of the run. ``mib`` is the most that its processes took at once, this one included."""

    def __init__(self, spec: RunSpec, stop: _Stop) -> None:
        self.mib = 0
        self._spec, self._stop, self._until = spec, stop, time.monotonic() + spec.time_limit

    def watch(self, over: threading.Event) -> None:
        while not over.wait(LOOK):
            # With this process itself, which has ansible-runner and its events in memory.
            self.mib = max(self.mib, process_tree.memory_mib([os.getpid(), *process_tree.living(os.getpid())]))
            if self.mib > self._spec.memory_limit:
                self._stop.ask(Outcome.FAILED, f"it took more memory than its limit of {self._spec.memory_limit} MiB")
            if time.monotonic() > self._until:
                self._stop.ask(Outcome.TIMED_OUT, f"it took longer than its limit of {self._spec.time_limit:.0f} s")


def _play(spec: RunSpec, heard: _Heard, stop: _Stop) -> int:
    """Run the playbook; returns its exit code."""
    here = Path.cwd()
    (here / "env").mkdir(mode=0o700)
    (here / "env" / "extravars").write_text(json.dumps(spec.variables), encoding="utf-8")
    # Between two looks whether the child lives; output wakes it at once.
    (here / "env" / "settings").write_text(json.dumps({"pexpect_timeout": 0.5, "suppress_output_file": True}))
    source = here / "site.karmada.yml"
    options = {
        "plugin": "karmada.installer.karmada",
        "namespace": spec.namespace,
        "name": spec.deployment or spec.name,
        "report_output": str(here / "report.json"),
    }
    if spec.uid:
        options["uid"] = spec.uid
    if spec.generation:
        options["generation"] = str(spec.generation)
    if directory := os.environ.get(ARTIFACTS):
        options["artifacts"] = directory
    source.write_text(json.dumps(options), encoding="utf-8")
    runner = ansible_runner.run(
        private_data_dir=str(here),
        playbook=spec.playbook,
        inventory=str(source),
        cmdline="--check" if spec.check else None,
        ident="run",
        quiet=True,
        event_handler=heard.event,
        cancel_callback=stop.begin,
    )
    return int(runner.rc if runner.rc is not None else 254)


def _result(rc: int, heard: _Heard, stop: _Stop) -> dict[str, Any]:
    stats = heard.stats or {}
    message = stop.why or heard.message
    if stop.outcome is not None:
        outcome = stop.outcome
    elif rc == 0 and heard.stats is not None:
        outcome, message = Outcome.SUCCEEDED, ""
    elif heard.failure.get("reason") == Reason.DOCUMENT_CHANGED.value:
        # It was edited or made anew since: the next run is for what it says now.
        outcome = Outcome.CANCELLED
    else:
        outcome, message = Outcome.FAILED, message or f"ansible-playbook ended with {rc}"
    return {
        "outcome": outcome.value,
        "message": told(message),
        "failed_task": told(heard.failed_task) if outcome is not Outcome.SUCCEEDED else "",
        **(heard.failure if outcome is Outcome.FAILED and not stop.why else {}),
        "ok": stats.get("ok", 0),
        "changed": stats.get("changed", 0),
        "failed": stats.get("failed", 0) + stats.get("dark", 0),
        "problems": [{str(key): told(text) for key, text in each.items()} for each in heard.problems[:MOST_PROBLEMS]],
        "report": _report(),
    }


def _facts(passed_on: dict[str, Any], name: str) -> dict[str, Any]:
    """Facts of the object of this name, which the playbooks of backups and restores have passed on."""
    found: dict[str, Any] = {}
    for each in passed_on.get("karmada_backups_status") or ():
        if isinstance(each, dict) and each.get("name") == name:
            found = {key: each["status"][key] for key in ("count", "newest") if key in each["status"]}
    if isinstance(drift := passed_on.get("karmada_restore_drift"), dict):
        # Names of objects are for whoever runs the playbook by hand; there may be thousands.
        rows = [{key: row[key] for key in ("member", "counts", "trouble") if key in row} for row in drift["members"]]
        found["drift"] = {"members": rows}
    released = passed_on.get("karmada_restore_released")
    if isinstance(released, dict) and released.get("restore") == name:
        rows = [{key: row[key] for key in ("name", "namespaces") if key in row} for row in released["clusters"]]
        found["released"] = {"clusters": rows, "held": released["held"]}
    return found


def _report() -> dict[str, Any] | None:
    """Status that the playbook wrote; None if it wrote none."""
    try:
        with Path("report.json").open("rb") as file:
            found = json.loads(file.read(_LONGEST_REPORT))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


if __name__ == "__main__":
    sys.exit(main())
