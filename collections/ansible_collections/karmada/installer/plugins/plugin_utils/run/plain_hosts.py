# SPDX-License-Identifier: Apache-2.0
"""What a step of a run has at hand where the document names plain hosts, and what one of them is to be."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.host_system import UNIT_FOLDER

from ..api_object import Object
from ..artifacts import programs
from ..artifacts.programs import ARCHITECTURES
from ..artifacts.source import Source
from ..components import hosts as component_hosts
from ..components.hosts import ETCD_ROLE, Host
from ..components.image_pins import Held
from ..components.state import State
from ..components.table import BY_NAME, KARMADA_AGENT_ON_HOST, KARMADA_CA, ON_HOSTS, wanted_leaf_certificates
from ..components.types import Component, Holds, KeyPair, Layout
from ..document.references import Connection
from ..encoding import files_of
from ..pki import certificates
from ..pki import files as pki_files
from ..problems import Problem, ProblemsError
from ..render import load_balancer, units
from ..render.agent_units import AgentAccess, addition
from .handover import Handover
from .run import Run


class RunWithHosts(Run):
    """One step of a run that works on plain hosts, from where the run stands.

    What was seen on them by earlier steps is in ``observed``, by the name of the host (``host_checks`` says in which
    form). Where the instance's state is kept is for the subclasses to say.
    """

    def __init__(
        self,
        deployment: Object,
        connection: Connection,
        *,
        operation: str,
        holder: str,
        check: bool,
        say: Callable[[str], None],
        handover: Handover,
        selected: Collection[str] = (),
    ) -> None:
        super().__init__(
            deployment, connection, operation=operation, holder=holder, check=check, say=say, selected=selected
        )
        self.handover = handover
        self.hosts = {host.name: host for host in component_hosts.all_hosts(self.spec)}
        self.observed = handover.all_observed(self.hosts)

    @cached_property
    def leaving(self) -> dict[str, Mapping[str, Any]]:
        """Hosts that the document has no more and something of ours may be left on: name → their former entry of it.

        One that has only got another name is none of them: what is there belongs to the new name.
        """
        there = {(host["address"], host.get("port")) for host in self.spec["hosts"]}
        known = self.stored_state.hosts if self.stored_state else {}
        return {
            name: entry
            for name, entry in known.items()
            if name not in self.hosts and (entry["address"], entry.get("port")) not in there
        }

    def begin(self) -> bool:
        """Open the journal if there is anything to do on hosts; returns whether there is."""
        raise NotImplementedError

    def with_hosts(self, state: State) -> State:
        """With the hosts of the document, and with those that are members of etcd from now on.

        Before anything is put there: a run that ends early, and a document that changes after it, forget no host. A
        member that has been started once knows the others by what it has on its disk.
        """
        members = tuple(host.name for host in component_hosts.hosts_of(self.spec, ETCD_ROLE))
        return replace(
            state,
            hosts={**state.hosts, **{host["name"]: host for host in self.spec["hosts"]}},
            etcd=replace(state.etcd, nodes=state.etcd.nodes or members),
        )

    def etcd_bootstrapped(self) -> None:
        """Note that from now on no member of etcd may found a cluster again."""
        raise NotImplementedError

    # -- programs --------------------------------------------------------------------------------------------------

    @property
    def crd_source(self) -> Source:
        """Where the CRDs come from: on a mirror that has programs, too, from the folder of Karmada."""
        source = self.artifact_source
        if source.url and source.kind != "GoModules":
            return replace(source, url=f"{source.url.rstrip('/')}/karmada")
        return source

    def program_path(self, component: Component) -> str:
        """Where the program of a component is on a host."""
        return units.program(self.instance, component)

    def missing_programs(self, hosts: Iterable[str] | None = None) -> dict[str, dict[str, list[Component]]]:
        """What hosts lack: host name → its architecture → components whose program is not there as we installed it.

        Of these ``hosts``, or of all that could be looked at and have not been given up since.
        """
        found: dict[str, dict[str, list[Component]]] = {}
        for name in self.observed if hosts is None else hosts:
            observed = self.observed[name]
            if "facts" not in observed or observed.get("trouble"):
                continue
            architecture = ARCHITECTURES.get(observed["facts"]["architecture"], observed["facts"]["architecture"])
            lacking = [
                component
                for component in self.on_host(name).components(ON_HOSTS)
                if self.program_path(component) not in observed["programs"]
            ]
            if lacking:
                # Several components may run one program.
                found[name] = {architecture: list({self.program_path(each): each for each in lacking}.values())}
        return found

    def program_problems(self, hosts: Iterable[str]) -> list[Problem]:
        """Programs that these hosts lack and that cannot be had."""
        by_architecture = _by_architecture(self.missing_programs(hosts))
        return [
            problem
            for architecture, lacking in by_architecture.items()
            for problem in programs.check(
                self.instance.release, architecture, lacking, self.spec, self.artifact_source, held=self._held({})
            )
        ]

    def _held(self, more: Mapping[str, str]) -> Held:
        """What tags of images have to lead to: that of the record, and what this step has found already."""
        return Held({**self.state.digests, **more}, set(self.confirmed_images) - set(more))

    def fetch_programs(self) -> dict[str, dict[str, dict[str, str]]]:
        """Bring what hosts lack to this machine: host name → path there → ``{sha256, file}``, empty in check mode.

        What tags of images led to is on record before any host has a program out of them.
        """
        missing = self.missing_programs()
        if self.check:
            return {
                name: {self.program_path(component): {} for lacking in each.values() for component in lacking}
                for name, each in missing.items()
            }
        brought, seen = {}, dict[str, str]()
        for architecture, lacking in _by_architecture(missing).items():
            # A tag that moves between two architectures would be two images under one name.
            brought[architecture] = programs.programs(
                self.instance.release, architecture, lacking, self.spec, self.artifact_source, held=self._held(seen)
            )
            seen |= {each.origin: each.digest for each in brought[architecture].values() if each.digest}
        self.hold_to(seen)
        return {
            name: {
                self.program_path(component): {
                    "sha256": brought[architecture][component.name].sha256,
                    "file": str(brought[architecture][component.name].path),
                }
                for architecture, lacking in each.items()
                for component in lacking
            }
            for name, each in missing.items()
        }

    # -- hosts -----------------------------------------------------------------------------------------------------

    def on_host(self, name: str) -> HostView:
        """What one of the hosts is to be."""
        return HostView(self, self.hosts[name], self.observed[name].get("files") or {})


class HostView:
    """What one host of an instance is to be. ``files`` is what it has, path → base64."""

    def __init__(self, run: RunWithHosts, host: Host, files: Mapping[str, str]) -> None:
        self.run = run
        self.host = host
        self.files = files

    def components(self, names: Iterable[str]) -> list[Component]:
        """Those of the named components that run on this host."""
        rows = set(names)
        return [each for each in component_hosts.components_on(self.run.instance, self.host) if each.row in rows]

    def tree(self, names: Iterable[str]) -> Object:
        """These components on this host. All of them together are also the end of those that are not wanted there.

        One by itself does not end: an API server that is to go waits for its clients, which are to go with it. What a
        member has one of ends with the member. That of one that is not joined yet is left as it is, and so is the agent
        of one that is to leave and has not: it sees to the workloads.
        """
        names = set(names)
        wanted = self.components(names)
        instance = self.run.instance
        parts = [
            self._component(each)
            if not each.member or each.member in self._member_access
            else units.watched(instance, each, self._layout(each))
            for each in wanted
        ]
        tree = units.merged(parts, instance.owner)
        every, kept = names == set(BY_NAME), {component.name for component in wanted}
        gone = [
            units.ended(instance, each)
            for each in component_hosts.all_components(instance)
            if each.name not in kept and each.row in names and (every or each.member) and not self._is_leaving(each)
        ]
        return {**tree, "absent": {part: [each for one in gone for each in one[part]] for part in tree["absent"]}}

    def may_have(self, absent: Mapping[str, Iterable[Any]]) -> bool:
        """Whether something of this was seen here, in the form of ``absent`` of a tree, or it is not known."""
        facts = self.run.observed[self.host.name].get("facts") or {}
        if not {"units", "users"} <= facts.keys():
            return True
        folders = tuple(f"{folder}/" for folder in absent["folders"])
        return any(each["name"] in facts[part] for part in ("units", "users") for each in absent[part]) or (
            bool(folders) and any(path.startswith(folders) for path in self.files)
        )

    def has_agents(self) -> bool:
        """Whether agents are to run here, or may have been left here from when they were."""
        return self.host.is_of_members or self.may_have(self.tree([KARMADA_AGENT_ON_HOST.name])["absent"])

    def differs(self, names: Iterable[str]) -> bool:
        """Whether files that these components read are not what they should be, as far as was seen."""
        tree = self.tree(names)
        wanted = {file["path"]: file["content"] for file in tree["files"] if file["path"] not in _units_of(tree)}
        gone = tuple(f"{folder}/" for folder in tree["absent"]["folders"])
        return any(self.files.get(path) != content for path, content in wanted.items()) or any(
            path.startswith(gone) for path in self.files
        )

    def _is_leaving(self, component: Component) -> bool:
        """Whether this is the agent of a member that the document lists no more, and that is joined yet."""
        if component.row != KARMADA_AGENT_ON_HOST.name:
            return False
        listed = {entry["name"] for entry in self.run.spec["members"]}
        return component.member in self.run.state.members and component.member not in listed

    @cached_property
    def _agents(self) -> dict[str, AgentAccess]:
        """Member → how its agent gets to it, of those that were looked at in this run."""
        return {name: AgentAccess.of(plain) for name, plain in self.run.handover.agents.items()}

    @cached_property
    def _member_access(self) -> dict[str, bytes]:
        """Member → the kubeconfig of its estimator or of its agent. No member has both."""
        return {**self._estimator_access(), **{name: each.kubeconfig for name, each in self._agents.items()}}

    def _estimator_access(self) -> dict[str, bytes]:
        """What the control plane said of estimators in this run, else what is here."""
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
        """Whether this host serves the virtual IP."""
        return self.host in load_balancer.load_balancers(self.run.spec)

    def load_balancer_tree(self) -> Object:
        """HAProxy and keepalived on this host, or their end where it is no load balancer."""
        run = self.run
        if not self.is_load_balancer:
            return load_balancer.absent(run.instance)
        interface = str((run.observed[self.host.name].get("facts") or {}).get("interface") or "")
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
            # Why an estimator does not serve may be its member, which is nothing to wait for.
            awaited=not component.member or component.member in ready,
            **more,
        )


def _units_of(tree: Object) -> set[str]:
    return {f"{UNIT_FOLDER}/{unit['name']}" for unit in tree["units"]}


def _by_architecture(missing: Mapping[str, Mapping[str, Iterable[Component]]]) -> dict[str, list[Component]]:
    found: dict[str, dict[str, Component]] = {}
    for each in missing.values():
        for architecture, lacking in each.items():
            found.setdefault(architecture, {}).update({component.name: component for component in lacking})
    return {architecture: list(lacking.values()) for architecture, lacking in found.items()}
