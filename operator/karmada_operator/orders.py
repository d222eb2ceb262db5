# SPDX-License-Identifier: Apache-2.0
"""What is seen of an object and around it, and orders: what a run is for. Plain data, no rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .wishes import Wishes


class Operation(StrEnum):
    """Purpose of a run."""

    INSTALL = "install"
    REMOVE = "remove"
    #: See what is there, and change nothing.
    LOOK = "look"


class Outcome(StrEnum):
    """End of a run. A run is lost when it ended without telling how."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost"


@dataclass(frozen=True)
class Seen:
    """What of an object decides. ``version`` orders what was seen and decides nothing.

    ``settled``: its status says that this generation was carried out. ``elsewhere`` is the namespace of this cluster
    that it asks for, if that is not its own. ``references`` are (kind, name) of what its document names, ``members``
    the names of its members. ``needs`` are the Secrets without which nothing of it can be reached, ``access`` is
    (member, Secret).
    """

    uid: str
    generation: int
    wishes: Wishes = field(default_factory=Wishes)
    claimed: bool = False
    deleting: bool = False
    keep: bool = False
    settled: bool = False
    elsewhere: str = ""
    references: tuple[tuple[str, str], ...] = ()
    members: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    access: tuple[tuple[str, str], ...] = ()
    on_hosts: bool = False
    version: str = field(default="", compare=False)


@dataclass(frozen=True)
class Around:
    """What is seen around an object. ``inputs`` stands for Secrets and ConfigMaps that its document names.

    Of one that is being deleted: ``lost`` are Secrets that it names and that are gone, and ``going`` says whether its
    namespace is being deleted. ``trouble`` is why its control plane does not answer.
    """

    inputs: str = ""
    lost: frozenset[str] = frozenset()
    going: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Order:
    """What a run is for. ``inputs``: see ``Around``; ``given_up`` are members whose credentials are gone."""

    operation: Operation
    uid: str
    generation: int
    dry_run: bool = False
    run_now: str = ""
    confirmations: tuple[tuple[str, tuple[str, ...]], ...] = ()
    inputs: str = ""
    given_up: tuple[str, ...] = ()
    in_trouble: bool = False

    def plain(self) -> dict[str, Any]:
        """Plain data of it, as JSON has it."""
        return {
            **asdict(self),
            "operation": self.operation.value,
            "confirmations": [[name, [*names]] for name, names in self.confirmations],
            "given_up": [*self.given_up],
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
            }
        )
