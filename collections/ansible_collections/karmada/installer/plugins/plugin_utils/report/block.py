# SPDX-License-Identifier: Apache-2.0
"""Report as a block of text for people: what needs attention first, the next command last. No I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from ..problems import Severity, number_of
from ..run.changes import DUE
from .backups import age
from .layout import columns, cut, duration, labelled, table, wrapped
from .report import ComponentStatus, MemberStatus, Observation, etcd_version, missing, status, warnings
from .rows import row_of

#: Members that have a row, those that are not ready first.
MOST_MEMBERS = 15
#: Lines that all of what needs attention may take in full. Beyond, each entry has two, and as many are shown as fit.
MOST_ATTENTION = 20
#: Plain hosts that are named because they do not do their work.
MOST_HOSTS = 5
#: Changes that are named one by one; more are counted by kind.
MOST_CHANGES = 6
#: Kinds of objects that are counted each on its own.
MOST_KINDS = 5
_VERBS = {"created": "create", "changed": "change", "deleted": "delete"}


@dataclass(frozen=True)
class About:
    """Facts of a report beside the observations.

    ``release`` is the version of Karmada that the document leads to, ``place`` where the control plane runs. Its
    ``changes`` are those of the run, in a ``check`` those that would be, as ``created Deployment prod/prod-scheduler``.
    ``tunnel`` is the command that makes ``address`` reachable, where it is not. Empty texts are left out.
    """

    name: str
    release: str = ""
    place: str = ""
    check: bool = False
    installed: bool = True
    changes: Sequence[str] = ()
    seconds: float | None = None
    address: str = ""
    tunnel: str = ""
    kubeconfig: str = ""
    report_file: str = ""
    page_file: str = ""
    #: The images that nothing pins are named. A run with a preflight has named them there.
    names_unpinned: bool = False


def text(observed: Observation, about: About) -> str:
    """Report in lines of 80 columns, as far as paths and addresses allow."""
    there = bool(observed.components)
    lines = [*wrapped(_headline(observed, about)), *_check(about)]
    attention = _attention(observed) if there or observed.broken_members else []
    if attention:
        lines += ["", "Needs attention:", *attention]
    if there:
        lines += ["", *_control_plane(observed, about), *_members(observed)]
    if there and about.names_unpinned and observed.unpinned:
        lines += labelled("hint", observed.unpinned)
    if not about.check and about.installed:
        lines += ["", *_changed(about)]
    return "\n".join([*lines, *_next(about)])


def _headline(observed: Observation, about: About) -> str:
    if about.check:
        return f"Check of Karmada control plane {about.name}: nothing was changed"
    if not about.installed:
        return f"Karmada control plane {about.name}: not installed in {about.place}"
    return f"Karmada control plane {about.name}: {status(observed)['phase']}"


def _check(about: About) -> list[str]:
    """Plan of a check run."""
    if not about.check:
        return []
    lines = []
    if not about.installed:
        lines += labelled("would install", f"Karmada {about.release} in {about.place}", 15)
    by_verb = _by_verb(about.changes)
    # Steps on hosts also start and stop units: beside other changes that goes without saying, alone it is all there is.
    others = {done: DUE.get(done, "change") for done in by_verb}
    for done, verb in (_VERBS if _VERBS.keys() & by_verb.keys() else others).items():
        if by_verb[done]:
            lines += labelled(f"would {verb}", _kinds(by_verb[done]), 15)
    return lines or labelled("would change", "nothing: everything is as the document says", 15)


def _attention(observed: Observation) -> list[str]:
    """Entries with what is wrong, then what may hurt later."""
    entries = [f"member {each.name}: {each.problem}\n→ {each.next_step}" for each in observed.broken_members]
    told = {each.name for each in observed.broken_members}
    entries += [
        f"{each.name}: {each.ready} of {each.desired} ready"
        for each in observed.components
        if each.ready < each.desired
    ]
    entries += [
        f"member {each.name}: not ready ({each.reason})"
        for each in observed.members
        if not each.ready and each.name not in told
    ]
    entries += [f"member {name}: not registered" for name in missing(observed) if name not in told]
    entries += [f"{each.severity.value}: {each}" for each in warnings(observed) if each.severity is not Severity.HINT]
    full = [wrapped(each, "  - ", "    ") for each in entries]
    if sum(map(len, full)) <= MOST_ATTENTION:
        return [line for lines in full for line in lines]
    found: list[str] = []
    for number, lines in enumerate(full):
        short = lines if len(lines) <= 2 else [lines[0], cut(f"{lines[1]} {lines[2]}")]
        if len(found) + len(short) > MOST_ATTENTION:
            return [*found, f"  … and {len(full) - number} more, in the report file"]
        found += short
    return found


def _control_plane(observed: Observation, about: About) -> list[str]:
    versions = [
        f"Karmada {observed.karmada_version}" if observed.karmada_version else "",
        f"Kubernetes API {observed.kubernetes_version}" if observed.kubernetes_version else "",
        f"etcd {etcd_version(observed)}" if etcd_version(observed) else "",
    ]
    lines = [
        *(labelled("address", about.address) if about.address else ()),
        *labelled("versions", ", ".join(filter(None, versions)) or "unknown: nothing answers"),
        *labelled(
            "etcd",
            f"{observed.etcd_ready} of {number_of(observed.etcd_desired, 'member')} ready, {observed.etcd_storage}"
            f"{_leader(observed)}",
        ),
        *_hosts(observed),
    ]
    if observed.certificates:
        name, end = min(observed.certificates.items(), key=lambda item: item[1])
        lines += labelled("certificates", f"{name} ends first, on {_date(end)}")
    ready = sum(each.ready >= each.desired for each in observed.components)
    lines += labelled("components", f"{ready} of {len(observed.components)} ready")
    return [*lines, *columns(_words(observed.components), "  ")]


def _leader(observed: Observation) -> str:
    """Part of a sentence: the plain host whose member of etcd leads the others. Empty in pods."""
    leaders = {urlsplit(each.url).hostname for each in observed.etcd_endpoints if each.leader and each.healthy}
    names = [each.name for each in observed.hosts if each.address in leaders]
    return f", {names[0]} leads" if names else ""


def _hosts(observed: Observation) -> list[str]:
    """Line about the plain hosts. What is wrong with a unit of one stands in what needs attention."""
    if not observed.hosts:
        return []
    troubled = [each.name for each in observed.hosts if each.trouble]
    left = len(troubled) - MOST_HOSTS
    named = ", ".join(troubled[:MOST_HOSTS]) + (f" and {left} more" if left > 0 else "")
    told = f"{len(observed.hosts) - len(troubled)} of {len(observed.hosts)} ready"
    return labelled("hosts", told + (f"; not {named}" if troubled else ""))


def _words(components: Sequence[ComponentStatus]) -> list[str]:
    """Components with their processes that are ready. The copies for single members are one word together."""
    sums: dict[str, tuple[int, int]] = {}
    for each in components:
        name = row_of(each.name)
        ready, desired = sums.get(name, (0, 0))
        sums[name] = ready + each.ready, desired + each.desired
    return [f"{name} {ready}/{desired}" for name, (ready, desired) in sums.items()]


def _members(observed: Observation) -> list[str]:
    absent = missing(observed)
    total, ready = len(observed.members) + len(absent), sum(each.ready for each in observed.members)
    if not total:
        unknown = observed.wanted_members and not observed.api_ready
        return labelled("members", "unknown: the API server does not answer" if unknown else "none")
    rows = [(name, "-", "-", "-", "not registered") for name in absent]
    rows += [_row(each, observed.now) for each in sorted(observed.members, key=lambda each: each.ready)]
    head = ("NAME", "VERSION", "MODE", "AGE", "STATE")
    lines = [*labelled("members", f"{ready} of {total} ready"), *table([head, *rows[:MOST_MEMBERS]], "  ")]
    if total > MOST_MEMBERS:
        broken = max(0, total - ready - MOST_MEMBERS)
        told = f"{broken} of them not ready" if broken else "all ready"
        lines.append(f"  … and {total - MOST_MEMBERS} more, {told}")
    return lines


def _row(member: MemberStatus, now: datetime) -> tuple[str, str, str, str, str]:
    state = "Ready" if member.ready else member.reason
    state += f", {member.scheduling}" if member.scheduling else ""
    if member.agent_hosts:
        state += f", agent on {', '.join(member.agent_hosts)}"
    return member.name, member.version or "-", member.mode, age(member.since, now), state


def _changed(about: About) -> list[str]:
    took = f" in {duration(about.seconds)}" if about.seconds is not None else ""
    if not about.changes:
        return labelled("changed", f"nothing{took}")
    if len(about.changes) <= MOST_CHANGES:
        rows = [f"changed{took}:", *(f"  {each}" for each in about.changes)]
        return [line for row in rows for line in wrapped(row)]
    lines = labelled("changed", f"{len(about.changes)} things{took}")
    for verb, changes in _by_verb(about.changes).items():
        lines += labelled(f"  {verb}", _kinds(changes))
    return lines


def _by_verb(changes: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in changes:
        found[each.partition(" ")[0]].append(each)
    return found


def _kinds(changes: Sequence[str]) -> str:
    """Kinds of objects with their number; the names of those of which there are one or two."""
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for each in changes:
        _verb, _, ref = each.partition(" ")
        kind, _, name = ref.partition(" ")
        by_kind[kind][name] += 1
    few = len(changes) <= MOST_CHANGES
    ordered = sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0]))
    told = [
        f"{kind} {' and '.join(names)}" if few and len(names) <= 2 else f"{len(names)} {kind}"
        for kind, names in ordered[:MOST_KINDS]
    ]
    if left := sum(len(names) for _kind, names in ordered[MOST_KINDS:]):
        told.append(f"{left} others")
    return ", ".join(told)


def _next(about: About) -> list[str]:
    """Files of the run and the next command, each on a line of its own, to be copied."""
    if about.check:
        return ["next         the same command without --check"]
    lines = []
    if about.report_file:
        lines.append(f"report       {about.report_file}")
    if about.page_file:
        lines.append(f"page         {about.page_file}")
    if about.kubeconfig:
        lines.append(f"kubeconfig   {about.kubeconfig}")
        if about.tunnel:
            lines.append(f"reach it by  {about.tunnel}")
        lines.append(f"next         kubectl --kubeconfig {about.kubeconfig} get clusters")
    return lines


def _date(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
