# SPDX-License-Identifier: Apache-2.0
"""The report as a page: well-formed, complete, small, and nothing of what others have written becomes a part of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import printable
from ansible_collections.karmada.installer.plugins.plugin_utils.report import html
from ansible_collections.karmada.installer.plugins.plugin_utils.report.html import picture, view
from ansible_collections.karmada.installer.plugins.plugin_utils.report.html.page import page
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW
from hypothesis import given
from hypothesis import strategies as st

MIB = 1024 * 1024
VOID = {"meta", "input", "link", "br", "img"}
STYLE = (Path(html.__file__).parent / "templates/page.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Elements and texts of a page; it fails if an element is closed that is not open, or stays open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs)), f"<{tag}> has an attribute twice"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(" ".join(data.split()))

    @property
    def structure(self) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(attributes)) for tag, attributes in self.elements]


def member(name: str, **more: Any) -> dict[str, Any]:
    known = {"name": name, "mode": "Push", "kubernetesVersion": "v1.35.4", "ready": True, "reason": "ClusterReady"}
    return {**known, "lastTransitionTime": NOW.isoformat(), **more}


def status(text: str = "word", members: int = 3, **more: Any) -> dict[str, Any]:
    """A status with every field, with this text wherever a text of others can be."""
    return {
        "phase": text,
        "mode": "Binary",
        "karmadaVersion": text,
        "kubernetesVersion": text,
        "etcdVersion": text,
        "conditions": [{"type": each, "status": "False", "message": text} for each in ("Ready", text)],
        "components": [{"name": each, "desired": 2, "ready": 1} for each in (text, f"karmada-agent-{text}")],
        "hosts": [{"name": text, "address": text, "roles": [text], "ready": False, "message": text}],
        "etcd": {
            "storage": text,
            "members": 1,
            "ready": 1,
            "endpoints": [
                {"url": text, "healthy": True, "leader": True, "alarms": [text], "version": text, "message": text}
            ],
        },
        "members": [
            member(text, mode=text, kubernetesVersion=text, reason=text, message=text, agentHosts=[text], ready=False)
            for _ in range(members)
        ],
        "certificates": [{"name": text, "notAfter": (NOW + timedelta(days=9)).isoformat()}],
        "changes": [{"action": text, "kind": text, "name": text, "member": text}],
        "problems": [{"severity": text, "reason": text, "what": text, "where": text, "remedy": text}],
        **more,
    }


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from([*"<>&\"'`=/{}%#\x00\x1b\u202e\ud800", "{{", "{%", "]]>", "-->", "</script>", "javascript:"]),
        max_size=9,
    ).map("".join),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "</title></svg></style><img src=x onerror=alert(1)>",
            '" onload="alert(1)',
            "' style='color:red",
            "{{ view.__class__ }}{% include 'page.css' %}",
            "<!--",
            "&lt;b&gt;&#60;b&#62;",
        ]
    ),
)
HARMLESS = Page(page("word", "word", status(), NOW)).structure


@given(HOSTILE)
def test_no_text_of_others_becomes_markup(text: str) -> None:
    # A letter before it, so that it is not empty.
    shown = printable(f"w{text}")
    found = Page(page(f"w{text}", f"w{text}", status(f"w{text}"), NOW))
    assert found.structure == HARMLESS
    assert sum(shown in each for each in found.texts) > 20


def test_the_page_needs_nothing_but_itself() -> None:
    found = Page(page("prod", "karmada", status(members=30), NOW))
    for tag, attributes in found.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "a"), tag
        assert not {"src", "style", "srcset", "action"} & attributes.keys(), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert (attributes.get("href") or "#").startswith("#"), (tag, attributes)
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    (policy,) = [each["content"] for _tag, each in found.elements if each.get("http-equiv")]
    assert str(policy).startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in str(policy)


def test_what_an_icon_or_a_label_refers_to_is_there_once() -> None:
    elements = Page(page("prod", "karmada", status(members=30), NOW)).elements
    ids = [str(each["id"]) for _tag, each in elements if "id" in each]
    assert len(ids) == len(set(ids))
    named = {str(each["href"])[1:] for _tag, each in elements if "href" in each}
    named |= {one for _tag, each in elements for one in str(each.get("aria-labelledby") or "").split()}
    assert named <= set(ids)


def test_each_drawing_and_each_column_has_a_name_for_those_who_do_not_see_it() -> None:
    elements = Page(page("prod", "karmada", status(), NOW)).elements
    drawings = [each for tag, each in elements if tag == "svg" and str(each.get("class")).startswith("picture")]
    assert [(each["role"], bool(each["aria-labelledby"])) for each in drawings] == [("img", True)] * 3
    assert all(each.get("scope") in ("col", "row") for tag, each in elements if tag == "th")


@pytest.mark.parametrize("number", [1, 12, 13, 1000])
def test_every_member_is_in_the_table_and_in_each_drawing(number: int) -> None:
    names = [f"member-{each:04}" for each in range(number)]
    found = Page(page("prod", "karmada", {"members": [member(each) for each in names]}, NOW)).texts
    for name in names:
        assert name in found
        assert sum(each.startswith(f"{name}: ") for each in found) == len(picture.WIDTHS)


def test_what_is_broken_comes_first() -> None:
    members = [
        member("a"),
        member("b", ready=True, message="its labels differ"),
        member("c", ready=False),
        {"name": "d", "ready": False, "reason": "NotJoined"},
    ]
    found = view.View("prod", "karmada", {"members": members}, NOW).members
    assert [(each.name, each.told) for each in found] == [
        ("c", "Not ready"),
        ("d", "Not joined"),
        ("b", "Ready, not as listed"),
        ("a", "Ready"),
    ]
    hosts = [{"name": "one", "ready": True}, {"name": "two", "ready": False}]
    assert [each.name for each in view.View("p", "n", {"hosts": hosts}, NOW).hosts] == ["two", "one"]
    problems = [{"severity": each, "reason": each} for each in ("hint", "warning", "error")]
    assert [each.reason for each in view.View("p", "n", {"problems": problems}, NOW).items] == [
        "error",
        "warning",
        "hint",
    ]


def test_members_on_which_nothing_is_placed_say_so() -> None:
    members = [member("a", cordoned=True), member("b", cordoned=True, draining=True), member("c")]
    found = view.View("prod", "karmada", {"members": members}, NOW).members
    assert [each.told for each in found] == ["Ready, cordoned", "Ready, draining", "Ready"]


def test_changes_of_the_run_are_listed_the_first_of_many() -> None:
    changes = [{"action": "created", "kind": "Secret", "name": f"k/{each}", "host": "cp1"} for each in range(300)]
    changes[1] = {"action": "created", "kind": "Cluster", "name": "m1", "member": "m1"}
    text = page("prod", "karmada", {"changes": changes, "changesTotal": 400}, NOW)
    found = Page(text).texts
    assert {"created Secret k/0 (cp1)", "created Cluster m1"} <= set(found)
    assert sum(each.startswith("created ") for each in found) == 200
    assert {"400", "The first 200, in their order"} <= set(found)
    assert "Changes of the run" not in Page(page("prod", "karmada", {}, NOW)).texts


def test_the_leader_of_etcd_is_told_in_words_too() -> None:
    endpoints = [
        {"url": f"https://prod-etcd-{each}.prod-etcd.karmada.svc:2379", "healthy": True, "leader": each == 1}
        for each in range(3)
    ]
    found = view.View("prod", "karmada", {"etcd": {"endpoints": endpoints}}, NOW)
    assert [(each.label, each.told) for each in found.etcd] == [
        ("prod-etcd-0", "follower"),
        ("prod-etcd-1", "leader"),
        ("prod-etcd-2", "follower"),
    ]
    assert "led by prod-etcd-1" in picture.description(found)


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({"mode": "Container"}, ["Host cluster"]),
        ({"mode": "Container", "hosts": [{"name": "e1"}]}, ["Control plane prod", "Host cluster", "Plain hosts"]),
        ({"mode": "Binary", "hosts": [{"name": "cp1"}]}, ["Plain hosts"]),
        ({"etcd": {"storage": "external"}}, ["Control plane prod", "Host cluster", "External etcd"]),
    ],
)
def test_the_drawing_has_the_places_in_which_components_run(more: dict[str, Any], places: list[str]) -> None:
    for drawing in picture.drawings(view.View("prod", "karmada", more, NOW)):
        assert [each.title for each in drawing.frames] == places


MODES = st.sampled_from(["Push", "Pull", ""])


@given(st.lists(st.tuples(MODES, st.booleans()), max_size=40), st.sampled_from(picture.WIDTHS), st.booleans())
def test_nothing_of_a_drawing_lies_outside_of_it_or_upon_another(
    members: list[tuple[str, bool]], width: int, hosts: bool
) -> None:
    listed = [member(f"m{number}", mode=mode, ready=ready) for number, (mode, ready) in enumerate(members)]
    components = [{"name": each, "desired": 1, "ready": 1} for each in picture.API_SERVERS]
    more = {"hosts": [{"name": "cp1"}] * 5} if hosts else {}
    drawing = picture.drawing(view.View("p", "n", {"members": listed, "components": components, **more}, NOW), width)
    boxes = [
        *((each.x, each.y, each.width, each.height) for each in drawing.cards),
        *((each.x, each.y, each.side, each.side) for each in drawing.tiles),
    ]
    for x, y, wide, high in [*boxes, *((each.x, each.y, each.width, each.height) for each in drawing.frames)]:
        assert x >= 0
        assert y >= 0
        assert x + wide <= drawing.width
        assert y + high <= drawing.height
    for place, one in enumerate(boxes):
        assert not any(_overlap(one, other) for other in boxes[place + 1 :])


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    (x, y, wide, high), (x2, y2, wide2, high2) = one, other
    return x < x2 + wide2 and x2 < x + wide and y < y2 + high2 and y2 < y + high


def test_copies_of_single_members_are_one_row() -> None:
    names = [f"karmada-scheduler-estimator-m{each}" for each in range(9)]
    components = [{"name": each, "desired": 1, "ready": int(each[-1] != "4")} for each in names]
    (row,) = view.View("p", "n", {"components": components}, NOW).components
    assert (row.name, row.copies, row.told, row.lacking) == (
        "karmada-scheduler-estimator",
        9,
        "8 of 9 ready",
        ["karmada-scheduler-estimator-m4"],
    )


def test_certificates_stand_in_the_order_of_their_ends_on_the_line() -> None:
    ends = {"late": 3650, "ended": -1, "soon": 29, "year": 365}
    listed = [{"name": name, "notAfter": (NOW + timedelta(days=days)).isoformat()} for name, days in ends.items()]
    listed += [{"name": "odd", "notAfter": "0001-01-01T00:00:00+14:00"}, {"name": "none", "notAfter": "never"}]
    found = view.View("p", "n", {"certificates": listed}, NOW).certificates
    assert [(each.name, each.left, each.state.name) for each in found] == [
        ("ended", "ended", "BAD"),
        ("soon", "29 days", "WARN"),
        ("year", "365 days", "OK"),
        ("late", "10.0 years", "OK"),
    ]
    assert [each.position for each in found] == sorted(each.position for each in found)
    assert found[0].position == 0
    assert 95 < found[-1].position < 100


@pytest.mark.parametrize("text", ["m", "<", "&", "ä", "\N{SNOWMAN}"])
def test_a_thousand_broken_members_fit_whatever_is_told_of_them(text: str) -> None:
    members = [
        member(f"member-of-a-rather-long-name-in-some-region-{each:04}", ready=False, message=text * 4096)
        for each in range(1000)
    ]
    components = [
        {"name": f"karmada-scheduler-estimator-member-of-a-rather-long-name-{each:04}", "desired": 1, "ready": 0}
        for each in range(1000)
    ]
    began = time.process_time()
    made = page("prod", "karmada", status(members=0) | {"members": members, "components": components}, NOW)
    # For who measures: pytest shows it with -rP. A limit would fail on a busy machine.
    print(f"{len(made.encode()) / 1024:.0f} KiB in {time.process_time() - began:.2f} s of processor time")  # noqa: T201
    assert len(made.encode()) <= MIB


def test_few_broken_members_have_the_whole_of_their_messages() -> None:
    message = "x" * view.LONGEST_MESSAGE
    (found,) = view.View("p", "n", {"members": [member("m1", ready=False, message=message)]}, NOW).members
    assert found.message == message


def test_one_status_at_one_time_is_one_page_and_another_time_is_told() -> None:
    one = page("prod", "karmada", status(), NOW)
    assert page("prod", "karmada", status(), NOW) == one
    assert page("prod", "karmada", status(), NOW + timedelta(minutes=1)) != one


@pytest.mark.parametrize("odd", [{}, {"members": None, "etcd": None}, {"members": ["m1"], "certificates": [{}]}])
def test_a_status_of_another_version_is_shown_as_far_as_it_goes(odd: dict[str, Any]) -> None:
    assert "unknown" in Page(page("prod", "karmada", odd, NOW)).texts


# -- colours: WCAG 2.2, 1.4.3 (4.5 for text) and 1.4.11 (3 for shapes)


def palettes() -> Iterator[dict[str, str]]:
    """Colours of the light and of the dark scheme."""
    for block in re.findall(r":root \{([^}]*#[^}]*)\}", STYLE):
        yield dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_text_and_shapes_stand_out_from_what_is_behind_them_in_both_schemes() -> None:
    found = list(palettes())
    assert len(found) == 2
    for each in found:
        for text in ("text", "quiet", "link", "ok", "warn", "bad", "hint"):
            for behind in ("paper", "shade", *(f"{text}-tint" for _ in [0] if f"{text}-tint" in each)):
                assert contrast(each[text], each[behind]) >= 4.5, (text, behind)
        for behind in ("warn-tint", "bad-tint"):
            assert contrast(each["quiet"], each[behind]) >= 4.5, behind
        assert contrast(each["edge"], each["shade"]) >= 3
        assert contrast(each["edge"], each["paper"]) >= 3
