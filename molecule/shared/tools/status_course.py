# SPDX-License-Identifier: Apache-2.0
"""Course of an object's status, as a watch has shown it version by version, and whether it was honest.

    status_course.py watch FILE --kubectl KUBECTL --kubeconfig FILE --namespace NAMESPACE KIND NAME
    status_course.py judge FILE [--cuts FILE] [--figures FILE]

``watch`` writes a line of JSON for each version, as long as FILE.watching is there; begun once more, it first notes
that what was in between is not in the file. ``judge`` says what is wrong in them, of each object that had the name:

* a phase goes back within a run. A run begins where none was under way (Progressing), where ``lastRun`` changes, and
  once after each cut: a moment (seconds since 1970, the first word of a line of CUTS) at which whoever works was ended;
* ``observedGeneration`` of the status or of a condition is beyond that of the object, or goes back; or a condition that
  says how the control plane is, tells of a generation that is not carried out;
* ``lastTransitionTime`` changes although the status of the condition does not, goes back, or is one to come;
* Ready is true before the first installation has come to its end, or is lost although nobody has edited the object.

Across what was not seen, a run may have begun, and a condition may have changed twice; nothing may have gone back in
time.

Exit code 1: something is wrong, or nothing was seen.
"""

from __future__ import annotations

import argparse
import codecs
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from audit_requests import clock_of
from figures import keep_figure

#: Order of phases within a run; the others end one.
PHASES = ("Preflight", "Upgrading", "Installing", "Waiting", "InstallCRD", "Completed", "Deleting")
#: Conditions that say how what was carried out is; who waits for one of them compares its generation.
OF_THE_REPORT = frozenset({"Ready", "ComponentsReady", "ControlPlaneReady", "MembersReady", "EtcdHealthy"})
#: Seconds by which a clock may be ahead of another one.
CLOCKS = 2.0
#: Seconds after a cut within which the next one begins, on a busy machine.
WITHIN = 120.0

Object = dict[str, Any]
#: Line between versions of two watches.
GAP: Object = {"gap": True}


@dataclass(frozen=True)
class Version:
    """Version of an object: when it was seen, and what decides. Conditions: type → (status, since, generation).

    ``after_a_gap``: nobody watched between the version before it and this one.
    """

    seen: float
    uid: str
    generation: int
    deleting: bool
    phase: str
    observed: int
    installed: bool
    run: str
    conditions: dict[str, tuple[str, str, int]]
    after_a_gap: bool = False

    @classmethod
    def of(cls, line: Object) -> Version:
        """Version of a line of the file."""
        meta, status = line["metadata"], line["status"]
        return cls(
            seen=line["seen"],
            uid=meta["uid"],
            generation=meta["generation"],
            deleting="deletionTimestamp" in meta,
            phase=status.get("phase", ""),
            observed=status.get("observedGeneration", 0),
            installed=bool(status.get("installed")),
            run=(status.get("lastRun") or {}).get("id", ""),
            conditions={
                each["type"]: (each["status"], each["lastTransitionTime"], each.get("observedGeneration", 0))
                for each in status.get("conditions") or ()
            },
        )

    def status_of(self, kind: str) -> str:
        """Status of a condition; empty if there is none."""
        return self.conditions[kind][0] if kind in self.conditions else ""


# -- watching ----------------------------------------------------------------------------------------------------------


def documents(text: str) -> tuple[list[Object], str]:
    """JSON documents that stand one after the other in a text, and what is left of it."""
    found: list[Object] = []
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError:
            return found, text[at:]
        found.append(document)


def watch(file: Path, command: Sequence[str], kind: str, name: str) -> None:
    """Write down versions until FILE.watching is gone. A watch that ends is begun anew, and shows what is there."""
    marker = file.with_name(f"{file.name}.watching")
    words = [*command, "get", kind, "--watch", "--output-watch-events", "--output=json"]
    with file.open("a", encoding="utf-8") as out:
        if out.tell():
            out.write(json.dumps(GAP) + "\n")
            out.flush()
        while marker.exists():
            # All of the kind: a watch of one by its name fails while there is none.
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
            threading.Thread(target=_end, args=(process, marker), daemon=True).start()
            rest, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
            while process.stdout is not None and (chunk := process.stdout.read(1 << 20)):
                events, rest = documents(rest + decoder.decode(chunk))
                for each in events:
                    line = _kept(each, name)
                    if line is not None:
                        out.write(json.dumps(line) + "\n")
                        out.flush()
            process.wait()
            time.sleep(0.5)


def _end(process: subprocess.Popen[bytes], marker: Path) -> None:
    """End a watch when the marker is gone."""
    while marker.exists() and process.poll() is None:
        time.sleep(0.5)
    process.terminate()


def _kept(event: Object, name: str) -> Object | None:
    """Parts of an event that are kept; None if it is about another object."""
    found = event["object"]
    if found.get("metadata", {}).get("name") != name:
        return None
    meta, status = found["metadata"], found.get("status") or {}
    wanted = ("phase", "observedGeneration", "installed", "lastRun", "conditions")
    return {
        "seen": round(time.time(), 3),
        "type": event["type"],
        "metadata": {key: meta[key] for key in ("uid", "generation", "deletionTimestamp") if key in meta},
        "status": {key: status[key] for key in wanted if key in status},
    }


def read(lines: Iterable[str]) -> dict[str, list[Version]]:
    """Versions of each object, by its UID, of the lines of a file."""
    found: dict[str, list[Version]] = defaultdict(list)
    unseen: set[str] = set()
    for each in map(json.loads, lines):
        if each == GAP:
            unseen = set(found)
            continue
        version = Version.of(each)
        found[version.uid].append(replace(version, after_a_gap=version.uid in unseen))
        unseen.discard(version.uid)
    return found


# -- judging -----------------------------------------------------------------------------------------------------------


def wrong(versions: Sequence[Version], cuts: Iterable[float]) -> Iterator[str]:
    """Faults of the versions of one object, in words."""
    left = sorted(cuts)
    for number, now in enumerate(versions):
        clock = clock_of(now.seen)
        yield from (f"{clock} {line}" for line in _in_itself(now))
        if not number:
            continue
        before = versions[number - 1]
        left = [each for each in left if now.seen - each <= WITHIN]
        begins = before.status_of("Progressing") != "True" or now.run != before.run or now.after_a_gap
        if _goes_back(before, now) and not begins:
            # Whoever worked was killed, and the next one begins; that happens once after each cut.
            if left and left[0] <= now.seen:
                left.pop(0)
            else:
                yield f"{clock} the phase goes back within a run, from {before.phase} to {now.phase}"
        yield from (f"{clock} {line}" for line in _since(before, now))


def _goes_back(before: Version, now: Version) -> bool:
    of_a_run = before.phase in PHASES and now.phase in PHASES
    return of_a_run and PHASES.index(now.phase) < PHASES.index(before.phase)


def _in_itself(now: Version) -> Iterator[str]:
    generations = {"the status": now.observed, **{kind: each[2] for kind, each in now.conditions.items()}}
    for who, generation in generations.items():
        if generation > now.generation:
            yield f"{who} tells of generation {generation}, and the object has {now.generation}"
    for kind in OF_THE_REPORT & now.conditions.keys():
        if now.observed and now.conditions[kind][2] > now.observed:
            yield f"{kind} tells of generation {now.conditions[kind][2]}, and {now.observed} is carried out"
    for kind, (_, since, _generation) in now.conditions.items():
        if datetime.fromisoformat(since).timestamp() > now.seen + CLOCKS:
            yield f"{kind} has changed at {since}, which is still to come"
    if now.status_of("Ready") == "True" and not now.installed:
        yield "Ready is true, although the first installation has not come to its end"


def _since(before: Version, now: Version) -> Iterator[str]:
    if now.observed < before.observed:
        yield f"observedGeneration goes back from {before.observed} to {now.observed}"
    for kind, (status, since, generation) in now.conditions.items():
        known = before.conditions.get(kind)
        if known is None:
            continue
        if generation < known[2]:
            yield f"observedGeneration of {kind} goes back from {known[2]} to {generation}"
        if status == known[0] and since != known[1] and not (now.after_a_gap and since > known[1]):
            yield f"{kind} stays {status}, and says that it has changed at {since}, not at {known[1]}"
        if status != known[0] and since < known[1]:
            yield f"{kind} becomes {status}, and says that this was at {since}, before the change at {known[1]}"
    lost = before.status_of("Ready") == "True" and now.status_of("Ready") == "False" and not now.after_a_gap
    if lost and now.observed == now.generation == before.generation and not now.deleting:
        yield "Ready is lost, although nobody has changed anything"


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("watch")
    one.add_argument("file", type=Path)
    one.add_argument("--kubectl", required=True)
    one.add_argument("--kubeconfig", required=True)
    one.add_argument("--namespace", required=True)
    one.add_argument("kind")
    one.add_argument("name")
    one = commands.add_parser("judge")
    one.add_argument("file", type=Path)
    one.add_argument("--cuts", type=Path)
    one.add_argument("--figures", type=Path)
    options = parser.parse_args()
    if options.command == "watch":
        words = [options.kubectl, f"--kubeconfig={options.kubeconfig}", f"--namespace={options.namespace}"]
        watch(options.file, words, options.kind, options.name)
        return 0
    by_uid = read(options.file.read_text().splitlines())
    cuts = [float(line.split()[0]) for line in options.cuts.read_text().splitlines()] if options.cuts else []
    found = [line for versions in by_uid.values() for line in wrong(versions, cuts)]
    seen = sum(map(len, by_uid.values()))
    print("".join(f"{line}\n" for line in found), end="")
    print(f"{seen} versions of {len(by_uid)} objects of that name, {len(cuts)} cuts, {len(found)} things wrong")
    if options.figures:
        keep_figure(options.figures, "versions of the status", f"{seen}, of which {len(found)} were wrong")
    return 1 if found or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
