# SPDX-License-Identifier: Apache-2.0
"""Ask an API server all the time while a command runs, then tell for how long it did not answer.

    api_away.py --kubeconfig FILE [--figures FILE --step TEXT] -- COMMAND...

A look is a list of one Namespace with a connection of its own: what answers that has etcd behind it. The answer to a
look counts at the moment when it has come. Exit code: that of the command, or 98 if the API server never answered.
"""

from __future__ import annotations

import argparse
import http.client
import subprocess
import sys
import threading
from pathlib import Path

import yaml
from faulty_proxy import Upstream, upstream_of
from figures import keep_figure
from steady_client import BROKEN_PROMISE, Record, longest_pause

LOOK = "/api/v1/namespaces?limit=1"
EVERY_SECONDS = 0.25
LONGEST_LOOK_SECONDS = 2.0


def answers(server: Upstream) -> bool:
    """Return whether one look is answered."""
    connection = http.client.HTTPSConnection(server.host, server.port, timeout=LONGEST_LOOK_SECONDS, context=server.tls)
    try:
        connection.request("GET", LOOK, headers={"Authorization": f"Bearer {server.token}"} if server.token else {})
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def during(server: Upstream, command: list[str]) -> tuple[int, list[float]]:
    """Exit code of the command, and the moments of all answers in seconds; if there are any, the last is its end."""
    record, over = Record(), threading.Event()

    def look() -> None:
        while not over.wait(EVERY_SECONDS):
            if answers(server):
                record.answers.append(record.now())

    asking = threading.Thread(target=look)
    asking.start()
    try:
        code = subprocess.run(command, check=False).returncode
    finally:
        ended = record.now()
        over.set()
        asking.join()
    return code, [*(each for each in record.answers if each < ended), ended] if record.answers else []


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--step", default="")
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args(arguments)
    code, moments = during(upstream_of(yaml.safe_load(wanted.kubeconfig.read_text())), wanted.command)
    if not moments:
        print("the API server has not answered once", file=sys.stderr)
        return code or BROKEN_PROMISE
    away, since = longest_pause(moments)
    told = f"the API was away for {away:.1f} s"
    print(f"{told}, from second {since:.1f} on")
    if wanted.figures:
        keep_figure(wanted.figures, wanted.step, told)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
