# SPDX-License-Identifier: Apache-2.0
"""Volume claim of the host cluster as a target of backups: a pod that mounts it serves it to this run alone.

The pod is made when something is asked of the claim for the first time, and goes with the step. It listens on its
loopback and knows the SHA-256 of a token, which only this process has: who may look at pods, or forward ports, gets
nothing from it. One that a killed run has left ends by itself, as nobody is connected to it, and is deleted by the next
run. Each run has a pod of its own name, on the node that has mounted the claim already, where only one node may: so two
runs at once do not get in each other's way.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from typing import Any

from ..api_object import Object, is_true
from ..components.table import ETCD, KARMADA_APISERVER
from ..document.backups import VolumeClaim
from ..kube.errors import ApiError, Conflict, Forbidden, Invalid
from ..kube.lease import LockLost
from ..kube.objects import Ref
from ..kube.port_forward import CONNECT_SECONDS, ForwardedSocket, Forwarder
from ..kube.readiness import HOPELESS_WAITING, reason_not_ready
from ..kube.wait import NotReady, wait_until
from ..labels import OWNER_LABEL
from ..problems import Problem, ProblemsError, Reason
from ..redaction import shown
from ..render import backup_claim
from ..run.run import Run
from .record import RECORD
from .remote_folder import RemoteFolder
from .targets import FolderTarget, Target

#: Seconds within which a pod has to serve: an image may have to be pulled, and a volume to be made.
READY_SECONDS = 180.0
_LOG_LINES = 5
_ENDED = ("Succeeded", "Failed")


def opened(run: Run, claim: VolumeClaim, field: str) -> Target:
    """Target in a claim of the namespace of the control plane; ``field`` is the one that names it."""
    return ClaimTarget(run, claim, field)


class ClaimTarget(FolderTarget):
    """Folder in the volume of a claim."""

    def __init__(self, run: Run, claim: VolumeClaim, field: str) -> None:
        below = "/".join(filter(None, (claim.prefix, run.name)))
        self._pod = _Pod(run, claim, below, field)
        self._folder = RemoteFolder(self._pod.dial, self._pod.token, self._pod.broken, run.say)
        access = "have the volume let the user and the group of the securityContext of etcd's pods read and write it"
        room = "free space there, keep fewer backups, or enlarge the claim"
        super().__init__(run.name, f"{self._pod.where}: {below}", self._folder, access, room)

    def close(self) -> None:
        """Close the connection, and have the pod deleted."""
        self._folder.close()
        self._pod.close()


class _Pod:
    """Pod that serves a claim to this step: made when it is first needed, and again if it has ended meanwhile."""

    def __init__(self, run: Run, claim: VolumeClaim, below: str, field: str) -> None:
        # Opened before this is, so that it is closed after it.
        self._run, self._cluster = run, run.host_cluster
        self._wanted, self._field = claim, field
        self.token = secrets.token_urlsafe(32)
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        self._served = backup_claim.Served(claim.name, below, RECORD, digest)
        self._made: Object | None = None

    @property
    def where(self) -> str:
        """The claim."""
        return f"PersistentVolumeClaim {self._run.namespace}/{self._wanted.name}"

    def dial(self) -> ForwardedSocket:
        """Connection to a pod that serves. Raises ConnectionError, and ProblemsError if there can be none."""
        try:
            name = self._serving() or self._make()
            return Forwarder(self._cluster, self._run.namespace, name, backup_claim.PORT).open(CONNECT_SECONDS)
        except ApiError as error:
            remedy = "run it again when the host cluster answers"
            if isinstance(error, (Forbidden, Invalid)):
                remedy = (
                    "have the account of this run create pods there and forward their ports "
                    "(docs/reference/rights.md), and let policies and quotas admit the pod"
                )
            found = error.problems[0]
            what = f"it is reached by a pod that mounts it: {found.what}"
            raise ProblemsError(Problem(what, self.where, remedy, reason=found.reason)) from None

    def broken(self, why: str) -> ProblemsError:
        """Error of connections that do not hold."""
        name = self._made["metadata"]["name"] if self._made else "that mounts it"
        remedy = "see what ends the pod or the connections to it, and run it again"
        return self._unusable(f"the connection to pod {name} breaks each time: {why}", remedy)

    def close(self) -> None:
        """Have the pod deleted. That it stays is no reason to fail: it ends by itself."""
        if self._made is None:
            return
        metadata, self._made = self._made["metadata"], None
        try:
            self._cluster.delete("v1", "Pod", metadata["name"], self._run.namespace, uid=metadata["uid"])
        except (ApiError, LockLost) as error:
            self._run.say(f"pod {self._run.namespace}/{metadata['name']} is still there, and ends by itself: {error}")

    def _serving(self) -> str:
        """Name of the pod that this step has made, if it still serves."""
        if self._made is None:
            return ""
        name, live = self._made["metadata"]["name"], self._live(self._made)
        if live and is_true(live, "Ready") and not live["metadata"].get("deletionTimestamp"):
            return str(name)
        status = (live or {}).get("status") or {}
        if status.get("phase") == "Failed" and not status.get("reason"):
            # It was not evicted, so another one would fare no better: it may be that its Python is too old.
            raise self._useless(name, self._why(live))
        self._run.say(f"pod {name} does not serve {self.where} any more; another one is made")
        self.close()
        return ""

    def _make(self) -> str:
        run, cluster = self._run, self._cluster
        node = self._node(self._claim())
        self._sweep()
        name = f"{run.name}-{backup_claim.NAME}-{secrets.token_hex(3)}"
        wanted = backup_claim.pod(run.instance, name, self._wanted.image, self._served, node)
        if owner := self._owner():
            wanted["metadata"]["ownerReferences"] = [owner]
        self._made = self._created(wanted)
        ref = Ref("v1", "Pod", name, run.namespace)
        try:
            wait_until(cluster, [ref], timeout=READY_SECONDS, progress=run.say, not_ready=_not_ready)
            live = self._live(self._made)
            reason = "" if live and is_true(live, "Ready") else self._why(live)
        except NotReady as error:
            reason = error.reasons[ref]
        if reason:
            raise self._useless(name, reason)
        return name

    def _created(self, wanted: Object) -> Object:
        try:
            return self._cluster.create(wanted)
        except Conflict:
            # Its name is of chance: an earlier attempt of this request has made it, and its answer was lost.
            found: Object | None = self._cluster.get("v1", "Pod", wanted["metadata"]["name"], self._run.namespace)
            if found is None:
                raise
            return found

    def _useless(self, name: str, reason: str) -> ProblemsError:
        """Error of a pod that does not serve; it is deleted."""
        self.close()
        remedy = (
            f"see that the volume can be mounted and that nodes can pull {self._wanted.image}, which has to have "
            f"python3, 3.9 or newer; {self._field} names both"
        )
        return self._unusable(f"pod {name}, which mounts it, does not serve it: {reason}", remedy)

    def _claim(self) -> Object:
        """The claim. Raises ProblemsError if it cannot be used, before anything is done."""
        run, name = self._run, self._wanted.name
        found: Object | None = self._cluster.get("v1", "PersistentVolumeClaim", name, run.namespace)
        if found is None:
            remedy = f"create it in namespace {run.namespace} of the host cluster, or name another one in {self._field}"
            raise self._unusable("there is no such claim", f"{remedy}.claimName")
        metadata, spec = found["metadata"], found["spec"]
        another = f"name another one in {self._field}.claimName"
        if metadata.get("deletionTimestamp"):
            raise self._unusable("it is being deleted", another)
        if OWNER_LABEL in (metadata.get("labels") or {}):
            raise self._unusable("it is a volume of a control plane, with which backups would go", another)
        if (found.get("status") or {}).get("phase") == "Lost":
            raise self._unusable("its volume is lost", another)
        if spec.get("volumeMode") == "Block":
            raise self._unusable("it is a device without a file system (volumeMode Block)", another)
        if set(spec.get("accessModes") or ()) == {"ReadOnlyMany"}:
            raise self._unusable("it can only be read (accessModes ReadOnlyMany)", another)
        return found

    def _node(self, claim: Object) -> str:
        """Node on which a pod has mounted a claim that one node may mount; empty if any will do, or none has."""
        if "ReadWriteMany" in (claim["spec"].get("accessModes") or ()):
            return ""
        for each in self._cluster.list("v1", "Pod", self._run.namespace):
            spec, phase = each["spec"], (each.get("status") or {}).get("phase")
            if spec.get("nodeName") and phase not in _ENDED and self._wanted.name in _claims(spec):
                return str(spec["nodeName"])
        return ""

    def _sweep(self) -> None:
        """Delete pods of ours that have ended: those of killed runs."""
        run = self._run
        for each in self._cluster.list("v1", "Pod", run.namespace, labels=run.instance.pod_selector(backup_claim.NAME)):
            if (each.get("status") or {}).get("phase") in _ENDED:
                metadata = each["metadata"]
                # Another run may be about to do the same.
                with suppress(ApiError):
                    self._cluster.delete("v1", "Pod", metadata["name"], run.namespace, uid=metadata["uid"])

    def _owner(self) -> Object | None:
        """Object with which the pod goes, should nobody come to delete it; None where no control plane is yet."""
        run = self._run
        state = Ref("v1", "Secret", f"{run.name}-installer-state", run.namespace)
        for ref in (run.workload(ETCD.name), run.workload(KARMADA_APISERVER.name), state):
            if found := self._cluster.get(*ref):
                uid = found["metadata"]["uid"]
                return {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": uid}
        return None

    def _live(self, made: Object) -> Object | None:
        metadata = made["metadata"]
        live: Object | None = self._cluster.get("v1", "Pod", metadata["name"], self._run.namespace)
        return live if live and live["metadata"]["uid"] == metadata["uid"] else None

    def _why(self, live: Object | None) -> str:
        """Reason why a pod has ended, with the last lines of what it said."""
        if live is None:
            return "somebody has deleted it"
        told = [reason_not_ready(live) or "it has ended"]
        # Of one that was never started there are none.
        with suppress(ApiError):
            name = live["metadata"]["name"]
            lines = self._cluster.logs(name, self._run.namespace, backup_claim.CONTAINER, _LOG_LINES)
            told.append(lines.strip())
        return shown("; ".join(filter(None, told)))

    def _unusable(self, what: str, remedy: str) -> ProblemsError:
        return ProblemsError(Problem(what, self.where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))


def _not_ready(pod: Object, related: Any) -> str | None:
    """Reason to go on waiting: not for one that has ended, or that never begins."""
    status = pod.get("status") or {}
    waiting = [(each.get("state") or {}).get("waiting") or {} for each in status.get("containerStatuses") or ()]
    over = status.get("phase") in _ENDED or any(each.get("reason") in HOPELESS_WAITING for each in waiting)
    return None if over else reason_not_ready(pod, related)


def _claims(spec: Object) -> set[str]:
    """Claims that a pod with this spec mounts."""
    found = [each.get("persistentVolumeClaim") or {} for each in spec.get("volumes") or ()]
    return {str(each["claimName"]) for each in found if "claimName" in each}
