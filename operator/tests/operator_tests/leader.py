# SPDX-License-Identifier: Apache-2.0
"""The whole operator as a process that a test can kill, with runs of ``quick_worker`` and hardly any pauses."""

from __future__ import annotations

import sys

from karmada_operator import jobs, reconcile, start, status_writer


def main(worker: str, *arguments: str) -> int:
    """``worker`` is the program that is started in the place of Python."""
    status_writer.BETWEEN, reconcile.FIRST_RETRY, jobs.LOOK = 0.02, 0.05, 0.05
    sys.executable = worker
    return start.main(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
