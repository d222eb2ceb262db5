# SPDX-License-Identifier: Apache-2.0
"""Everything one action works with: its inputs, the place of the instance, its state, and the lock.

A run may read at any time. It writes only inside ``writing``, which takes the lock first and reads the state again. So
a run that has nothing to change sends no write, and two runs never write side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from ..api_object import Object
from ..artifacts import crd_files
from ..components import endpoint, image_pins
from ..components.hosts import Host
from ..components.instance import Instance
from ..components.spec import HostEntry
from ..components.state import State
from ..components.table import BY_NAME, KARMADA_APISERVER, pod_components
from ..components.types import Component, Layout
from ..document import manifest, overlay, recorded
from ..document.references import Connection
from ..kube.apply import Change, Target, apply_all, delete_all, survey, target
from ..kube.causes import Servers
from ..kube.cluster import Cluster
from ..kube.objects import Ref, claimed_by, owned_by
from ..pki import certificates
from ..pki.files import Material
from ..problems import ProblemsError
from ..render import workloads as render
from . import manager, restoring
from .facts import Facts
from .handover import Handover
from .in_pods import InPods
from .place import Place
from .snapshot import Live, Snapshot

if TYPE_CHECKING:
    from .delegated_host import DelegatedHost
    from .host_observation import HostObservation
    from .host_view import HostView

#: Name under which the state records our objects of the host cluster.
HOST_CLUSTER = "host"


class Run(Facts):
    """One action's access to one instance.

    ``place`` tells where the instance runs and what depends on that, ``store`` keeps its state.
    """

    #: Plain host that the task of this step is delegated to; None where it is not.
    delegated: DelegatedHost | None = None

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
        place: Callable[[Facts], Place] = InPods,
    ) -> None:
        super().__init__(
            deployment, connection, operation=operation, holder=holder, check=check, say=say, selected=selected
        )
        self.place = place(self)
        self.store = self.place.store()
        self._state: State | None = None
        self._snapshot: Snapshot | None = None
        self.live = Live(self, self.place)

    # -- clusters and hosts ----------------------------------------------------------------------------------------

    @property
    def host_cluster(self) -> Cluster:
        """Host cluster, or ``NoCluster``, in which nothing is found."""
        return self.place.host_cluster

    @cached_property
    def control_plane(self) -> Cluster:
        """API server of the instance. Raises ProblemsError if it cannot be reached from here."""
        return self.kept(self.place.connect(self.snapshot))

    @property
    def control_plane_exists(self) -> bool:
        """True if the API server of the instance has been deployed; in check mode it may not have been."""
        return self.place.control_plane_exists(self.snapshot)

    @property
    def hosts(self) -> Mapping[str, Host]:
        """Plain hosts of the document, by name."""
        return self.place.hosts

    @property
    def observed(self) -> Mapping[str, HostObservation]:
        """Observations of these hosts by earlier steps, by name."""
        return self.place.observed

    @property
    def handover(self) -> Handover:
        """Handover from earlier steps and to later ones."""
        return self.place.handover

    def on_host(self, name: str) -> HostView:
        """Desired state of one host."""
        from .host_view import HostView  # noqa: PLC0415 - of no use where all runs in pods

        return HostView(self, self.hosts[name], self.observed[name].files)

    @property
    def leaving(self) -> dict[str, HostEntry]:
        """Hosts that have left the document and may still have files of ours: name → former entry of the document.

        A host that was only renamed is not among them: its files belong to the new name.
        """
        there = {(host.address, host.port) for host in self.spec.hosts}
        known = self.stored_state.hosts if self.stored_state else {}
        recorded = {name: HostEntry(record) for name, record in known.items() if name not in self.hosts}
        return {name: entry for name, entry in recorded.items() if (entry.address, entry.port) not in there}

    # -- state and what follows from it ----------------------------------------------------------------------------

    @property
    def stored_state(self) -> State | None:
        """State as it is stored; None before the first install and after an uninstall."""
        return self.store.state

    @property
    def state(self) -> State:
        """Stored state, or the one that a first install would begin with."""
        if self._state is None:
            self._state = self.stored_state or self.place.first_state()
        return self._state

    @property
    def has_more_to_do(self) -> bool:
        """True if the document differs from the one that was carried out last, or a run did not come to its end."""
        stored = self.stored_state
        return stored is None or stored.journal.interrupted or manifest.differs(self.deployment, stored.document)

    @property
    def snapshot(self) -> Snapshot:
        """Snapshot of the instance, by the state as of the last look."""
        if self._snapshot is None:
            self._snapshot = Snapshot(
                self, self.place, self.live, read_state=lambda: self.state, read_stored=lambda: self.stored_state
            )
        return self._snapshot

    def look_again(self, stored: State | None = None) -> None:
        """Discard what was seen of the place and derived from the state; continue with ``stored``, if given."""
        self._state, self._snapshot, self.live = stored or self._state, None, Live(self, self.place)

    def go_on_with(self, state: State) -> None:
        """Continue with this state and render the instance by it, without storing it."""
        self._state, self._snapshot = state, None

    @property
    def instance(self) -> Instance:
        """Instance, the input of renderers."""
        return self.snapshot.instance

    @property
    def layout(self) -> Layout:
        """Addresses and URLs by which processes of the instance find each other in the host cluster."""
        return self.snapshot.layout

    @property
    def material(self) -> Material:
        """Keys and certificates of the instance that this step deals with."""
        return self.snapshot.material

    @property
    def endpoint_host(self) -> str:
        """Name or address of the API server for clients outside the host cluster; empty if there is none."""
        return self.snapshot.endpoint_host

    @property
    def kubeconfig_secret(self) -> str:
        """Name of the Secret with the administrator's kubeconfig, in the host cluster or beside the object.

        Empty for a document from a file whose control plane is on plain hosts.
        """
        is_there = self.place.in_pods or self.connection.object_uid is not None
        return self.instance.object_name("admin-config") if is_there else ""

    @property
    def public_url(self) -> str:
        """URL of the API server for clients outside; the one within the host cluster if there is no such address."""
        return self.snapshot.public_url

    def crds(self) -> list[Object]:
        """CRDs of the instance's Karmada release, verified; none if the document does not want them."""
        return self._crds if self.spec.installs_crd else []

    @cached_property
    def _crds(self) -> list[Object]:
        return crd_files.crds(self.instance.release.karmada, self.place.crd_source)

    def host_cluster_objects(self) -> list[Object]:
        """All objects that the instance may have in the host cluster except its state, before overlays."""
        admin = [render.secret(self.instance, "admin", name, {}) for name in ("admin-cert", "admin-config")]
        components = pod_components(self.spec, self.instance.pushed)
        material = self.material_with(components)
        secrets = render.file_set_secrets(self.instance, self.layout, material, components)
        workloads = self._rendered(components, material)
        return [*secrets, *admin, *workloads, *render.passage(self.instance, self.place.ingress_controller)]

    def material_with(self, components: Iterable[Component]) -> Material:
        """Material with certificates of these components, issued where there are none: members may have none yet."""
        leaves, there = [leaf for each in components for leaf in each.certificates], self.material.leaves
        missing = [leaf for leaf in leaves if leaf.name not in there]
        if not missing:
            return self.material
        issued = certificates.issue_missing(self.instance, self.state, self.layout, {}, self.now, leaf_table=missing)
        return replace(self.material, leaves={**there, **issued.material.leaves})

    def workloads(self, components: Iterable[str]) -> list[Object]:
        """Objects of these rows of the component table in the host cluster, before overlays."""
        return self._rendered((BY_NAME[name] for name in components), self.material)

    def _rendered(self, components: Iterable[Component], material: Material) -> list[Object]:
        return [
            each
            for component in components
            for each in render.component_objects(self.instance, component, self.layout, material, self.state.etcd)
        ]

    def workload(self, component: str) -> Ref:
        """Workload of a component, by its name in the table or with that of its member, in the host cluster."""
        row = BY_NAME.get(component)
        kind = "StatefulSet" if row and row.keeps_data else "Deployment"
        return Ref("apps/v1", kind, self.instance.object_name(component), self.namespace)

    def servers(self, component: str) -> Servers:
        """Workload of a component, for those who wait for what it serves; none where it consists of units."""
        return self.place.servers(self.workload(component))

    # -- writing ---------------------------------------------------------------------------------------------------

    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run held is lost; called before each write to a cluster."""
        self.store.require_lock()

    @contextmanager
    def writing(self, step: str) -> Iterator[None]:
        """Hold the lock, with the state read after it was taken, and ``step`` in the journal before anything changes.

        Values derived from an older state are derived again, so they must be read inside the context.
        """
        if self.check:
            raise AssertionError("a check run must not write")
        with self.store.writing(self, step):
            yield

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Hold the lock, with the state read after it was taken, to note in it what is no part of an operation."""
        if self.check:
            raise AssertionError("a check run must not write")
        with self.store.recording(self):
            yield

    def ensure_namespace(self) -> str | None:
        """UID of the namespace if this call created it, or a run that was killed before it could record that."""
        found = self.host_cluster.get("v1", "Namespace", self.namespace)
        if found:
            return str(found["metadata"]["uid"]) if owned_by(found, self.state.owner, ()) else None
        applied = self.host_cluster.apply(render.namespace(self.instance))
        return str(applied.object["metadata"]["uid"])

    def journaled(self, step: str) -> State:
        """State with this step in its journal, and with what this run has found out so far.

        Raises ProblemsError if another object manages the instance, or a restore holds it.
        """
        if problem := restoring.problem(self.state, self.operation, self.place.where):
            raise ProblemsError(problem)
        journal, host_cluster, managed_by = self.state.journal, self.state.host_cluster, self.state.manager
        if journal.operation != self.operation or journal.run != self.holder or journal.finished:
            journal = replace(
                journal, operation=self.operation, run=self.holder, started=self.now.isoformat(), finished=""
            )
            # Preflight has seen that it is the known one, or was told that this one is meant from now on.
            host_cluster = self.place.host_cluster_uid or host_cluster
            managed_by = manager.recorded(self, self.state)
        kind = self.spec.endpoint.type
        passages = {*self.state.passages, *({kind} & endpoint.PASSAGES.keys())}
        return replace(
            self.state,
            journal=replace(journal, step=step),
            endpoint_host=self.endpoint_host,
            service_subnet=self.snapshot.service_subnet,
            host_cluster=host_cluster,
            manager=managed_by,
            endpoint_type=kind,
            passages=tuple(sorted(passages)),
        )

    def begin(self, *, asked: bool = False) -> bool:
        """Record planned changes of hosts before they are made; returns whether there are any.

        ``asked``: the user has asked for some that nothing that was seen tells.
        """
        return self.place.begin(self, asked=asked)

    def etcd_bootstrapped(self) -> None:
        """Record that members of etcd must not bootstrap a cluster again."""
        with self.writing("end the bootstrap of etcd"):
            self.save(replace(self.state, etcd=replace(self.state.etcd, bootstrapped=True)))

    def hosts_left(self) -> None:
        """Forget the hosts that have left: they are clean, or were given up by name."""
        with self.writing("forget hosts that have left"):
            self.save(replace(self.state, hosts={host.name: host.plain for host in self.spec.hosts}))

    def finish(self) -> bool:
        """Mark the operation as finished and keep the document; returns False if there was nothing to do.

        Records the digests of images that run in pods, once for each reference, and again where that was asked for.
        """
        stored = self.stored_state
        if stored is None:
            return False
        due = self.has_more_to_do
        due = due or manager.is_new(self, stored)
        seen = image_pins.agreed(image_pins.running(self.place.pods())) if due or self.confirmed_images else {}
        anew = {image: digest for image, digest in seen.items() if image in self.confirmed_images}
        if not due and not anew.items() - stored.digests.items():
            return False
        with self.writing("finish"):
            state = self.state
            self.save(
                replace(
                    state,
                    journal=replace(state.journal, finished=datetime.now(UTC).isoformat(), step=""),
                    document=manifest.carried_out(self.deployment),
                    digests={**seen, **state.digests, **anew},
                    member_places=self.place.member_places_left(self),
                )
            )
        return True

    def hold_to(self, digests: Mapping[str, str]) -> None:
        """Record digests that tags of images led to (by reference), for all later runs."""
        if digests.items() - self.state.digests.items():
            with self.writing("record images"):
                self.save(replace(self.state, digests={**self.state.digests, **digests}))

    def save(self, state: State, namespace_uid: str | None = None) -> None:
        """Store the state; only inside ``writing``. Raises LockLost if it has changed since it was read.

        Raises ProblemsError if no later run could read it: the former one stays then.
        """
        if namespace_uid:
            state = state.with_owned(HOST_CLUSTER, {f"Namespace {self.namespace}": namespace_uid})
        recorded.require_readable(state, self.place.where)
        self.store.write(state, self.instance)
        self._state = self.store.state

    def apply_to_host_cluster(self, step: str, render_objects: Callable[[], list[Object]]) -> list[Change]:
        """Apply the objects that ``render_objects`` gives to the host cluster, and record those that we created.

        Nothing is sent if nothing differs and everything is recorded. Objects are rendered again under the lock, from
        the state at that time, with the overlays of the document. Does nothing where there is no host cluster.
        """
        if not self.place.in_pods:
            return []

        def desired() -> list[Object]:
            return overlay.laid_over(render_objects(), self.overlays)

        if self.check:
            return apply_all(self.host_cluster, desired(), check=True)
        if self.stored_state:
            planned = survey(self.host_cluster, desired())
            if _nothing_to_do(planned) and not self.unrecorded(planned):
                return planned
        with self.writing(step):
            changes = apply_all(self.host_cluster, desired())
            self.save(self.state.with_owned(HOST_CLUSTER, self.unrecorded(changes)))
        return changes

    def apply_to_control_plane(self, step: str, render_objects: Callable[[], list[Object]]) -> list[Change]:
        """Apply objects inside the control plane. They are deleted with it, so they are not recorded."""
        if self.check:
            return apply_all(self.control_plane, render_objects(), check=True)
        planned = survey(self.control_plane, render_objects())
        if _nothing_to_do(planned):
            return planned
        with self.writing(step):
            return apply_all(self.control_plane, render_objects())

    def remove_from_control_plane(self, step: str, refs: Iterable[Ref]) -> list[Change]:
        """Delete these objects inside the control plane, as far as they exist and are ours."""
        return self._remove(step, self.control_plane, self.ours_in_control_plane(refs))

    def ours_in_control_plane(self, refs: Iterable[Ref]) -> list[Target]:
        """Objects inside the control plane, of those given, that exist and are ours, with their UIDs."""
        found = (self.control_plane.get(*ref) for ref in refs)
        return [target(live) for live in found if live and claimed_by(live)[1] == self.state.owner]

    def remove_from_host_cluster(self, step: str, objects: Iterable[Object]) -> list[Change]:
        """Delete these objects of the host cluster, as far as they are ours by label and by record."""
        return self._remove(step, self.host_cluster, self.ours_in_host_cluster(objects))

    def ours_in_host_cluster(self, objects: Iterable[Object]) -> list[Target]:
        """Objects of the host cluster, of those given, that are ours by label and by record, with their UIDs."""
        uids = self.state.uids(HOST_CLUSTER)
        return [target(each) for each in objects if owned_by(each, self.state.owner, uids)]

    def remove_former_passages(self) -> list[Change]:
        """Delete the Ingress or Route of a former endpoint type."""
        former = [kind for kind in self.state.passages if kind != self.spec.endpoint.type]
        if not former:
            return []
        name, kinds = self.instance.object_name(KARMADA_APISERVER.name), [endpoint.PASSAGES[each] for each in former]
        found = [self.host_cluster.get(each.api_version, each.kind, name, self.namespace) for each in kinds]
        step = "take away the former endpoint"
        changes = self.remove_from_host_cluster(step, [each for each in found if each])
        if not self.check:
            with self.writing(step):
                kept = tuple(kind for kind in self.state.passages if kind not in former)
                self.save(replace(self.state, passages=kept))
        return changes

    def _remove(self, step: str, cluster: Cluster, targets: list[Target]) -> list[Change]:
        if not targets:
            return []
        if self.check:
            return delete_all(cluster, targets, check=True)
        with self.writing(step):
            changes = delete_all(cluster, targets, progress=self.say)
            if cluster is self.host_cluster:
                self.save(self.state.without_owned(HOST_CLUSTER, {str(ref) for ref, _uid in targets}))
        return changes

    def unrecorded(self, changes: Iterable[Change]) -> dict[str, str]:
        """Objects of the host cluster that exist and are not recorded as ours: reference → UID."""
        known = self.state.owned.get(HOST_CLUSTER, {})
        found = {str(change.ref): change.uid for change in changes if change.uid}
        return {ref: uid for ref, uid in found.items() if known.get(ref) != uid}


def _nothing_to_do(planned: Iterable[Change]) -> bool:
    return all(change.action == "unchanged" for change in planned)
