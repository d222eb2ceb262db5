# SPDX-License-Identifier: Apache-2.0
"""One control plane on plain hosts, from where the run stands (``HostsRun``) and from one host of it (``HostView``).

The installer's state lies on the hosts, which only Ansible's connections reach. So it travels as a variable: the first
step reads it from every host, the newest counts, and steps that change it hand the new one on to a step that writes it
to all hosts. Such variables hold keys; their tasks are marked ``no_log``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import (
    certificates,
    control_plane_objects,
    endpoint,
    pki,
    pki_files,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils import render_systemd as render
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    ADMIN,
    BY_NAME,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_WEBHOOK,
    Component,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Connection, Object, Run
from ansible_collections.karmada.installer.plugins.plugin_utils.state import EtcdState, State, from_files, to_files

#: Variables in which the steps of a playbook hand things on; see the roles for hosts.
OBSERVED, INSTANCE_STATE = "karmada_host_observed", "karmada_instance_state"
LOCALHOST = "localhost"


@dataclass(frozen=True)
class Stored:
    """A state as it lies on hosts. ``serial`` 0 means that there is none."""

    serial: int
    files: Mapping[str, str]

    def state(self, where: str) -> State:
        """What it says. Raises ProblemsError when it cannot be read."""
        return from_files({name: base64.b64decode(content) for name, content in self.files.items()}, where)

    def after(self, state: State) -> Stored:
        """The next one, or this one if nothing differs."""
        files = {name: base64.b64encode(content).decode() for name, content in to_files(state).items()}
        return self if files == self.files else Stored(self.serial + 1, files)


def newest(observed: Mapping[str, Mapping[str, Any]]) -> Stored:
    """The newest state of those that the hosts have. Raises ProblemsError if two of the same serial differ."""
    found = {
        name: Stored(each["stored"]["serial"], each["stored"]["files"])
        for name, each in observed.items()
        if each.get("stored")
    }
    if not found:
        return Stored(0, {})
    serial = max(each.serial for each in found.values())
    last = {name: each for name, each in found.items() if each.serial == serial}
    if len({tuple(sorted(each.files.items())) for each in last.values()}) > 1:
        raise ProblemsError(
            Problem(
                what=f"the installer's states on {', '.join(sorted(last))} have the same serial {serial} and differ",
                where="hosts",
                remedy="find out which of them is right, and remove /var/lib/karmada-installer/<name> from the others",
            )
        )
    return next(iter(last.values()))


def first_state(deployment: Mapping[str, Any], now: datetime) -> State:
    """What an instance begins with: keys, an owner, a token."""
    spec = deployment["spec"]
    state = State(
        owner=str(uuid4()),
        version=releases.choose(spec.get("version"), None).karmada,
        etcd=EtcdState(token=str(uuid4()), storage="directory"),
    )
    return certificates.with_new_keys(state, spec, now)


def endpoint_host(spec: Mapping[str, Any]) -> str:
    """The name or address at which everyone finds the API server: the document's, else that of the only host."""
    if spec["endpoint"].get("host"):
        return str(spec["endpoint"]["host"])
    if spec["endpoint"].get("virtualIP"):
        return str(spec["endpoint"]["virtualIP"]["address"])
    return render.hosts_of(spec, render.CONTROL_PLANE_ROLE)[0].address


class HostView:
    """What one host of an instance is to be. ``files`` is what it has, path → base64."""

    def __init__(
        self, deployment: Mapping[str, Any], name: str, state: State, files: Mapping[str, str], now: datetime
    ) -> None:
        self.spec = deployment["spec"]
        release = releases.choose(self.spec.get("version"), state.version)
        self.instance = Instance.of(deployment, release, state.owner)
        self.state = state
        self.files = files
        self.now = now
        self.host = next(host for host in render.all_hosts(self.spec) if host.name == name)

    def components(self, names: Iterable[str]) -> list[Component]:
        """Those of the named components that run on this host."""
        return [
            BY_NAME[name]
            for name in names
            if BY_NAME[name].is_wanted(self.spec) and render.role_of(BY_NAME[name]) in self.host.roles
        ]

    def tree(self, names: Iterable[str]) -> Object:
        """These components on this host, and the end of those that are wanted no longer."""
        wanted = self.components(names)
        tree = render.merged([self._component(component) for component in wanted], self.instance.owner)
        gone = [BY_NAME[name] for name in names if BY_NAME[name] not in wanted]
        tree["absent_units"] = [render.unit_name(self.instance, component) for component in gone]
        return tree

    def all_of_it(self) -> Object:
        """Everything that this instance may have on this host, for taking it away."""
        return render.skeleton(self.instance)

    def _component(self, component: Component) -> Object:
        where = render.layout(self.instance, self.host, component, endpoint_host(self.spec))
        present = {}
        for leaf in component.certificates:
            folder = where.path(certificates.file_set_of(leaf).directory)
            certificate, key = (self.files.get(f"{folder}/tls.{kind}") for kind in ("crt", "key"))
            if certificate and key:
                present[leaf.name] = pki.Pair(base64.b64decode(certificate), base64.b64decode(key))
        issued = certificates.issue_missing(self.instance, self.state, where, present, self.now, component.certificates)
        return render.component_tree(self.instance, component, where, issued.material, self.state.etcd)


class HostsRun(Run):
    """One step that is done from where the run stands, for an instance on plain hosts.

    ``observed`` holds what the first step found on each host, ``stored`` the state that this run goes on with.
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
        observed: Mapping[str, Mapping[str, Any]],
        stored: Stored | None,
    ) -> None:
        super().__init__(deployment, connection, operation=operation, holder=holder, check=check, say=say)
        self.observed = observed
        self.stored = newest(observed) if stored is None else stored
        #: The state with what this step has added to it, for the step that writes it to the hosts.
        self.saved: State | None = None

    @cached_property
    def host(self) -> Cluster:
        """There is none."""
        raise AssertionError("a control plane on plain hosts has no host cluster")

    @cached_property
    def stored_state(self) -> State | None:
        """The state as the hosts have it; None before the first install."""
        return self.stored.state("/var/lib/karmada-installer of the hosts") if self.stored.serial else None

    def _first_state(self) -> State:
        return first_state(self.deployment, self.now)

    @cached_property
    def endpoint_host(self) -> str:
        """The name or address at which everyone finds the API server."""
        return endpoint_host(self.spec)

    @cached_property
    def public_url(self) -> str:
        """Where the API server is for everyone."""
        return endpoint.url(self.endpoint_host, endpoint.port(self.spec["endpoint"], None))

    @property
    def addresses(self) -> control_plane_objects.Addresses:
        """Each API server asks the helpers of its own host, which listen on loopback only."""
        return control_plane_objects.Addresses(
            webhook_url=f"https://{LOCALHOST}:{KARMADA_WEBHOOK.ports[KARMADA_WEBHOOK.served_port]}",
            aggregated={
                each.name: (LOCALHOST, each.ports[each.served_port])
                for each in wanted_components(self.spec)
                if each.name in render.AGGREGATED_SERVERS
            },
            public_url=self.public_url,
            ca_bundle=self.state.authorities[KARMADA_CA].certificate,
        )

    @cached_property
    def issued(self) -> certificates.Issued:
        """The administrator's certificate: the one of the kubeconfig that is there, or a new one."""
        authority = self.state.authorities[ADMIN.authority]
        present = _admin_of(self.connection.kubeconfig_output)
        settings = self.spec["certificates"]
        wanted = pki.Certificate(ADMIN.name, ADMIN.authority, ADMIN.common_name, ADMIN.organizations, client=True)
        algorithm = settings["keyAlgorithm"]
        validity, renew_before = (pki.parse_duration(settings[key]) for key in ("validity", "renewBefore"))
        why = pki.reasons_to_reissue(wanted, present, authority.certificate, algorithm, self.now, renew_before)
        pair = pki.issue(wanted, authority, algorithm, self.now, validity) if why or present is None else present
        material = pki_files.Material(
            authorities=self.state.authorities,
            leaves={ADMIN.name: pair},
            service_account_key=self.state.service_account_key,
            encryption_key=self.state.encryption_key,
        )
        return certificates.Issued(material, {ADMIN.name: why} if why else {})

    @cached_property
    def control_plane(self) -> Cluster:
        """The API server as its administrator: at its endpoint, or on the first host that answers."""
        authority = self.state.authorities[KARMADA_CA]
        admin = self.issued.material.leaves[ADMIN.name]
        ca_pem, cert_pem, key_pem = (part.decode() for part in (authority.certificate, admin.certificate, admin.key))
        port = KARMADA_APISERVER.ports["https"]
        hosts = render.hosts_of(self.spec, render.CONTROL_PLANE_ROLE)
        urls = dict.fromkeys([self.public_url, *(endpoint.url(host.address, port) for host in hosts)])
        refusals = []
        for url in urls:
            found = Cluster.from_parts(url, ca_pem, cert_pem, key_pem, name="control plane")
            try:
                found.get_raw("/readyz", retry_seconds=0)
            except ApiError as error:
                refusals.append(str(error))
                found.close()
            else:
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
        folder = f"{render.CONFIGURATION}/{self.name}/{KARMADA_APISERVER.name}/"
        return any(path.startswith(folder) for each in self.observed.values() for path in each.get("files") or ())

    @contextmanager
    def writing(self, step: str) -> Iterator[None]:
        """The lock is held on the hosts, from the first step to the last."""
        del step
        if self.check:
            raise AssertionError("a check run must not write")
        yield

    def save(self, state: State, namespace_uid: str | None = None) -> None:
        """Hand the state on to the step that writes it to the hosts."""
        del namespace_uid
        self.saved = state
        self.__dict__["state"] = self.__dict__["stored_state"] = state

    def resume_lock(self) -> None:
        """Nothing to resume: see ``writing``."""

    def release_lock(self) -> None:
        """Nothing to release: see ``writing``."""

    def begun(self) -> State:
        """The state with this operation in its journal."""
        journal = self.state.journal
        if journal.operation == self.operation and journal.run == self.holder and not journal.finished:
            return self.state
        started = replace(
            journal, operation=self.operation, run=self.holder, started=self.now.isoformat(), finished="", step=""
        )
        return replace(self.state, journal=started)

    def ended(self) -> State:
        """The state with the operation brought to its end and the document kept."""
        if not self.state.journal.interrupted and self.state.document == self.deployment:
            return self.state
        journal = replace(self.state.journal, finished=datetime.now(UTC).isoformat(), step="")
        return replace(self.state, journal=journal, document=self.deployment)


def _admin_of(kubeconfig: str | None) -> pki.Pair | None:
    """The client certificate of a kubeconfig that an earlier run wrote; None where there is none to be had."""
    try:
        user = yaml.safe_load(Path(kubeconfig or "").read_text())["users"][0]["user"]
        return pki.Pair(*(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError, ValueError):
        return None
