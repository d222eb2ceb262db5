# SPDX-License-Identifier: Apache-2.0
"""Steps of a restore of a control plane in pods: each looks, changes what is left to change, and is put on record.

``plan`` says which is the next. Two of them are the stages of the role control_plane, which the caller takes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..api_object import Object
from ..backup import series as backup_series
from ..backup import take
from ..backup.record import Purpose
from ..backup.verification import COUNTED
from ..components.etcd_configuration import folder_of
from ..components.state import EtcdMemberState, EtcdState, RestoreState
from ..components.table import ETCD, KARMADA_AGENT, pod_components
from ..components.types import MEMBER_NAMESPACE
from ..document.backups import KIND as BACKUP_KIND
from ..etcd import access
from ..etcd import members as etcd_members
from ..etcd.client import EndpointStatus, EtcdClient, EtcdError
from ..etcd.health import common_revision
from ..kube.apply import Change
from ..kube.errors import ApiError
from ..kube.objects import Ref
from ..kube.progress import Progress
from ..kube.wait import wait_until
from ..labels import MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from ..members import join
from ..problems import Problem, ProblemsError, Reason
from ..render import workloads
from ..run.run import Run
from . import check, closed, delivery, drift
from .check import Asked, Chosen
from .plan import EVERYTHING, SERVERS, WRITERS, Goal, Seen, Step, is_quarantined, may_begin_anew, next_step, recorded

#: Steps that are the stages of the role control_plane.
STAGES = (Step.START_SERVERS, Step.START_ALL)
_STOPS = {
    Step.STOP_WRITERS: WRITERS,
    Step.STOP_SERVERS: SERVERS,
    Step.STOP_ETCD: frozenset({ETCD.name}),
    Step.STOP_ALL: EVERYTHING,
}
#: Lines of those that a person waits for.
_TOLD = {
    Step.BACK_UP: "backing up what is there",
    Step.STOP_WRITERS: "stopping what writes to members",
    Step.STOP_SERVERS: "stopping the API servers and what needs them",
    Step.STOP_ETCD: "stopping the members of etcd",
    Step.START_ETCD: "starting the members of etcd together, with the data of the backup",
    Step.START_SERVERS: "starting the API servers; what writes to members stays away",
    Step.PROVE_CLOSED: "asking each API server whether it refuses agents",
    Step.COMPARE: "comparing what members have with what they would get",
    Step.OPEN: "releasing it: members follow from here on",
    Step.WAKE_AGENTS: "having agents begin anew",
    Step.BACK_UP_AGAIN: "backing up what was released",
    Step.STOP_ALL: "stopping everything",
    Step.START_FORMER: "starting the members of etcd with the data from before",
}
_LOOK_SECONDS = 0.5
#: What a step that fails says of those before it.
_GOES_ON = "what was done before stays, and the next run goes on from there"


@dataclass
class Restoring:
    """A restore on its way to what the user has asked for."""

    run: Run
    goal: Goal
    asked: Asked
    timeout: float
    changes: list[Change] = field(default_factory=list)
    report: drift.Report | None = None

    # -- what is next ------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Judge the backup, ask for its confirmation, and open the record; returns False if one is under way.

        Raises ProblemsError if it cannot be restored, or is not confirmed; nothing was changed then.
        """
        run, stored = self.run, self.run.stored_state
        take.refuse(run)
        if stored and stored.restore and not may_begin_anew(stored.restore, stored.etcd.generation):
            check.require_same(run, self.asked, stored.restore)
            return False
        chosen = check.choose(run, self.asked)
        self.asked = self.asked.completed(run, chosen.wanted)
        if stored and stored.restore and check.is_done(stored.restore, chosen):
            run.say(f"{chosen.record.name} was restored and released; to restore it again, write another EtcdRestore")
            return False
        before = take.generation(run.state), run.state.restore
        live = check.look(run)
        check.refuse(run, chosen, live, self.asked)
        told = check.loss(run, chosen, live)
        check.require_confirmed(chosen, told, self.asked.confirm)
        run.say(f"restoring {chosen.record.name}. What is lost: {'; '.join(told)}")
        if run.check:
            return True
        with run.writing("begin a restore"):
            if (take.generation(run.state), run.state.restore) != before:
                what, remedy = "another run has changed etcd, or restores it, since this one looked", "run it again"
                problem = Problem(what, run.place.where, remedy, reason=Reason.LOCKED)
                raise ProblemsError(problem, "nothing was stopped")
            run.save(replace(run.state, restore=self._record(chosen, live)))
        run.go_on_with(run.state)
        return True

    def look_again(self) -> None:
        """Ask and compare once more, where a restore waits in quarantine since an earlier run. Reads only."""
        by_this_run = self.run.state.journal.run == self.run.holder
        if self.goal is Goal.QUARANTINE and is_quarantined(self._restore) and not by_this_run:
            self._prove_closed()
            self._compare()

    def next(self) -> Step | None:
        """Next step; None if the goal is reached. Raises ProblemsError if it cannot be reached from here."""
        stored = self.run.stored_state
        if stored is None or stored.restore is None:
            what, remedy = "no restore is under way", "begin one with karmada.installer.restore"
            raise ProblemsError(Problem(what, self.run.place.where, remedy, reason=Reason.INVALID_ARGUMENT))
        if self.goal is not Goal.QUARANTINE or not stored.restore.is_over:
            check.require_named(stored.restore, self.asked.name, self.run.place.where)
        found = next_step(self._seen(), self.goal)
        if isinstance(found, Problem):
            raise ProblemsError(replace(found, where=self.run.place.where))
        return found

    def take(self, step: Step) -> None:
        """Take a step, and put it on record unless the caller does the rest of it. Raises ProblemsError, NotReady."""
        done = recorded(self._seen(), step)
        if step in _TOLD:
            self.run.say(_TOLD[step])
        if step in _STOPS:
            self._stop(_STOPS[step], step)
        else:
            self._acts()[step]()
        if step not in STAGES:
            self.note(step, done)

    def note(self, step: Step, done: str = "") -> None:
        """Put on record that a step has come to its end."""
        last = step in (Step.COMPARE, Step.RELEASED, Step.UNDONE)
        with self.run.writing(f"restore: {step}"):
            journal = self.run.state.journal
            if last:
                # Until a person decides, nothing of it is unfinished.
                journal = replace(journal, finished=datetime.now(UTC).isoformat(), step="")
            restore = replace(self._restore, step=done or step)
            self.run.save(replace(self.run.state, journal=journal, restore=restore))
        self.run.go_on_with(self.run.state)

    def _acts(self) -> dict[Step, Callable[[], None]]:
        return {
            Step.BACK_UP: self._back_up,
            Step.PREPARE: self._prepare,
            Step.CLOSE: lambda: self._save(closed=True),
            Step.SWITCH: self._switch,
            Step.SWITCH_BACK: self._switch_back,
            Step.START_ETCD: self._start_etcd,
            Step.START_FORMER: self._start_etcd,
            Step.PROVE: self._prove,
            Step.START_SERVERS: self._start_servers,
            Step.PROVE_CLOSED: self._prove_closed,
            Step.COMPARE: self._compare,
            Step.OPEN: self._open,
            Step.OPEN_AGAIN: lambda: self._save(held=(), closed=False),
            Step.START_ALL: self._write_authorities,
            Step.WAKE_AGENTS: self._wake_agents,
            Step.BACK_UP_AGAIN: self._back_up_again,
            Step.TURN_BACK: self._turn_back,
            Step.RELEASED: lambda: self._put_aside(self._restore.former),
            Step.UNDONE: lambda: self._put_aside(EtcdState("", self._restore.generation)),
        }

    # -- what is there -----------------------------------------------------------------------------------------------

    @property
    def _restore(self) -> RestoreState:
        if self.run.state.restore is None:
            raise AssertionError("there is no restore on record")
        return self.run.state.restore

    def _seen(self) -> Seen:
        return Seen(self._restore, self.run.state.etcd.generation, frozenset(map(_component, self._pods(EVERYTHING))))

    def _pods(self, components: frozenset[str]) -> list[Object]:
        """Pods of these components that have not come to their end, those that are stopping included."""
        return [
            each
            for each in self.run.place.pods()
            if _component(each) in components and (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def _record(self, chosen: Chosen, live: check.Live) -> RestoreState:
        run, record = self.run, chosen.record
        former, earlier = run.state.etcd, run.state.restore
        replaced = {record.cluster_id, *(each.cluster_id for each in live.statuses)}
        aside = earlier.aside if earlier else ()
        # Of one that is given up half way back, what it holds is held, and its data may have been made.
        given_up = earlier if earlier and not earlier.is_over else None
        if given_up:
            aside = tuple(sorted({*aside, folder_of(given_up.generation)}))
        used = [former.generation, *(int(each.split("-")[1]) for each in aside)]
        return RestoreState(
            name=chosen.wanted.name,
            series=chosen.series.name,
            backup=record.name,
            started=run.now.isoformat(timespec="seconds"),
            token=secrets.token_hex(16),
            generation=max(used) + 1,
            bump=check.bump(run.now - record.start),
            former=former,
            members=check.members(run.state),
            held=given_up.held if given_up else (),
            closed=given_up.closed if given_up else False,
            replaced=tuple(sorted(replaced)),
            counts=dict(record.counts),
            aside=aside,
        )

    def _save(self, **fields: Any) -> None:
        with self.run.writing("note how far the restore is"):
            self.run.save(replace(self.run.state, restore=replace(self._restore, **fields)))
        self.run.go_on_with(self.run.state)

    def _chosen(self) -> Chosen:
        """The backup of the restore under way, also if a newer one has come meanwhile."""
        restore = self._restore
        return check.choose(self.run, replace(self.asked, name=restore.name), restore.backup)

    # -- before anything stops ---------------------------------------------------------------------------------------

    def _back_up(self) -> None:
        """Back up what is there; where etcd cannot be asked, its data stays beside the new, and that is all."""
        chosen = self._chosen()
        try:
            taken = take.backup(self.run, chosen.series, chosen.target, Purpose.REQUESTED)
        except ProblemsError as error:
            if any(each.reason is not Reason.ETCD_UNHEALTHY for each in error.problems):
                raise
            what = (
                "what is there could not be backed up, because no member of etcd answers; its data stays in the volumes"
            )
            self.run.tell(Problem.warning(what, Reason.CHECK_SKIPPED, self.run.place.where))
            return
        self._save(before=taken.record.name)

    def _prepare(self) -> None:
        chosen = self._chosen()
        keys = self.asked.completed(self.run, chosen.wanted).keys
        if not keys:
            raise ProblemsError(check.no_key("the backup is encrypted"))
        delivery.prepare(self.run, chosen, keys, self.timeout)
        self.run.go_on_with(self.run.state)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def _stop(self, components: frozenset[str], step: Step) -> None:
        """Hold these, and wait until none of their pods is left."""
        run = self.run
        # Those of a run that was killed when it had prepared all.
        delivery.forget(run)
        self._save(held=tuple(sorted({*self._restore.held, *components})))
        wanted = [each.name for each in pod_components(run.spec, pushed=()) if each.name in components]
        self._apply(f"restore: {step}", wanted)
        began, progress = time.monotonic(), Progress(run.say, time.monotonic(), self.timeout)
        while left := [each["metadata"]["name"] for each in self._pods(components)]:
            if time.monotonic() - began > self.timeout:
                what = f"still there: {', '.join(left)} (after {self.timeout:.0f} s)"
                remedy = "see why they do not stop; if their node is lost, delete them by force; then run it again"
                raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.NOT_READY_IN_TIME), _GOES_ON)
            progress.tell(f"{len(left)} pods are stopping", time.monotonic())
            time.sleep(_LOOK_SECONDS)

    def _apply(self, step: str, components: list[str]) -> None:
        made = self.run.apply_to_host_cluster(step, lambda: self.run.workloads(components))
        self.changes += [each for each in made if each.action != "unchanged"]

    # -- the data ----------------------------------------------------------------------------------------------------

    def _switch(self) -> None:
        restore = self._restore
        new = EtcdState(
            restore.token,
            restore.generation,
            bootstrapped=True,
            storage=restore.former.storage,
            nodes=restore.former.nodes,
            members=tuple(EtcdMemberState(name) for name in restore.members),
        )
        self._switch_to(new, Step.SWITCH)

    def _switch_back(self) -> None:
        self._switch_to(self._restore.former, Step.SWITCH_BACK)

    def _switch_to(self, etcd: EtcdState, step: Step) -> None:
        with self.run.writing("have the members of etcd start with other data"):
            restore = replace(self._restore, step=step)
            self.run.save(replace(self.run.state, etcd=etcd, restore=restore))
        self.run.go_on_with(self.run.state)
        # Their configuration is there before their pods are.
        self._apply("configure the members of etcd", [ETCD.name])

    def _start_etcd(self) -> None:
        run = self.run
        self._save(held=tuple(each for each in self._restore.held if each != ETCD.name))
        self._apply("start the members of etcd together", [ETCD.name])
        wait_until(run.host_cluster, [run.workload(ETCD.name)], timeout=self.timeout, progress=run.say)
        etcd_members.note(run)
        run.go_on_with(run.state)
        # One that has its vote names nobody but itself, should its data ever be gone. No pod is replaced for that.
        self._apply("configure the members of etcd", [ETCD.name])

    def _prove(self) -> None:
        """Members are one new cluster with the content of the backup. Raises ProblemsError if anything differs."""
        restore = self._restore
        began = time.monotonic()
        while wrong := self._wrong_with_etcd(access.connect(self.run)):
            if time.monotonic() - began > self.timeout:
                remedy = "see the logs of its members; karmada.installer.restore_undo takes it back"
                ill = [Problem(each, "etcd", remedy, reason=Reason.ETCD_UNHEALTHY) for each in wrong]
                raise ProblemsError(ill, _GOES_ON)
            time.sleep(_LOOK_SECONDS)
        self.run.say(f"etcd: {len(restore.members)} members have the content of {restore.backup}")

    def _wrong_with_etcd(self, client: EtcdClient) -> list[str]:
        restore, statuses = self._restore, client.status()
        ill = [f"{each.url}: {each.message}" for each in statuses if not each.healthy]
        if ill or (ill := self._wrong_cluster(statuses)):
            return ill
        if len(statuses) != len(restore.members) or any(each.revision < restore.bump for each in statuses):
            return [f"{len(statuses)} of {len(restore.members)} members have the data of the backup"]
        try:
            return self._wrong_content(client, statuses)
        except EtcdError as error:
            return [str(error)]

    def _wrong_cluster(self, statuses: Iterable[EndpointStatus]) -> list[str]:
        ids = {each.cluster_id for each in statuses}
        if len(ids) == 1 and not ids & set(self._restore.replaced):
            return []
        return [f"its members are of the cluster {', '.join(sorted(ids))}, which is not a new one"]

    def _wrong_content(self, client: EtcdClient, statuses: list[EndpointStatus]) -> list[str]:
        revision = common_revision(statuses)
        hashes = [client.at(each.url).hash_at(revision) for each in statuses]
        if len({each.compacted for each in hashes}) != 1:
            # Each discards old revisions when it comes to it, and a hash covers what is left.
            return [f"its members have not discarded the same revisions yet, before revision {revision}"]
        if len({each.value for each in hashes}) != 1:
            return [f"the content of its members differs at revision {revision}"]
        counts = {kind: client.count_below(prefix) for kind, prefix in COUNTED.items()}
        return [
            f"it has {counts[kind]} {kind}, and the backup has {number}"
            for kind, number in self._restore.counts.items()
            if kind in counts and counts[kind] != number
        ]

    def _start_servers(self) -> None:
        self._save(held=tuple(sorted(WRITERS)))
        self._write_authorities()

    def _write_authorities(self) -> None:
        """Write whose certificates API servers accept, before those start that read it: agents' too, or not."""
        run = self.run
        components = pod_components(run.spec, pushed=())
        made = run.apply_to_host_cluster(
            "restore: client authorities",
            lambda: workloads.file_set_secrets(run.instance, run.layout, run.material, components),
        )
        self.changes += [each for each in made if each.action != "unchanged"]

    # -- quarantine, and its end ---------------------------------------------------------------------------------------

    def _prove_closed(self) -> None:
        """Every API server refuses agents. Raises ProblemsError if one does not, or cannot be asked in time."""
        run, began = self.run, time.monotonic()
        remedy = "take it back with karmada.installer.restore_undo, and report it: agents could work by the backup"
        while True:
            try:
                accepting = closed.accepting_agents(run)
                break
            except ApiError as error:
                if time.monotonic() - began > self.timeout:
                    what = f"it could not be asked whether it refuses agents: {error}"
                    remedy = "mend that, and run it again"
                    problem = Problem(what, run.place.where, remedy, reason=Reason.NOT_READY_IN_TIME)
                    raise ProblemsError(problem, _GOES_ON) from None
                time.sleep(_LOOK_SECONDS)
        if accepting:
            what = f"certificates of agents are accepted by {', '.join(accepting)}"
            raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.QUARANTINE_OPEN), _GOES_ON)

    def _compare(self) -> None:
        run = self.run
        self.report = drift.look(run)
        for each in self.report.problems():
            run.tell(each)
        told = drift.in_words(self.report) or ["  no member is registered"]
        run.say("\n".join(["in quarantine; what the release would find on members:", *told]))

    def _open(self) -> None:
        """Hold nothing any more, which cannot be taken back. Raises ProblemsError if etcd is not what was compared."""
        statuses = access.connect(self.run).status()
        well = [each for each in statuses if each.healthy]
        wrong = self._wrong_cluster(well) if well else []
        if len(well) * 2 <= len(self._restore.members):
            wrong = [f"{each.url}: {each.message}" for each in statuses if not each.healthy]
        if wrong:
            remedy = "mend etcd and release it then, or take it back with karmada.installer.restore_undo"
            ill = [Problem(each, "etcd", remedy, reason=Reason.ETCD_UNHEALTHY) for each in wrong]
            raise ProblemsError(ill, "nothing was released")
        self._save(held=(), closed=False)

    def _back_up_again(self) -> None:
        """Back up what was released: backups from before are of another etcd. Members follow without it, too."""
        run, name = self.run, self._restore.series
        try:
            series = {each.name: each for each in backup_series.wanted(run, self.asked.backups)}
            if name not in series:
                what = f"there is no {BACKUP_KIND} {name} any more"
                raise ProblemsError(Problem(what, run.place.where, "", reason=Reason.DOCUMENT_NOT_FOUND))
            taken = take.backup(run, series[name], backup_series.opened(run, series[name]), Purpose.REQUESTED)
        except ProblemsError as error:
            remedy = f"back it up: karmada.installer.backup -e backup_now={name}"
            what = f"there is no backup of it since it was restored: {error.problems[0].what}"
            run.tell(replace(Problem.warning(what, Reason.CHECK_SKIPPED, run.place.where), remedy=remedy))
            return
        run.say(f"{taken.record.name} is the first backup since the restore")

    def _wake_agents(self) -> None:
        """Have the agents of ours begin anew: they were locked out, and wait longer after each attempt."""
        run = self.run
        for entry in run.spec.members:
            if entry.name not in run.state.members or not entry.pulls or entry.agent_hosts:
                continue
            try:
                with join.connected(run, entry) as member:
                    self._delete_agents(member, entry.name)
            except (ApiError, ProblemsError) as error:
                what = f"its agent could not be restarted, and may take minutes to log in again: {error}"
                run.tell(Problem.warning(what, Reason.MEMBER_UNREACHABLE, f"member {entry.name}"))

    def _delete_agents(self, member: Any, name: str) -> None:
        # Another control plane may have an agent there, too.
        labels = {NAME_LABEL: KARMADA_AGENT.name, OWNER_LABEL: self.run.state.owner, MEMBER_LABEL: name}
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        for pod in member.list("v1", "Pod", MEMBER_NAMESPACE, labels=selector):
            name = pod["metadata"]["name"]
            self.run.require_lock()
            if member.delete("v1", "Pod", name, MEMBER_NAMESPACE, uid=pod["metadata"]["uid"]):
                self.changes.append(Change(Ref("v1", "Pod", name, MEMBER_NAMESPACE), "deleted", None))

    def _turn_back(self) -> None:
        self._save(undoing=True)
        delivery.forget(self.run)

    def _put_aside(self, etcd: EtcdState) -> None:
        """Note the folders of data that nobody uses any more."""
        delivery.forget(self.run)
        folders = {folder_of(etcd.generation, each) for each in etcd.members} or {folder_of(etcd.generation)}
        aside = tuple(sorted({*self._restore.aside, *folders}))
        self._save(aside=aside)
        self.run.say(f"data that nobody uses stays in the volumes of etcd: {', '.join(aside)}")


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(NAME_LABEL, ""))
