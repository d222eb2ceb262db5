# SPDX-License-Identifier: Apache-2.0
"""Units as systemd itself reads them.

``systemd --test`` reads units as it does at boot, prints what it has understood, and ends. It runs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.render import unit_text

NOBODY = 65534
#: Without the units that every other one needs.
ALONE = [("DefaultDependencies", "no")]
_C = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that others may read, too: as root, systemd takes itself for the first process, so it runs as nobody."""
    found = Path(tempfile.mkdtemp())
    found.chmod(0o755)
    try:
        yield found
    finally:
        shutil.rmtree(found)


def read_by_systemd(folder: Path, unit: str) -> str:
    """What systemd prints of a unit, and what it complains of."""
    systemd = Path("/lib/systemd/systemd")
    assert systemd.exists(), "this test needs systemd: apt-get install systemd"
    (folder / "karmada.service").write_text(unit, newline="")
    # No other units: those that this machine has are none of ours.
    environment = {
        "SYSTEMD_UNIT_PATH": str(folder),
        "SYSTEMD_LOG_TARGET": "console",
        "SYSTEMD_COLORS": "0",
        "LC_ALL": "C",
    }
    done = subprocess.run(
        [systemd, "--test", "--system", "--unit=karmada.service"],
        env=environment,
        user=None if os.getuid() else NOBODY,
        capture_output=True,
        check=False,
        timeout=300,
    )
    said = (done.stdout + done.stderr).decode()
    assert "-> Unit karmada.service:" in said, said[-3000:]
    return said


def unescaped(text: str) -> str:
    """An argument as systemd prints it: in double quotes or in none, and as in C. Bytes that are no ASCII stay."""
    text = text[1:-1] if text.startswith('"') else text

    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 8)) if found[1] else _C.get(found[2], found[2])

    return re.sub(r"\\(?:([0-7]{3})|(.))", character, text)


def complaints(said: str) -> str:
    """Lines in which systemd complains of the unit, or of a line of it."""
    told = said.replace("Unit karmada.service:", "")
    return "\n".join(line for line in told.splitlines() if "karmada.service:" in line)


def unit_of(values: Sequence[str]) -> str:
    """A unit with each of these as a variable, V0 and so on, and as an argument between ``/bin/true`` and ``last``."""
    service = [
        ("Type", "exec"),
        *(("Environment", unit_text.environment(f"V{number}", value)) for number, value in enumerate(values)),
        ("ExecStart", " \\\n  ".join(unit_text.argument(part) for part in ("/bin/true", *values, "last"))),
    ]
    return unit_text.unit_file({"Unit": ALONE, "Service": service})


def arguments_in(said: str) -> list[str]:
    """Words of the only command that systemd has read, from the program on."""
    (line,) = re.findall(r"^\s*Command Line: (.*)$", said, re.MULTILINE)
    words = re.findall(r'"(?:[^"\\]|\\.)*"|[^ ]+', line)
    # A dollar is printed as it was written: systemd replaces it when it starts the process.
    return [unescaped(each).replace("$$", "$") for each in words]
