# SPDX-License-Identifier: Apache-2.0
"""Requests of the installer that were answered, by audit logs: who asked for what, when, and whether that changed it.

A run names itself in each of its requests; what the operator asks by itself has no such name, but the pod that asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from audit import OUR_AGENT, is_write

#: How each run's name for itself begins.
OF_RUNS = f"{OUR_AGENT} (run "
_RUN = re.compile(rf"{re.escape(OF_RUNS)}([^)]+)\)")
#: Identity of a run of the operator: the name of its object, and something random.
_OF_INSTANCE = re.compile(r"(.+)-[0-9a-f]{12}")
_POD = "authentication.kubernetes.io/pod-name"


class Request(NamedTuple):
    """Request that was answered. Times are seconds since 1970.

    ``run`` is empty for what the operator asked by itself, and ``pod`` where no token says which pod it was.
    ``resource`` has its subresource behind a slash. ``wrote``: it was to change something, and that was done.
    """

    asked: float
    answered: float
    pod: str
    run: str
    verb: str
    resource: str
    namespace: str
    name: str
    wrote: bool

    @property
    def instance(self) -> str:
        """Name of the object whose run this was; empty for what no run of the operator asked."""
        found = _OF_INSTANCE.fullmatch(self.run)
        return found[1] if found else ""

    @property
    def lease(self) -> str:
        """The Lease that it was about, as ``namespace/name``; empty if it was something else."""
        return f"{self.namespace}/{self.name}" if self.resource == "leases" else ""

    @property
    def what(self) -> str:
        """Resource, name and subresource, as in a path."""
        resource, _, subresource = self.resource.partition("/")
        return "/".join(filter(None, (resource, self.name, subresource)))

    def __str__(self) -> str:
        clock = clock_of(self.asked, "milliseconds")
        return f"{clock} {self.run or self.pod} {self.verb} {self.resource} {self.namespace}/{self.name}"


def moment_of(text: str) -> float:
    """Seconds since 1970 of a time as the audit log has it."""
    return datetime.fromisoformat(text).timestamp()


def clock_of(moment: float, to: str = "seconds") -> str:
    """Time of day of a moment, in UTC, to the second or to another unit of ``datetime.isoformat``."""
    return datetime.fromtimestamp(moment, UTC).time().isoformat(to)


def request_of(event: dict[str, Any]) -> Request | None:
    """Request of an event; None for one of somebody else, and for one that has no answer yet."""
    agent = event.get("userAgent", "")
    if not agent.startswith(OUR_AGENT) or event.get("stage") not in ("ResponseComplete", "Panic"):
        return None
    run, target = _RUN.fullmatch(agent), event.get("objectRef") or {}
    asked = event["requestReceivedTimestamp"]
    code = int((event.get("responseStatus") or {}).get("code") or 0)
    return Request(
        asked=moment_of(asked),
        answered=moment_of(event.get("stageTimestamp") or asked),
        pod=((event.get("user") or {}).get("extra") or {}).get(_POD, [""])[0],
        run=run[1] if run else "",
        verb=event["verb"],
        resource="/".join(filter(None, (target.get("resource", ""), target.get("subresource", "")))),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        wrote=is_write(event) and 200 <= code < 300,
    )


def requests_in(lines: Iterable[str], of: str = OUR_AGENT) -> Iterator[Request]:
    """Requests of clients whose name for themselves begins like ``of``, in the order of the log.

    A line that is being written at this moment is left out.
    """
    for line in lines:
        # Most lines are of others, and reading them as JSON takes longest.
        if line.endswith("\n") and of in line:
            event = json.loads(line)
            found = request_of(event)
            if found is not None and event["userAgent"].startswith(of):
                yield found
