# SPDX-License-Identifier: Apache-2.0
"""Output for a new user: compared without what varies, and never too wide."""

from __future__ import annotations

import printed
import pytest
import ways

FIRST = """\
changed   0.4 s  Issue keys: 2 created
...        30 s  waiting for pods
                 that are many
changed    34 s  Start the API server

Karmada control plane prod: Completed
address      https://10.60.0.2:31234
certificates prod-a ends first, on 2027-11-23 20:15 UTC
members      1 of 1 ready
  NAME     VERSION  MODE  AGE  STATE
  member1  v1.35.4  Push  34s  Ready
changed      104 things in 34 s
"""
SECOND = """\
changed    11 s  Issue keys: 2 created
changed 3 min 2 s  Start the API server

Karmada control plane prod: Completed
address      https://10.213.0.114:30001
certificates prod-a ends first, on 2028-01-01 00:00 UTC
members      1 of 1 ready
  NAME     VERSION  MODE  AGE    STATE
  member1  v1.35.4  Push  2m10s  Ready
changed      104 things in 3 min 2 s
"""


def test_a_row_without_an_age_ends_no_table() -> None:
    row = "  member1  v1.35.4  Push  34s  Ready\n"
    text = printed.plain(FIRST.replace(row, f"  member9  -        -     -    not registered\n{row}"), {})
    assert "  member9  -  -  -  not registered\n  member1  v1.35.4  Push  <age>  Ready\n" in text


def test_two_runs_of_one_way_say_the_same() -> None:
    assert printed.plain(FIRST, {}) == printed.plain(SECOND, {})
    assert printed.differences(printed.plain(FIRST, {}), printed.plain(SECOND, {}), "a") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2 created", "3 created"),
        ("Completed", "Waiting"),
        ("v1.35.4", "v1.35.5"),
        ("1 of 1 ready", "0 of 1 ready"),
        ("Push", "Pull"),
        ("104 things", "105 things"),
        ("Issue keys: 2 created\n", "Issue keys: 2 created\n  warning: it is slow\n"),
        ("changed   0.4 s", "failed    0.4 s"),
    ],
)
def test_what_does_not_vary_by_itself_is_a_difference(before: str, after: str) -> None:
    assert before in FIRST
    found = printed.differences(printed.plain(FIRST, {}), printed.plain(FIRST.replace(before, after), {}), "a")
    assert any(line.startswith(("+", "-")) for line in found[2:])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("[ 40/300 s] 0 of 1 ready", "[<time>/300 s] 0 of 1 ready"),
        ("pod prod-search-5d4f8b9c7d-x2x4z: no image", "pod prod-search-<pod>: no image"),
        ("UID 123e4567-e89b-12d3-a456-426614174000", "UID <id>"),
        ("v1@sha256:" + "ab" * 32, "v1@sha256:<digest>"),
        (
            "https://10.1.2.3: refused; tried 12 times in 31 s",
            "https://<address>: refused; tried <count> times in <time>",
        ),
        ("refused; tried\n  7 times in 31 s", "refused; tried\n  <count> times in <time>"),
        ("/tmp/x/y is there", "<checkout folder>/y is there"),
        ("ErrImagePull of image a/b:v1 (failed (of course): no)", "<pull failure> of image a/b:v1"),
        ("ImagePullBackOff of image\n  a/b:v1 (Back-off\n  again)", "<pull failure> of image\n  a/b:v1"),
        ("APIService v1: Available is False\n  (No: https://a: no)", "APIService v1: Available is False (<reason>)"),
        ("ok\n[##...]  [5/300 s] waits…^C\nStopped", "ok\n<bar>\nStopped"),
        ("\x1b[0;32mok: [localhost]\x1b[0m", "ok: [localhost]"),
        ("5 s, v1.18.2, 2 of 3, 34 objects", "<time>, v1.18.2, 2 of 3, 34 objects"),
    ],
)
def test_what_varies_has_a_name(text: str, plain: str) -> None:
    assert printed.plain(text, {"/tmp/x": "checkout folder"}) == f"{plain}\n"


def test_text_around_what_varies_in_width_may_be_folded_otherwise() -> None:
    one = printed.plain("  cannot reach https://10.1.2.3:1: connection\n  refused, three times\n", {})
    other = printed.plain("  cannot reach https://10.100.200.30:1:\n  connection refused, three times\n", {})
    assert one != other
    assert printed.differences(one, other, "a") == []
    assert printed.differences(one, other.replace("three", "four"), "a") != []
    # Nothing in it varies: somebody has changed how it is folded.
    assert printed.differences("a b\nc\n", "a\nb c\n", "a") != []


@pytest.mark.parametrize(
    ("line", "may_be"),
    [
        ("w" * 40 + " " + "w" * 39, True),
        ("w" * 40 + " " + "w" * 40, False),
        ("  - → " + "/long" * 20, True),
        ("  see " + "/long" * 20, False),
        ("kubeconfig   /long/" + "long" * 20, True),
        ("next         kubectl --kubeconfig " + "/long" * 20 + " get clusters", True),
        ("address      https:// " + "/long" * 20, False),
        ("+++ after: CustomResourceDefinition " + "long." * 20, True),
        ("[WARNING]: Skipping " + "a key " * 20, True),
        ("[WARNING]: Failed to parse " + "a file " * 20, False),
    ],
)
def test_nothing_is_wide_but_what_cannot_be_folded(line: str, *, may_be: bool) -> None:
    wide, excused = printed.too_wide(f"short\n{line}\n")
    assert wide == ([] if may_be else [f"{len(line)} columns: {line}"])
    assert bool(excused) == (may_be and len(line) > printed.WIDTH)


def test_of_differences_the_names_are_kept_and_what_follows_them() -> None:
    text = "would  1 s  Make it\n--- before: Secret a\n+++ after: Secret a\n@@ -1,2 +1 @@\n a\n-b\n\n  warning: slow\n"
    text += "--- before: Secret b\n+++ after: Secret b\n@@ -0,0 +1,2 @@\n+a\n+ - b\n"
    assert printed.without_differences(text).splitlines() == [
        "would  1 s  Make it",
        "--- before: Secret a",
        "+++ after: Secret a",
        "",
        "  warning: slow",
        "--- before: Secret b",
        "+++ after: Secret b",
    ]


# -- the table ---------------------------------------------------------------------------------------------------------


def test_each_way_has_its_text_and_each_text_its_way() -> None:
    found = [way.file for part in ways.table() for way in part]
    assert len(found) == len(set(found)) >= 40
    assert sorted(found) == sorted((ways.HERE / "printed").iterdir())


def test_media_are_those_that_users_have() -> None:
    life = ways.table()[1]
    assert {way.where for way in life} == {"pipe", "80x24", "200x50"}
    assert any("ansible-runner" in way.typed for way in life)


def _judged(gone: ways.Gone, monkeypatch: pytest.MonkeyPatch, tmp_path, **more) -> list[str]:
    monkeypatch.setattr(ways, "HERE", tmp_path)
    (tmp_path / "printed").mkdir()
    (tmp_path / "printed" / "a-way.txt").write_text("$ type\nok <time>  Look\n")
    return ways.judged(ways.Way("a-way", typed="type", **more), gone, accept=False)[1]


@pytest.mark.parametrize(
    ("gone", "more", "wrong"),
    [
        (ways.Gone(0, "ok   0.2 s  Look\n"), {}, ""),
        (ways.Gone(0, "ok   0.2 s  Look\n"), {"lines": 0}, "printed 1 lines"),
        (ways.Gone(2, "ok   0.2 s  Look\n"), {}, "ended with 2"),
        (ways.Gone(2, "ok   0.2 s  Look\n"), {"ends": 2}, ""),
        (ways.Gone(None, "ok   0.2 s  Look\n"), {}, "ended with None"),
        (ways.Gone(0, "ok   0.2 s  Looked\n"), {}, "--- a-way, expected"),
        (ways.Gone(0, "ok   0.2 s  Look\n", frames=["[##..]  a\n[##..]  b"]), {}, "more than one bar"),
        (ways.Gone(0, "ok   0.2 s  Look\n", frames=["[##..]  " + "a b " * 20]), {}, "too wide"),
        (ways.Gone(0, "ok   0.2 s  Looked\n"), {"faulty": "it looks"}, ""),
        (ways.Gone(0, "ok   0.2 s  Look\n"), {"faulty": "it looks"}, "is right now, and marked: it looks"),
        (ways.Gone(0, "ok   0.2 s  Looked\n"), {"varies": {"Look(ed)?": "Look"}}, ""),
        (ways.Gone(3, "ok   0.2 s  Looked\n"), {"faulty": "it looks"}, "ended with 3"),
    ],
)
def test_what_is_wrong_with_a_way_is_told(gone, more, wrong, monkeypatch, tmp_path) -> None:
    found = _judged(gone, monkeypatch, tmp_path, **more)
    assert bool(found) == bool(wrong)
    assert wrong in "\n".join(found)
