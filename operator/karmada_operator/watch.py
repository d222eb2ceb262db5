# SPDX-License-Identifier: Apache-2.0
"""Objects of a kind, kept current by list and watch. Of each object only what decides is kept.

Every object of a list or an event becomes a ``Seen`` at once, so a thousand documents take no memory. Nothing is
concluded from an event: whoever listens is told which key is worth a look.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object, condition, is_true
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Expired, Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.host_cluster import INSECURE
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.watch import Watch
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report.hold import HELD

from . import inputs
from .kinds import Key
from .orders import BESIDE_THE_OBJECT, HostCluster, Seen, several_of
from .wishes import KEEP_LABELS, KNOWN, Wishes

#: Seconds that one watch lasts. Also the longest for which a dead connection is not noticed.
WATCH_SECONDS = 50
#: Seconds between lists and watches that end at once: neither the server nor we shall be busy with them.
SHORTEST, LONGEST = 0.5, 30.0
#: Seconds between two looks at what we have no right to watch: somebody may grant it.
NOT_ALLOWED = 600.0
_LOG = logging.getLogger(__name__)


def seen_of(obj: Object, finalizer: str) -> Seen:
    """Parts of an object that decide, as an API server gives it."""
    meta, status = obj["metadata"], obj.get("status") or {}
    labels = meta.get("labels") or {}
    generation = int(meta.get("generation") or 0)
    needs, access = inputs.access(obj.get("spec"))
    # Ready or not: of one whose member is lost, an operator that starts knows no more than of the others.
    carried_out = is_true(obj, "Ready") or bool(status.get("installed"))
    return Seen(
        uid=str(meta["uid"]),
        generation=generation,
        wishes=Wishes.asked_of(meta, KNOWN),
        # Without a finalizer there is nothing to claim, and nothing to remove.
        claimed=finalizer in (meta.get("finalizers") or ()) if finalizer else not meta.get("deletionTimestamp"),
        deleting=bool(meta.get("deletionTimestamp")),
        keep=any(labels.get(name) == "true" for name in KEEP_LABELS),
        elsewhere=_elsewhere(obj),
        references=inputs.references(obj.get("spec")),
        members=frozenset(str(each.get("name")) for each in (obj.get("spec") or {}).get("members") or ()),
        needs=needs,
        access=access,
        on_hosts=(obj.get("spec") or {}).get("mode") == "Binary",
        host=_host_cluster(obj),
        settled=carried_out and status.get("observedGeneration") == generation,
        failing=is_true(obj, "Degraded"),
        installed=bool(status.get("installed")),
        quarantined=status.get("phase") == "Quarantined",
        held=str(condition(obj, HELD).get("reason") or ""),
        kubeconfig=str((status.get("secretRef") or {}).get("name") or ""),
        several=several_of(status),
        version=str(meta.get("resourceVersion", "")),
    )


def _elsewhere(obj: Object) -> str:
    """Another namespace of this cluster that an object asks for; empty in its own, or with a kubeconfig."""
    host = (obj.get("spec") or {}).get("hostCluster") or {}
    wanted = str(host.get("namespace") or "")
    return "" if host.get("secretRef") or wanted == obj["metadata"].get("namespace") else wanted


def _host_cluster(obj: Object) -> HostCluster:
    """Cluster with the workloads of a control plane, and their namespace if that is not the object's."""
    spec = obj.get("spec") or {}
    host = spec.get("hostCluster") or {}
    if spec.get("mode") == "Binary":
        return BESIDE_THE_OBJECT
    secret, wanted = str((host.get("secretRef") or {}).get("name") or ""), str(host.get("namespace") or "")
    return HostCluster(
        secret=secret,
        context=str(host.get("context") or "") if secret else "",
        namespace="" if wanted == obj["metadata"].get("namespace") else wanted,
        insecure=bool(secret and host.get(INSECURE)),
    )


class Kept(Protocol):
    """Parts of an object that are kept; equal if nothing that decides has changed."""

    @property
    def uid(self) -> str:
        """UID of the object."""

    @property
    def version(self) -> str:
        """Resource version, which is not compared."""


Of = TypeVar("Of", bound=Kept)


class Watcher(threading.Thread, Generic[Of]):
    """Thread that knows what is there of one kind, in one namespace or in all.

    ``keep`` makes of an object what is kept of it. ``changed`` is called from the thread, after the change, with each
    key of which that has changed; ``listed`` after each list, when that was told. ``pause`` is there for tests.

    ``metadata_only``: ``keep`` gets nothing else of an object, and no more of it is ever sent. ``optional``: who has no
    right to list them does as if there were none, and without the right to watch them lists now and then.
    """

    def __init__(  # noqa: PLR0913 - what is watched, and who is told
        self,
        cluster: Cluster,
        api_version: str,
        kind: str,
        keep: Callable[[Object], Of],
        changed: Callable[[Key], None],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        listed: Callable[[], None] | None = None,
        metadata_only: bool = False,
        optional: bool = False,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(name=f"watch {kind} {namespace or ''}".rstrip(), daemon=True)
        self._cluster, self._type, self._keep, self._changed = cluster, (api_version, kind), keep, changed
        self._scope, self._listed = (namespace, labels), listed or (lambda: None)
        self._metadata_only, self._optional = metadata_only, optional
        self._seen: dict[Key, Of] = {}
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._pause = pause or (lambda seconds: self._over.wait(seconds) and None)
        self._watch: Watch | None = None
        #: Set once a list was complete: before that, an unknown key is not one that is gone.
        self.synced = threading.Event()

    # -- for others ------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> Of | None:
        """Knowledge of an object; None if it is not there."""
        with self._guard:
            return self._seen.get(key)

    def known(self) -> list[Key]:
        """All keys that are there."""
        with self._guard:
            return list(self._seen)

    def stop(self) -> None:
        """End the thread; safe from any other one."""
        self._over.set()
        if self._watch is not None:
            self._watch.close()

    # -- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """List and watch until stopped; trouble makes it wait longer each time, and a success makes that good."""
        version, troubles = "", 0
        while not self._over.is_set():
            began = time.monotonic()
            try:
                version = self._follow(version or self._list())
                troubles = 0
            except Expired:
                # The changes since are not known any more: look at everything.
                version = ""
            except ApiError as error:
                if self._optional and isinstance(error, Forbidden):
                    version, troubles = "", 0
                    self._go_without(error)
                    continue
                troubles += 1
                _LOG.warning("%s: %s", self.name, error)
            except (KeyError, TypeError, ValueError, AttributeError, ProblemsError):
                # An object or an access that is none.
                troubles, version = troubles + 1, ""
                _LOG.exception("%s", self.name)
            short = time.monotonic() - began < SHORTEST
            if troubles or short:
                self._pause(min(LONGEST, SHORTEST * 2.0 ** min(troubles, 10)) * random.uniform(0.5, 1))  # noqa: S311

    def _go_without(self, error: Forbidden) -> None:
        """Wait for a right that is missing. What has been listed by then is still believed to be there."""
        _LOG.warning("%s: what is deleted there is not noticed at once: %s", self.name, error)
        if not self.synced.is_set():
            self.synced.set()
            self._listed()
        self._pause(NOT_ALLOWED * random.uniform(0.8, 1))  # noqa: S311 - as below

    def _list(self) -> str:
        namespace, labels = self._scope
        items = self._cluster.list(
            *self._type,
            namespace,
            labels,
            metadata_only=self._metadata_only,
            kept=lambda obj: {"key": self._key(obj), "kept": self._kept(obj)},
        )
        found: dict[Key, Of] = {each["key"]: each["kept"] for each in items if each["kept"] is not None}
        with self._guard:
            before = self._seen
            self._seen = found
        self.synced.set()
        for key in {*found, *before}:
            if found.get(key) != before.get(key):
                self._changed(key)
        self._listed()
        return items.resource_version

    def _kept(self, obj: Object) -> Of | None:
        """Parts of a listed object that decide. One that cannot be judged hides no other: it stays as it was known.

        In an event it is an error all the same, after which all is listed anew: the answer itself may be damaged.
        """
        try:
            return self._keep(obj)
        except (KeyError, TypeError, ValueError, AttributeError, ProblemsError):
            key = self._key(obj)
            _LOG.exception("%s: %s is left as it was known", self.name, key)
            return self.get(key)

    def _key(self, obj: Mapping[str, object]) -> Key:
        meta: Object = obj["metadata"]  # type: ignore[assignment]  # an API object
        return Key(self._type[1], str(meta.get("namespace", "")), str(meta["name"]))

    def _follow(self, version: str) -> str:
        """Watch until it ends; returns the version to go on from."""
        namespace, labels = self._scope
        self._watch = self._cluster.watch(
            *self._type, namespace, labels, version, WATCH_SECONDS, metadata_only=self._metadata_only
        )
        if self._over.is_set():
            self._watch.close()
        for event in self._watch:
            obj = event["object"]
            version = str(obj["metadata"].get("resourceVersion") or version)
            if event["type"] == "DELETED":
                self._forget(self._key(obj), obj)
            elif event["type"] != "BOOKMARK":
                self._remember(self._key(obj), self._keep(obj))
        return version

    def _remember(self, key: Key, seen: Of) -> None:
        with self._guard:
            before = self._seen.get(key)
            if before is not None and before.uid == seen.uid and _older(seen.version, before.version):
                return
            self._seen[key] = seen
        if seen != before:
            self._changed(key)

    def _forget(self, key: Key, obj: Object) -> None:
        with self._guard:
            before = self._seen.get(key)
            # A late event of an object whose successor is there already.
            if before is None or before.uid != obj["metadata"].get("uid"):
                return
            del self._seen[key]
        self._changed(key)


def _older(version: str, than: str) -> bool:
    """Return whether a resource version is older; only numbers can be compared."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)
