# SPDX-License-Identifier: Apache-2.0
"""A restore of what runs as units of plain hosts, on which tasks of the role work; what was seen there is noted.

Each host is looked at before every step, so a step that only reads and decides has what it needs. Of the others the
begin puts on record what is to be, tasks bring the hosts there, and the end looks whether they have come there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..backup import take
from ..backup.targets import Target
from ..backup.verification import COUNTED
from ..components import etcd_configuration
from ..components import hosts as component_hosts
from ..components.hosts import Host
from ..components.table import (
    ETCD,
    KARMADA_AGENT_ON_HOST,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_CONTROLLER_MANAGER,
    ON_HOSTS,
)
from ..components.types import EtcdMember
from ..document.backups import Wanted
from ..encoding import base64_text
from ..etcd import members_on_hosts
from ..etcd.client import Cause, EndpointStatus, EtcdError, range_end
from ..etcd.health import common_revision
from ..kube.errors import ApiError, Unreachable
from ..problems import Problem, ProblemsError, Reason
from ..render import units
from ..render.etcd_restore import NewData
from ..run.run import Run
from . import check_on_hosts, closed, held, new_data, partial
from .check import Asked, Chosen
from .check_on_hosts import statuses
from .means import FENCED, GOES_ON, STAGES, Means
from .plan import SERVERS, STOPS, Step, is_partial
from .under_way import restore_of

#: Tasks of the role, by the name of their file. A step whose name is not here ends with its begin.
BACKED_UP, PREPARED, STOPPED, ETCD_RESTORED, ETCD_STARTED, COUNTS, HELD, WOKEN = (
    "backed_up",
    "prepared",
    "stopped",
    "etcd_restored",
    "etcd_started",
    "counted",
    "held",
    "woken",
)
#: Kind of object → first key and the key after the last one, as a host is asked.
PREFIXES: Mapping[str, str] = {
    kind: f"{base64_text(prefix)} {base64_text(range_end(prefix))}" for kind, prefix in COUNTED.items()
}


class OnHosts(Means):
    """Means of a control plane on plain hosts."""

    tasks: ClassVar[Mapping[Step, str]] = {
        Step.BACK_UP: BACKED_UP,
        Step.PREPARE: PREPARED,
        Step.STOP_WRITERS: STOPPED,
        Step.STOP_SERVERS: STOPPED,
        Step.STOP_ETCD: STOPPED,
        Step.START_ETCD: ETCD_RESTORED,
        Step.PROVE: COUNTS,
        Step.START_SERVERS: STAGES,
        Step.HOLD: HELD,
        Step.START_ALL: STAGES,
        Step.WAKE_AGENTS: WOKEN,
        Step.LET: HELD,
        Step.BACK_UP_AGAIN: BACKED_UP,
        Step.STOP_ALL: STOPPED,
        Step.START_FORMER: ETCD_STARTED,
        Step.FENCE: FENCED,
    }
    #: One step less in which hosts are looked at while nobody is served. Its tasks stop etcd after what needs it.
    stops: ClassVar[Mapping[Step, frozenset[str]]] = {**STOPS, Step.STOP_SERVERS: SERVERS | {ETCD.name}}
    asks_again: ClassVar[bool] = False
    asks_servers_again: ClassVar[bool] = False

    def running(self, components: frozenset[str]) -> frozenset[str]:
        """Rows of the table that ran on a host when it was looked at. Raises ProblemsError if one could not be."""
        if troubles := check_on_hosts.in_trouble(self.run):
            # Something that nobody has stopped may run there, or another run has it.
            raise ProblemsError(troubles, "what was done before stays")
        rows = {row for name in hosts(self.run) for row in self._seen(name).get("running", ())}
        return frozenset(rows & components)

    def back_up(self, series: Wanted, target: Target) -> str:
        """Leave it to the role, if a member can be asked. Raises ProblemsError."""
        del series, target
        take.chosen(self.statuses(), f"etcd of {self.run.name}")
        return ""

    def prepare(self, chosen: Chosen, keys: Sequence[Any]) -> None:
        """Begin anew with the next generation where a host has something in the folder of this one."""
        del chosen, keys
        run, restore = self.run, restore_of(self.run)
        if any(self._seen(name).get("there") for name in restore.members):
            half = etcd_configuration.folder_of(restore.generation)
            again = replace(
                restore, generation=restore.generation + 1, prepared=(), aside=tuple(sorted({*restore.aside, half}))
            )
            with self.writing("begin the new data of etcd anew"):
                run.save(replace(run.state, restore=again))
            run.go_on_with(run.state)

    def prepared(self) -> None:
        """Put on record that the data is there, once every host has told so. Raises ProblemsError."""
        run, restore = self.run, restore_of(self.run)
        left = [name for name in restore.members if self._seen(name).get("made") != restore.generation]
        if left:
            _refuse(
                f"no new data was made on {', '.join(left)}", run.place.where, "run it again: it makes the data anew"
            )
        with self.writing("note that the data of every member is prepared"):
            run.save(replace(run.state, restore=replace(restore, prepared=restore.members)))
        run.go_on_with(run.state)

    def forget(self) -> None:
        """Nothing to do: who locks a host deletes what another run has left there."""

    def stop(self, components: frozenset[str], step: Step) -> None:
        """Leave it to the role: what is held is stopped when a host is brought to what it should be."""

    def wait_until_stopped(self, components: frozenset[str]) -> None:
        """See that none is left, which were waited for on their hosts. Raises ProblemsError."""
        run = self.run
        left = [
            f"{row} on {name}"
            for name in hosts(run)
            for row in self._seen(name).get("running", ())
            if row in components
        ]
        if left:
            _refuse(f"still running: {', '.join(left)}", run.place.where, "see why they do not stop; then run it again")

    def configure_etcd(self) -> None:
        """Leave it to the start: the file is written before the unit starts."""

    def start_etcd(self) -> None:
        """Leave it to the role."""

    def etcd_started(self) -> None:
        """Put on record who the members are, as they have answered on their hosts."""
        members_on_hosts.note(self.run)
        self.run.go_on_with(self.run.state)

    def statuses(self) -> Sequence[EndpointStatus]:
        """Members as they have answered on their hosts."""
        return statuses(self.run)

    def hashes(self, statuses: Sequence[EndpointStatus], revision: int) -> Sequence[Hash]:
        """Hash of each as it has answered on its host."""
        del statuses
        found = []
        for name in restore_of(self.run).members:
            told = self._seen(name).get("hash")
            if not told or told["revision"] != revision:
                raise EtcdError(Cause.WRONG, f"{name} does not tell the hash of its content at revision {revision}")
            found.append(Hash(told["revision"], told["value"], told["compacted"]))
        return found

    def counts(self) -> Mapping[str, int]:
        """Numbers of keys as a member has counted them, each by reads that a majority agrees to."""
        for name in restore_of(self.run).members:
            if found := self._seen(name).get("counts"):
                return dict(found)
        raise EtcdError(Cause.WRONG, "no member tells how many keys it has")

    def write_authorities(self) -> None:
        """Leave it to the stages: the files of an API server are written before it starts."""

    def accepting_agents(self) -> list[str]:
        """Hosts whose API server accepts them, as each was asked on its host."""
        found = []
        for host in api_servers(self.run):
            status = self._seen(host.name).get("status", 0)
            if status in (closed.FORBIDDEN, *range(200, 300)):
                found.append(f"the API server of {host.name}")
            elif status != closed.UNAUTHENTICATED:
                told = f"it answers {status}" if status else "it does not answer there"
                raise Unreachable(f"API server of {host.name}", "GET", closed.PATH, status, "", told)
        return found

    def admitting(self, clusters: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Hosts whose API server takes them, as each was asked on its host."""
        return [
            (where, name)
            for where, told in (
                (f"the API server of {host.name}", self._seen(host.name).get("admission", {}))
                for host in api_servers(self.run)
            )
            for name in clusters
            if takes_works(where, name, told.get(name))
        ]

    def settle(self, parts: held.Parts, asked: Asked) -> partial.Settled:
        """Leave it to the role, which writes it when it is on record, and looks at the hosts then."""
        del parts, asked
        return partial.Settled()

    def settled(self, parts: held.Parts, *, last: bool) -> partial.Settled | None:
        """See that each API server refuses what is held, and suspend and resume Works then."""
        if told := partial.not_in_force(partial.holding(self.run, parts), self.admitting):
            if last:
                raise partial.refused_in_time(told)
            return None
        return partial.finish(self.run, parts, self.timeout, partial.Settled())

    def _seen(self, host: str) -> Mapping[str, Any]:
        return self.run.handover.observed(host).restore


def hosts(run: Run) -> list[str]:
    """Hosts of the control plane, which a restore is about."""
    return [name for name, host in run.hosts.items() if not host.is_of_members]


def api_servers(run: Run) -> Sequence[Host]:
    """Hosts with an API server."""
    return component_hosts.hosts_of(run.spec, component_hosts.role_of(KARMADA_APISERVER))


def common(run: Run) -> int:
    """Revision that all members have, at which their content is compared; 0 if one of them does not answer."""
    found = statuses(run)
    return common_revision(found) if found and all(each.healthy for each in found) else 0


def new_data_of(run: Run) -> NewData:
    """Data that is made, as etcdutl is told."""
    restore = restore_of(run)
    return NewData(restore.token, restore.generation, restore.bump, [member(run, name) for name in restore.members])


def member(run: Run, name: str) -> EtcdMember:
    """The member of the host of this name."""
    return component_hosts.etcd_member(run.spec, run.hosts[name])


def folder(run: Run, name: str) -> str:
    """Path of the new data of a member on its host."""
    where = units.layout(run.instance, run.hosts[name], ETCD, "")
    return f"{where.data}/{etcd_configuration.folder_of(restore_of(run).generation)}"


def room(size: int) -> int:
    """Bytes that the data of a snapshot of this size needs."""
    return int(size * new_data.COPIES)


def on_a_host(components: frozenset[str]) -> list[str]:
    """Rows that may run on a host, in the order of the table, which is that of their start."""
    return [name for name in ON_HOSTS if name in components]


def question(run: Run, name: str) -> dict[str, str]:
    """Arguments of the module that have it ask the API server of a host as an agent would; none where that is open."""
    restore, host = run.state.restore, run.hosts[name]
    if restore is None or not restore.closed or host not in api_servers(run):
        return {}
    asker = closed.asker(run)
    return {
        "url": f"{units.layout(run.instance, host, KARMADA_APISERVER, '').apiserver_url}{closed.PATH}",
        "authority": run.state.authorities[KARMADA_CA].certificate.decode(),
        "certificate": asker.certificate.decode(),
        "key": asker.key.decode(),
    }


def admission(run: Run, name: str) -> dict[str, Any]:
    """Arguments of the module that have it ask the API server of a host whether it takes Works of what is held, by dry
    runs; none where nothing is held, and where nobody says which clusters there are.
    """
    restore, host = run.state.restore, run.hosts[name]
    if restore is None or restore.undoing or restore.is_over or not is_partial(restore):
        return {}
    if host not in api_servers(run):
        return {}
    try:
        names = partial.holding(run, restore.parts)
    except (ApiError, ProblemsError):
        # Whoever goes on with the release is told; whoever takes the restore back needs no answer.
        return {}
    own = run.snapshot.own_identity
    return {
        "url": units.layout(run.instance, host, KARMADA_APISERVER, "").apiserver_url,
        "authority": run.state.authorities[KARMADA_CA].certificate.decode(),
        "certificate": own.certificate.decode(),
        "key": own.key.decode(),
        "requests": {each: {"path": partial.probe_path(each), "body": partial.probe(each)} for each in names},
    }


def takes_works(where: str, name: str, answer: Mapping[str, Any] | None) -> bool:
    """Return whether the API server ``where`` takes Works of a cluster, by its answer. Raises ApiError without one."""
    status, message = (answer["status"], answer["message"]) if answer else (0, "it was not asked on its host")
    if status in range(200, 300):
        return True
    if status == closed.FORBIDDEN and held.is_refusal(message):
        return False
    raise Unreachable(where, "POST", partial.probe_path(name), status, "", message)


def restarted(run: Run, name: str) -> list[str]:
    """Units of a host that begin anew when something is let go."""
    views = run.on_host(name).components([KARMADA_CONTROLLER_MANAGER.name])
    return [units.unit_name(run.instance, each) for each in views]


def agents(run: Run, name: str) -> list[str]:
    """Units of agents on a host, of members that are joined. They were locked out, and wait longer after each try."""
    views = run.on_host(name).components([KARMADA_AGENT_ON_HOST.name])
    return [units.unit_name(run.instance, each) for each in views if each.member in run.state.members]


def _refuse(what: str, where: str, remedy: str) -> NoReturn:
    raise ProblemsError(Problem(what, where, remedy, reason=Reason.NOT_READY_IN_TIME), GOES_ON)
