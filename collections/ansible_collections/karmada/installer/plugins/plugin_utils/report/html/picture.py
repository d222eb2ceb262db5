# SPDX-License-Identifier: Apache-2.0
"""Drawing of a control plane: frames, cards and tiles with their places, for one width. No I/O.

A text in a drawing does not flow, so the page has the drawing for several widths and shows the one that fits. All
lengths are CSS pixels at the drawing's own size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...problems import number_of
from .view import Component, EtcdMember, Host, Member, State, View

#: Widths of the drawings: for wide windows, for tablets, for telephones.
WIDTHS = (1080, 700, 360)
#: From this width on, frames of members stand side by side.
_SIDE_BY_SIDE = 1000
_PAD, _GAP, _HEADER, _LABEL = 14, 8, 50, 24
_CARD_HEIGHT, _NARROWEST_CARD = 46, 248
#: Room between the control plane and its members, and left of members that stand in one column.
_ARROW, _RAIL = 44, 26
#: More members than this are tiles; of those that are broken, this many have a card all the same.
_MOST_CARDS, _BROKEN_CARDS = 12, 6
#: Greatest number of tiles → side of a tile with the gap behind it.
_PITCHES = ((60, 22), (400, 16), (10_000, 12))
#: Width of a letter, as part of its height: wide enough for the fonts of all systems.
_LETTER = 0.56

API_SERVERS = (
    *("karmada-apiserver", "karmada-aggregated-apiserver", "karmada-webhook", "karmada-search"),
    "karmada-metrics-adapter",
)
PUSH, PULL = "Push", "Pull"


@dataclass(frozen=True)
class Card:
    """Rectangle with an icon, a title and a note, both cut to its width; ``full`` is the whole text."""

    x: float
    y: float
    width: float
    height: float
    title: str
    note: str
    state: State
    full: str
    leader: bool = False


@dataclass(frozen=True)
class Tile:
    """Small square of one member."""

    x: float
    y: float
    side: float
    state: State
    full: str


@dataclass(frozen=True)
class Frame:
    """Labelled frame around cards, tiles or other frames. ``dashed`` for members that are not connected."""

    x: float
    y: float
    width: float
    height: float
    title: str
    note: str
    outer: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Label:
    """Text at its baseline."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Line:
    """Connection, as the data of a path, and the arrow's head on it; ``head`` is empty without one."""

    path: str
    head: str
    dashed: bool


@dataclass
class Drawing:
    """All shapes of the drawing for one width."""

    width: int
    title: str
    description: str
    height: float = 0
    frames: list[Frame] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


#: State, title, note, and whether it leads.
_Face = tuple[State, str, str, bool]
_Group = tuple[str, list[_Face]]


@dataclass(frozen=True)
class _Content:
    """Content of a frame: groups of cards with their labels, and members that are tiles."""

    title: str
    note: str
    groups: Sequence[_Group] = ()
    tiles: Sequence[Member] = ()
    #: Mode of the members in it; empty for places, and for members that are not registered.
    mode: str = ""
    dashed: bool = False


def drawing(view: View, width: int) -> Drawing:
    """Drawing of a control plane with its members, as wide as that."""
    made = Drawing(width, f"Control plane {view.name} and its members", description(view))
    pen = _Pen(made)
    bottom = pen.control_plane(_places(view), f"Control plane {view.name}")
    made.height = pen.members(_members(view), bottom)
    return made


def description(view: View) -> str:
    """Drawing in words, for those who do not see it."""
    leaders = [each.label for each in view.etcd if each.leader]
    parts = [
        *(f"{each.title}: {each.note}." for each in _places(view)),
        f"Components ready: {view.components_ready} of {len(view.components)}.",
        f"Members of etcd ready: {view.etcd_ready} of {view.etcd_wanted}{f', led by {leaders[0]}' if leaders else ''}.",
        f"Member clusters ready: {view.members_ready} of {len(view.members)}.",
        "The tables below have the details.",
    ]
    return " ".join(parts)


def _places(view: View) -> list[_Content]:
    """Places of a control plane: the host cluster, plain hosts, an etcd elsewhere."""
    etcd = ("etcd", [_etcd_face(each) for each in view.etcd])
    shown = [each for each in view.components if each.name != "etcd" or not view.etcd]
    components = [
        ("API servers", [_component_face(each) for each in shown if each.name in API_SERVERS]),
        ("Controllers", [_component_face(each) for each in shown if each.name not in API_SERVERS]),
    ]
    hosts = ("Hosts", [_host_face(each) for each in view.hosts])
    number = f"{number_of(len(view.hosts), 'host')}, systemd units"
    external = view.storage == "external"
    if view.on_hosts:
        places = [_Content("Plain hosts", number, [hosts, *components, *([] if external else [etcd])])]
    else:
        below = [] if external or view.hosts else [etcd]
        places = [_Content("Host cluster", f"pods in namespace {view.namespace}", [*components, *below])]
        if view.hosts:
            places.append(_Content("Plain hosts", number, [hosts, etcd]))
    if external:
        places.append(_Content("External etcd", "managed elsewhere", [("", etcd[1])]))
    return places


def _members(view: View) -> list[_Content]:
    told = {PUSH: "called by Karmada", PULL: "their agents call Karmada"}
    modes = sorted({each.mode for each in view.members}, key=lambda mode: (mode != PUSH, not mode, mode))
    found = []
    for mode in modes:
        members = [each for each in view.members if each.mode == mode]
        ready = sum(each.ready for each in members)
        title = f"{mode} members" if mode else "Not joined"
        note = f"{ready} of {len(members)} ready, {told[mode]}" if mode in told else "listed, and not registered"
        many = len(members) > _MOST_CARDS
        broken = [each for each in members if each.state is not State.OK]
        cards = broken[:_BROKEN_CARDS] if many else members
        rest = len(broken) - len(cards) if many else 0
        label = f"Needs attention; {rest} more in the table" if rest else "Needs attention" if many else ""
        groups = [(label, [_member_face(each) for each in cards])]
        found.append(_Content(title, note, groups, members if many else (), mode, dashed=not mode))
    return found


def _component_face(each: Component) -> _Face:
    return each.state, each.name, f"for members: {each.told}" if each.copies else each.told, False


def _etcd_face(each: EtcdMember) -> _Face:
    note = " · ".join(filter(None, [each.told, each.version, each.size]))
    return each.state, each.label or each.url, note, each.leader


def _host_face(each: Host) -> _Face:
    note = " · ".join(filter(None, [each.address, each.roles])) if each.ready else each.message
    return each.state, each.name, note, False


def _member_face(each: Member) -> _Face:
    known = each.version or "version unknown"
    told = f"{each.told} · {known}" if each.ready else " · ".join(filter(None, [each.told, each.reason]))
    return each.state, each.name, told, False


class _Pen:
    """Places shapes from top to bottom."""

    def __init__(self, drawing: Drawing) -> None:
        self._to = drawing
        self._width = float(drawing.width)

    def control_plane(self, places: Sequence[_Content], title: str) -> float:
        """Draw the places of the control plane, in a frame of their own if they are more than one."""
        if len(places) == 1:
            return self._frame(places[0], 0.5, 0.5, self._width - 1, outer=True)
        top, place = 0.5, len(self._to.frames)
        y = top + 34
        for each in places:
            y = self._frame(each, _PAD, y, self._width - 2 * _PAD) + _PAD
        self._to.frames.insert(place, Frame(0.5, top, self._width - 1, y - top, title, "", outer=True))
        return y

    def members(self, contents: Sequence[_Content], top: float) -> float:
        """Draw the frames of members with their connections, side by side where there is room."""
        if not contents:
            self._to.labels.append(Label(_PAD, top + 30, "No members."))
            return top + 44
        if self._width >= _SIDE_BY_SIDE or len(contents) == 1:
            return self._side_by_side(contents, top)
        y = top + _PAD
        for each in contents:
            self._rail(each.mode, top, y + _HEADER / 2)
            y = self._frame(each, _RAIL, y, self._width - _RAIL - 0.5) + _PAD
        return y - _PAD + 1

    def _side_by_side(self, contents: Sequence[_Content], top: float) -> float:
        width = (self._width - 1 - _PAD * (len(contents) - 1)) / len(contents)
        bottom = top
        for number, each in enumerate(contents):
            x = 0.5 + number * (width + _PAD)
            self._arrow(each.mode, x + width / 2, top, top + _ARROW)
            bottom = max(bottom, self._frame(each, x, top + _ARROW, width))
        return bottom + 1

    def _arrow(self, mode: str, x: float, top: float, bottom: float) -> None:
        """Draw a connection straight down: calls go down to Push members, and up from Pull members."""
        top, bottom = top + 3, bottom - 3
        heads = {PUSH: f"M{x - 6} {bottom - 9}L{x} {bottom}L{x + 6} {bottom - 9}"}
        heads[PULL] = f"M{x - 6} {top + 9}L{x} {top}L{x + 6} {top + 9}"
        self._to.lines.append(Line(f"M{x} {top}V{bottom}", heads.get(mode, ""), not mode))

    def _rail(self, mode: str, top: float, y: float) -> None:
        """Draw a connection from the left edge of the control plane to the side of a frame."""
        x, end = 7.5, _RAIL - 3
        heads = {PUSH: f"M{end - 8} {y - 5}L{end} {y}L{end - 8} {y + 5}"}
        heads[PULL] = f"M{x - 5} {top + 12}L{x} {top + 3}L{x + 5} {top + 12}"
        self._to.lines.append(Line(f"M{x} {top + 3}V{y}H{end}", heads.get(mode, ""), not mode))

    def _frame(self, content: _Content, x: float, y: float, width: float, *, outer: bool = False) -> float:
        place = len(self._to.frames)
        bottom = y + _HEADER
        inside = width - 2 * _PAD
        room = int((inside + _GAP) // (_NARROWEST_CARD + _GAP))
        columns = max(1, min(room, max((len(faces) for _label, faces in content.groups), default=1)))
        for label, faces in content.groups:
            bottom = self._cards(label, faces, (x + _PAD, bottom), inside, columns)
        bottom = self._tiles(content.tiles, x + _PAD, bottom, inside) + _PAD - _GAP
        note = clipped(content.note, inside, 12)
        frame = Frame(x, y, width, bottom - y, content.title, note, outer, content.dashed)
        self._to.frames.insert(place, frame)
        return bottom

    def _cards(
        self, label: str, faces: Sequence[_Face], corner: tuple[float, float], width: float, columns: int
    ) -> float:
        x, y = corner
        if not faces:
            return y
        if label:
            self._to.labels.append(Label(x, y + 13, label))
            y += _LABEL
        wide = (width - _GAP * (columns - 1)) / columns
        for number, (state, title, note, leader) in enumerate(faces):
            row, column = divmod(number, columns)
            room = wide - 44 - (20 if leader else 0)
            self._to.cards.append(
                Card(
                    x=round(x + column * (wide + _GAP), 1),
                    y=y + row * (_CARD_HEIGHT + _GAP),
                    width=round(wide, 1),
                    height=_CARD_HEIGHT,
                    title=clipped(title, room, 13),
                    note=clipped(note, wide - 44, 12),
                    state=state,
                    full=f"{title}: {note}",
                    leader=leader,
                )
            )
        return y + math.ceil(len(faces) / columns) * (_CARD_HEIGHT + _GAP)

    def _tiles(self, members: Sequence[Member], x: float, y: float, width: float) -> float:
        if not members:
            return y
        self._to.labels.append(Label(x, y + 13, "All, those that need attention first"))
        y += _LABEL
        pitch = next(each for most, each in _PITCHES if len(members) <= most or most == _PITCHES[-1][0])
        columns = int(width // pitch)
        for number, each in enumerate(members):
            row, column = divmod(number, columns)
            told = f"{each.name}: {each.told}"
            self._to.tiles.append(Tile(x + column * pitch, y + row * pitch, pitch - 3, each.state, told))
        return y + math.ceil(len(members) / columns) * pitch + _GAP


def clipped(text: str, room: float, size: float) -> str:
    """Text cut to a width in pixels, at a size of the font in pixels."""
    letters = max(1, int(room / (size * _LETTER)))
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def drawings(view: View) -> list[Drawing]:
    """Drawings for all widths."""
    return [drawing(view, width) for width in WIDTHS]
