# SPDX-License-Identifier: Apache-2.0
"""Writes of a client to a cluster, by the cluster's own audit log.

    audit.py mark LOG                                    a point in the log, to look from later
    audit.py writes LOG --since MARK [--agent PREFIX] [--but NAMESPACE]
                                                         every write after it, but those in a namespace; exit code 1
                                                         when there are any

Not counted: dry runs, questions about rights, and connections into pods, which are `create` by name only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

OUR_AGENT = "karmada-installer"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: Groups whose objects are questions.
QUESTIONS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
STREAMS = frozenset({"portforward", "exec", "attach", "proxy"})


def is_write(event: dict[str, Any]) -> bool:
    """Return whether this request was to change something, refused ones included."""
    target = event.get("objectRef") or {}
    query = parse_qs(urlsplit(event.get("requestURI", "")).query)
    return (
        event.get("verb") in WRITES
        and event.get("stage") in ("ResponseComplete", "Panic")
        and "dryRun" not in query
        and target.get("apiGroup") not in QUESTIONS
        and target.get("subresource") not in STREAMS
    )


def writes(lines: Iterable[str], agent: str, but: str = "") -> Iterator[str]:
    """One line for each write of a client whose name for itself begins like this, but those in this namespace."""
    for line in lines:
        if not line.endswith("\n"):
            continue  # being written at this moment
        event = json.loads(line)
        if but and (event.get("objectRef") or {}).get("namespace") == but:
            continue
        if event.get("userAgent", "").startswith(agent) and is_write(event):
            code = (event.get("responseStatus") or {}).get("code")
            yield f"{event['requestReceivedTimestamp']} {event['verb']} {event['requestURI']} -> {code}"


def mark(log: Path) -> str:
    """The end of the log as it is now."""
    status = log.stat()
    return f"{status.st_ino}:{status.st_size}"


def lines_since(log: Path, point: str) -> Iterator[str]:
    """The lines after a mark. A log that was begun anew since is read from its start."""
    inode, _, offset = point.partition(":")
    with log.open(encoding="utf-8") as stream:
        if log.stat().st_ino == int(inode):
            stream.seek(int(offset))
        yield from stream


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("mark")
    one.add_argument("log", type=Path)
    one = commands.add_parser("writes")
    one.add_argument("log", type=Path)
    one.add_argument("--since", required=True, metavar="MARK")
    one.add_argument("--agent", default=OUR_AGENT, metavar="PREFIX")
    one.add_argument("--but", default="", metavar="NAMESPACE")
    options = parser.parse_args()
    if options.command == "mark":
        print(mark(options.log))
        return 0
    found = list(writes(lines_since(options.log, options.since), options.agent, options.but))
    print("\n".join(found) if found else "It wrote nothing.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
