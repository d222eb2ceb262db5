# SPDX-License-Identifier: Apache-2.0
"""What one action has at hand: the document, the clusters, the instance's state and the lock.

A run reads as much as it likes. It writes only inside ``writing``, which takes the lock first and reads the state
again, so that a run with nothing to change sends nothing at all, and two runs never write side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from ..api_object import Object
from ..components import endpoint, image_pins
from ..components.state import COLLECTION_VERSION, State, to_files
from ..components.table import KARMADA_APISERVER, clashing_names
from ..document import overlay
from ..kube import lease as lease_module
from ..kube.apply import Change, apply_all, delete_all, survey
from ..kube.cluster import Cluster
from ..kube.errors import Conflict
from ..kube.lease import Lock, LockLost
from ..kube.objects import Ref, claimed_by, owned_by
from ..labels import INSTANCE_LABEL
from ..problems import Problem, ProblemsError
from ..render import workloads
from .facts import NOT_STORED, InstanceFacts, version_of

#: How long a run waits for another one to end before it gives up.
LOCK_WAIT_SECONDS = 120
#: How often a write of the state may be refused although nobody has written it, 15 s in all.
REFUSALS = 12
HOST = "host"


class Run(InstanceFacts):
    """One action's view of one instance, and its hand on it."""

    _lock_kept = False
    #: Told that the lock is about to be taken, or has been let go of.
    on_lock: Callable[[bool], None] = staticmethod(lambda _held: None)

    def _require_lock(self) -> None:
        if self._lock_kept:
            self._lock.check()

    @contextmanager
    def writing(self, step: str) -> Iterator[None]:
        """Hold the lock, with the state read after it was taken. ``step`` goes into the journal before anything is
        done.

        Everything that was derived from an older state is forgotten on the way in; ask again inside.
        """
        if self.check:
            raise AssertionError("a check run must not write")
        created = self._ensure_namespace()
        self._hold_lock()
        draft = self.__dict__.get("state")
        self._forget()
        if self.stored_state is None and draft is not None:
            self.__dict__["state"] = draft
        if self.stored_state is None:
            self._make_way_for_clashing_instance()
        self.save(self._journaled(step), namespace_uid=created)
        yield
        self._lock.check()

    def _make_way_for_clashing_instance(self) -> None:
        """Preflight refuses names that are taken; two first installs at the same moment take none from each other yet.

        Each has put its name into its Lease before it looks for the other's, so at least one of them sees it. Raises
        ProblemsError, with the lock released.
        """
        for other in clashing_names(self.name):
            lease = self.host.get(lease_module.API_VERSION, lease_module.KIND, f"{other}-installer", self.namespace)
            if lease is None:
                continue
            held = (lease.get("spec") or {}).get("holderIdentity")
            if held or self.host.get("v1", "Secret", f"{other}-installer-state", self.namespace):
                self._lock.release()
                raise ProblemsError(
                    Problem(
                        what=f"control plane {other} is being installed here, and some objects of both would have "
                        "the same names",
                        where=f"namespace {self.namespace} of the host cluster",
                        remedy=f"choose another metadata.name or namespace, or run again when {other} is uninstalled",
                    ),
                    "nothing was installed",
                )

    def resume_lock(self) -> None:
        """Keep renewing the lock through this action if an earlier step of the same run took it."""
        if not self.check and self._lock.is_ours():
            self._hold_lock()

    def _hold_lock(self) -> None:
        if self._lock_kept:
            self._lock.check()
            return
        self.on_lock(True)
        self._lock.acquire(LOCK_WAIT_SECONDS, self.say)
        # Not released at the end of a step: the run as a whole excludes others.
        self._closing.enter_context(self._lock.held(release=False))
        self._lock_kept = True

    def release_lock(self) -> None:
        """Let go of the lock if this run holds it."""
        self._lock.release()
        self.on_lock(False)

    def retire_lock(self) -> None:
        """The lock is among what is deleted next: do not miss it."""
        if self._lock_kept:
            self._lock.retire()

    @cached_property
    def _lock(self) -> Lock:
        return Lock(self.host, self.namespace, f"{self.name}-installer", self.holder)

    def _ensure_namespace(self) -> str | None:
        """The UID of the namespace if this call made it, or a run that was killed before it could record that."""
        found = self.host.get("v1", "Namespace", self.namespace)
        if found:
            return str(found["metadata"]["uid"]) if owned_by(found, self.state.owner, ()) else None
        applied = self.host.apply(workloads.namespace(self.instance))
        return str(applied.object["metadata"]["uid"])

    def _journaled(self, step: str) -> State:
        journal = self.state.journal
        if journal.operation != self.operation or journal.run != self.holder or journal.finished:
            journal = replace(
                journal, operation=self.operation, run=self.holder, started=self.now.isoformat(), finished=""
            )
        kind = self.spec["endpoint"]["type"]
        passages = {*self.state.passages, *({kind} & endpoint.PASSAGES.keys())}
        return replace(
            self.state,
            journal=replace(journal, step=step),
            endpoint_host=self.endpoint_host,
            service_subnet=self.service_subnet,
            endpoint_type=kind,
            passages=tuple(sorted(passages)),
        )

    def finish(self) -> bool:
        """Mark the operation as brought to its end and keep the document. False: there was nothing to do.

        What images in pods turned out to be is recorded with it, for each name once, and anew where that was asked for.
        """
        stored = self.stored_state
        if stored is None:
            return False
        due = stored.journal.interrupted or stored.document != self.deployment
        seen = image_pins.agreed(image_pins.running(self.pods())) if due or self.confirmed_images else {}
        anew = {image: digest for image, digest in seen.items() if image in self.confirmed_images}
        if not due and not anew.items() - stored.digests.items():
            return False
        with self.writing("finish"):
            journal = replace(self.state.journal, finished=datetime.now(UTC).isoformat(), step="")
            digests = {**seen, **self.state.digests, **anew}
            self.save(replace(self.state, journal=journal, document=self.deployment, digests=digests))
        return True

    def pods(self) -> list[Object]:
        """The pods of the instance in the host cluster."""
        return list(self.host.list("v1", "Pod", self.namespace, labels=f"{INSTANCE_LABEL}={self.name}"))

    def hold_to(self, digests: Mapping[str, str]) -> None:
        """Record what tags of images (by reference) led to, for every run that comes."""
        if digests.items() - self.state.digests.items():
            with self.writing("record images"):
                self.save(replace(self.state, digests={**self.state.digests, **digests}))

    def save(self, state: State, namespace_uid: str | None = None) -> None:
        """Store the state. Only inside ``writing``.

        The lock says who may write, and a machine that stood still for a while may not know yet that it was lost; so
        only what was read under the lock is replaced. Raises LockLost if something else is there by now.
        """
        if namespace_uid:
            state = state.with_owned(HOST, {f"Namespace {self.namespace}": namespace_uid})
        state = replace(state, collection=COLLECTION_VERSION)
        secret = workloads.secret(self.instance, "installer", "installer-state", to_files(state))
        self.stored_as = version_of(self._written(secret))
        self.__dict__["stored_state"] = self.__dict__["state"] = state

    def _written(self, secret: Object) -> Object:
        """The state as it is there when it was written. Raises LockLost if something else is there by now."""
        wanted = {**secret, "metadata": {**secret["metadata"], **self.stored_as}}
        for tried in range(REFUSALS):
            try:
                return self.host.apply(wanted).object
            except Conflict:
                if live := self._written_unheard(secret):
                    return live
            # Something on the way refused it, and what was read is there yet: the same write is as right as before.
            time.sleep(min(2.0, 0.05 * 2**tried))
        return self.host.apply(wanted).object

    def _written_unheard(self, secret: Object) -> Object | None:
        """The state as it is there, if that is what we meant to write: an attempt that we heard nothing of got through.

        Nobody else writes the same, since the journal in it names this run. None if nobody has written anything; raises
        LockLost otherwise.
        """
        live = self.host.get("v1", "Secret", secret["metadata"]["name"], self.namespace)
        uid = self.stored_as.get("uid")
        if live and live.get("data") == secret["data"] and uid in (None, live["metadata"]["uid"]):
            return live
        if (version_of(live) if live else NOT_STORED) == self.stored_as:
            return None
        stem = f"{self.namespace}/{self.name}-installer"
        raise LockLost(
            f"lost the lock {stem} in {self.host.name}: since this run read the state, somebody else has written "
            f"Secret {stem}-state. It was left as it is; run again when no other run is at work there"
        )

    def _forget(self) -> None:
        for name in ("stored_state", "state", "instance", "seen_families"):
            self.__dict__.pop(name, None)
        self.forget_endpoint()

    def apply_to_host(self, step: str, render_objects: Callable[[], list[Object]]) -> list[Change]:
        """Bring objects of the host cluster to what ``render_objects`` says, and record those that we created.

        Nothing is sent when nothing differs and everything is recorded. The objects are rendered again under the lock,
        from the state as it is then. Overlays of the document are laid over them.
        """

        def desired() -> list[Object]:
            return overlay.laid_over(render_objects(), self.overlays)

        if self.check:
            return apply_all(self.host, desired(), check=True)
        if self.stored_state:
            planned = survey(self.host, desired())
            if _nothing_to_do(planned) and not self.unrecorded(planned):
                return planned
        with self.writing(step):
            changes = apply_all(self.host, desired())
            self.save(self.state.with_owned(HOST, self.unrecorded(changes)))
        return changes

    def apply_to_control_plane(self, step: str, render_objects: Callable[[], list[Object]]) -> list[Change]:
        """Bring objects inside the control plane to what ``render_objects`` says. They go with it: no record."""
        if self.check:
            return apply_all(self.control_plane, render_objects(), check=True)
        planned = survey(self.control_plane, render_objects())
        if _nothing_to_do(planned):
            return planned
        with self.writing(step):
            return apply_all(self.control_plane, render_objects())

    def agent_problems(self, entry: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with the hosts that are to run this member's agent; none where it runs in pods."""
        del entry
        return []

    def remove_from_control_plane(self, step: str, refs: Iterable[Ref]) -> list[Change]:
        """Delete these objects inside the control plane where they exist and are ours."""
        return self._remove(step, self.control_plane, self.ours_in_control_plane(refs))

    def ours_in_control_plane(self, refs: Iterable[Ref]) -> list[tuple[Ref, str | None]]:
        """Those of these objects inside the control plane that exist and are ours, with their UIDs."""
        found = ((ref, self.control_plane.get(ref.api_version, ref.kind, ref.name, ref.namespace)) for ref in refs)
        return [
            (ref, live["metadata"]["uid"]) for ref, live in found if live and claimed_by(live)[1] == self.state.owner
        ]

    def remove_from_host(self, step: str, objects: Iterable[Object]) -> list[Change]:
        """Delete these objects of the host cluster, as far as they are ours by label and by record."""
        return self._remove(step, self.host, self.ours_in_host_cluster(objects))

    def ours_in_host_cluster(self, objects: Iterable[Object]) -> list[tuple[Ref, str | None]]:
        """Those of these objects of the host cluster that are ours by label and by record, with their UIDs."""
        return [
            (Ref.of(each), each["metadata"]["uid"])
            for each in objects
            if owned_by(each, self.state.owner, self.state.uids(HOST))
        ]

    def remove_former_passages(self) -> list[Change]:
        """Delete the Ingress or Route of a type that the endpoint had before."""
        former = [kind for kind in self.state.passages if kind != self.spec["endpoint"]["type"]]
        if not former:
            return []
        name, kinds = self.instance.object_name(KARMADA_APISERVER.name), [endpoint.PASSAGES[each] for each in former]
        found = [self.host.get(each.api_version, each.kind, name, self.namespace) for each in kinds]
        step = "take away the former endpoint"
        changes = self.remove_from_host(step, [each for each in found if each])
        if not self.check:
            with self.writing(step):
                kept = tuple(kind for kind in self.state.passages if kind not in former)
                self.save(replace(self.state, passages=kept))
        return changes

    def _remove(self, step: str, cluster: Cluster, targets: list[tuple[Ref, str | None]]) -> list[Change]:
        if not targets:
            return []
        if self.check:
            return delete_all(cluster, targets, check=True)
        with self.writing(step):
            changes = delete_all(cluster, targets, progress=self.say)
            if self.is_host(cluster):
                self.save(self.state.without_owned(HOST, {str(ref) for ref, _uid in targets}))
        return changes

    def unrecorded(self, changes: Iterable[Change]) -> dict[str, str]:
        """Objects of the host cluster that exist and are not on record as ours: reference → UID."""
        known = self.state.owned.get(HOST, {})
        found = {str(change.ref): change.uid for change in changes if change.uid}
        return {ref: uid for ref, uid in found.items() if known.get(ref) != uid}


def _nothing_to_do(planned: Iterable[Change]) -> bool:
    return all(change.action == "unchanged" for change in planned)
