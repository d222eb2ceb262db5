# SPDX-License-Identifier: Apache-2.0
"""Run a command while `kubectl port-forward` leads to something in a cluster.

    forward.py --kubeconfig FILE --namespace NAMESPACE --to pod/NAME [--local PORT] PORT -- COMMAND...

In the command's arguments {port} stands for the local port, any free one unless it is given. Exit code: the command's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

_SECONDS = 30


def main() -> int:
    """Forward, run, end the forwarding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--to", required=True, metavar="KIND/NAME")
    parser.add_argument("--local", default="", metavar="PORT")
    parser.add_argument("port")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    forwarding = subprocess.Popen(
        ["timeout", str(_SECONDS * 10), os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={options.kubeconfig}",
         "port-forward", f"--namespace={options.namespace}", options.to, f"{options.local}:{options.port}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        said = (forwarding.stdout.readline() if forwarding.stdout else "").strip()
        found = re.search(r"Forwarding from 127\.0\.0\.1:(\d+)", said)
        if not found:
            raise SystemExit(f"kubectl port-forward: {said or 'ended without a word'}")
        command = [word.replace("{port}", found[1]) for word in options.command]
        return subprocess.run(command, check=False).returncode
    finally:
        forwarding.terminate()
        forwarding.wait()


if __name__ == "__main__":
    sys.exit(main())
