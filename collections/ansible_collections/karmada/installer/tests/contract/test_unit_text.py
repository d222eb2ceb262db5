# SPDX-License-Identifier: Apache-2.0
"""What we write into units, as systemd itself reads it.

``systemd --test`` reads units as it does at boot, prints what it has understood, and ends. It runs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.render import unit_text

NOBODY = 65534
#: Without the units that every other one needs.
ALONE = [("DefaultDependencies", "no")]
#: What ends a line for systemd or for others, what it replaces, and what would be a line of its own.
VALUES = (
    *("plain", "", " two  words ", "#no comment", ";neither", "=", "a\\", "\\x0d", '"', "'", '" "', "\\n\\\\"),
    *(f"a{chr(number)}User=root" for number in (*range(1, 32), 127, 0x80, 0x85, 0x9F, 0x2028, 0x2029, 0x202E, 0xFEFF)),
    *("$", "$$", "$HOME", "${HOME}", "a$b", "%", "%%", "%n", "%h$%H", "\U0001f600", "\r\nUser=root\r\n[Service]\n"),
    "x\rExecStartPre=+/bin/touch /root/pwned\rX-Rest=",
)
_C = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that nobody may read, too: as root, systemd takes itself for the first process."""
    found = Path(tempfile.mkdtemp())
    found.chmod(0o755)
    yield found
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


def unit_of(values: tuple[str, ...]) -> str:
    service = [
        ("Type", "exec"),
        *(("Environment", unit_text.environment(f"V{number}", value)) for number, value in enumerate(values)),
        ("ExecStart", " \\\n  ".join(unit_text.argument(part) for part in ("/bin/true", *values, "last"))),
    ]
    return unit_text.unit_file({"Unit": ALONE, "Service": service})


def test_systemd_reads_every_value_as_it_was_given(folder: Path) -> None:
    said = read_by_systemd(folder, unit_of(VALUES))
    assert "karmada.service:" not in said.replace("Unit karmada.service:", ""), "it complains of the unit"
    for number, value in enumerate(VALUES):
        assert f"\tEnvironment: V{number}={value}\n" in said, repr(value)
    (line,) = re.findall(r"^\s*Command Line: (.*)$", said, re.MULTILINE)
    arguments = re.findall(r'"(?:[^"\\]|\\.)*"|[^ ]+', line)
    # A dollar is printed as it was written: systemd replaces it when it starts the process.
    assert [unescaped(each).replace("$$", "$") for each in arguments] == ["/bin/true", *VALUES, "last"]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_what_would_be_a_line_of_its_own_is_one_where_it_is_not_escaped(folder: Path, end: str) -> None:
    """Or the test above would prove nothing."""
    value = f"x{end}ExecStartPre=+/bin/touch /root/pwned{end}X-Rest="
    said = read_by_systemd(
        folder, f'[Unit]\nDefaultDependencies=no\n[Service]\nEnvironment="A={value}"\nExecStart=/bin/true\n'
    )
    assert "touch" in said
    assert "Command Line: /bin/touch /root/pwned" in said
    assert "/bin/touch" not in read_by_systemd(folder, unit_of((value,))).partition("Command Line: /bin/true")[
        0
    ].replace(f"V0={value}", "")
