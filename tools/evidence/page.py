# SPDX-License-Identifier: Apache-2.0
"""Capabilities and records as a page of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from evidence.capabilities import Area
from evidence.choices import Choices
from evidence.records import Record, newest_failure, newest_pass

PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from molecule/records/ by `make evidence`. Change tools/evidence/. -->

# Capabilities, and what shows them

Each line is shown by a scenario on real clusters and hosts ([what each of them does](../../molecule/README.md)), or
by a level of tests (`lint`, `unit`, `contract`, `publishable`), which passed at the time and on the tree that it
names. Each run leaves a record in `molecule/records/`. A *tree* is a digest of all that decides the result: the
collection, the lab, what scenarios share, the scenario itself, and what else its files name, such as the operator and
its chart. *Changed since* names the parts of it that have another content now than they had then: the scenario has
not been seen to pass with them. `make test-full` runs each of which that is true, and each that ran with other
versions (Python, ansible-core) than there are now; the machine and its kernel, named at the end, are not compared.
Where a scenario has parts, `scenario:part` is one of them, and its name alone is all of them. A run of fewer parts,
or with fewer kills or another version than without settings, is in the list of runs, and shows no line that needs
more.

{areas}

## Scenarios and checks

How each was run. Settings are variables of the environment; those that draw moments or faults at random do so by their
seed, which repeats the run.

{runs}

## What was measured

By the scenarios themselves in their last run that passed, while somebody wrote to the API server 20 times a second and
watched it; and how many tests a level of them has.

{figures}

## How long it took as a whole

From the beginning to the end of a target of `make`, whose parts run three at a time.

{totals}

## Where

{machines}
"""

_NEVER = "no record"


def page(
    areas: Iterable[Area],
    records: Mapping[str, Sequence[Record]],
    now: Mapping[str, Mapping[str, str]],
    choices: Mapping[str, Choices],
    totals: Iterable[Record] = (),
) -> str:
    """docs/reference/capabilities.md.

    ``now``: name of a scenario or check → part → digest of its present content. ``choices``: by the same names.
    ``totals``: runs of whole targets of make.
    """
    return PAGE.format(
        areas="\n\n".join("\n".join(_area(each, records, now, choices)) for each in areas),
        runs="\n".join(_runs(records)),
        figures="\n".join(_figures(records)),
        totals="\n".join(_totals(totals)),
        machines="\n".join(_machines(records)),
    )


def state(
    records: Sequence[Record], now: Mapping[str, str], choices: Choices | None = None, part: str = ""
) -> tuple[str, str, str, str]:
    """Cells of a row: when it passed, on which tree, in how many seconds, and what has changed or failed since.

    Only runs count that have seen this part, or all parts where none is named, and nothing less than by default.
    """
    choices = choices or Choices()
    last = newest_pass(each for each in records if choices.shows(each.settings, part))
    failed = newest_failure(each for each in records if not part or part in choices.chosen(each.settings))
    since = []
    if failed and (last is None or failed.began > last.began):
        since.append(f"**failed** {_day(failed)} on `{failed.tree}`")
    if last is None:
        return _NEVER, "", "", "; ".join(since)
    if changed := last.changed_since(now):
        since.append(f"changed since: {', '.join(changed)}")
    return _day(last), f"`{last.tree}`", f"{last.seconds:.0f}", "; ".join(since)


def _area(
    area: Area,
    records: Mapping[str, Sequence[Record]],
    now: Mapping[str, Mapping[str, str]],
    choices: Mapping[str, Choices],
) -> Iterator[str]:
    yield f"## {area.title}\n"
    yield "| capability | shown by | passed | tree | s | since then |"
    yield "|---|---|---|---|--:|---|"
    for capability in area.capabilities:
        what = capability.what
        for shown_by in capability.shown_by:
            name, _, part = shown_by.partition(":")
            yield _row(what, f"`{shown_by}`", *state(records.get(name, ()), now[name], choices.get(name), part))
            what = ""


def _runs(records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    yield "| scenario or check | passed (UTC) | tree | commit | s | settings | seed |"
    yield "|---|---|---|---|--:|---|--:|"
    for name, found in records.items():
        passes = [each for each in found if each.passed]
        for each in passes:
            yield _row(f"`{name}`", *_cells(each), "" if each.seed is None else str(each.seed))
        if not passes:
            yield _row(f"`{name}`", _NEVER, "", "", "", "", "")


def _figures(records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    yield "| scenario | step | figure |"
    yield "|---|---|---|"
    for name, found in records.items():
        last = newest_pass(found)
        for step, figure in (last.figures if last else {}).items():
            yield _row(f"`{name}`", step, figure)


def _totals(totals: Iterable[Record]) -> Iterator[str]:
    yield "| target | passed (UTC) | tree | commit | s | settings | beside it |"
    yield "|---|---|---|---|--:|---|---|"
    for each in totals:
        beside = [f"{what}: {figure}" for what, figure in each.figures.items()]
        yield _row(f"`make {each.name}`", *_cells(each), ", ".join([*beside, f"{each.machine['cores']} cores"]))


def _cells(run: Record) -> tuple[str, str, str, str, str]:
    """Cells of a run: when, tree, commit, seconds, settings."""
    settings = " ".join(f"{key}={value}" for key, value in sorted(run.settings.items()))
    return (
        run.began.replace("T", " ").removesuffix("Z"), f"`{run.tree}`",
        run.commit + (" with changes" if run.dirty else ""), f"{run.seconds:.0f}", f"`{settings}`" if settings else "",
    )  # fmt: skip


def _machines(records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Each machine and set of versions once, with how many of the runs it had."""
    counted: dict[str, int] = {}
    for each in (each for found in records.values() for each in found if each.passed):
        machine = ", ".join(f"{key} {value}" for key, value in sorted(each.machine.items()) if key != "load")
        versions = ", ".join(f"{key} {value}" for key, value in sorted(each.versions.items(), key=_small))
        counted[f"{machine}; {versions}"] = counted.get(f"{machine}; {versions}", 0) + 1
    if not counted:
        yield "There is no record yet."
    for text, number in sorted(counted.items()):
        yield f"- {number} runs: {text}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _day(record: Record) -> str:
    return record.began[:10]


def _small(item: tuple[str, str]) -> str:
    return item[0].lower()
