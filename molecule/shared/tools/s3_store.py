# SPDX-License-Identifier: Apache-2.0
"""Run a command while a store of S3 serves a folder on loopback.

    s3_store.py --program VERSITYGW --folder FOLDER --account SECRET --port PORT [--address IP] -- COMMAND...

FOLDER has ``buckets``, tls.crt and tls.key; SECRET is a folder with accessKeyID and secretAccessKey. The region is
eu-west-1. Without an address it serves loopback only. Exit code: the command's.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from pathlib import Path

_SECONDS = 60


def main() -> int:
    """Serve, run, end the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--account", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    folder: Path = options.folder
    access, secret = ((options.account / name).read_text() for name in ("accessKeyID", "secretAccessKey"))
    with (folder / "store.log").open("ab") as log:
        server = subprocess.Popen(
            [
                *(options.program, "--access", access, "--secret", secret, "--region", "eu-west-1"),
                *("--port", f"{options.address}:{options.port}"),
                *("--cert", str(folder / "tls.crt"), "--key", str(folder / "tls.key"), str(folder / "buckets")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _wait(server, (options.address, options.port), folder / "store.log")
        return subprocess.run(options.command, check=False).returncode
    finally:
        server.terminate()
        server.wait()


def _wait(server: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(address, 1).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the store does not serve:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
