# SPDX-License-Identifier: Apache-2.0
"""Lines of a wait: how many, how wide, and what is left of a long text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import limits
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.progress import COLUMNS, Progress, fitted
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.one_of(st.text(max_size=300), st.from_regex(r"([a-z]{1,9}[ /:]{1,2}){0,40}", fullmatch=True))


@given(TEXTS, st.integers(20, 200))
def test_a_text_takes_one_line_and_is_cut_only_if_it_has_to_be(text: str, columns: int) -> None:
    line, whole = fitted(text, columns), " ".join(text.split())
    assert len(line) <= columns
    assert line.splitlines() in ([line], [])
    assert line == whole or (len(whole) > columns and "…" in line)


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        ("cannot pull docker.io/karmada/search:v1", 40, "cannot pull docker.io/karmada/search:v1"),
        ("cannot pull docker.io/karmada/search:v1", 35, "cannot pull docker.io/…/search:v1"),
        ("cannot pull docker.io/karmada/search:v1", 30, "cannot pull …/search:v1"),
        ("https://10.0.0.1:443/apis/a/v1: refused", 36, "https://10.0.0.1:443/…/v1: refused"),
        ("one two three four five six seven", 20, "one two three four…"),
        ("because aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 30, "because aaaaaaaaaaaaaaaaaaaaa…"),
    ],
)
def test_the_middle_of_paths_goes_first_then_the_end(text: str, columns: int, line: str) -> None:
    assert fitted(text, columns) == line


@given(st.lists(st.tuples(st.floats(0, 40), st.sampled_from(["a", "b", "c " * 90])), max_size=60), st.integers(1, 9999))
def test_lines_are_few_narrow_and_not_equal(steps: list[tuple[float, str]], limit: int) -> None:
    """Whatever a wait tells, and however often."""
    now, said = 0.0, list[tuple[float, str]]()
    progress = Progress(lambda line: said.append((now, line)), 0.0, limit)
    for pause, text in steps:
        now += pause
        progress.tell(text, now)
    for when, line in said:
        assert when >= limits.QUIET_SECONDS
        assert len(line) <= COLUMNS == 76
        assert line.startswith(f"[{min(when, limit):.0f}/{limit} s] ")
    for (before, former), (after, line) in pairwise(said):
        equal = former.partition("] ")[2] == line.partition("] ")[2]
        assert after - before >= (20.0 if equal else limits.CHANGE_SECONDS)


def test_a_wait_that_stands_still_says_so_thrice_a_minute_with_the_time() -> None:
    said: list[str] = []
    progress = Progress(said.append, 100.0, 300.0)
    for now in range(100, 201):
        # Another port for each attempt is no news.
        progress.tell(f"dial 10.0.0.2:{now}->10.0.0.1:443: refused", float(now))
    assert [line.partition("] ")[0] for line in said] == [f"[{seconds}/300 s" for seconds in (2, 22, 42, 62, 82)]


def test_secrets_in_what_others_say_are_not_shown() -> None:
    said: list[str] = []
    Progress(said.append, 0.0, 60.0, quiet=0.0).tell("answered: token=abcdef0123456789", 0.0)
    assert said == ["[0/60 s] answered: token=<redacted>"]
