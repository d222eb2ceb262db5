# SPDX-License-Identifier: Apache-2.0
"""Status of objects: what is told of each, and the status that it has then. Pure.

``Told`` is what the operator knows of an object. The functions on it are what happens to one. ``composed`` puts it
together with the report of the last run and with the status that is there, from which conditions keep the time of their
last transition. It is written elsewhere (``status_writer``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report.hold import HELD, Why
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import MOST_MEMBERS, NOT_JOINED
from ansible_collections.karmada.installer.plugins.plugin_utils.run import phases

from .executor import Ending, Outcome, Task
from .kinds import Lane
from .orders import Operation, Order, Part
from .probes import Member
from .schedules import text_of

#: Reasons of a run that lacks programs, images or other artifacts.
MATERIAL = frozenset(
    {
        Reason.IMAGE_NOT_AVAILABLE,
        Reason.INVALID_IMAGE,
        Reason.ARTIFACT_NOT_FOUND,
        Reason.ARTIFACT_NOT_AVAILABLE,
        Reason.INVALID_ARTIFACT,
        Reason.INVALID_ARTIFACT_SOURCE,
        Reason.CHECKSUM_MISSING,
        Reason.CHECKSUM_MISMATCH,
    }
)
#: Phase of a control plane that a restore holds.
QUARANTINED = "Quarantined"


@dataclass(frozen=True)
class Condition:
    """One condition of the operator's own. ``generation`` is that of the object of which it was told; 0: not yet."""

    kind: str
    status: bool
    reason: str
    message: str
    generation: int = 0


#: Reasons and messages of ``ComponentsReady`` and ``ControlPlaneReady`` when what was seen between runs is over.
_READY = ("AllReady", "every component is ready")
_ANSWERING = ("Answering", "the API server and the aggregated API answer, and controllers are at work")
#: Condition of an object for which nothing is done, and which waits for nothing.
IDLE = Condition("Progressing", False, "Idle", "no run is under way")


@dataclass(frozen=True)
class Told:
    """Knowledge of the operator of one object. ``report`` is the status that the last run reported, None before it.

    ``phase`` is empty while the one of the object stands.
    """

    generation: int = 0
    phase: str = ""
    report: Mapping[str, Any] | None = None
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    problems: Sequence[Mapping[str, str]] | None = None
    last_run: Mapping[str, Any] | None = None
    #: Components that have become not ready since the last run, in words.
    unready: tuple[str, ...] = ()
    #: How components are, by the watch of their workloads.
    parts: tuple[Part, ...] = ()
    #: What somebody else has deleted or changed since the last run, in words.
    drifted: tuple[str, ...] = ()
    #: Reason why the control plane does not answer now; and its members now, None if they were not listed.
    unanswered: str = ""
    members: tuple[Member, ...] | None = None
    #: Names of the members that the document lists: others may be lost without the control plane being unready.
    listed: frozenset[str] = frozenset()
    #: Other fields of the status, as of backups and restores; None takes one away.
    fields: Mapping[str, Any] = field(default_factory=dict)

    def having(self, *conditions: Condition) -> Told:
        """Copy with these conditions, as of the generation that it has now."""
        # What is told of an earlier one stays that: an edit since then has not been judged.
        now = {each.kind: replace(each, generation=self.generation) for each in conditions}
        return replace(self, conditions={**self.conditions, **now})


# -- what happens, as status -------------------------------------------------------------------------------------------


def at_rest(told: Told, generation: int, *, paused: bool, waits: tuple[str, str] | None = None) -> Told:
    """Status of an object for which nothing is done. It ``waits`` for something, as reason and in words, or rests."""
    rests = Condition("Progressing", False, *waits) if waits else IDLE
    return replace(told, generation=generation).having(rests, paused_by_user(paused))


def paused_by_user(paused: bool) -> Condition:
    """Condition of an object that its user has paused, or not."""
    reason, text = ("PausedByUser", "nothing is changed while the annotation is there") if paused else ("NotPaused", "")
    return Condition("Paused", paused, reason, text)


def held(told: Told, restore: str) -> Told:
    """Status of a control plane that a restore has begun to take back in time."""
    text = f"EtcdRestore {restore} restores it; until that is released or taken back, nothing else changes it"
    # Of an earlier restore a part may have been released, which is held again.
    holds = Condition(HELD, True, Why.RESTORED, text)
    return replace(told, phase=QUARANTINED).having(Condition("Progressing", False, QUARANTINED, text), holds)


def restored(told: Told, report: Mapping[str, Any]) -> Told:
    """Status of a control plane when a run of its restore has ended with this report."""
    found = _as_reported(told, _of_what_was_carried_out(told, report))
    return found if found.phase == QUARANTINED else found.having(IDLE)


def _as_reported(told: Told, report: Mapping[str, Any]) -> Told:
    """Status by the report of a run: what was seen before it does not count any more, nor what was known of a hold."""
    return replace(
        _held_as_reported(told),
        report=report,
        phase=str(report.get("phase") or told.phase),
        unready=(),
        parts=(),
        drifted=(),
        unanswered="",
        members=None,
    )


def _held_as_reported(told: Told) -> Told:
    """Status in which the report says what holds the control plane, and not the operator any longer."""
    return replace(told, conditions={kind: each for kind, each in told.conditions.items() if kind != HELD})


def refused(told: Told, generation: int, problems: Sequence[Problem]) -> Told:
    """Status of an object whose annotations cannot be used."""
    text = "; ".join(map(str, problems))
    return replace(told, generation=generation).having(
        Condition("Progressing", False, "Refused", "no run is started"),
        Condition("Paused", True, str(problems[0].reason), text[:1024]),
    )


def begun(told: Told, order: Order, lane: Lane, why: str) -> Told:
    """Status when a run begins. A run that only looks keeps the phase."""
    if order.operation is Operation.LOOK:
        return told.having(Condition("Progressing", True, "Looking", why))
    if order.operation is Operation.REMOVE:
        phase = "Deleting"
    elif lane is Lane.ROUTINE or order.dry_run:
        phase = told.phase
    else:
        phase = "Preflight"
    reason = "Checking" if order.dry_run else "Removing" if order.operation is Operation.REMOVE else "Running"
    found = replace(told, generation=order.generation or told.generation, phase=phase)
    return found.having(Condition("Progressing", True, reason, why), Condition("Paused", False, "NotPaused", ""))


def at_task(told: Told, task: Task) -> Told:
    """Status when a task begins: its phase, never one before that of an earlier task, and what is done."""
    phase = task.phase
    if told.phase in phases.ORDER and phase in phases.ORDER and told.phase not in ("Completed", "Deleting"):
        phase = max(phase, told.phase, key=phases.ORDER.index)
    else:
        phase = told.phase
    progressing = told.conditions.get("Progressing")
    reason = progressing.reason if progressing else "Running"
    text = ": ".join(filter(None, (task.task or task.play, task.waits)))
    return replace(told, phase=phase).having(Condition("Progressing", True, reason, text[:1024]))


def after(told: Told, order: Order, ending: Ending, run: Mapping[str, Any]) -> Told:
    """Status when a run has ended; ``run`` are its id, playbook and times."""
    failed = ending.outcome not in (Outcome.SUCCEEDED, Outcome.CANCELLED)
    if order.operation is Operation.LOOK:
        # What was seen since is still so, and it has no outcome of its own.
        found = told.having(IDLE)
        if ending.report is None:
            return found
        # But whether a restore holds it is for the report to say.
        phase = str(ending.report.get("phase") or "")
        report = _of_what_was_carried_out(told, ending.report)
        phase = phase if QUARANTINED in (phase, told.phase) else told.phase
        degraded = told.conditions.get("Degraded")
        if phase == QUARANTINED and degraded and degraded.reason == Reason.MOVED:
            # What was refused waits for the end of that, as it does after a refusal for a restore.
            found = replace(found.having(Condition("Degraded", False, QUARANTINED, "")), problems=None)
        return replace(_held_as_reported(found), report=report, phase=phase)
    found = with_run(told, ending, run)
    if ending.outcome is Outcome.CANCELLED:
        return found
    if failed and ending.reason == Reason.QUARANTINED:
        # Nothing is wrong with what was asked for: it waits.
        return replace(found, phase=QUARANTINED).having(
            Condition("Progressing", False, QUARANTINED, ending.message[:1024])
        )
    if order.dry_run and not failed:
        drift = f"a dry run would change {ending.changed} tasks' objects" if ending.changed else "nothing would change"
        return found.having(Condition("Drifted", bool(ending.changed), "DryRun", drift))
    if failed:
        degraded = failure_of(ending)
        # Members that are not as they should be do not make the control plane one that failed.
        stands = ending.report is not None or order.dry_run or order.operation is Operation.REMOVE
        phase = found.phase if stands else "Failed"
        if MATERIAL & {degraded.reason, *ending.reasons}:
            found = found.having(replace(degraded, kind="MaterialFetched", status=False))
        # A report has the problems of members, and warnings beside them.
        told_problems = None if ending.report is not None else list(ending.problems)
        found = replace(found, phase=phase, problems=told_problems).having(degraded)
    else:
        # The report says it of what is there.
        found = replace(found, conditions={k: each for k, each in found.conditions.items() if k != "MaterialFetched"})
        found = found.having(
            Condition("Degraded", False, "LastRunSucceeded", ""), Condition("Drifted", False, "AsTheDocumentSays", "")
        )
        found = replace(found, problems=None if ending.report is not None else [])
    if ending.report is not None and not order.dry_run:
        found = _as_reported(found, ending.report)
    return found


def _of_what_was_carried_out(told: Told, report: Mapping[str, Any]) -> dict[str, Any]:
    """Report of a run that carries no document out: it has read one that may have been edited since that was done.

    What an earlier operator has told of that is filled in when the status is composed.
    """
    carried_out = (told.report or {}).get("observedGeneration")
    generation = {"observedGeneration": carried_out} if carried_out else {}

    def stamped(found: Mapping[str, Any]) -> dict[str, Any]:
        had = "observedGeneration" in found
        return {
            **{key: value for key, value in found.items() if key != "observedGeneration"},
            **(generation if had else {}),
        }

    return {**stamped(report), "conditions": [stamped(each) for each in report.get("conditions") or ()]}


def with_run(told: Told, ending: Ending, run: Mapping[str, Any]) -> Told:
    """Status with the last run, and without one under way."""
    failed = ending.outcome not in (Outcome.SUCCEEDED, Outcome.CANCELLED)
    counts = {"ok": ending.ok, "changed": ending.changed, "failed": ending.failed, "outcome": ending.outcome.value}
    failure = {"failedTask": ending.failed_task, "failedPhase": ending.phase, "message": ending.message}
    failure |= {"reason": ending.reason, "component": ending.component}
    tail = {key: text for key, text in failure.items() if text}
    idle = Condition("Progressing", False, "Idle" if not failed else "Failed", f"the last run {_ended(ending)}")
    return replace(told, last_run={**run, **counts, **tail}).having(idle)


def failure_of(ending: Ending) -> Condition:
    """Condition of an object whose last run has failed."""
    # The task that ends a run with broken members is Ansible's own, and has its problems from earlier steps.
    reasons = [each.get("reason", "") for each in ending.problems if each.get("severity") == "error"]
    reason = next(filter(None, (ending.reason, *reasons)), "RunFailed")
    text = ": ".join(part for part in (ending.failed_task, ending.component, ending.message) if part)
    return Condition("Degraded", True, reason, text[:1024])


def _ended(ending: Ending) -> str:
    changed = f", {ending.changed} changed" if ending.outcome is Outcome.SUCCEEDED else ""
    verb = "" if ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT) else "was "
    return f"{verb}{ending.outcome.value}{changed}"


# -- composing ---------------------------------------------------------------------------------------------------------


def composed(
    former: Mapping[str, Any],
    told: Told,
    now: datetime,
    fields: frozenset[str] = frozenset(),
    *,
    first: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Status to write, given the one that the object has. ``fields`` are those that the schema knows; empty: all.

    ``first`` is the one that an earlier operator has left: it stands for the report until this one has its own.
    A condition keeps its lastTransitionTime as long as its status does.
    """
    base = dict(told.report) if told.report is not None else dict(former if first is None else first)
    if "lastRun" in former:
        # Who leads since then does not remember it, and a look has no word of it.
        base.setdefault("lastRun", former["lastRun"])
    if "observedGeneration" in former:
        base.setdefault("observedGeneration", former["observedGeneration"])
    generation = {key: base[key] for key in ("observedGeneration",) if key in base}
    conditions = {each["type"]: {**generation, **each} for each in base.get("conditions") or ()}
    for each in told.conditions.values():
        conditions[each.kind] = _plain(each, each.generation or told.generation)
    of_control_plane = not fields or "installed" in fields
    is_ready = conditions.get("Ready", {}).get("status") == "True"
    if of_control_plane and told.report is None and not former.get("installed") and not is_ready:
        shown = told.conditions.get("Degraded")
        bad = shown is not None and shown.status
        conditions["Ready"] = {
            "type": "Ready",
            "status": "False",
            "reason": shown.reason if shown and bad else "NotInstalled",
            "message": shown.message if shown and bad else "the first installation has not come to its end",
            "observedGeneration": told.generation,
        }
    before = {each["type"]: each for each in former.get("conditions") or ()}
    moment = text_of(now)
    if told.parts and base.get("components"):
        base["components"] = _components(base["components"], told.parts)
    if told.members is not None:
        base["members"] = _members(base, former, told.members, told.listed, moment)
        total = len({each.name for each in told.members} | told.listed)
        base["membersReady"] = f"{sum(each.ready for each in told.members)}/{total}"
    conditions.update(_now(base, conditions, told, before))
    shown = told.conditions.get("Drifted")
    # A dry run that has found something says more, as of objects that nobody watches.
    if told.drifted and not (shown is not None and shown.status):
        drift = Condition("Drifted", True, "ChangedByOthers", "; ".join(told.drifted)[:4096])
        conditions["Drifted"] = _plain(drift, int(base.get("observedGeneration") or told.generation))
    base["conditions"] = [
        {**each, "lastTransitionTime": _since(each, before.get(kind), moment)}
        for kind, each in sorted(conditions.items())
    ]
    if told.phase:
        base["phase"] = told.phase
    if told.problems is not None:
        base["problems"] = [dict(each) for each in told.problems]
    if told.last_run is not None:
        base["lastRun"] = dict(told.last_run)
    if not of_control_plane and told.generation:
        base["observedGeneration"] = told.generation
    base |= told.fields
    return {key: value for key, value in base.items() if value is not None and (not fields or key in fields)}


def _components(entries: Sequence[Mapping[str, Any]], parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Components of a report as they are now.

    What a report has found in the pods of one says more than the watch of its workload: that stays while as many pods
    are ready as then.
    """
    now, found = {each.name: each for each in parts}, []
    for entry in entries:
        part, told = now.get(str(entry.get("name"))), dict(entry)
        if part is not None:
            known = told.pop("message", "")
            holds = told.get("ready") == part.ready and not part.gone
            told["ready"] = part.ready
            if part.trouble:
                told["message"] = ((known if holds else "") or part.trouble)[:4096]
        found.append(told)
    return found


def _members(
    base: Mapping[str, Any], former: Mapping[str, Any], states: Sequence[Member], listed: frozenset[str], moment: str
) -> list[dict[str, Any]]:
    """Members of a report with the states that they have now; one that was never registered stays as it is."""
    by_name = {each.name: each for each in states}
    before = {each.get("name"): each for each in former.get("members") or ()}
    found = []

    def as_now(entry: Mapping[str, Any], state: Member) -> dict[str, Any]:
        last = before.get(state.name) or {}
        known = next((each for each in (last, entry) if each.get("ready") == state.ready), {})
        since = known.get("lastTransitionTime") or moment
        return {**entry, "ready": state.ready, "reason": state.reason, "lastTransitionTime": since}

    for entry in base.get("members") or ():
        name = str(entry.get("name"))
        state = by_name.get(name)
        if state is None and name in listed and entry.get("ready"):
            # It was a member, and somebody has taken its Cluster away.
            state = Member(name, False, NOT_JOINED)
        found.append(dict(entry) if state is None else as_now(entry, state))
    told = {each.get("name") for each in found}
    # A report has so many members at most, those that were not ready first: one that is lost since takes the place of
    # one that is ready.
    lost = [by_name.get(name) or Member(name, False, NOT_JOINED) for name in sorted(listed - told)]
    lost = [each for each in lost if not each.ready] if len(found) >= MOST_MEMBERS else []
    places = [index for index, each in enumerate(found) if each.get("ready")][-len(lost) :] if lost else []
    for index, state in zip(places, lost, strict=False):
        found[index] = as_now({"name": state.name}, state)
    return found


def _now(
    base: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]],
    told: Told,
    before: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Conditions that are not those of the report any more, because of what was seen since; ``before``: as written."""
    # They are about what the report has carried out: an edit since then is not, and nobody may take it for done.
    generation = int(base.get("observedGeneration") or told.generation)

    def condition(kind: str, good: bool, reason: str, message: str) -> dict[str, Any]:
        found = Condition(kind, good, reason, message[:4096])
        return _plain(found, generation)

    found = {}
    if told.members is not None:
        listed = [each for each in base["members"] if each["name"] in told.listed]
        # Beyond the entries of a report, too. One that it does not have, and that never came, is for a run to tell.
        away = {each.name for each in told.members if not each.ready} & told.listed
        lost = sorted({str(each["name"]) for each in listed if not each.get("ready")} | away)
        if len(base["members"]) >= MOST_MEMBERS:
            lost = sorted({*lost} | (told.listed - {each.name for each in told.members}))
        if lost:
            text = f"not ready, or not as listed: {', '.join(lost)}"
            found["MembersReady"] = condition("MembersReady", False, "NotReady", text)
        elif not any(each.get("message") for each in listed):
            found["MembersReady"] = condition("MembersReady", True, "AllReady", "all listed members are ready")
    all_ready = all(each.get("ready", 0) >= each.get("desired", 0) for each in base.get("components") or ())
    for kind, reason, trouble, well, words in (
        ("ComponentsReady", "ComponentsNotReady", "; ".join(told.unready), bool(told.parts) and all_ready, _READY),
        ("ControlPlaneReady", "NotAnswering", told.unanswered, told.members is not None, _ANSWERING),
    ):
        if trouble:
            found[kind] = condition(kind, False, reason, trouble)
        elif conditions.get(kind, {}).get("reason") == reason and (
            well or before.get(kind, {}).get("reason") != reason
        ):
            # No report says so: an earlier operator has seen it, and this one sees, or has seen, that it is over.
            found[kind] = condition(kind, True, *words)
    if not found:
        return found
    parts = [{**conditions, **found}.get(kind, {}) for kind in ("ComponentsReady", "ControlPlaneReady", "MembersReady")]
    # Reports of older versions do not have it, and it is unknown where etcd cannot be asked.
    parts += filter(None, [conditions.get("EtcdHealthy")])
    bad = [each for each in parts if each.get("status") == "False"]
    if bad:
        text = "; ".join(str(each.get("message", "")) for each in bad)
        found["Ready"] = condition("Ready", False, str(bad[0].get("reason", "")), text)
    elif all(parts):
        found["Ready"] = condition("Ready", True, "AllReady", "everything that was asked for is ready")
    return found


def _plain(condition: Condition, generation: int) -> dict[str, Any]:
    return {
        "type": condition.kind,
        "status": "True" if condition.status else "False",
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
    }


def _since(condition: Mapping[str, Any], before: Mapping[str, Any] | None, moment: str) -> str:
    if before and before.get("status") == condition["status"] and before.get("lastTransitionTime"):
        return str(before["lastTransitionTime"])
    return moment
