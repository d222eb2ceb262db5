# SPDX-License-Identifier: Apache-2.0
"""Desired state of one plain host of an instance."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ansible_collections.karmada.installer.plugins.module_utils.host_system import UNIT_FOLDER

from ..api_object import Object
from ..components import hosts as component_hosts
from ..components.hosts import Host
from ..components.table import (
    BY_NAME,
    ETCD,
    KARMADA_AGENT_ON_HOST,
    KARMADA_APISERVER,
    KARMADA_CA,
    wanted_leaf_certificates,
)
from ..components.types import Component, Holds, KeyPair, Layout
from ..encoding import files_of
from ..pki import certificates
from ..pki import files as pki_files
from ..problems import ProblemsError
from ..render import load_balancer, units
from ..render.agent_units import AgentAccess, addition

if TYPE_CHECKING:
    from .run import Run


class HostView:
    """Desired state of one plain host. ``files`` are those it has, path → base64."""

    def __init__(self, run: Run, host: Host, files: Mapping[str, str]) -> None:
        self.run = run
        self.host = host
        self.files = files

    def components(self, names: Iterable[str]) -> list[Component]:
        """Components of these rows that run on this host."""
        found, rows = component_hosts.components_on(self.run.instance, self.host), set(names)
        return [each for each in found if each.row in rows and not self._has_changed(each)]

    def tree(self, names: Iterable[str]) -> Object:
        """Tree of these components on this host. Given all of them, it also removes those that are not wanted there.

        Given one, it removes none: an API server that is to go waits for its clients, which are to go with it.
        Components of a member are removed with the member. Those of a member that is not joined yet are left as they
        are, and so is the agent of a member that is to leave and has not: it cleans up the workloads.
        """
        names = set(names)
        wanted = [each for each in self.components(names) if not self._is_changing(each)]
        instance = self.run.instance
        parts = [
            self._component(each)
            if not each.member or each.member in self._member_access
            else units.watched(instance, each, self._layout(each))
            for each in wanted
        ]
        tree = units.merged(parts, instance.owner)
        every, kept = names == set(BY_NAME), {component.name for component in self.components(names)}
        gone = [
            units.ended(instance, each)
            for each in component_hosts.all_components(instance)
            if each.name not in kept and each.row in names and (every or each.member) and not self._stays(each)
        ]
        return {**tree, "absent": {part: [each for one in gone for each in one[part]] for part in tree["absent"]}}

    def may_have(self, absent: Mapping[str, Iterable[Any]]) -> bool:
        """Return whether anything in ``absent`` of a tree was seen here, or may be here because nobody has looked."""
        facts = self.run.observed[self.host.name].facts
        if facts is None:
            return True
        folders = tuple(f"{folder}/" for folder in absent["folders"])
        return (
            any(each["name"] in facts.units for each in absent["units"])
            or any(each["name"] in facts.users for each in absent["users"])
            or (bool(folders) and any(path.startswith(folders) for path in self.files))
        )

    def has_agents(self) -> bool:
        """Return whether agents are to run here, or may be left here from an earlier run."""
        return self.host.is_of_members or self.may_have(self.tree([KARMADA_AGENT_ON_HOST.name])["absent"])

    def differs(self, names: Iterable[str]) -> bool:
        """Return whether files that these components read differ from the desired ones, as far as they were seen."""
        tree = self.tree(names)
        wanted = {file["path"]: file["content"] for file in tree["files"] if file["path"] not in _units_of(tree)}
        gone = tuple(f"{folder}/" for folder in tree["absent"]["folders"])
        return any(self.files.get(path) != content for path, content in wanted.items()) or any(
            path.startswith(gone) for path in self.files
        )

    def answers(self, names: Iterable[str]) -> bool:
        """Return whether all units of these components were seen to run and to answer here."""
        seen = self.run.handover.observed(self.host.name).units
        wanted = [each for each in self.components(names) if not self._is_changing(each)]
        found = [seen.get(units.unit_name(self.run.instance, each)) for each in wanted]
        return all(each is not None and not each.reason for each in found)

    def _is_changing(self, component: Component) -> bool:
        """Return whether this is a member of etcd that is still to be added, or is to go: steps of its own do that."""
        etcd = self.run.state.etcd
        if component.name != ETCD.name or not etcd.bootstrapped or not etcd.members:
            return False
        record = etcd.member(self.host.name)
        return record is None or record.coming or record.leaving

    def _clients(self, component: Component) -> list[Component]:
        """API server of this host, where that uses no other member of etcd than the one here."""
        if component.name != ETCD.name:
            return []
        found = self.components([KARMADA_APISERVER.name])
        return [each for each in found if [one.name for one in self._layout(each).etcd_members] == [self.host.name]]

    def _has_changed(self, component: Component) -> bool:
        """Return whether this is the estimator of a member that the control plane no longer shows in mode Push."""
        member, seen = component.member, self.run.handover.members
        if not member or component.row == KARMADA_AGENT_ON_HOST.name or seen is None:
            return False
        return self.run.spec.member_by_name[member].pulls and member not in self._member_access

    def _stays(self, component: Component) -> bool:
        """Return whether this is the agent of a member that has not left yet, or not changed to what is listed."""
        run, member = self.run, component.member
        if component.row != KARMADA_AGENT_ON_HOST.name or member not in run.state.members:
            return False
        if member not in run.spec.member_by_name:
            return True
        worked_on = run.check and member in run.handover.worked_on
        return self.host.name in run.state.member(member).agent_hosts and not worked_on

    @cached_property
    def _agents(self) -> dict[str, AgentAccess]:
        """Member → access of its agent, of members that were looked at in this run."""
        return {name: AgentAccess.of(plain) for name, plain in self.run.handover.agents.items()}

    @cached_property
    def _member_access(self) -> dict[str, bytes]:
        """Member → kubeconfig of its estimator or of its agent. No member has both."""
        return {**self._estimator_access(), **{name: each.kubeconfig for name, each in self._agents.items()}}

    def _estimator_access(self) -> dict[str, bytes]:
        """Kubeconfigs of estimators: those read from the control plane in this run, else those on this host."""
        handed_on = self.run.handover.members
        if handed_on is not None:
            return files_of(handed_on["access"])
        found = {}
        for component in component_hosts.all_components(self.run.instance):
            for files in component.file_sets if component.row in BY_NAME else ():
                folder = units.configuration_folder(self.run.instance, component.name)
                path = f"{folder}/{files.directory}/{pki_files.MEMBER_CONFIG}"
                if files.holds is Holds.MEMBER_ACCESS and path in self.files:
                    found[component.member] = base64.b64decode(self.files[path])
        return found

    @property
    def is_load_balancer(self) -> bool:
        """True if this host serves the virtual IP."""
        return self.host in load_balancer.load_balancers(self.run.spec)

    def load_balancer_tree(self) -> Object:
        """Tree of HAProxy and keepalived; removes them where this host is no load balancer."""
        run = self.run
        if not self.is_load_balancer:
            return load_balancer.absent(run.instance)
        facts = run.observed[self.host.name].facts
        interface = facts.interface if facts else ""
        if problem := load_balancer.interface_problem(self.host, interface):
            raise ProblemsError(problem)
        return load_balancer.tree(run.instance, self.host, interface, run.state.authorities[KARMADA_CA].certificate)

    def _layout(self, component: Component) -> Layout:
        return units.layout(self.run.instance, self.host, component, self.run.endpoint_host)

    def _component(self, component: Component) -> Object:
        run, where = self.run, self._layout(component)
        more = {}
        if component.row == KARMADA_AGENT_ON_HOST.name:
            access = self._agents[component.member]
            where = replace(where, member_url=access.server)
            more["addition"] = addition(
                run.instance,
                component,
                where,
                access,
                run.public_url,
                run.state.authorities[KARMADA_CA].certificate,
            )
        present, leaves = {}, wanted_leaf_certificates(run.spec, component)
        for leaf in leaves:
            folder = where.path(certificates.file_set_of(leaf, [component]).directory)
            certificate, key = (self.files.get(f"{folder}/tls.{kind}") for kind in ("crt", "key"))
            if certificate and key:
                present[leaf.name] = KeyPair(base64.b64decode(certificate), base64.b64decode(key))
        issued = certificates.issue_missing(
            run.instance, run.state, where, present, run.now, run.external_etcd_files, leaves
        )
        ready = (run.handover.members or {}).get("ready", ())
        return units.component_tree(
            run.instance,
            component,
            where,
            replace(issued.material, member_access=self._member_access),
            run.state.etcd,
            # An estimator may be unready because of its member, which the run does not wait for.
            awaited=not component.member or component.member in ready,
            clients=self._clients(component),
            **more,
        )


def _units_of(tree: Object) -> set[str]:
    return {f"{UNIT_FOLDER}/{unit['name']}" for unit in tree["units"]}
