# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario or a check and records what came of it; makes the page of capabilities of such records.

    python tools/evidence run NAME [--go-on] -- COMMAND...   its exit code is that of the command
    python tools/evidence longest NAME...                    the ten that took longest, by their last records
    python tools/evidence failed NAME...                     those that failed when they ran last, and why
    python tools/evidence passed [--since TIME] NAME...      ends with 1 unless each has passed on this tree, since then
    python tools/evidence total --since TIME TARGET NAME...  records how long this target of make took from TIME to now
    python tools/evidence render                             docs/reference/capabilities.md

A part of a scenario that is asked for and not there is an error before anything runs. With --go-on, what has passed on
this tree with these settings is not run again. A run that is interrupted leaves no record, nor does one that changed
the code on its way, or had it changed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
# The end of a long output is all that some see of it.
REASONS, REASON_LINES = 10, 6
# Variables by which pytest runs less than it is told, or something else.
OF_PYTEST = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
# Targets of make that are timed as a whole.
TARGETS = ("test", "test-full")
# Not by PYTHONPATH, which would reach the command that is run.
sys.path[:0] = [str(ROOT / folder) for folder in ("tools", "lab", "collections")]

from karmada_lab.products import ETCD_VERSION, KARMADA_VERSION, KUBERNETES_VERSION  # noqa: E402

from evidence import tree  # noqa: E402
from evidence.capabilities import CAPABILITIES  # noqa: E402
from evidence.choices import choices_of  # noqa: E402
from evidence.page import page  # noqa: E402
from evidence.records import Record, Store, longest, still_passed  # noqa: E402


def run(root: Path, name: str, command: Sequence[str], *, go_on: bool, environment: Mapping[str, str]) -> int:
    """Run the command unless that is not needed, and record it."""
    store, parts = Store(root / tree.RECORDS), tree.digests(root, name)
    choices = choices_of(root, name)
    if unknown := choices.unknown(environment):
        say(
            f"{name}: {choices.by} names what is not there: {', '.join(unknown)}. There are: {', '.join(choices.parts)}"
        )
        return 2
    settings = choices.settings(environment)
    before = (
        still_passed(store.of(name), parts, settings, versions())
        if go_on and not environment.get(choices.seed)
        else None
    )
    if before:
        say(f"{name}: not run again: it passed on this tree ({before.tree}) {before.began}, in {before.seconds:.0f} s")
        return 0
    dirty = tree.edited(root, parts)
    measured = root / "build" / "figures" / f"{name}.json"
    measured.unlink(missing_ok=True)
    seed = _seed(environment.get(choices.seed)) if choices.seed else None
    began, started = datetime.now(UTC), time.monotonic()
    inherited = {key: text for key, text in environment.items() if key not in OF_PYTEST}
    code = _to_its_end(command, {**inherited, **({} if seed is None else {choices.seed: str(seed)})})
    seconds = round(time.monotonic() - started, 1)
    if changed := [part for part, digest in tree.digests(root, name).items() if parts.get(part) != digest]:
        say(f"{name}: no record, because the tree changed while it ran: {', '.join(changed)}")
    elif code >= 0:
        new = Record(
            name=name, passed=code == 0, began=began.strftime("%Y-%m-%dT%H:%M:%SZ"), seconds=seconds,
            tree=tree.whole(parts), commit=tree.commit(root), dirty=dirty, parts=parts, settings=settings, seed=seed,
            versions=versions(), machine=machine(),
            figures={
                **(json.loads(measured.read_text()) if measured.exists() else {}),
                **_tests(root / "build" / "diagnostics" / name / "tests.xml", began),
            },
        )  # fmt: skip
        store.add(new)
        if not new.passed:
            say(why(root, name, began))
        say(f"{name}: {'passed' if new.passed else 'failed'} after {seconds:.0f} s on tree {new.tree}")
    return code if code >= 0 else 128 - code


def _to_its_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run it; who stops this program waits until the command has come to its own end. Negative: ended by a signal."""
    # From before the command begins, so that no moment is left in which only this program would be stopped.
    stopped = threading.Event()
    begun: list[subprocess.Popen[bytes]] = []

    def stop(*_: object) -> None:
        stopped.set()
        for process in begun:
            process.terminate()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with subprocess.Popen(command, env=dict(environment)) as process:
            begun.append(process)
            if stopped.is_set():
                process.terminate()
            try:
                return process.wait()
            except KeyboardInterrupt:
                # A terminal interrupts both.
                process.wait()
                raise
    finally:
        signal.signal(signal.SIGTERM, before)


def why(root: Path, name: str, since: datetime) -> str:
    """Reason that a scenario, or the tests, wrote down when they failed; nothing where that file is of another run.

    Molecule destroys what there was after a failure, and its words about that are the last ones on the screen.
    """
    folder = root / "build" / "diagnostics" / name
    for file, read in ((folder / "why.txt", _text), (folder / "tests.xml", _failed_tests)):
        # File systems take the time of the last tick of the clock, which is some milliseconds behind.
        if file.is_file() and file.stat().st_mtime >= since.timestamp() - 1 and (found := read(file)):
            return found
    return f"{name}: nothing was written down about the failure; it is above"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace").strip()


def _failed_tests(file: Path) -> str:
    """Each failed test of a JUnit file with the lines of its traceback that tell the reason."""
    try:
        cases = ElementTree.parse(file).iter("testcase")  # noqa: S314 - pytest wrote it a moment ago
    except ElementTree.ParseError as error:
        return f"the tests ended before they wrote their results: {error}"
    found = []
    for case in cases:
        for failure in (each for each in case if each.tag in ("failure", "error")):
            lines = (failure.text or failure.get("message") or "").splitlines()
            # As pytest marks the reason; what has none (a worker that died, a fixture) is told by its end.
            reason = [each for each in lines if each.startswith("E ")][:REASON_LINES] or lines[-REASON_LINES:]
            found.append("\n".join([f"{case.get('classname')}::{case.get('name')}", *reason]))
    kept = found[:REASONS] + ([f"and {len(found) - REASONS} more"] if len(found) > REASONS else [])
    return "\n".join(kept)


def failed(root: Path, names: Sequence[str]) -> str:
    """Names, of these, whose last run failed, each with its reason; for the end of a long output."""
    found = []
    for name in names:
        # Sorted, as of two that began in one second the later one counts.
        last = sorted(Store(root / tree.RECORDS).of(name), key=lambda each: each.began)[-1:]
        for failure in (each for each in last if not each.passed):
            reason = why(root, name, datetime.fromisoformat(failure.began))
            found.append(f"{name} failed after {failure.seconds:.0f} s:\n{reason}")
    return "\n\n".join(found) or "None of them failed by itself: something was stopped or could not begin. It is above."


def passed(root: Path, names: Sequence[str], since: str, environment: Mapping[str, str]) -> list[str]:
    """Names, of these, that have no pass on this tree with these settings, begun at this time or later.

    The time is as in a record; '' for any.
    """
    found = _passes(root, tree.contents(root), {name: _settings(root, name, environment) for name in names})
    return [name for name, record in found.items() if record is None or record.began < since]


def _settings(root: Path, name: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    return choices_of(root, name).settings(environment)


def _passes(
    root: Path, parts: Mapping[str, str], settings: Mapping[str, Mapping[str, str]]
) -> dict[str, Record | None]:
    """Name → its run that has passed with these settings on this tree, whose ``contents`` are handed in."""
    store, now = Store(root / tree.RECORDS), versions()
    return {
        name: still_passed(store.of(name), tree.digests(root, name, parts), of_name, now)
        for name, of_name in settings.items()
    }


def total(root: Path, target: str, names: Sequence[str], since: str, environment: Mapping[str, str]) -> str:
    """Record how long a target of make that has passed took as a whole, and return a line about it for a screen.

    ``since``, as in a record, is when it began. One that went on where it was stopped has no total: some of these
    names have passed before then.
    """
    parts, of_names = tree.contents(root), {name: _settings(root, name, environment) for name in names}
    begun = [each for each in _passes(root, parts, of_names).values() if each and each.began >= since]
    if len(begun) < len(names):
        return f"make {target}: {len(names) - len(begun)} of {len(names)} parts did not run now, so there is no total"
    seconds = round((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds(), 1)
    new = Record(
        name=target, passed=True, began=since, seconds=seconds, tree=tree.whole(parts), commit=tree.commit(root),
        dirty=tree.edited(root, parts), parts=parts,
        settings={key: text for settings in of_names.values() for key, text in settings.items()}, seed=None,
        versions=versions(), machine=machine(),
        figures={f"its {len(names)} parts together": f"{sum(each.seconds for each in begun):.0f} s"},
    )  # fmt: skip
    Store(root / tree.TOTALS).add(new)
    return f"make {target}: {seconds:.0f} s from its beginning to its end"


def _tests(file: Path, began: datetime) -> dict[str, str]:
    """Number of tests in the results that pytest has written since then; 1 in the place of thousands is seen."""
    if not file.is_file() or file.stat().st_mtime < began.timestamp() - 1:
        return {}
    try:
        cases = sum(1 for _ in ElementTree.parse(file).iter("testcase"))  # noqa: S314 - pytest wrote it a moment ago
    except ElementTree.ParseError:
        return {}
    return {"all of it": f"{cases} tests"}


def versions() -> dict[str, str]:
    """Programs that a result may depend on."""
    found = {
        "Karmada": KARMADA_VERSION,
        "Kubernetes": KUBERNETES_VERSION,
        "etcd": ETCD_VERSION,
        "Python": platform.python_version(),
    }
    for package in ("ansible-core", "kubernetes", "molecule"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str]:
    """Machine that it ran on, without a name of it."""
    kibibytes = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{kibibytes / 2**20:.0f} GiB",
        "kernel": platform.release().partition("-")[0],
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def say(text: str) -> None:
    """A line for the person who waits."""
    print(text, flush=True)


def _seed(given: str | None) -> int:
    return int(given) if given else random.SystemRandom().randrange(100_000)


def _render(root: Path) -> None:
    store, names = Store(root / tree.RECORDS), [*tree.CHECKS, *tree.scenarios(root)]
    records = {name: store.of(name) for name in names}
    parts = tree.contents(root)
    now = {name: tree.digests(root, name, parts) for name in names}
    totals = [each for name in TARGETS for each in Store(root / tree.TOTALS).of(name)]
    text = page(CAPABILITIES, records, now, {name: choices_of(root, name) for name in names}, totals)
    (root / tree.CAPABILITIES).write_text(text, encoding="utf-8")
    recorded = sum(bool(each) for each in records.values())
    say(f"{tree.CAPABILITIES}: {recorded} of {len(names)} scenarios and checks have a record")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run")
    one.add_argument("name")
    one.add_argument("--go-on", action="store_true")
    one.add_argument("command", nargs="+")
    for verb in ("longest", "failed"):
        one = verbs.add_parser(verb)
        one.add_argument("names", nargs="+")
    one = verbs.add_parser("passed")
    one.add_argument("--since", default="")
    one.add_argument("names", nargs="+")
    one = verbs.add_parser("total")
    one.add_argument("--since", required=True)
    one.add_argument("target", choices=TARGETS)
    one.add_argument("names", nargs="+")
    verbs.add_parser("render")
    options = parser.parse_args(arguments)
    if options.verb == "run":
        try:
            return run(ROOT, options.name, options.command, go_on=options.go_on, environment=os.environ)
        except KeyboardInterrupt:
            say(f"{options.name}: interrupted, so there is no record of it")
            return 130
    if options.verb == "render":
        _render(ROOT)
        return 0
    return _told(ROOT, options)


def _told(root: Path, options: argparse.Namespace) -> int:
    """Say what is on record of the names that the command was given."""
    if options.verb == "failed":
        say(failed(root, options.names))
        return 0
    if options.verb == "passed":
        lacking = passed(root, options.names, options.since, os.environ)
        told = f"No pass of these on this tree{options.since and f' since {options.since}'}: {' '.join(lacking)}"
        say(told if lacking else f"Everything passed: {' '.join(options.names)}.")
        return 1 if lacking else 0
    if options.verb == "total":
        say(total(root, options.target, options.names, options.since, os.environ))
        return 0
    store = Store(root / tree.RECORDS)
    last = [max(found, key=lambda each: each.began) for name in options.names if (found := store.of(name))]
    say("\n".join(["What took longest:", *longest(last)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
