# SPDX-License-Identifier: Apache-2.0
"""Reasons why a member is not Ready, from the log of karmada-controller-manager.

The Cluster only says that it is not reached. The reason is in the log of the leader, one of several processes.
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

#: Age up to which lines count. A member is checked every 10 s, and a check may take half a minute to fail; older lines
#: may be about something else.
SECONDS = 180
#: Lines that are read of a pod, and characters that are shown of one.
LINES, LONGEST = 2000, 300
#: Time within which the host cluster must answer.
_PATIENCE_SECONDS = 5.0
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LINE = re.compile(rf"^[EW](\d{{4}} [\d:.]+) .*?\] {_QUOTED}(?: err={_QUOTED})?")


def mark(member: str) -> str:
    """Text by which lines about a member are found."""
    return f'cluster="{member}"'


def consequence(member: str) -> str:
    """Text of lines that only repeat that a member is not Ready."""
    return f"cluster({member}) not ready"


def reasons(run: Run, names: Iterable[str]) -> dict[str, str]:
    """Member → reason why it is not reached, for those with a line in the log. Best effort, without errors.

    On plain hosts it is what ``member_log`` has found there, if that has run.
    """
    names = list(names)
    if not names:
        return {}
    lines = _of_hosts(run) if KARMADA_CONTROLLER_MANAGER.is_on_hosts(run.spec) else _of_pods(run)
    return {name: why for name in names if (why := newest_reason(lines, name))}


def newest_reason(lines: Iterable[str], member: str) -> str:
    """Reason in the newest error of a member; empty if there is none. ``lines`` may be of several processes."""
    own, nothing_new = mark(member), consequence(member)
    about = (line for line in lines if own in line and nothing_new not in line)
    matches = [found for line in about if (found := _LINE.match(line))]
    if not matches:
        return ""
    # Lines with the same time are in order.
    _time, what, why = max(reversed(matches), key=lambda found: found[1]).groups()
    text = redacted(": ".join(_plain(each) for each in (what, why) if each))
    return f"{KARMADA_CONTROLLER_MANAGER.name}: {text if len(text) <= LONGEST else text[:LONGEST] + '…'}"


def _plain(quoted: str) -> str:
    """Content of a string quoted by Go; if it cannot be decoded, it is shown to people as it is."""
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
