# SPDX-License-Identifier: Apache-2.0
"""Why a member is not Ready, by what karmada-controller-manager has logged of it.

The Cluster says no more than that it is not reached. The process that looks at members, one of several, says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import partial

from ..components.table import KARMADA_CONTROLLER_MANAGER
from ..kube.errors import ApiError
from ..redaction import redacted
from ..run.run import Run

#: How far back a line counts. A member is looked at every 10 s, and may take half a minute to fail; before that
#: something else may have been wrong.
SECONDS = 180
#: How many lines of a pod are read, and how much of one is shown.
LINES, LONGEST = 2000, 300
#: How long the host cluster may take to show them.
_PATIENCE_SECONDS = 5.0
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LINE = re.compile(rf"^[EW](\d{{4}} [\d:.]+) .*?\] {_QUOTED}(?: err={_QUOTED})?")


def mark(member: str) -> str:
    """What lines about a member have in them."""
    return f'cluster="{member}"'


def consequence(member: str) -> str:
    """What lines have in them that say no more of a member than that it is not Ready."""
    return f"cluster({member}) not ready"


def reasons(run: Run, names: Iterable[str]) -> dict[str, str]:
    """Member → why it is not reached, of those of which there is a line. A courtesy: nothing of it is an error.

    On plain hosts it is what ``member_log`` has found there, if that was done.
    """
    names = list(names)
    if not names:
        return {}
    lines = _of_pods(run) if run.place.in_pods else _of_hosts(run)
    return {name: why for name in names if (why := newest_reason(lines, name))}


def newest_reason(lines: Iterable[str], member: str) -> str:
    """What the newest error of a member says; empty if there is none. ``lines`` may be of several processes."""
    own, nothing_new = mark(member), consequence(member)
    about = (line for line in lines if own in line and nothing_new not in line)
    matches = [found for line in about if (found := _LINE.match(line))]
    if not matches:
        return ""
    # Those that begin at the same moment are in order.
    _time, what, why = max(reversed(matches), key=lambda found: found[1]).groups()
    text = redacted(": ".join(_plain(each) for each in (what, why) if each))
    return f"{KARMADA_CONTROLLER_MANAGER.name}: {text if len(text) <= LONGEST else text[:LONGEST] + '…'}"


def _plain(quoted: str) -> str:
    """What Go has quoted. It is shown to people, so that what cannot be read stays as it is."""
    try:
        return " ".join(str(json.loads(f'"{quoted}"')).split())
    except ValueError:
        return quoted


def _of_hosts(run: Run) -> list[str]:
    return [line for observed in run.observed.values() for line in observed.member_log.values()]


def _of_pods(run: Run) -> list[str]:
    host = run.host_cluster.with_patience(retry_seconds=_PATIENCE_SECONDS, read_seconds=_PATIENCE_SECONDS)
    try:
        selector = run.instance.selector(KARMADA_CONTROLLER_MANAGER.name)
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        pods = host.list("v1", "Pod", run.namespace, labels=labels)
    except ApiError:
        return []
    read = partial(host.logs, namespace=run.namespace, container=KARMADA_CONTROLLER_MANAGER.name, tail=LINES)
    lines = []
    for pod in pods:
        try:
            lines += read(pod["metadata"]["name"], since_seconds=SECONDS).splitlines()
        except ApiError:
            continue
    return lines
