# SPDX-License-Identifier: Apache-2.0
"""Content of the page: what of a status is shown, in which order, and in which words. No I/O.

Everything here is plain text; the template escapes it. A status may be of another version of the collection, and parts
of it are the words of others, so nothing relies on a key or on the form of a text.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from typing import Any

from ...components.table import ON_HOSTS
from ...redaction import printable
from ...run.changes import StepChange
from ..rows import row_of

#: Characters of one message, and of the messages of all members together, after escaping: 1,000 broken members have to
#: fit into 1 MiB. The report as JSON has the whole texts.
LONGEST_MESSAGE, ALL_MESSAGES = 2000, 160_000
#: Characters of a short text: a name, a version, a reason.
WORD = 100
UNKNOWN = "unknown"
#: Names in a list of those that are not ready.
_NAMED = 20
#: So many members can be counted by eye.
_COUNTED = 12
#: Changes that the page shows; the report as JSON has more.
_CHANGES_SHOWN = 200
#: Marks on the time line of certificates: days, label, and rank.
_MARKS = (
    *((7, "1 week", 2), (30, "30 days", 0), (90, "90 days", 2)),
    *((365, "1 year", 0), (3650, "10 years", 1)),
)


class State(Enum):
    """State of a part; the value orders: what is broken comes first."""

    BAD = 0
    WARN = 1
    OK = 2

    @property
    def css(self) -> str:
        """Name of its class and its icon in the template."""
        return self.name.lower()


@dataclass(frozen=True)
class Item:
    """Matter that needs attention. ``severity`` is a word for people."""

    state: State
    severity: str
    reason: str
    what: str
    where: str = ""
    remedy: str = ""

    @property
    def css(self) -> str:
        """Name of its class and its icon in the template."""
        return "hint" if self.state is State.OK else self.state.css


@dataclass(frozen=True)
class Component:
    """Row of the table of components; ``copies`` counts those of single members, 0 if there is one for all."""

    name: str
    desired: int
    ready: int
    copies: int = 0
    #: Names of copies that are not ready.
    lacking: Sequence[str] = ()

    @property
    def state(self) -> State:
        """OK if every process is ready, WARN if only some are."""
        if self.ready >= self.desired:
            return State.OK
        return State.WARN if self.ready else State.BAD

    @property
    def told(self) -> str:
        """Readiness in words."""
        return f"{self.ready} of {self.desired} ready"


@dataclass(frozen=True)
class EtcdMember:
    """Member of etcd by its own answer. ``label`` is the host of its URL."""

    url: str
    label: str
    leader: bool
    healthy: bool
    version: str
    bytes: int
    size: str
    alarms: str
    message: str

    @property
    def state(self) -> State:
        """Broken unless it is healthy."""
        return State.OK if self.healthy else State.BAD

    @property
    def told(self) -> str:
        """Role or trouble in a word or two."""
        if not self.healthy:
            return self.alarms or "not healthy"
        return "leader" if self.leader else "follower"


@dataclass(frozen=True)
class Host:
    """Plain host of the document."""

    name: str
    address: str
    roles: str
    ready: bool
    message: str

    @property
    def state(self) -> State:
        """Broken unless it is ready."""
        return State.OK if self.ready else State.BAD


@dataclass(frozen=True)
class Member:
    """Member cluster. ``mode`` is empty for one that could not be registered."""

    name: str
    mode: str
    version: str
    ready: bool
    reason: str
    since: str
    message: str
    agent_hosts: str
    #: Cordoned, or draining; empty if workloads are placed on it.
    scheduling: str = ""

    @property
    def state(self) -> State:
        """Broken if it is not ready; a member that is ready and not as the document says needs attention, too."""
        if not self.ready:
            return State.BAD
        return State.WARN if self.message else State.OK

    @property
    def told(self) -> str:
        """State in words."""
        if not self.ready:
            return "Not ready" if self.mode else "Not joined"
        ready = "Ready, not as listed" if self.message else "Ready"
        return f"{ready}, {self.scheduling}" if self.scheduling else ready


@dataclass(frozen=True)
class Certificate:
    """Certificate with its end. ``position`` is the end's place on the time line, in percent of its length."""

    name: str
    end: str
    left: str
    position: float
    state: State


@dataclass(frozen=True)
class Mark:
    """Mark of the time line."""

    label: str
    position: float
    #: 0 if it is always there, 1 if not on the shortest line, 2 if on the longest only.
    rank: int


@dataclass(frozen=True)
class Share:
    """Version of Kubernetes, and how many members have it; ``percent`` is of the most frequent one."""

    version: str
    count: int
    percent: float


class View:
    """Content of the page of one control plane, as seen at ``now``."""

    def __init__(self, name: str, namespace: str, status: Mapping[str, Any], now: datetime) -> None:
        self.name, self.namespace, self.now = printable(name, WORD), printable(namespace, WORD), now
        self._status = status
        self.states = State
        self.phase = _word(status, "phase") or UNKNOWN
        self.on_hosts = status.get("mode") == "Binary"
        self.seen = f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        self.versions = {
            "Karmada": _word(status, "karmadaVersion") or UNKNOWN,
            "Kubernetes API": _word(status, "kubernetesVersion") or UNKNOWN,
            "etcd": _word(status, "etcdVersion") or UNKNOWN,
        }
        etcd = status.get("etcd") or {}
        self.storage = _word(etcd, "storage")
        self.etcd_wanted, self.etcd_ready = _number(etcd, "members"), _number(etcd, "ready")

    @cached_property
    def state(self) -> State:
        """State of the whole: that of the condition Ready."""
        return State.OK if self._condition("Ready").get("status") == "True" else State.BAD

    @cached_property
    def summary(self) -> str:
        """Sentence of the condition Ready while it holds, else the number of matters that are listed."""
        if self.state is not State.OK:
            return f"{self.attention} {'matter needs' if self.attention == 1 else 'matters need'} attention."
        text = printable(self._condition("Ready").get("message", ""), 600)
        return f"{text[:1].upper()}{text[1:].rstrip('.')}."

    @property
    def attention(self) -> int:
        """Number of matters that need attention; hints are listed with them, and need none."""
        return sum(each.state is not State.OK for each in self.items)

    @cached_property
    def items(self) -> list[Item]:
        """Matters by weight: conditions that do not hold, then problems in their order, hints last."""
        items = [
            Item(State.BAD, "not met", _word(each, "type"), _text(each, "message"))
            for each in _entries(self._status, "conditions")
            if each.get("status") != "True" and each.get("type") != "Ready"
        ]
        states = {"error": State.BAD, "warning": State.WARN}
        items += [
            Item(
                states.get(each.get("severity", ""), State.OK),
                _word(each, "severity") or "hint",
                _word(each, "reason"),
                *(_text(each, key) for key in ("what", "where", "remedy")),
            )
            for each in _entries(self._status, "problems")
        ]
        return sorted(items, key=lambda each: each.state.value)

    @cached_property
    def components(self) -> list[Component]:
        """Components in the order of the table, copies for single members as one row of the table."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for each in _entries(self._status, "components"):
            found.setdefault(row_of(_word(each, "name")), []).append(each)
        order = {name: place for place, name in enumerate(ON_HOSTS)}
        rows = [_component(name, each) for name, each in found.items()]
        return sorted(rows, key=lambda each: order.get(each.name, len(order)))

    @cached_property
    def components_ready(self) -> int:
        """Number of components all of whose processes are ready."""
        return sum(each.state is State.OK for each in self.components)

    @cached_property
    def etcd(self) -> list[EtcdMember]:
        """Members of etcd as they answered, in the order of the status."""
        return [
            EtcdMember(
                url=_text(each, "url"),
                label=_host_of(_text(each, "url")),
                leader=each.get("leader") is True,
                healthy=each.get("healthy") is True,
                version=_word(each, "version"),
                bytes=_number(each, "dbSizeBytes"),
                size=size(_number(each, "dbSizeBytes")) if "dbSizeBytes" in each else "",
                alarms=", ".join(printable(alarm, WORD) for alarm in each.get("alarms") or ()),
                message=_text(each, "message"),
            )
            for each in _entries(self._status.get("etcd") or {}, "endpoints")
        ]

    @cached_property
    def hosts(self) -> list[Host]:
        """Plain hosts, those in trouble first."""
        hosts = [
            Host(
                name=_word(each, "name"),
                address=_word(each, "address"),
                roles=", ".join(printable(role, WORD) for role in each.get("roles") or ()),
                ready=each.get("ready") is True,
                message=_text(each, "message"),
            )
            for each in _entries(self._status, "hosts")
        ]
        return sorted(hosts, key=lambda each: each.ready)

    @cached_property
    def members(self) -> list[Member]:
        """Members, those that are not ready first, then by name."""
        entries = _entries(self._status, "members")
        room = ALL_MESSAGES // max(1, sum(bool(each.get("message")) for each in entries))
        members = [
            Member(
                name=_word(each, "name"),
                mode=_word(each, "mode"),
                version=_word(each, "kubernetesVersion"),
                ready=each.get("ready") is True,
                reason=_word(each, "reason"),
                since=moment(_word(each, "lastTransitionTime")),
                message=fitted(_text(each, "message"), room),
                agent_hosts=", ".join(printable(host, WORD) for host in each.get("agentHosts") or ()),
                scheduling="draining" if each.get("draining") else "cordoned" if each.get("cordoned") else "",
            )
            for each in entries
        ]
        return sorted(members, key=lambda each: (each.state.value, each.name))

    @cached_property
    def members_ready(self) -> int:
        """Number of members that are ready."""
        return sum(each.ready for each in self.members)

    @cached_property
    def changes(self) -> list[str]:
        """Changes of the run that made the report, as lines; of many only the first."""
        lines = []
        for each in _entries(self._status, "changes")[:_CHANGES_SHOWN]:
            words = {key: _word(each, key) for key in ("action", "kind", "name", "member", "host")}
            lines.append(str(StepChange.of(words)))
        return lines

    @cached_property
    def changes_total(self) -> int:
        """Number of all changes of that run."""
        return max(_number(self._status, "changesTotal"), len(self.changes))

    @cached_property
    def shares(self) -> list[Share]:
        """Versions of Kubernetes that members have, the most frequent first; empty where the table shows them all."""
        counts = Counter(each.version or UNKNOWN for each in self.members)
        if len(self.members) <= _COUNTED:
            return []
        most = max(counts.values(), default=1)
        return [
            Share(version, count, 100 * count / most)
            for version, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        ]

    @cached_property
    def certificates(self) -> list[Certificate]:
        """Certificates, the first to end first."""
        ends = [
            (_word(each, "name"), _time(_word(each, "notAfter"))) for each in _entries(self._status, "certificates")
        ]
        known = sorted(((name, end) for name, end in ends if end), key=lambda each: (each[1], each[0]))
        span = max((_days(end, self.now) for _name, end in known), default=0)
        return [
            Certificate(
                name=name,
                end=f"{end:%Y-%m-%d}",
                left=left(_days(end, self.now)),
                position=position(_days(end, self.now), span),
                state=_state_of_days(_days(end, self.now)),
            )
            for name, end in known
        ]

    @cached_property
    def marks(self) -> list[Mark]:
        """Marks of the time line, as many as the longest certificate needs."""
        ends = [_time(_word(each, "notAfter")) for each in _entries(self._status, "certificates")]
        span = max((_days(end, self.now) for end in ends if end), default=0)
        return [Mark(label, position(days, span), rank) for days, label, rank in _MARKS if days <= _span(span)]

    def _condition(self, kind: str) -> Mapping[str, Any]:
        return next((each for each in _entries(self._status, "conditions") if each.get("type") == kind), {})


def position(days: float, span: float) -> float:
    """Place of a day on the time line in percent, from 0 (now) to 100 (``span`` days).

    The scale is logarithmic: a week is as easily told from a month as a year from a decade.
    """
    share = math.log1p(max(0.0, days)) / math.log1p(_span(span))
    return round(100 * min(1.0, share), 2)


def _span(span: float) -> float:
    """Length of the time line in days: a year at least, and a little more than the longest certificate has left."""
    return 1.03 * max(365.0, span)


def left(days: float) -> str:
    """Time that a certificate has left, in words."""
    if days < 0:
        return "ended"
    if days < 1:
        return "less than a day"
    if days < 2:
        return "1 day"
    return f"{int(days)} days" if days < 1000 else f"{days / 365.25:.1f} years"


def size(number: int) -> str:
    """Size in bytes, for people."""
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"


def moment(text: str) -> str:
    """Time of a status, to the minute, in UTC; a text that is no time stays as it is."""
    found = _time(text)
    return f"{found:%Y-%m-%d %H:%M}" if found else text


def fitted(text: str, room: int) -> str:
    """Beginning of a text that needs at most ``room`` bytes when it is escaped."""
    cut = text
    while cut and len(html.escape(cut).encode()) > room:
        # Most texts need little more when escaped; a text that is all markup needs the most.
        cut = cut[: min(room, len(cut) * 3 // 4)]
    return cut if cut == text else f"{cut}…"


def _component(name: str, entries: Sequence[Mapping[str, Any]]) -> Component:
    names = [_word(each, "name") for each in entries]
    lacking = [
        name for name, each in zip(names, entries, strict=True) if _number(each, "ready") < _number(each, "desired")
    ]
    if len(lacking) > _NAMED:
        lacking = [*lacking[:_NAMED], f"{len(lacking) - _NAMED} more"]
    return Component(
        name=name,
        desired=sum(_number(each, "desired") for each in entries),
        ready=sum(_number(each, "ready") for each in entries),
        copies=0 if names == [name] else len(names),
        lacking=() if names == [name] else lacking,
    )


def _host_of(url: str) -> str:
    """Host of a client URL, without the domain of a Service: ``prod-etcd-0``. An address stays whole."""
    host = url.partition("://")[2].partition("/")[0]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return host if not host or host[0].isdigit() or ":" in host else host.partition(".")[0]


def _state_of_days(days: float) -> State:
    if days < 0:
        return State.BAD
    return State.WARN if days < 30 else State.OK


def _days(end: datetime, now: datetime) -> float:
    return (end - now).total_seconds() / 86400


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    # A time near the first or the last year has no equal in UTC.
    except (ValueError, OverflowError):
        return None


def _entries(status: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found: Iterable[Any] = status.get(key) or ()
    return [each for each in found if isinstance(each, Mapping)]


def _word(entry: Mapping[str, Any], key: str) -> str:
    return printable(entry.get(key) or "", WORD)


def _text(entry: Mapping[str, Any], key: str) -> str:
    return printable(entry.get(key) or "", LONGEST_MESSAGE)


def _number(entry: Mapping[str, Any], key: str) -> int:
    found = entry.get(key)
    return found if isinstance(found, int) else 0
