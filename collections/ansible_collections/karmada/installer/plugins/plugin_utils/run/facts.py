# SPDX-License-Identifier: Apache-2.0
"""What a step of a run was given, and what that leads to: its document, Secrets and ConfigMaps, overlays, sources.

Nothing here depends on the state of the instance, and nothing writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..api_object import Object
from ..artifacts.source import Source
from ..components.types import external_etcd
from ..document import overlay
from ..document.references import Connection, References
from ..kube.cluster import Cluster
from ..problems import Problem, ProblemsError, Reason


class Facts(ABC):
    """The document of one instance and what belongs to it, each thing looked at when it is first asked for.

    ``operation`` names what the playbook is doing, for the journal. ``holder`` is the identity under which this
    playbook holds the lock, the same in each of its actions. ``say`` shows a line to the person who waits.
    ``selected`` are the names of the members to work on; empty means all.
    """

    #: Images, by reference, whose tags may lead elsewhere than when they were first used.
    confirmed_images: Collection[str] = frozenset()

    def __init__(
        self,
        deployment: Object,
        connection: Connection,
        *,
        operation: str,
        holder: str,
        check: bool,
        say: Callable[[str], None],
        selected: Collection[str] = (),
    ) -> None:
        self.deployment = deployment
        self.spec: Mapping[str, Any] = deployment["spec"]
        self.connection = connection
        self.operation = operation
        self.holder = holder
        self.check = check
        self.say = say
        #: what was told of that keeps nothing from going on; the result of the step has it
        self.told: list[Problem] = []
        #: gets what only who looks for a defect wants to see, such as tracebacks
        self.trace: Callable[[str], None] = lambda _text: None
        self.selected = selected
        self.now = datetime.now(UTC)
        #: why the endpoint could not be used for ``control_plane``; empty if it could, or if there is none
        self.endpoint_trouble = ""
        self._closing = ExitStack()

    @property
    def name(self) -> str:
        """The instance's name."""
        name: str = self.deployment["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        """The instance's namespace in the host cluster."""
        namespace: str = self.spec["hostCluster"]["namespace"]
        return namespace

    # -- clusters --------------------------------------------------------------------------------------------------

    def kept(self, cluster: Cluster) -> Cluster:
        """The cluster, attended to and closed at the end of the step."""
        self.attend(cluster)
        self._closing.callback(cluster.close)
        return cluster

    def attend(self, cluster: Cluster) -> None:
        """Tell the person about trouble with this cluster, and let nothing be written there that the lock forbids."""
        cluster.on_trouble = self.say
        cluster.before_write = self.require_lock

    def tell(self, problem: Problem) -> None:
        """Tell the person of a warning or hint, and keep it for the result of the step. Once is enough."""
        if problem not in self.told:
            self.told.append(problem)
            self.say(f"{problem.severity.value}: {problem}")

    @abstractmethod
    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run holds was lost; called before each write to a cluster."""

    def until_closed(self, resource: AbstractContextManager[Any]) -> None:
        """Enter this now, and leave it at the end of the step."""
        self._closing.enter_context(resource)

    def close(self) -> None:
        """Close every connection this run opened, the newest first, and what else was to end with it."""
        self._closing.close()

    # -- what the document refers to -------------------------------------------------------------------------------

    def secret(self, name: str, where: str) -> dict[str, bytes]:
        """A Secret that the document refers to: key → content. Raises ProblemsError when it is not there."""
        return self._references.secret(name, where)

    @cached_property
    def config_maps(self) -> dict[str, dict[str, str]]:
        """The ConfigMaps that the document refers to: name → key → text. One that is not there is left out."""
        return self._references.config_maps()

    @cached_property
    def _references(self) -> References:
        return References(self.deployment, self.connection, lambda: self._home)

    @cached_property
    def _home(self) -> Cluster:
        """The cluster that the document is an object of, or that the inventory source names."""
        return self.kept(
            Cluster.from_kubeconfig(self.connection.kubeconfig, self.connection.context, name="home cluster")
        )

    @cached_property
    def overlays(self) -> list[overlay.Overlay]:
        """What the document lays over our objects of the host cluster. Raises ProblemsError if it cannot be read."""
        found, problems = overlay.read(self.spec, self.config_maps)
        if problems:
            raise ProblemsError(problems)
        return found

    @cached_property
    def external_etcd_files(self) -> dict[str, bytes]:
        """ca.crt, tls.crt and tls.key of the etcd that the document names; empty where etcd is ours."""
        external = external_etcd(self.spec)
        if external is None:
            return {}
        where = "spec.components.etcd.external.secretRef"
        files, keys = self.secret(external["secretRef"]["name"], where), ("ca.crt", "tls.crt", "tls.key")
        missing = [key for key in keys if not files.get(key)]
        if missing:
            what = f"the Secret {external['secretRef']['name']} has no {', '.join(missing)}"
            raise ProblemsError(Problem(what, where, f"put {', '.join(keys)} there", reason=Reason.INVALID_SECRET))
        return {key: files[key] for key in keys}

    @property
    def artifact_source(self) -> Source:
        """Where files come from that are not part of the collection."""
        settings, directory = self.spec["artifacts"], self.connection.artifacts
        return Source(settings["source"], settings.get("url"), Path(directory) if directory else None)
