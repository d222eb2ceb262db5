# SPDX-License-Identifier: Apache-2.0
"""Run a command, and another one beside it once the first has printed a certain line.

    at_line.py PATTERN --run WORD... -- COMMAND...

Exit code: that of the command; 97 if the line never came or what was run beside it failed.
"""

from __future__ import annotations

import re
import subprocess
import sys

DID_NOT_HAPPEN = 97


def run(pattern: str, beside: list[str], command: list[str]) -> int:
    """Run both, with the output of the first passed on."""
    other: subprocess.Popen[bytes] | None = None
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            if other is None and re.search(pattern, line):
                other = subprocess.Popen(beside, stdin=subprocess.DEVNULL)
    if other is None:
        print(f"at_line: no line fits {pattern}")
        return DID_NOT_HAPPEN
    return running.returncode if other.wait() == 0 else DID_NOT_HAPPEN


def main() -> int:
    """Take the arguments apart: the words of the second command stand between --run and the first --."""
    words = sys.argv[1:]
    if len(words) < 5 or words[1] != "--run" or "--" not in words[2:]:
        print(__doc__, file=sys.stderr)
        return 2
    end = words.index("--")
    return run(words[0], words[2:end], words[end + 1 :])


if __name__ == "__main__":
    sys.exit(main())
