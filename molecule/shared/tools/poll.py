# SPDX-License-Identifier: Apache-2.0
"""Ask an API server all the time while a command runs, as a client that nobody told about it.

    poll.py --kubeconfig FILE [--path PATH] [--every SECONDS] -- COMMAND...

Each question is a connection of its own. Exit code: that of the command, or 99 when a question was not answered.
"""

from __future__ import annotations

import argparse
import http.client
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml
from faulty_proxy import Upstream, upstream_of

UNANSWERED = 99
LONGEST_SECONDS = 10


def ask(server: Upstream, path: str) -> str | None:
    """Reason why there was no good answer, or None."""
    connection = http.client.HTTPSConnection(server.host, server.port, context=server.tls, timeout=LONGEST_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.token}"} if server.token else {})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return None if response.status == 200 else f"{response.status} {text[:200]}"


def main() -> int:
    """Ask, until the command has ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--path", default="/apis/policy.karmada.io/v1alpha1/propagationpolicies?limit=1")
    parser.add_argument("--every", type=float, default=0.2, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    server = upstream_of(yaml.safe_load(options.kubeconfig.read_text()))
    over, answers, failures = threading.Event(), [0], list[str]()

    def keep_asking() -> None:
        while not over.is_set():
            if reason := ask(server, options.path):
                failures.append(f"{time.strftime('%H:%M:%S')} {reason}")
            else:
                answers[0] += 1
            over.wait(options.every)

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        code = subprocess.run(options.command, check=False).returncode
    finally:
        over.set()
        thread.join()
    print("\n".join([f"poll: {answers[0]} answers, {len(failures)} failures", *failures[:20]]), flush=True)
    return UNANSWERED if failures or not answers[0] else code


if __name__ == "__main__":
    sys.exit(main())
