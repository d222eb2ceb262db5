# SPDX-License-Identifier: Apache-2.0
"""Measurements as a page of the documentation, as results.json, and as a table for a screen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from karmada_bench.figures import Figure, Spread, figures, longest_tasks

#: Everything that one run of the benchmark found: see ``record`` in __main__.
Record = Mapping[str, Any]
HEADINGS = ("case", "unit", "ours", "CPU s", "karmadactl", "CPU s", "ratio", "goal", "reached")

PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from bench/rounds.json by `make bench` and `make reference`. Change bench/karmada_bench/page.py. -->

# Benchmarks

`make bench` installs a control plane with this collection and with Karmada's own `karmadactl`, on the same
[lab](../../lab/README.md), in turns, and compares. The figures below are from {began}, {rounds}.

{table}

Median of the rounds, with the least and the greatest. `ratio` is ours by karmadactl's, smaller is faster. `goal` is
the most that the ratio may be; where there is none, the most that ours may be. `CPU s` are the seconds of processors
that the run on the left of it has used, user and system.
[results.json](../../bench/results.json) has the medians, [rounds.json](../../bench/rounds.json) everything that was
measured.

## Where it was measured

{machine}

## What is compared

Both sides work on the same clusters, `host` and `member1`, one node each, with all images loaded. Each component has
one replica, and etcd keeps its data in its pod (`emptyDir`), but for the case that says otherwise. Both reach the API
server of the control plane by a port of the node. Before each step the machine is left alone until it is at rest, for
30 s at most. Who begins changes from round to round; before the first, one installation of ours that is not counted
warms the caches. After each side the clusters are compared with what they were before the first round, object by
object, and made so again.

- **install**, ours: from the start of `ansible-playbook` until a separate check has passed: all workloads are ready,
  the APIService is Available, a list of clusters works, the webhook refuses a bad policy and accepts a good one.
  karmadactl: from the start of `karmadactl init` until it returns, whatever works by then.
- **install until the same is proved for both**: with that check for both sides.
- **install again**: the same document once more. What a run writes is told by the audit logs of the host cluster and
  of the control plane; dry runs and questions about rights are no writes.
- **join**, ours: the playbook `karmada.installer.members` for a document that lists one member more, from the start
  of Ansible to the end of its report. karmadactl: `karmadactl join`, and then until the cluster is Ready.
- **propagation** is done by the same control plane software on both sides, and is there to show that both work.
- **uninstall**: from a control plane with a member to none, and nothing of it on the member. Ours: the playbook
  `karmada.installer.uninstall`. karmadactl: `karmadactl unjoin` of the member, `karmadactl deinit --purge-namespace
  -f`, and the wait for its namespace, as ours waits for it, too.
- **object to Ready**: by an operator in pods of the host cluster that is up before. On the side of karmadactl stands
  Karmada's own operator here, of the same release; it makes a metrics adapter beside the rest. Ours: from
  `kubectl apply` of a KarmadaDeployment until it is Ready and the check of an installation has passed. Karmada's
  operator: until its object is Ready, whatever works by then. **Gone** is the object; what is in its namespace then is
  counted.
- **CPU s**: all processes of the run on the machine where it was started, children included, and what outlives it with
  what it has used by then. What the clusters and hosts compute for it is not in it, on either side; with the changed
  flag, who asks the API server is. Other work on the machine makes a run longer, and these seconds hardly more.
- **memory** is the resident memory of all processes of the run together at its greatest; pages that they share are
  counted for each of them.
- **plain hosts** (mode Binary): three hosts of the same lab, each a root file system of Debian with systemd and sshd,
  HAProxy and keepalived among its packages; programs from a directory on the machine with Ansible. Bare is a host that
  has nothing of us; ready is what it is for pods, with all units active. The ratio is to `karmadactl init` on a
  cluster. Three hosts have a virtual IP, at which somebody asks the API server five times a second while the flag is
  changed. The host that has the virtual IP loses power (its processes are killed and its network is gone) while 20
  writes a second and a watch go there; then it boots.
- **simulated members** are measured in the first round only.
- **help** is `ansible-playbook --help` and `karmadactl --help`.

## What was seen of karmadactl

{facts}

## Where our time goes

Medians of the rounds, in seconds, of what took longest.

{tasks}
"""


def rows(found: Sequence[Figure]) -> list[tuple[str, ...]]:
    """The figures as cells, headings first."""
    return [HEADINGS, *(_row(each) for each in found)]


def _row(each: Figure) -> tuple[str, ...]:
    reached = {True: "yes", False: "no", None: ""}[each.reached]
    goal = "" if each.case.goal is None else f"{each.case.goal:g}"
    ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
    spent = [_spread(found) for found in (each.ours, each.ours_cpu, each.peer, each.peer_cpu)]
    return each.case.title, each.case.unit, *spent, ratio, goal, reached


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    values = [f"{one:g}" for one in (spread.median, spread.least, spread.greatest)]
    return values[0] if len(set(values)) == 1 else f"{values[0]} ({values[1]} to {values[2]})"


def page(record: Record) -> str:
    """docs/reference/benchmarks.md."""
    cells = rows(figures(record["measurements"]))
    lines = [f"| {' | '.join(row)} |" for row in cells]
    lines.insert(1, "|---|---|--:|--:|--:|--:|--:|--:|---|")
    number = record["rounds"]
    return PAGE.format(
        began=record["began"],
        rounds="one round" if number == 1 else f"{number} rounds",
        table="\n".join(lines),
        machine="\n".join(f"- {name}: {value}" for name, value in record["machine"].items()),
        facts="\n".join(f"- {each}" for each in _facts(record)),
        tasks="\n".join(_tasks(record)),
    )


def _facts(record: Record) -> list[str]:
    """Each fact once, with the rounds it was seen in where it was not seen in all."""
    seen: dict[str, set[int]] = {}
    for each in record["facts"]:
        seen.setdefault(each["text"], set()).add(each["round"])
    everywhere = record["rounds"]
    return [
        text if len(rounds) == everywhere else f"{text} (round {', '.join(map(str, sorted(rounds)))})"
        for text, rounds in seen.items()
    ]


def _tasks(record: Record) -> list[str]:
    lines = ["| run | task | s |", "|---|---|--:|"]
    for run in dict.fromkeys(each["run"] for each in record["tasks"]):
        for task, seconds in longest_tasks(record["tasks"], run):
            lines.append(f"| {run} | {task.rpartition(' : ')[2]} | {seconds:g} |")
    return lines
