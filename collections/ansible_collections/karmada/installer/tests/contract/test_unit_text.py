# SPDX-License-Identifier: Apache-2.0
"""What we write into units, as systemd itself reads it: chosen texts, and texts that hypothesis draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import unfit_for_systemd
from ansible_collections.karmada.installer.tests.unit.support.systemd_reading import (
    arguments_in,
    complaints,
    open_folder,
    read_by_systemd,
    unit_of,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

#: What ends a line for systemd or for others, what it replaces, and what would be a line of its own.
VALUES = (
    *("plain", "", " two  words ", "#no comment", ";neither", "=", "a\\", "\\x0d", '"', "'", '" "', "\\n\\\\"),
    *(f"a{chr(number)}User=root" for number in (*range(1, 32), 127, 0x80, 0x85, 0x9F, 0x2028, 0x2029, 0x202E, 0xFEFF)),
    *("$", "$$", "$HOME", "${HOME}", "a$b", "%", "%%", "%n", "%h$%H", "\U0001f600", "\r\nUser=root\r\n[Service]\n"),
    "x\rExecStartPre=+/bin/touch /root/pwned\rX-Rest=",
)
#: Any text, with more of what means something to systemd than chance would draw.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\\"'$%{}=;# \t\r\n"), max_size=40)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as found:
        yield found


def check(folder: Path, values: tuple[str, ...]) -> None:
    """Fail unless systemd has read each of these as it is, as a variable and as an argument, and nothing else."""
    said = read_by_systemd(folder, unit_of(values))
    assert complaints(said) == ""
    for number, value in enumerate(values):
        assert f"\tEnvironment: V{number}={value}\n" in said, repr(value)
    assert arguments_in(said) == ["/bin/true", *values, "last"]


def test_systemd_reads_every_value_as_it_was_given(folder: Path) -> None:
    check(folder, VALUES)


# Many values in one unit: each look of systemd takes a moment.
@settings(max_examples=40, deadline=None)
@given(st.lists(TEXTS.filter(lambda text: not unfit_for_systemd(text)), min_size=1, max_size=60))
@example(["\ufeff", "\u200b", "\U000e0001", "\ud7ff\ue000", "a" * 5000])
def test_systemd_reads_any_value_as_it_was_given(values: list[str]) -> None:
    with open_folder() as folder:
        check(folder, tuple(values))


@pytest.mark.parametrize("unfit", ["\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff"], ids=ascii)
def test_systemd_takes_no_unit_with_what_we_refuse(folder: Path, unfit: str) -> None:
    """Or refusing it would keep somebody from a good value."""
    assert unfit_for_systemd(unfit)
    with pytest.raises(AssertionError, match="not UTF-8 clean"):
        read_by_systemd(folder, unit_of(("plain",)).replace("plain", unfit))


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
