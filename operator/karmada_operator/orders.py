# SPDX-License-Identifier: Apache-2.0
"""Objects as they are seen, with what is around them, and orders: what a run is for. Plain data, no rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import RELEASE
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part as NamedPart

from . import parts
from .schedules import Backups
from .wishes import Wishes


class Operation(StrEnum):
    """Purpose of a run."""

    INSTALL = "install"
    REMOVE = "remove"
    #: See what is there, and change nothing.
    LOOK = "look"
    BACK_UP = "back up"
    #: Of a backup into quarantine, and what becomes of it there.
    RESTORE = "restore"
    RELEASE = "release"
    UNDO = "undo"


#: Fields of a part.
_OF_A_PART = ("clusters", "namespaces")
#: Operations that take a control plane to what a backup holds, or away from it.
OF_A_RESTORE = frozenset({Operation.RESTORE, Operation.RELEASE, Operation.UNDO})


@dataclass(frozen=True)
class HostCluster:
    """Cluster with the workloads of a control plane in pods, and where in it they are.

    ``secret`` holds its kubeconfig, empty for the cluster that the operator watches; ``context`` is one of that, empty
    for its current one. ``namespace`` is empty for that of the object. ``insecure``: the document allows for a server
    whose certificate is not verified.
    """

    secret: str = ""
    context: str = ""
    namespace: str = ""
    insecure: bool = False


#: Workloads in the namespace of their object.
BESIDE_THE_OBJECT = HostCluster()


@dataclass(frozen=True)
class Part:
    """Component in pods as it is now: how many of them are ready, and why not all; empty if all are.

    ``gone``: its workload is not there.
    """

    name: str
    ready: int
    trouble: str
    gone: bool = False


@dataclass(frozen=True)
class Restore:
    """Parts of an EtcdRestore that decide: what its spec confirms and decides, and how far it is by its status.

    ``carried_out`` is the generation that the status speaks of, ``earlier`` what it notes of a decision of before the
    quarantine, see ``restores.noted``. ``survivor`` is the member of etcd whose data is restored in place of a backup.
    ``named`` is what the spec has by name for a release; ``released`` and ``held`` are parts by the status.
    """

    backup: str = ""
    confirm: str = ""
    decision: str = ""
    phase: str = ""
    carried_out: int = 0
    earlier: str = ""
    survivor: str = ""
    named: parts.Named = field(default_factory=parts.Named)
    released: parts.Released = ()
    held: tuple[str, ...] = ()

    @property
    def decided(self) -> str:
        """The decision with what it is about, in one word each; empty if there is none."""
        about = parts.digest(self.named.parts) if self.decision == RELEASE else ""
        return f"{self.decision} {about}".strip()


@dataclass(frozen=True)
class Seen:
    """Parts of an object that decide. ``version`` orders what was seen and decides nothing.

    ``settled``: its status says that this generation was carried out; ``failing``: and that the last run has failed.
    ``elsewhere`` is the namespace of this cluster that it asks for, if that is not its own. ``references`` are
    (kind, name) of what its document names, ``members`` the names of its members. ``needs`` are the Secrets without
    which nothing of it can be reached, ``access`` is (member, Secret). ``host`` is where its workloads are.
    ``installed`` and ``quarantined`` are what the status of a control plane says, ``held`` why it is in quarantine (a
    ``Why`` of the report, empty if none was told yet), ``kubeconfig`` the Secret that it names, ``several`` its
    components of more than one process.

    Of an EtcdBackup or EtcdRestore, ``deployment`` names the KarmadaDeployment that it belongs to, and ``backups`` or
    ``restore`` is what decides of it.
    """

    uid: str
    generation: int
    wishes: Wishes = field(default_factory=Wishes)
    claimed: bool = False
    deleting: bool = False
    keep: bool = False
    settled: bool = False
    failing: bool = False
    elsewhere: str = ""
    references: tuple[tuple[str, str], ...] = ()
    members: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    access: tuple[tuple[str, str], ...] = ()
    on_hosts: bool = False
    host: HostCluster = BESIDE_THE_OBJECT
    installed: bool = False
    quarantined: bool = False
    held: str = ""
    kubeconfig: str = ""
    several: frozenset[str] = frozenset()
    deployment: str = ""
    backups: Backups | None = None
    restore: Restore | None = None
    version: str = field(default="", compare=False)


def several_of(report: Mapping[str, Any]) -> frozenset[str]:
    """Components of which a report, or a status, asks for more than one process."""
    return frozenset(
        str(each.get("name")) for each in report.get("components") or () if int(each.get("desired") or 0) > 1
    )


@dataclass(frozen=True)
class Around:
    """Surroundings of an object. ``inputs`` stands for Secrets and ConfigMaps that its document names.

    Of one that is being deleted: ``lost`` are Secrets that it names and that are gone, and ``going`` says whether its
    namespace is being deleted, or that of its control plane. If that is another one, ``gone`` says that it is not there
    any more, and ``closed`` that it does not allow any more what the object asks for. ``trouble`` is why its control
    plane does not answer, ``suspicion`` a sign that a part of it does not run.
    """

    inputs: str = ""
    lost: frozenset[str] = frozenset()
    going: bool = False
    gone: bool = False
    closed: bool = False
    trouble: str = ""
    suspicion: str = ""


NOTHING_AROUND = Around()


@dataclass(frozen=True)
class Beside:
    """Neighbours of an object that belongs to a control plane: that, and the restore that is under way there.

    ``deployment`` is None if there is no such object, ``under_way`` the name of another EtcdRestore, or empty.
    """

    deployment: Seen | None = None
    under_way: str = ""


@dataclass(frozen=True)
class Order:
    """Purpose of a run. ``inputs``, ``suspicion``: see ``Around``; ``given_up`` are members whose credentials are gone.

    ``moment`` is that from which a backup is due, empty for one that is not; ``missed`` counts those before it.
    ``document`` is the generation that the document had, also of a removal, whose ``generation`` is 0; 0: unknown.
    Of a release, ``parts`` are what it is about, all that is left without them; ``kept`` and ``let_go`` are Works.
    """

    operation: Operation
    uid: str
    generation: int
    dry_run: bool = False
    run_now: str = ""
    confirmations: tuple[tuple[str, tuple[str, ...]], ...] = ()
    inputs: str = ""
    given_up: tuple[str, ...] = ()
    in_trouble: bool = False
    suspicion: str = ""
    moment: str = ""
    missed: int = field(default=0, compare=False)
    document: int = field(default=0, compare=False)
    parts: tuple[NamedPart, ...] = ()
    kept: tuple[str, ...] = ()
    let_go: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Plain data of it, as JSON has it."""
        return {
            **asdict(self),
            "operation": self.operation.value,
            "confirmations": [[name, [*names]] for name, names in self.confirmations],
            "given_up": [*self.given_up],
            "parts": [parts.plain(each) for each in self.parts],
            "kept": [*self.kept],
            "let_go": [*self.let_go],
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Order:
        """Order from its plain data. Raises KeyError, TypeError, ValueError for anything else."""
        return cls(
            **{
                **found,
                "operation": Operation(found["operation"]),
                "confirmations": tuple((name, tuple(names)) for name, names in found.get("confirmations", ())),
                "given_up": tuple(found.get("given_up", ())),
                "parts": tuple(
                    NamedPart(*(tuple(each[name]) for name in _OF_A_PART)) for each in found.get("parts", ())
                ),
                "kept": tuple(found.get("kept", ())),
                "let_go": tuple(found.get("let_go", ())),
            }
        )
