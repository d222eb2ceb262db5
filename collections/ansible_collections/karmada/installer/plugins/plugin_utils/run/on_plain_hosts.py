# SPDX-License-Identifier: Apache-2.0
"""One control plane on plain hosts: what an action on it has at hand.

The hosts are reached by Ansible's connections only. So the installer's state, which lies on them, is read by the first
step of a run, goes on through its ``Handover``, and is written back by steps that do nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from ..api_object import Object
from ..components import endpoint, ip_families, releases
from ..components import hosts as component_hosts
from ..components.hosts import CONTROL_PLANE_ROLE
from ..components.state import COLLECTION_VERSION, EtcdState, State
from ..components.table import (
    ADMIN,
    AGGREGATED_SERVERS,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_SCHEDULER_ESTIMATOR,
    KARMADA_WEBHOOK,
    administrator,
    member_places,
    members_on_hosts,
    wanted_components,
)
from ..components.types import Addresses, Component, KeyPair, agent_hosts, external_etcd, members_with_agent_hosts
from ..encoding import base64_files
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..pki import certificates, x509
from ..pki import files as pki_files
from ..problems import Problem, ProblemsError
from ..render import units
from ..render.agent_units import AgentAccess
from . import host_access, state_on_hosts
from .plain_hosts import RunWithHosts
from .state_on_hosts import Stored

LOCALHOST = "localhost"


class HostsRun(RunWithHosts):
    """One step of a run for an instance on plain hosts, from where the run stands."""

    # -- what is known of the instance -----------------------------------------------------------------------------

    @cached_property
    def host(self) -> Cluster:
        """There is none."""
        raise AssertionError("a control plane on plain hosts has no host cluster")

    def is_host(self, cluster: Cluster) -> bool:
        """No cluster is."""
        del cluster
        return False

    @property
    def place(self) -> str:
        """Where the instance is, in words."""
        return f"hosts {', '.join(self.hosts)}"

    @property
    def stored(self) -> Stored:
        """The state that this run goes on with: the one that the hosts agree on, until a step has handed on another."""
        found = self.handover.stored
        return state_on_hosts.choose(self._observed_of_control_plane, self.name) if found is None else Stored.of(found)

    @property
    def _observed_of_control_plane(self) -> dict[str, dict[str, Any]]:
        """What was seen on the hosts that keep the state, or know which one it is: not on those of members."""
        return {name: self.observed[name] for name, host in self.hosts.items() if not host.is_of_members}

    @property
    def kept_by_hosts(self) -> dict[str, state_on_hosts.Kept]:
        """What each host of the control plane keeps of the state, of those that keep anything."""
        return state_on_hosts.kept_by(self._observed_of_control_plane)

    def to_keep(self, host: str) -> dict[str, Any]:
        """What a host of the control plane is to keep of the state: keys of authorities beside API servers only."""
        stored = self.stored
        return stored.plain if CONTROL_PLANE_ROLE in self.hosts[host].roles else stored.without_files

    def lacks_state(self, host: str) -> bool:
        """Whether a host of the control plane keeps anything else than it is to keep."""
        wanted, kept = self.to_keep(host), self.kept_by_hosts.get(host)
        return kept is None or kept.digest != wanted["digest"] or bool(kept.copies) != bool(wanted["files"])

    @cached_property
    def stored_state(self) -> State | None:
        """The same, read; None before the first install."""
        return self.stored.state()

    def _first_state(self) -> State:
        state = State(
            owner=str(uuid4()),
            version=releases.choose(self.spec.get("version"), None).karmada,
            etcd=EtcdState(token=str(uuid4()), storage="external" if external_etcd(self.spec) else "directory"),
        )
        return certificates.with_new_keys(state, self.spec, self.now)

    @property
    def seen_families(self) -> tuple[int, ...]:
        """The versions of IP that the control-plane hosts have addresses of."""
        hosts = component_hosts.hosts_of(self.spec, CONTROL_PLANE_ROLE)
        return tuple(dict.fromkeys(ip_families.IPV6 if ":" in host.address else ip_families.IPV4 for host in hosts))

    @cached_property
    def endpoint_host(self) -> str:
        """The name or address at which everyone finds the API server."""
        settings = self.spec["endpoint"]
        return str(settings.get("host") or settings["virtualIP"]["address"])

    @cached_property
    def public_url(self) -> str:
        """Where the API server is for everyone."""
        return endpoint.url(self.endpoint_host, endpoint.port(self.spec["endpoint"], None))

    @property
    def addresses(self) -> Addresses:
        """Each API server asks the helpers of its own host, which listen on loopback only."""
        return Addresses(
            webhook_url=f"https://{LOCALHOST}:{KARMADA_WEBHOOK.listens(self.spec)[KARMADA_WEBHOOK.served_port]}",
            aggregated={
                each.name: (LOCALHOST, each.listens(self.spec)[each.served_port])
                for each in wanted_components(self.spec)
                if each.name in AGGREGATED_SERVERS
            },
            public_url=self.public_url,
            ca_bundle=self.state.authorities[KARMADA_CA].certificate,
        )

    @cached_property
    def issued(self) -> certificates.Issued:
        """The administrator's certificate: that of the kubeconfig that is there, or a new one."""
        leaf, authority = administrator(self.spec), self.state.authorities[ADMIN.authority]
        present = _admin_of(self.connection.kubeconfig_output)
        settings = self.spec["certificates"]
        wanted = x509.Certificate(leaf.name, leaf.authority, leaf.common_name, leaf.organizations, client=True)
        algorithm = settings["keyAlgorithm"]
        validity, renew_before = (x509.parse_duration(settings[key]) for key in ("validity", "renewBefore"))
        why = x509.reasons_to_reissue(wanted, present, authority.certificate, algorithm, self.now, renew_before)
        pair = x509.issue(wanted, authority, algorithm, self.now, validity) if why or present is None else present
        material = pki_files.Material(
            authorities=self.state.authorities,
            leaves={ADMIN.name: pair},
            service_account_key=self.state.service_account_key,
            encryption_key=self.state.encryption_key,
            external_etcd=self.external_etcd_files,
        )
        return certificates.Issued(material, {ADMIN.name: why} if why else {})

    @cached_property
    def control_plane(self) -> Cluster:
        """The API server: at its endpoint, or on the first host that answers."""
        own, authority = self._own_identity, self.state.authorities[KARMADA_CA]
        ca_pem, cert_pem, key_pem = (part.decode() for part in (authority.certificate, own.certificate, own.key))
        port = KARMADA_APISERVER.listens(self.spec)["https"]
        hosts = component_hosts.hosts_of(self.spec, CONTROL_PLANE_ROLE)
        urls = dict.fromkeys([self.public_url, *(endpoint.url(host.address, port) for host in hosts)])
        refusals = []
        for url in urls:
            found = Cluster.from_parts(url, ca_pem, cert_pem, key_pem, name="control plane")
            try:
                found.get_raw("/readyz", retry_seconds=0)
            except ApiError as error:
                refusals.append(error.message)
                found.close()
            else:
                if refusals:
                    self.endpoint_trouble = (
                        f"the API server does not answer at {self.public_url} from here: {refusals[0]}"
                    )
                return self._kept(found)
        raise ProblemsError(
            Problem(
                what=f"no API server can be reached from here: {'; '.join(refusals)}",
                where="control plane",
                remedy="let this machine reach one of these addresses, or run where they can be reached",
            )
        )

    @property
    def control_plane_exists(self) -> bool:
        """Whether any host has an API server; in check mode none may have."""
        folder = f"{units.CONFIGURATION}/{self.name}/{KARMADA_APISERVER.name}/"
        return any(path.startswith(folder) for each in self.observed.values() for path in each.get("files") or ())

    # -- writing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, step: str) -> Iterator[None]:
        """The lock is held on the hosts, from the first step to the last."""
        del step
        if self.check:
            raise AssertionError("a check run must not write")
        yield

    def save(self, state: State, namespace_uid: str | None = None) -> None:
        """Hand the state on; the next step that writes to the hosts writes it there."""
        del namespace_uid
        before = self.stored
        on_hosts = any(each.digest == before.digest for each in self.kept_by_hosts.values())
        self.handover.stored = before.after(state, on_hosts=on_hosts).plain
        self.__dict__["state"] = self.__dict__["stored_state"] = state

    def resume_lock(self) -> None:
        """Nothing to resume: see ``writing``."""

    def release_lock(self) -> None:
        """Nothing to release: see ``writing``."""

    def apply_to_host(self, step: str, render_objects: Callable[[], list[Object]]) -> list[Change]:
        """There is no host cluster for objects to be in."""
        del step, render_objects
        return []

    def begin(self) -> bool:
        """Open the journal if there is anything to do; returns whether there is."""
        state = self.state
        self.save(state)
        differs = any(
            each.get("differs")
            or each.get("lacking")
            or (not self.hosts[name].is_of_members and self.lacks_state(name))
            for name, each in self.observed.items()
        )
        due = differs or state.journal.interrupted or state.document != self.deployment or bool(self.leaving)
        if due and not self.check:
            journal = replace(
                state.journal,
                operation=self.operation,
                run=self.holder,
                started=self.now.isoformat(),
                finished="",
                step="hosts",
            )
            self.save(
                replace(
                    self.with_hosts(state),
                    journal=journal,
                    service_subnet=self.service_subnet,
                    collection=COLLECTION_VERSION,
                    member_places=self.member_places,
                )
            )
        return due

    def hosts_left(self) -> None:
        """Forget the hosts that have left: nothing is on them any more, or they were given up by name."""
        self.save(replace(self.state, hosts={host["name"]: host for host in self.spec["hosts"]}))

    def etcd_bootstrapped(self) -> None:
        """Note that from now on no member of etcd may found a cluster again."""
        self.save(replace(self.state, etcd=replace(self.state.etcd, bootstrapped=True)))

    def finish(self) -> bool:
        """Close the journal, and keep the document. False: there was nothing to do."""
        state = self.state
        if not state.journal.interrupted and state.document == self.deployment:
            return False
        journal = replace(state.journal, finished=datetime.now(UTC).isoformat(), step="")
        # Every host has been brought to what the document says: what members that have left had there is gone.
        places = self.member_places
        if not self.leaving and not any(self.trouble_of(name) for name in self.hosts):
            # The agent of one that could not leave is at work yet.
            leaving = {name for name, record in state.members.items() if agent_hosts(record)}
            there = {*members_on_hosts(self.spec), *leaving}
            places = {member: place for member, place in places.items() if member in there}
        self.save(replace(state, journal=journal, document=self.deployment, member_places=places))
        return True

    # -- members ---------------------------------------------------------------------------------------------------

    def trouble_of(self, host: str) -> Problem | None:
        """What keeps this run from working on a host, if anything does; such a host is only there for members."""
        address, seen = self.hosts[host].address, self.observed[host]
        trouble = seen.get("trouble") or {"lost": True, "reason": seen.get("refusal")}
        if not trouble["reason"]:
            return None
        if trouble["lost"]:
            user = self.spec["ssh"].get("user", "")
            return host_access.problem(trouble["reason"], host=host, address=address, user=user)
        what = f'it failed in "{trouble["step"]}": {trouble["reason"]}'
        return Problem(what, f"host {host} ({address})", "mend that on the host")

    def leave_alone(self, host: str, reason: str) -> None:
        """Have the steps that follow leave this host as it is, because it does not fit."""
        if not self.observed[host].get("refusal"):
            self.handover.note(host, trouble={"step": "preflight", "reason": reason, "lost": False})

    def agent_problems(self, entry: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with the hosts that are to run this member's agent."""
        return [problem for host in agent_hosts(entry) if (problem := self.trouble_of(host))]

    def hand_on_agents(self, access: Mapping[str, AgentAccess]) -> None:
        """How agents get to their members, for the steps on hosts; with a record of what these are about to have."""
        self.handover.agents = {name: each.plain for name, each in access.items()}
        if members_with_agent_hosts(self.spec) and not self.check:
            state = self.state
            hosts = {each["name"]: each for each in self.spec["hosts"] if self.hosts[each["name"]].is_of_members}
            self.save(replace(state, hosts={**state.hosts, **hosts}, member_places=self.member_places))

    @property
    def has_agents_on_hosts(self) -> bool:
        """Whether any host has agents of members, is to have them, or had them."""
        return any(self.on_host(name).has_agents() for name in self.hosts)

    @property
    def member_places(self) -> Mapping[str, int]:
        """Which of the estimators of a host is a member's own, and so which ports it has."""
        return member_places(self.spec, self.state.member_places)

    def estimator_address(self, component: Component) -> tuple[str, int]:
        """Each scheduler asks the estimators of its own host."""
        return LOCALHOST, component.listens(self.spec)[component.served_port]

    def hand_on_members(self, access: Mapping[str, bytes], ready: Iterable[str]) -> bool:
        """What hosts need to look at members, for the steps that follow; returns whether any host lacks something."""
        encoded = base64_files(access)
        self.handover.members = {"access": encoded, "ready": list(ready)}
        differs = any(self.on_host(name).differs([KARMADA_SCHEDULER_ESTIMATOR.name]) for name in self.hosts)
        if differs and not self.check:
            self.save(replace(self.state, member_places=self.member_places))
        return differs


def _admin_of(kubeconfig: str | None) -> KeyPair | None:
    """The client certificate of a kubeconfig that an earlier run wrote; None where there is none to be had."""
    try:
        user = yaml.safe_load(Path(kubeconfig or "").read_text())["users"][0]["user"]
        return KeyPair(*(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError, ValueError):
        return None
