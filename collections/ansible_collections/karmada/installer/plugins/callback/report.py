# SPDX-License-Identifier: Apache-2.0
"""Output of a run for people."""

from __future__ import annotations

DOCUMENTATION = r"""
name: report
type: stdout
short_description: One line for each step, an error once, and the report as a block
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Shows a run of the playbooks of this collection to a person, in 80 columns. A step is one line, with what it did and
    how long it took. Steps that only hold the run together, that are skipped, or that find nothing to do are not shown.
  - >-
    What a step waits for is shown in place at the foot of a terminal, with a bar of how far the run is. Elsewhere it is
    a line at least every 30 seconds.
  - >-
    A step that fails tells what is wrong, where, and how to mend it, once. The report comes last, with the next command
    at its end.
  - >-
    With C(-v) and more nothing is hidden: the output is that of P(ansible.builtin.default#callback), whose options are
    those of this plugin.
  - >-
    Every other callback shows the same texts in its own way. AWX and ansible-runner have one of their own, which takes
    its texts from this one if it is set; then nothing is shown in place.
notes:
  - >-
    Tasks of other playbooks have a line like those of this collection, and what they show (M(ansible.builtin.debug)) is
    shown.
requirements:
  - Set as stdout callback in the configuration, or by E(ANSIBLE_STDOUT_CALLBACK).
extends_documentation_fragment:
  - default_callback
  - result_format_callback
seealso:
  - module: karmada.installer.report
"""

EXAMPLES = r"""
# In ansible.cfg:
#
#   [defaults]
#   stdout_callback = karmada.installer.report
#
# Or for one run:
#
#   ANSIBLE_STDOUT_CALLBACK=karmada.installer.report ansible-playbook -i site.karmada.yml karmada.installer.install
"""

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from ansible import constants
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.utils.display import Display
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import number_of
from ansible_collections.karmada.installer.plugins.plugin_utils.report import layout
from ansible_collections.karmada.installer.plugins.plugin_utils.run import end, results
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import DONE
from ansible_collections.karmada.installer.plugins.plugin_utils.run.inventory_names import CONTROL
from ansible_collections.karmada.installer.plugins.plugin_utils.run.play_progress import PlayProgress
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import Kind, Said
from ansible_collections.karmada.installer.plugins.plugin_utils.run.silence import STILL_SECONDS
from ansible_collections.karmada.installer.plugins.plugin_utils.run.visible_steps import is_plumbing, is_worth_a_line

#: Seconds of silence at most, while something is waited for where the output is no terminal.
SILENT_SECONDS = 30.0
#: Seconds between two lines on one wait at least. A step that has told something may tell nothing more for
#: ``STILL_SECONDS``, so what is passed over must not be the last for so long that both make more than the silence.
WAIT_SECONDS = SILENT_SECONDS - STILL_SECONDS
#: Width of the outcome and the time, before the title of a step.
_HEAD = 17
#: Names that say nothing about where a step was done.
_HERE = frozenset({CONTROL, "localhost"})
#: Lines of a hint that is shown whole, and lines of one that is longer.
_WHOLE_HINT = 3
_CUT_HINT = 2
#: Most hosts that a line names.
_HOSTS_NAMED = 3
#: Change of a step → the same as a check tells it.
_TO_DO = {"created": "to create", "changed": "to change", "deleted": "to delete"}
_COLORS = {
    "ok": constants.COLOR_OK,
    "changed": constants.COLOR_CHANGED,
    "would": constants.COLOR_CHANGED,
    "ignored": constants.COLOR_SKIP,
    "failed": constants.COLOR_ERROR,
    "lost": constants.COLOR_UNREACHABLE,
}


@dataclass
class _Step:
    """Task that runs or has run, with all that is to be shown of it."""

    task: Any
    action: str
    title: str
    plumbing: bool
    started: float
    hosts: list[tuple[str, str]] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    diffs: list[str] = field(default_factory=list)
    #: host → message of its failure
    failures: dict[str, str] = field(default_factory=dict)
    said_at: float = 0.0

    @property
    def outcome(self) -> str:
        """Worst outcome on any host; empty if it was skipped on all."""
        found = {outcome for _host, outcome in self.hosts}
        return next((each for each in ("lost", "failed", "changed", "would", "ignored", "ok") if each in found), "")


class CallbackModule(Default):  # type: ignore[misc]  # ansible-core ships no types
    """See DOCUMENTATION."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "karmada.installer.report"

    def __init__(self) -> None:
        super().__init__()
        self._step: _Step | None = None
        self._play_progress: PlayProgress | None = None
        self._fraction = 0.0
        self._told: set[str] = set()
        self._report = ""
        self._failed = False
        self._changed = 0
        self._checks = False
        self._began = time.monotonic()
        self._status_shown = False
        # ansible-runner gives a run a terminal at which nobody looks, and its own callback inherits from this one.
        watched = type(self) is CallbackModule
        self._terminal = watched and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._first = os.getpid()
        # Forks send what they display to this process, which displays it by this method. It is the only place where
        # lines of a step are seen, and where other output can be kept from being written into the line of the status.
        self._display.display = self._displayed

    # -- at other verbosities nothing is hidden --------------------------------------------------------------------

    @property
    def _terse(self) -> bool:
        return bool(self._display.verbosity == 0)

    def _displayed(self, msg: str, *arguments: Any, **more: Any) -> None:
        """Display a text, or lay it out if it is of a step of this collection."""
        show = Display.display
        if os.getpid() != self._first:
            show(self._display, msg, *arguments, **more)
        elif isinstance(msg, Said) and self._terse:
            self._said(msg)
        else:
            self._clear()
            show(self._display, msg, *arguments, **more)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Begin. A command may have more than one playbook, each with a bar of its own."""
        self._fraction = 0.0
        if not self._terse:
            super().v2_playbook_on_start(playbook)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Begin a play: its name is shown with the first step that fails, so it takes no line of its own."""
        self._finish()
        if not self._terse:
            super().v2_playbook_on_play_start(play)
            return
        self._play = play
        self._play_progress = PlayProgress(play.tasks) if self._terminal else None

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Pass over a play without hosts: there is one for each way to install."""
        if not self._terse:
            super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """Pass over the end of a play whose hosts have failed, which was told."""
        if not self._terse:
            super().v2_playbook_on_no_hosts_remaining()

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Pass over an include, which is no step."""
        if not self._terse:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Begin a step."""
        self._begin(task)
        if not self._terse:
            super().v2_playbook_on_task_start(task, is_conditional)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Begin a step."""
        self._begin(task)
        if not self._terse:
            super().v2_playbook_on_handler_task_start(task)

    # -- results ---------------------------------------------------------------------------------------------------

    def v2_runner_on_ok(self, result: Any) -> None:
        """Note what a step did on a host."""
        if not self._terse:
            super().v2_runner_on_ok(result)
            return
        found = result.result
        changed = bool(found.get("changed"))
        outcome = ("would" if result.task.check_mode else "changed") if changed else "ok"
        step = self._note(result, outcome)
        step.changes.update(_kinds_of_change(found) if changed else ())
        self._changed += changed
        if self._run_is_verbose(result) and not step.plumbing:
            self._clean_results(found, result.task.action)
            step.notes.append(results.text(found) or self._dump_results(found))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Note why a step failed on a host."""
        if not self._terse:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        self._failed = self._failed or not ignore_errors
        step = self._note(result, "ignored" if ignore_errors else "failed")
        step.failures[result.host.get_name()] = results.reason(result.result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Note that a host was lost."""
        if not self._terse:
            super().v2_runner_on_unreachable(result)
            return
        self._failed = self._failed or not result.task.ignore_unreachable
        step = self._note(result, "lost")
        step.failures[result.host.get_name()] = results.reason(result.result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Pass over a step that is skipped."""
        if not self._terse:
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Pass over one turn of a loop; the step has the sum."""
        if not self._terse:
            super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Pass over one turn of a loop; the step has the message."""
        if not self._terse:
            super().v2_runner_item_on_failed(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Pass over one turn of a loop."""
        if not self._terse:
            super().v2_runner_item_on_skipped(result)

    def v2_runner_retry(self, result: Any) -> None:
        """Show at the foot of a terminal that a task is tried again."""
        if not self._terse:
            super().v2_runner_retry(result)
            return
        self._status(f"tried {number_of(result.result.get('attempts', 0), 'time')}")

    def v2_on_file_diff(self, result: Any) -> None:
        """Keep the difference for the lines below its step."""
        if not self._terse:
            super().v2_on_file_diff(result)
            return
        found = result.result
        each = found["results"] if result.task.loop and "results" in found else [found]
        told = [self._get_diff(one["diff"]) for one in each if one.get("diff") and one.get("changed")]
        self._step_of(result.task).diffs += [text.rstrip("\n") for text in told if text]

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Show the report, or how the run ended."""
        self._finish()
        if not self._terse:
            super().v2_playbook_on_stats(stats)
            return
        took = layout.duration(time.monotonic() - self._began)
        if not self._report:
            self._line(self._ending(stats, took), constants.COLOR_ERROR if self._failed else None)
            return
        if self._failed:
            self._line(f"failed after {took}", constants.COLOR_ERROR)
        self._line("")
        self._line(self._report)
        # A command may have more than one playbook.
        self._report = ""

    def _ending(self, stats: Any, took: str) -> str:
        if self._failed:
            return f"failed after {took}"
        if not stats.processed:
            return "nothing was done: no host matched"
        if not self._changed:
            return f"done in {took}: {'nothing would be changed' if self._checks else 'nothing was changed'}"
        steps = number_of(self._changed, "step")
        return f"done in {took}: {steps} {'would change' if self._checks else 'changed'} something"

    # -- steps -----------------------------------------------------------------------------------------------------

    def _begin(self, task: Any) -> _Step:
        self._finish()
        # Not ``get_name``, which puts the name of the role first.
        title = str(task.name or task.action).strip()
        action = str(getattr(task, "resolved_action", None) or task.action)
        arguments = task.args if isinstance(task.args, Mapping) else {}
        plumbing = isinstance(task, TaskInclude) or is_plumbing(action, arguments, str(task.get_path() or ""))
        now = time.monotonic()
        step = self._step = _Step(task, action, title, plumbing, started=now, said_at=now)
        if not plumbing:
            end.under_way(title)
        if self._play_progress:
            self._fraction = max(self._fraction, self._play_progress.at(task))
            if not plumbing:
                self._status("")
        return step

    def _step_of(self, task: Any) -> _Step:
        if self._step is None or self._step.task._uuid != task._uuid:
            return self._begin(task)
        return self._step

    def _note(self, result: Any, outcome: str) -> _Step:
        step = self._step_of(result.task)
        step.hosts.append((result.host.get_name(), outcome))
        self._checks = self._checks or bool(result.task.check_mode)
        self._handle_warnings(result.result)
        return step

    def _finish(self) -> None:
        """Show the step that is over."""
        step, self._step = self._step, None
        if step is None or not self._terse:
            return
        self._clear()
        outcome = step.outcome
        done = is_worth_a_line(step.action, changed=outcome != "ok") or bool(step.notes)
        if outcome and ((not step.plumbing and done) or step.failures):
            self._show(step, outcome)
        for note in step.notes:
            if note not in self._told:
                self._told.add(note)
                lines = layout.wrapped(note, "  ")
                if note.startswith("hint:") and len(lines) > _WHOLE_HINT:
                    # All of it is in the result of the step.
                    lines = [*lines[: _CUT_HINT - 1], f"{lines[_CUT_HINT - 1][: layout.WIDTH - 2].rstrip()} …"]
                self._lines(lines, constants.COLOR_WARN if note.startswith("warning:") else None)
        for difference in step.diffs:
            self._line(difference)
        if step.failures:
            self._show_failures(step)
        self._flush()

    def _show(self, step: _Step, outcome: str) -> None:
        took = layout.duration(time.monotonic() - step.started)
        words = _TO_DO if outcome == "would" else {}
        done = ", ".join(f"{number} {words.get(kind, kind)}" for kind, number in sorted(step.changes.items()))
        hosts = _told_of(step)
        if len(hosts) > _HOSTS_NAMED:
            hosts = [number_of(len(hosts), "host")]
        text = step.title + (f": {done}" if done else "") + (f" (on {', '.join(hosts)})" if hosts else "")
        self._lines(layout.wrapped(text, f"{outcome:<8}{took:>{_HEAD - 10}}  "), _COLORS[outcome])

    def _show_failures(self, step: _Step) -> None:
        role = getattr(step.task, "_role", None)
        if self._report and role is not None and role.get_name() == "karmada.installer.report":
            # The report has it in full.
            step.failures = {host: text.partition("\n")[0].rstrip(":") for host, text in step.failures.items()}
        by_text: dict[str, list[str]] = {}
        for host, text in step.failures.items():
            by_text.setdefault(text, []).append(host)
        for text, hosts in by_text.items():
            named = [host for host in hosts if host not in _HERE]
            # The line of the step names the hosts, too, if they are few.
            is_told = named == _told_of(step) and len(named) <= _HOSTS_NAMED
            where = f"{', '.join(named)}: " if named and not is_told else ""
            self._lines(layout.wrapped(where + text, "  "), constants.COLOR_ERROR)

    # -- lines of a step that runs -----------------------------------------------------------------------------------

    def _said(self, text: Said) -> None:
        if text.kind is Kind.REPORT:
            self._report = text.words
            return
        if text.kind is Kind.NOTE and self._step is not None:
            self._step.notes.append(text.words)
        if self._terminal:
            self._status(text.words)
        elif text.kind is Kind.PROGRESS:
            self._wait_line(text.words)

    def _wait_line(self, words: str) -> None:
        step, now = self._step, time.monotonic()
        if step is None or now - step.said_at < WAIT_SECONDS:
            return
        step.said_at = now
        # Most waits tell their time themselves, with the limit: [40/300 s].
        took = "" if words.startswith("[") else layout.duration(now - step.started)
        self._lines(layout.wrapped(words, f"{'...':<8}{took:>{_HEAD - 10}}  "))
        self._flush()

    # -- the terminal ------------------------------------------------------------------------------------------------

    def _status(self, words: str) -> None:
        """Rewrite the line at the foot of a terminal."""
        if not self._terminal or self._step is None:
            return
        took = layout.duration(time.monotonic() - self._step.started)
        what = [took, " ".join(words.split())] if words else [self._step.title]
        parts = [layout.bar(self._fraction), *(what[1:] if words.startswith("[") else what)]
        width = min(layout.WIDTH, shutil.get_terminal_size().columns) - 1
        text = layout.cut("  ".join(parts), width)
        Display.display(self._display, f"\r\x1b[K{text}", newline=False, screen_only=True)
        self._status_shown = True
        self._flush()

    def _clear(self) -> None:
        if self._status_shown:
            self._status_shown = False
            Display.display(self._display, "\r\x1b[K", newline=False, screen_only=True)

    def _line(self, text: str, color: str | None = None) -> None:
        self._clear()
        Display.display(self._display, text, color=color)

    def _lines(self, lines: Sequence[str], color: str | None = None) -> None:
        for line in lines:
            self._line(line, color)

    def _flush(self) -> None:
        # Ansible forks under this lock, so that no fork inherits a stream that another thread is writing to.
        with getattr(self._display, "_lock", None) or nullcontext():
            sys.stdout.flush()


def _told_of(step: _Step) -> list[str]:
    """Hosts that the line of a step is about: those where it did something, or failed."""
    return [host for host, how in step.hosts if host not in _HERE and how != "ok"]


def _kinds_of_change(found: Mapping[str, Any]) -> Counter[str]:
    """Changes of a step by their kind: created, changed, deleted."""
    changes = found.get("changes")
    if not isinstance(changes, list):
        return Counter()
    verbs = (str(each).partition(" ")[0] for each in changes)
    return Counter(DONE.get(verb, verb) for verb in verbs)
