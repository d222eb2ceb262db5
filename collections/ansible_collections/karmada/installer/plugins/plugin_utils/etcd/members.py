# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods, brought to those of the document: look, do the next safe step (``plan``), look again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests

from ..api_object import Object
from ..components.etcd_configuration import folder_of
from ..components.etcd_state import EtcdMemberState, EtcdState, LeftFolder
from ..components.table import ETCD
from ..kube.apply import Change
from ..kube.errors import Conflict
from ..kube.objects import Ref
from ..kube.progress import Progress
from ..kube.readiness import reason_not_ready
from ..problems import Problem, ProblemsError, Reason
from ..render import cluster_layout, workloads
from ..run.run import Run
from . import clients, nodes, patience
from . import plan_types as steps
from .client import EtcdClient, EtcdError
from .members_seen import Look, are_ours, look
from .members_wanted import change, predicted
from .plan import ids_of, next_step

#: Has pods that do not work start with the settings of now; see ``rollout.renew_broken``.
Renew = Callable[[Run, float], list[Change]]


def _nothing_to_renew(_run: Run, _timeout: float) -> list[Change]:
    return []


def bring_about(
    run: Run,
    timeout: float,
    replace_names: Collection[str] = (),
    abandoned_nodes: Collection[str] = (),
    *,
    renew: Renew = _nothing_to_renew,
) -> list[Change]:
    """Bring the members to those of the document; returns the changes, made or, in check mode, predicted.

    ``timeout`` is in seconds, for each member; ``abandoned_nodes`` are given up, with the data there. ``renew`` is done
    once if there is no majority: with older settings, such as an image that nobody has, there may never be one. Raises
    ProblemsError if there is no safe step, or if one does not come to its end.
    """
    if not are_ours(run) or not run.state.etcd.bootstrapped:
        return []
    if run.check:
        return _predicted(run, {*replace_names, *nodes.members_without(run, abandoned_nodes)})
    nodes.give_up(run, abandoned_nodes)
    return _Change(run, timeout, {*replace_names, *nodes.members_without(run)}, renew).made()


def move_leader(run: Run, look: Look, step: steps.MoveLeader) -> None:
    """Have another member lead, as it was looked at. Raises EtcdError if the leader refuses."""
    with run.writing(f"have {step.to} lead etcd"):
        look.client.at(look.url(step.leader)).move_leader(step.id)
    run.say(f"etcd: {step.to} leads in place of {step.leader}")


def note(run: Run) -> None:
    """Put the IDs and volumes of the first members on record, once they are healthy. Raises LockLost."""
    if are_ours(run):
        _complete_records(run, look(run))


def _predicted(run: Run, replace_names: Collection[str]) -> list[Change]:
    records, wanted = run.state.etcd.members, cluster_layout.etcd_pod_names(run.instance)
    return [*_completed_records_change(run), *predicted(look(run).seen, records, wanted, replace_names)]


def _completed_records_change(run: Run) -> list[Change]:
    """Objects whose content depends on IDs of members, where these are not on record yet."""
    etcd = run.state.etcd
    completed = replace(etcd, members=tuple(replace(each, id=each.id or "0") for each in etcd.members))
    before, after = (
        workloads.component_objects(run.instance, ETCD, run.layout, run.material, each) for each in (etcd, completed)
    )
    return [Change(Ref.of(then), "changed") for now, then in zip(before, after, strict=True) if now != then]


@dataclass
class _Change:
    """One run's way from the members that there are to those of the document."""

    run: Run
    timeout: float
    replace_names: Collection[str]
    renew: Renew
    changes: list[Change] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    renewed: bool = False

    def made(self) -> list[Change]:
        """Do one step after the other until there is none."""
        wanted = cluster_layout.etcd_pod_names(self.run.instance)
        if _complete_records(self.run, look(self.run)):
            self.changes += self._apply_etcd("have the members of etcd start with their data only", "StatefulSet")
        replace_ids: frozenset[str] | None = None
        began, progress = time.monotonic(), self._progress()
        refused_since = began
        step: steps.Step | steps.Refusal | None = None
        while True:
            before, self.look = step, look(self.run)
            self._note_unnoticed_votes()
            replace_ids = ids_of(self.look.seen, self.replace_names) if replace_ids is None else replace_ids
            step = next_step(self.look.seen, wanted, replace_ids)
            if step is None:
                return self.changes
            if self.look.seen.members is None and not self.renewed:
                self.renewed = True
                self.changes += self.renew(self.run, self.timeout)
            if isinstance(step, steps.Refusal):
                # What was waited for before is no time to settle.
                refused_since = refused_since if isinstance(before, steps.Refusal) else time.monotonic()
                patience.require_patience(step, time.monotonic() - refused_since, again=step == before)
                reason = step.what
            else:
                reason = self._do(step)
                if step == before and isinstance(step, steps.ClientsFollow):
                    # They were told, and are not as they were told to be.
                    reason = "the API server does not get the members that stay as its etcd-servers"
            if not reason:
                began, progress = time.monotonic(), self._progress()
            elif time.monotonic() - began > self.timeout:
                raise ProblemsError(self._not_in_time(reason), consequence="run it again to go on from here")
            else:
                progress.tell(f"etcd: {reason}", time.monotonic())
                time.sleep(patience.LOOK_SECONDS)

    def _progress(self) -> Progress:
        return Progress(self.run.say, time.monotonic(), self.timeout)

    def _not_in_time(self, reason: str) -> Problem:
        pods = [self.look.pods[each.name] for each in self.run.state.etcd.members if each.name in self.look.pods]
        ill = [f"{each['metadata']['name']}: {why}" for each in pods if (why := reason_not_ready(each))]
        told = "; ".join([f"{reason} (after {self.timeout:.0f} s)", *ill])
        return Problem(told, "etcd", "see why, and run the playbook again", reason=Reason.NOT_READY_IN_TIME)

    def _do(self, step: steps.Step) -> str:
        """Do a step; returns what has to be waited for before it can be done, or has come to its end."""
        try:
            match step:
                case steps.Wait(reason):
                    return reason
                case steps.Start(name, identity):
                    return self._start(name, identity)
                case steps.ClientsFollow():
                    self.changes += clients.follow(self.run, self.timeout)
                case steps.Stop(name):
                    self._stop(name)
                case steps.Add(name):
                    self._add(name)
                case _:
                    self._ask_or_note(step)
        except EtcdError as error:
            # What came of a request without an answer tells the next look.
            if error.code and error.code not in etcd_requests.LATER:
                raise ProblemsError(
                    Problem(str(error), "etcd", "see its log", reason=Reason.ETCD_REFUSES),
                    consequence="etcd goes on with the members that it has",
                ) from None
            return str(error)
        return ""

    def _ask_or_note(self, step: steps.Step) -> None:
        """Steps that are one request to etcd, or one change of the record."""
        match step:
            case steps.Decide(name):
                self._decide(name)
            case steps.Adopt(name, identity):
                with self.run.writing(f"note the new member {name} of etcd"):
                    self._added(name, identity)
            case steps.Promote(name, identity):
                with self.run.writing(f"give the member {name} of etcd its vote"):
                    self.look.client.promote(identity)
                self._note_vote(name)
                self.changes.append(change(name, "created"))
                self.run.say(f"etcd: {name} has its vote")
            case steps.MoveLeader():
                move_leader(self.run, self.look, step)
            case steps.Leave(name, lost):
                record = self._record(name)
                # That of a learner is on record with its vote only; it is there if it answers.
                there = self.look.volumes.get(name, "") if record.id in self.look.status else ""
                with self.run.writing(f"decide to remove the member {name} of etcd"):
                    self._save_record(replace(record, leaving=True, lost=lost, volume=record.volume or there))
            case steps.Stay(name):
                with self.run.writing(f"keep the member {name} of etcd"):
                    self._save_record(self._record(name).staying)
            case steps.Remove(name, identity):
                with self.run.writing(f"remove the member {name} of etcd"):
                    self._removed(name, identity)
                self.changes.append(change(name, "deleted"))
                self.run.say(f"etcd: {name} is no member any more")

    # -- steps -----------------------------------------------------------------------------------------------------

    def _decide(self, name: str) -> None:
        run, node = self.run, self._node_for(name)
        with run.writing(f"decide to add a member {name} to etcd"):
            etcd = run.state.etcd
            if node:
                etcd = etcd.with_node(nodes.ordinal(name), node)
            _save(run, etcd.with_member(EtcdMemberState(name, coming=True)))

    def _node_for(self, name: str) -> str:
        """Node for a member that needs one and has none; else empty."""
        if not nodes.lost(self.run.state.etcd, name):
            return ""
        return nodes.for_member(self.run, name, cluster_layout.etcd_pod_names(self.run.instance), self.timeout)

    def _add(self, name: str) -> None:
        if nodes.lost(self.run.state.etcd, name):
            # The node that it was decided on for was given up since.
            self._decide(name)
        if name not in self.told:
            # etcd refuses the next change for some seconds after a vote, and is asked again.
            self.told.add(name)
            self.run.say(f"etcd: adding {name}")
        with self.run.writing(f"add a member {name} to etcd"):
            answer = self.look.client.add_learner(self.look.seen.peer_urls[name])
            self._added(name, answer.added, answer)

    def _added(self, name: str, identity: str, answer: etcd_requests.Members | None = None) -> None:
        """Put a member that was added on record, with what it starts with."""
        listed = (answer or _listed_now(self.look)).members
        # An added one has no name before it starts.
        known = {each.peer_urls[0]: each.name or name for each in listed if each.peer_urls}
        initial = ",".join(f"{member}={url}" for url, member in known.items())
        former = (self.look.pods.get(name) or {"metadata": {}})["metadata"].get("uid", "")
        self._save_record(EtcdMemberState(name, identity, added=True, initial_cluster=initial, former=former))

    def _start(self, name: str, identity: str) -> str:
        """Start the pod of a member that was added, in place of one that ran under its name before."""
        if identity not in self.started:
            # Its configuration is there before its pod: a kubelet looks for what it lacks a minute later.
            self.changes += self._apply_etcd(f"configure the member {name} of etcd", without="StatefulSet")
            self.changes += self._apply_etcd(f"start the member {name} of etcd")
            self.started.add(identity)
        pod, record = self.look.pods.get(name), self._record(name)
        if pod and record.former and pod["metadata"]["uid"] == record.former:
            with self.run.writing(f"start the member {name} of etcd anew"), suppress(Conflict):
                # In conflict: its controller has another one by now, which is what is wanted.
                self.run.host_cluster.delete("v1", "Pod", name, self.run.namespace, uid=record.former)
            return f"member {name} is started anew"
        why = reason_not_ready(pod) if pod else ""
        return f"member {name} has not started yet" + (f": {why}" if why else "")

    def _stop(self, name: str) -> None:
        with self.run.writing(f"stop what ran as the member {name} of etcd"):
            _save(self.run, self._without(name))
        self.changes += self._apply_etcd(f"stop what ran as the member {name} of etcd")

    def _apply_etcd(self, step: str, without: str = "") -> list[Change]:
        def objects() -> list[Object]:
            return [each for each in self.run.workloads([ETCD.name]) if each["kind"] != without]

        return _real(self.run.apply_to_host_cluster(step, objects))

    def _removed(self, name: str, identity: str) -> None:
        try:
            self._of_others(name).remove(identity)
        except EtcdError as error:
            # Removed by a request whose answer was lost, which was put to the next member then.
            if error.code != etcd_requests.NOT_FOUND:
                raise

    def _of_others(self, name: str) -> EtcdClient:
        """Client of a member other than this one that works."""
        for other, url in zip(self.look.names, self.look.client.urls, strict=True):
            status = next((each for each in self.look.status.values() if each.url == url), None)
            if other != name and status and status.works:
                return self.look.client.at(url)
        return self.look.client

    def _without(self, name: str) -> EtcdState:
        """State of etcd without a member, and with the folder on record that it may have left in its volume.

        One whose volume was lost has begun that folder in the new one: its pod came back there before this run did.
        """
        etcd, record = self.run.state.etcd, self._record(name)
        volume = self.look.volumes.get(name, "")
        # An emptyDir goes with its pod.
        if record.id and volume and etcd.storage != "emptyDir":
            etcd = etcd.with_left(LeftFolder(name, folder_of(etcd.generation, record), volume))
        return etcd.without_member(name)

    # -- the record ------------------------------------------------------------------------------------------------

    def _record(self, name: str) -> EtcdMemberState:
        return self.run.state.etcd.member(name) or EtcdMemberState(name)

    def _save_record(self, record: EtcdMemberState) -> None:
        _save(self.run, self.run.state.etcd.with_member(record))

    def _note_unnoticed_votes(self) -> None:
        """Put on record which members have their vote by a request whose answer was lost."""
        voters = {each.id for each in self.look.seen.members or () if not each.learner}
        voted = [each.name for each in self.run.state.etcd.members if each.initial_cluster and each.id in voters]
        for name in voted:
            self._note_vote(name)
            self.changes.append(change(name, "created"))

    def _note_vote(self, name: str) -> None:
        """Put on record that it has its vote, and where; from now on it starts with its data only."""
        with self.run.writing(f"note the vote of the member {name} of etcd"):
            volume = look(self.run).volumes.get(name, "")
            self._save_record(replace(self._record(name), volume=volume, former="", initial_cluster=""))
        self.changes += self._apply_etcd(f"have the member {name} of etcd start with its data only", "StatefulSet")


def _complete_records(run: Run, looked: Look) -> bool:
    """Put IDs, votes and volumes on record that are not there yet: of the first members, of runs that were killed.

    Returns whether there were any.
    """
    etcd, listed = run.state.etcd, looked.seen.members or ()
    ids = {each.name: each.id for each in looked.seen.known}
    healthy = {each.id for each in listed if each.works}
    voters = {each.id for each in listed if not each.learner}

    def completed(record: EtcdMemberState) -> EtcdMemberState:
        identity = record.id or (ids.get(record.name, "") if not record.coming else "")
        # A member that works with another volume than recorded has its data there.
        volume = looked.volumes.get(record.name, record.volume) if identity in healthy else record.volume
        initial = "" if identity in voters else record.initial_cluster
        former = "" if identity in healthy & voters else record.former
        return replace(record, id=identity, volume=volume, initial_cluster=initial, former=former)

    def noted(etcd: EtcdState) -> EtcdState:
        cluster = etcd.cluster_of(looked.seen.cluster, {each.id for each in listed})
        return replace(etcd, members=tuple(map(completed, etcd.members)), cluster=cluster)

    if noted(etcd) == replace(etcd, members=tuple(etcd.members)):
        return False
    with run.writing("note the members of etcd"):
        _save(run, noted(run.state.etcd))
    return True


def _save(run: Run, etcd: EtcdState) -> None:
    """Store it, and render by it from now on."""
    run.save(replace(run.state, etcd=etcd))
    run.go_on_with(run.state)


def _listed_now(seen: Look) -> etcd_requests.Members:
    return seen.client.members()


def _real(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.action != "unchanged"]
