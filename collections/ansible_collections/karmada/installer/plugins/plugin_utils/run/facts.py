# SPDX-License-Identifier: Apache-2.0
"""Inputs of one step: its document, and the Secrets, ConfigMaps, overlays and sources that this refers to.

Nothing here depends on the state of the instance, and nothing writes.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ..api_object import Object
from ..artifacts.source import Source
from ..components.spec import Spec
from ..document import overlay
from ..document.references import Connection, References
from ..kube.cluster import Cluster
from ..kube.shared_clients import SharedClients
from ..problems import Problem, ProblemsError, Reason

T = TypeVar("T")


class Facts(ABC):
    """Document of one instance and its references, each read when it is first asked for.

    ``operation`` names the operation of the playbook, for the journal. ``holder`` is the identity under which this run
    holds the lock, shared by all of its actions. ``say`` shows a line to the user. ``selected`` are the names of the
    members to work on; empty means all.
    """

    #: References of images whose tags may lead to another digest than the recorded one.
    confirmed_images: Collection[str] = frozenset()
    #: UID of an object that certainly manages the instance no more; empty if none was named.
    confirmed_manager: str = ""
    #: Holder of the lock, or id of its run, that is certainly dead; empty if none was named.
    confirmed_dead: str = ""
    #: Whether the inventory has several control planes, so that the name alone says too little.
    one_of_several: bool = False
    #: Seconds for which another run that holds the lock of a control plane in pods is waited for, at most.
    lock_wait: float = 120.0
    #: Clients of clusters that are shared with others, who look at further control planes; None where there are none.
    clients: SharedClients | None = None

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
        self.spec = Spec(deployment["spec"])
        self.connection = connection
        self.operation = operation
        self.holder = holder
        self.check = check
        self.say = say
        #: warnings and hints shown so far; they are in the result of the step
        self.told: list[Problem] = []
        #: receives details for debugging, such as tracebacks
        self.trace: Callable[[str], None] = lambda _text: None
        self.selected = selected
        self.now = datetime.now(UTC)
        #: reason why the endpoint could not be used for ``control_plane``; empty if it could, or if there is none
        self.endpoint_trouble = ""
        self._closing = ExitStack()
        self._shared: dict[Hashable, Any] = {}

    @property
    def name(self) -> str:
        """Name of the instance."""
        name: str = self.deployment["metadata"]["name"]
        return name

    @property
    def confirmation(self) -> str:
        """Text by which a user confirms what cannot be undone; of several, two may have the same name."""
        return self.full_name(self.name) if self.one_of_several else self.name

    def is_confirmed(self, text: str) -> bool:
        """Return whether a user has named this control plane; with its namespace is always right."""
        return text in (self.confirmation, self.full_name(self.name))

    @property
    def namespace(self) -> str:
        """Namespace of the instance in the host cluster."""
        return self.spec.host_cluster.namespace

    def new_id(self, purpose: str) -> str:
        """UUID for a new instance. A check run has one for each purpose, so that all of its steps show the same."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.holder}/{purpose}") if self.check else uuid.uuid4())

    # -- clusters --------------------------------------------------------------------------------------------------

    def kept(self, cluster: Cluster) -> Cluster:
        """Attend the cluster and close it at the end of the step; returns it."""
        self.attend(cluster)
        self._closing.callback(cluster.close)
        return cluster

    def opened(self, kind: type[Cluster], context: str | None, name: str) -> Cluster:
        """Client of the cluster to which the kubeconfig of the inventory source leads, attended.

        It is closed at the end of the step, unless others share it. Raises ProblemsError if that cannot be used.
        """
        if self.clients is None:
            return self.kept(kind.from_kubeconfig(self.connection.kubeconfig, context, name=name))
        found = self.clients.of(self.connection.kubeconfig, context, name)
        self.attend(found)
        return found

    def attend(self, cluster: Cluster) -> None:
        """Show retries of this cluster to the user, and check the lock before each write to it."""
        cluster.on_trouble = self.say
        cluster.before_write = self.require_lock

    def tell(self, problem: Problem) -> None:
        """Show a warning or hint to the user once, and keep it for the result of the step."""
        if problem not in self.told:
            self.told.append(problem)
            self.say(f"{problem.severity.value}: {problem}")

    @abstractmethod
    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run held is lost; called before each write to a cluster."""

    def until_closed(self, resource: AbstractContextManager[Any]) -> None:
        """Enter a context manager now, and exit it at the end of the step."""
        self._closing.enter_context(resource)

    def shared(self, key: Hashable, made: Callable[[], AbstractContextManager[T]]) -> T:
        """Value of a context manager: entered when this key is first asked for, and exited at the end of the step."""
        if key not in self._shared:
            self._shared[key] = self._closing.enter_context(made())
        found: T = self._shared[key]
        return found

    def close(self) -> None:
        """Close the connections and contexts of this step, the newest first."""
        self._shared.clear()
        self._closing.close()

    # -- references of the document --------------------------------------------------------------------------------

    def secret(self, name: str, where: str) -> dict[str, bytes]:
        """Secret that the document refers to: key → content. Raises ProblemsError when it does not exist."""
        return self._references.secret(name, where)

    def full_name(self, secret: str) -> str:
        """Namespace and name of an object beside the document, such as a Secret that it refers to."""
        return f"{self.deployment['metadata']['namespace']}/{secret}"

    @cached_property
    def config_maps(self) -> dict[str, dict[str, str]]:
        """ConfigMaps that the document refers to: name → key → text. Those that do not exist are left out."""
        return self._references.config_maps()

    @cached_property
    def _references(self) -> References:
        return References(self.deployment, self.connection, lambda: self.home)

    @cached_property
    def home(self) -> Cluster:
        """Cluster that holds the document as an object, or that the inventory source names."""
        return self.opened(Cluster, self.connection.context, "home cluster")

    @cached_property
    def overlays(self) -> list[overlay.Overlay]:
        """Overlays of the document on objects of the host cluster. Raises ProblemsError if one cannot be read."""
        found, problems = overlay.read(self.spec, self.config_maps)
        if problems:
            raise ProblemsError(problems)
        return found

    @cached_property
    def external_etcd_files(self) -> dict[str, bytes]:
        """ca.crt, tls.crt and tls.key of an external etcd; empty if etcd is ours."""
        external = self.spec.external_etcd
        if external is None:
            return {}
        where = "spec.components.etcd.external.secretRef"
        files, keys = self.secret(external.secret, where), ("ca.crt", "tls.crt", "tls.key")
        missing = [key for key in keys if not files.get(key)]
        if missing:
            what = f"the Secret {external.secret} has no {', '.join(missing)}"
            raise ProblemsError(Problem(what, where, f"put {', '.join(keys)} there", reason=Reason.INVALID_SECRET))
        return {key: files[key] for key in keys}

    @cached_property
    def former_report(self) -> dict[str, Any]:
        """Report of an earlier run beside the document; empty if there is none or it cannot be read."""
        path = self.connection.report_output
        try:
            found = json.loads(Path(path).read_text()) if path else None
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def artifact_source(self) -> Source:
        """Source of files that are not part of the collection."""
        settings, directory = self.spec.artifacts, self.connection.artifacts
        return Source(settings.source, settings.url, Path(directory) if directory else None)
