# SPDX-License-Identifier: Apache-2.0
"""Running other programs, and telling the person at the terminal what is going on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from karmada_lab.errors import LabError

_output = threading.Lock()


def say(message: str) -> None:
    """One line of progress, on standard error: standard output belongs to what a command answers."""
    with _output:
        print(message, file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a long step, and say how many seconds it took when it is over."""
    say(f"... {what}")
    begin = time.monotonic()
    yield
    say(f"ok  {what} ({time.monotonic() - begin:.1f} s)")


def run(
    command: Sequence[str | Path],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float | None = None,
    log: Path | None = None,
    die_with_us: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it printed.

    env is added to the environment; timeout is in seconds; log gets the output as it comes (it is not returned then).
    die_with_us: for long work, which must not go on beside the next attempt when this process is killed.
    Raises LabError with the end of the output when the program fails and check is set.
    """
    words = [str(word) for word in command]
    if die_with_us:
        words = ["setpriv", "--pdeathsig", "KILL", *words]
    environment = {**os.environ, **env} if env else None
    try:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as sink:
                done = subprocess.run(
                    words, input=stdin, cwd=cwd, env=environment, timeout=timeout,
                    text=True, stdout=sink, stderr=subprocess.STDOUT, check=False,
                )  # fmt: skip
            done.stdout, done.stderr = "", ""
        else:
            done = subprocess.run(
                words, input=stdin, cwd=cwd, env=environment, timeout=timeout,
                text=True, capture_output=True, check=False, errors="replace",
            )  # fmt: skip
    except FileNotFoundError as error:
        raise LabError(f"program {words[0]!r} is not installed; `lab prepare` installs what the lab needs") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(words[:6])} did not end within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        printed = log.read_text(errors="replace") if log else (done.stdout + done.stderr)
        tail = "\n".join("    " + line for line in printed.strip().splitlines()[-15:])
        where = f" (whole output: {log})" if log else ""
        raise LabError(f"{' '.join(words[:8])} failed with exit code {done.returncode}{where}:\n{tail}")
    return done


def wait_for(what: str, ready: Callable[[], bool], timeout: float, interval: float = 0.2) -> None:
    """Ask until ready says yes. Says every 15 s what it waits for; raises LabError after timeout seconds."""
    begin = time.monotonic()
    spoken = begin
    while not ready():
        now = time.monotonic()
        if now - begin > timeout:
            raise LabError(f"waited {timeout:.0f} s in vain for {what}")
        if now - spoken > 15:
            say(f"    still waiting for {what} ({now - begin:.0f} s)")
            spoken = now
        time.sleep(interval)
