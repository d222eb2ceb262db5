# SPDX-License-Identifier: Apache-2.0
"""Control plane whose components are systemd units of plain hosts.

Hosts are reached by Ansible's connections only. So the first step of a run reads the installer's state from them, the
``Handover`` carries it from step to step, and steps that do nothing else write it back.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import yaml

from ..api_object import Object
from ..components import endpoint, ip_families, releases, table
from ..components import hosts as component_hosts
from ..components.etcd_state import EtcdState
from ..components.hosts import CONTROL_PLANE_ROLE
from ..components.instance import Instance
from ..components.state import COLLECTION_VERSION, State
from ..components.table import (
    ADMIN,
    AGGREGATED_SERVERS,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_SCHEDULER_ESTIMATOR,
    KARMADA_WEBHOOK,
    administrator,
    members_on_hosts,
    wanted_components,
)
from ..components.types import Addresses, Component, KeyPair, members_with_agent_hosts
from ..document import manifest
from ..encoding import base64_files, files_of
from ..kube.causes import NO_SERVERS, Servers
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.no_cluster import NoCluster
from ..kube.objects import Ref
from ..pki import certificates, x509
from ..pki import files as pki_files
from ..problems import Problem, ProblemsError, Reason
from ..render import units
from ..render.agent_units import AgentAccess
from . import manager
from .place import CONTROL_PLANE, Place, etcd_ails, with_hosts
from .run import Run
from .snapshot import Snapshot
from .store import HostFiles, StateStore

LOCALHOST = "localhost"


class OnHosts(Place):
    """Place of a control plane that runs entirely on plain hosts, which also keep its state."""

    in_pods = False

    @property
    def where(self) -> str:
        """Place in words."""
        return f"hosts {', '.join(self.hosts)}"

    @cached_property
    def host_cluster(self) -> Cluster:
        """``NoCluster``: there is no host cluster."""
        return NoCluster("host cluster")

    def servers(self, workload: Ref) -> Servers:
        """None: steps on hosts wait for units, and tell why one is not healthy, before anybody waits for these."""
        del workload
        return NO_SERVERS

    def store(self) -> StateStore:
        """Files on the hosts of the control plane."""
        return HostFiles(self.facts.name, self.hosts, self.observed, self.handover)

    def first_state(self) -> State:
        """State that a first install begins with."""
        spec = self.facts.spec
        state = State(
            owner=self.facts.new_id("owner"),
            version=releases.choose(spec.version, None).karmada,
            etcd=EtcdState(token=self.facts.new_id("etcd"), storage="external" if spec.external_etcd else "directory"),
        )
        return certificates.with_new_keys(state, spec, self.facts.now)

    def families(self) -> tuple[int, ...]:
        """IP versions of the addresses of the control-plane hosts."""
        hosts = component_hosts.hosts_of(self.facts.spec, CONTROL_PLANE_ROLE)
        return tuple(dict.fromkeys(ip_families.IPV6 if ":" in host.address else ip_families.IPV4 for host in hosts))

    def likely_families(self) -> tuple[int, ...]:
        """``families``, which are always known here."""
        return self.families()

    def possible_families(self) -> tuple[int, ...]:
        """``families``: there are no others."""
        return self.families()

    def member_places(self, state: State) -> Mapping[str, int]:
        """Member → place of its estimator and agent on a host, which decides their ports."""
        return table.member_places(self.facts.spec, state.member_places)

    def member_places_left(self, run: Run) -> Mapping[str, int]:
        """Places without those of members of which nothing is left; all places if a host is out of reach or leaves."""
        places, state = self.member_places(run.state), run.state
        if run.leaving or any(self.trouble_of(name) for name in self.hosts):
            return places
        # The agent of a member that could not leave is still at work.
        leaving = {name for name in state.members if state.member(name).agent_hosts}
        there = {*members_on_hosts(self.facts.spec), *state.pushed_members(self.facts.spec), *leaving}
        # So are its components where a run took only a part of the steps for members.
        return {member: place for member, place in places.items() if member in there or self._may_be_left(run, member)}

    def _may_be_left(self, run: Run, member: str) -> bool:
        """Return whether any host may still have a component of its own of this member."""
        own = [each for each in component_hosts.all_components(run.instance) if each.member == member]
        ends = [units.ended(run.instance, each) for each in own]
        return any(run.on_host(name).may_have(end) for name in self.hosts for end in ends)

    def addresses(self, seen: Snapshot) -> Addresses:
        """Addresses on loopback: each API server uses the helpers of its own host."""
        spec = self.facts.spec
        return Addresses(
            webhook_url=f"https://{LOCALHOST}:{KARMADA_WEBHOOK.listens(spec)[KARMADA_WEBHOOK.served_port]}",
            aggregated={
                each.name: (LOCALHOST, each.listens(spec)[each.served_port])
                for each in wanted_components(spec)
                if each.name in AGGREGATED_SERVERS
            },
            public_url=seen.public_url,
            ca_bundle=seen.state.authorities[KARMADA_CA].certificate,
        )

    def estimator_address(self, instance: Instance, component: Component) -> tuple[str, int]:
        """Address on loopback: each scheduler uses the estimators of its own host."""
        del instance
        return LOCALHOST, component.listens(self.facts.spec)[component.served_port]

    def issued(self, seen: Snapshot) -> certificates.Issued:
        """Administrator's certificate: the one in the kubeconfig that exists, or a new one."""
        leaf, authority = administrator(self.facts.spec), seen.state.authorities[ADMIN.authority]
        present = _admin_of(self._kubeconfig_left(seen))
        settings = self.facts.spec.certificates
        wanted = x509.Certificate(leaf.name, leaf.authority, leaf.common_name, leaf.organizations, client=True)
        algorithm = settings.key_algorithm
        validity, renew_before = map(x509.parse_duration, (settings.validity, settings.renew_before))
        why = x509.reasons_to_reissue(wanted, present, authority.certificate, algorithm, self.facts.now, renew_before)
        pair = x509.issue(wanted, authority, algorithm, self.facts.now, validity) if why or present is None else present
        material = pki_files.Material(
            authorities=seen.state.authorities,
            leaves={ADMIN.name: pair},
            service_account_key=seen.state.service_account_key,
            encryption_key=seen.state.encryption_key,
            external_etcd=self.facts.external_etcd_files,
        )
        return certificates.Issued(material, {ADMIN.name: why} if why else {})

    def _kubeconfig_left(self, seen: Snapshot) -> bytes | None:
        """Kubeconfig that an earlier run left: in a file, or in the Secret beside the object."""
        connection = self.facts.connection
        if connection.kubeconfig_output is not None:
            with suppress(OSError):
                return Path(connection.kubeconfig_output).read_bytes()
        elif connection.object_uid is not None:
            name, namespace = seen.instance.object_name("admin-config"), self.facts.deployment["metadata"]["namespace"]
            secret = self.facts.home.get("v1", "Secret", name, namespace)
            return files_of((secret or {}).get("data")).get("kubeconfig")
        return None

    def connect(self, seen: Snapshot) -> Cluster:
        """API server at its endpoint, or on the first host that answers."""
        port = KARMADA_APISERVER.listens(self.facts.spec)["https"]
        hosts = component_hosts.hosts_of(self.facts.spec, CONTROL_PLANE_ROLE)
        urls = dict.fromkeys([seen.public_url, *(endpoint.url(host.address, port) for host in hosts)])
        refusals = []
        for url in urls:
            try:
                found = self._answering(seen, url)
            except ApiError as error:
                refusals.append(error.message)
                continue
            if refusals:
                self._note_trouble(seen, refusals[0])
            return found
        raise ProblemsError(
            Problem(
                what=f"no API server can be reached from here: {'; '.join(refusals)}",
                where=CONTROL_PLANE,
                remedy="let this machine reach one of these addresses, or run where they can be reached",
                reason=Reason.CONTROL_PLANE_UNREACHABLE,
            )
        )

    def control_plane_exists(self, seen: Snapshot) -> bool:
        """Return whether any host has files of an API server."""
        del seen
        folder = f"{units.CONFIGURATION}/{self.facts.name}/{KARMADA_APISERVER.name}/"
        return any(path.startswith(folder) for each in self.observed.values() for path in each.files)

    def pods(self) -> Sequence[Object]:
        """No pods."""
        return ()

    def begin(self, run: Run, *, asked: bool = False) -> bool:
        """Open the journal if there is anything to do; returns whether there is. ``asked``: the user says so."""
        state = run.state
        run.save(state)
        stored, kept = run.store.stored, run.store.kept_by_hosts
        differs = any(
            each.differs
            or each.lacking
            or (stored and not host.is_of_members and not stored.is_kept(host, kept.get(host.name)))
            for host, each in zip(self.hosts.values(), self.observed.values(), strict=True)
        )
        changed = manifest.differs(run.deployment, state.document)
        changed = changed or manager.is_new(run, state)
        due = differs or state.journal.interrupted or changed or bool(run.leaving) or asked or etcd_ails(run)
        if due and not run.check:
            journal = replace(
                state.journal,
                operation=run.operation,
                run=run.holder,
                started=run.now.isoformat(),
                finished="",
                step="hosts",
            )
            run.save(
                replace(
                    with_hosts(state, run.spec),
                    journal=journal,
                    service_subnet=run.snapshot.service_subnet,
                    collection=COLLECTION_VERSION,
                    member_places=self.member_places(state),
                    manager=manager.recorded(run, state),
                )
            )
        return due

    # -- members ---------------------------------------------------------------------------------------------------

    def has_agents(self, run: Run) -> bool:
        """Return whether any host has agents of members, is to have them, or had them."""
        return any(run.on_host(name).has_agents() for name in self.hosts)

    def hand_on_agents(self, run: Run, access: Mapping[str, AgentAccess], *, more: bool) -> None:
        """Hand the agents' access to members on to the steps on hosts, and record what these are about to install."""
        before = self.handover.agents if more else {}
        self.handover.agents = {**before, **{name: each.plain for name, each in access.items()}}
        if members_with_agent_hosts(run.spec) and not run.check:
            state = run.state
            hosts = {each.name: each.plain for each in run.spec.hosts if self.hosts[each.name].is_of_members}
            run.save(replace(state, hosts={**state.hosts, **hosts}, member_places=self.member_places(state)))

    def hand_on_members(self, run: Run, access: Mapping[str, bytes], ready: Iterable[str]) -> bool:
        """Hand access to members on to the steps on hosts; returns whether any host lacks something of it."""
        self.handover.members = {"access": base64_files(access), "ready": list(ready)}
        differs = any(run.on_host(name).differs([KARMADA_SCHEDULER_ESTIMATOR.name]) for name in self.hosts)
        if differs and not run.check:
            run.save(replace(run.state, member_places=self.member_places(run.state)))
        return differs


def _admin_of(kubeconfig: bytes | None) -> KeyPair | None:
    """Client certificate in a kubeconfig of an earlier run; None if there is none that can be read."""
    try:
        user = yaml.safe_load(kubeconfig or b"")["users"][0]["user"]
        return KeyPair(*(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError):
        return None
