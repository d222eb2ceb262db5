# SPDX-License-Identifier: Apache-2.0
"""Printed text: what varies from run to run taken out of it, its width, and how two texts differ. No I/O."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

#: Columns that anything of ours may have.
WIDTH = 80

#: Text that varies → its name. Each is looked for in what the ones before have left.
_VARIES = (
    # Of a run that ends while it has one.
    (r"(?m)^\[#*\.*\]  .*$", "<bar>"),
    # Colours, which ansible-runner asks for.
    (r"\x1b\[[\d;]*m", ""),
    # Before durations, because a limit of the product's own stands in it and stays.
    (r"\[ *\d+(?:\.\d+)?/(\d+) s\]", r"[<time>/\1 s]"),
    (r"(?<!/)\b(?:\d+ h \d+ min|\d+ min \d+ s|\d+(?:\.\d+)? s)\b", "<time>"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?UTC|Z|\+00:00)?", "<date>"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
    (r"\bsha256:[0-9a-f]{12,64}", "sha256:<digest>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b", "<address>"),
    # How often something was tried in its time depends on how busy the machine is.
    (r"\btried(\s+)\d+(\s+)times?\b", r"tried\1<count>\2times"),
    # The kubelet tries, then waits, and has the words of whoever answers the nodes.
    (
        r"\b(?:ErrImagePull|ImagePullBackOff) of image(\s+)(\S+)\s+\((?:[^()]|\([^()]*\))*\)",
        r"<pull failure> of image\1\2",
    ),
    # As does who asks an API server that nobody stands behind.
    (r"\bAvailable is False\s+\((?:[^()]|\([^()]*\))*\)", "Available is False (<reason>)"),
    # What a ReplicaSet and then the pod put behind the name of a Deployment.
    (r"-[0-9a-f]{7,10}-[a-z0-9]{5}\b", "-<pod>"),
)
#: First line of a wait where lines stay: how many there are depends on how busy the machine is.
_WAIT = re.compile(r"^\.\.\. ")
#: Outcome and time of a step, which are aligned with the time.
_STEP = re.compile(r"^(ok|changed|would|ignored|failed|lost) +<time>  ")
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
#: Lines with these labels are paths and commands to be copied, each on a line of its own.
_COPIED = re.compile(r"^(?:report|page|kubeconfig|reach it by|next) {2,}\S")
#: The object that a difference is of.
_HEADER = re.compile(r"^(?:--- before|\+\+\+ after): ")
#: What Ansible's own plugins say of an inventory before one of ours is asked.
_ANSIBLES = re.compile(
    r"^\[(?:WARNING|ERROR)\]: (?:Skipping |No inventory was parsed, |provided hosts list is empty, |"
    r"Specified inventory, host pattern and/or --limit leaves us with no hosts)"
)
_PLACEHOLDER = re.compile(r"<(?:time|date|id|digest|address|count|pull failure|reason|pod|age|[a-z]+ folder)>")


def without_differences(text: str) -> str:
    """Text with the body of each unified difference left out.

    What is in them is of the objects: neither its width nor its words are ours.
    """
    kept: list[str] = []
    old, new = 0, 0
    for line in text.splitlines():
        if old > 0 or new > 0:
            old -= line[:1] in ("-", " ")
            new -= line[:1] in ("+", " ")
        elif found := _HUNK.match(line):
            old, new = (int(each or 1) for each in found.groups())
        else:
            kept.append(line)
    return "\n".join(kept)


def plain(text: str, places: Mapping[str, str]) -> str:
    """Text as a snapshot has it: what varies is named, ``places`` (text → its name) first; without lines of waits."""
    for place, name in sorted(places.items(), key=lambda item: -len(item[0])):
        text = text.replace(place, f"<{name}>")
    for pattern, name in _VARIES:
        text = re.sub(pattern, name, text)
    lines = [_STEP.sub(r"\1 <time>  ", line.rstrip()) for line in _ages(_waitless(text.splitlines()))]
    return "\n".join(lines).strip("\n") + "\n"


def _waitless(lines: Sequence[str]) -> Iterator[str]:
    waits = False
    for line in lines:
        waits = bool(_WAIT.match(line)) or (waits and line.startswith(" " * 17))
        if not waits:
            yield line


def counted(text: str) -> int:
    """Lines of a text without those of waits, which come with the time that a busy machine takes."""
    return sum(1 for _line in _waitless(text.splitlines()))


def _ages(lines: Iterable[str]) -> list[str]:
    """Lines with the ages of tables taken out, where a column AGE is, and the blanks that make columns."""
    found, inside = [], False
    for line in lines:
        words = line.split()
        if "AGE" in words:
            inside = True
        # What is not there has no age.
        elif inside and not re.search(r" (?:\d+[smhd](?:\d+[smh])?|-)(?: |$)", line):
            inside = False
        if inside:
            line = re.sub(r" +\d+[smhd](?:\d+[smh])?( +|$)", "  <age>  ", line)  # noqa: PLW2901
            line = re.sub(r"(?<=\S) {2,}", "  ", line).rstrip()  # noqa: PLW2901
        found.append(line)
    return found


def why_wide(line: str) -> str:
    """Reason for which a line may be wider than it should be; empty if there is none."""
    if _COPIED.match(line):
        return "a path or a command to be copied"
    if _HEADER.match(line):
        return "the name of an object"
    if _ANSIBLES.match(line):
        return "words of Ansible"
    if len(re.sub(r"^[\s→-]*", "", line).split()) == 1:
        return "one word, which is not broken because it is copied"
    return ""


def too_wide(text: str) -> tuple[list[str], list[str]]:
    """Lines that are too wide, and how many others may be, by the reason."""
    # A terminal puts what was pressed where the cursor is.
    wide = [line for line in text.splitlines() if len(line.removesuffix("^C")) > WIDTH]
    reasons = Counter(why_wide(line) for line in wide)
    excused = [f"{number} wide: {reason}" for reason, number in reasons.items() if reason]
    return [f"{len(line)} columns: {line}" for line in wide if not why_wide(line)], excused


def widest(text: str) -> int:
    """Columns of the widest line."""
    return max(map(len, text.splitlines()), default=0)


def differences(expected: str, found: str, name: str) -> list[str]:
    """Lines of a unified difference of two texts; none if they say the same.

    Where something stands that varies in width, as an address does, the text around it may be folded otherwise.
    """
    before, after = expected.splitlines(), found.splitlines()
    joined: list[str] = []
    for tag, a_from, a_to, b_from, b_to in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        theirs, ours = before[a_from:a_to], after[b_from:b_to]
        joined += theirs if tag != "equal" and _folded_otherwise(theirs, ours) else ours
    return list(difflib.unified_diff(before, joined, f"{name}, expected", f"{name}, printed", lineterm=""))


def _folded_otherwise(these: Sequence[str], those: Sequence[str]) -> bool:
    one, other = (" ".join(" ".join(lines).split()) for lines in (these, those))
    return one == other and bool(_PLACEHOLDER.search(one))
