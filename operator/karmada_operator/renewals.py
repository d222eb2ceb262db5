# SPDX-License-Identifier: Apache-2.0
"""Leases of controllers: whether who holds one is still at work. Pure but for the clock that it is given.

Times are those of a clock of our own, and what is written in a Lease is only compared with what was there before: the
clocks of controllers may be other ones. Karmada's and Kubernetes' controllers renew each 2 s a Lease of 15 s, give up
what they could not renew for 10 s, and do not give it back when they are stopped. So a process that starts anew, or
another one that takes over, waits for 15 s to 18 s, and that alone is no trouble where somebody else can take over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components import table
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import SYSTEM_NAMESPACE

#: Controllers with a Lease of their name, and those of them that not every control plane has.
_ROWS = (
    table.KUBE_CONTROLLER_MANAGER,
    table.KARMADA_CONTROLLER_MANAGER,
    table.KARMADA_SCHEDULER,
    table.KARMADA_DESCHEDULER,
)
CONTROLLERS = tuple(each.name for each in _ROWS)
_OPTIONAL = frozenset(each.name for each in _ROWS if each.optional)
#: Seconds of a Lease, at least: one that was given back says 1.
DURATION = 15.0
#: Parts of its duration without a renewal, after which there is a doubt, who held it has given it up, and somebody else
#: would have taken over.
DOUBT, GIVEN_UP, FORSAKEN = 0.4, 2 / 3, 2.0


def place_of(controller: str) -> tuple[str, str]:
    """Namespace and name of the Lease of a controller."""
    return ("kube-system" if controller == table.KUBE_CONTROLLER_MANAGER.name else SYSTEM_NAMESPACE, controller)


@dataclass(frozen=True)
class _Renewal:
    """Newest renewal that was seen, ``since`` when. ``again``: it is not the first one; ``told``: its end is a sign."""

    holder: str
    renewed: str
    since: float
    again: bool = False
    told: bool = False


class Renewals:
    """Renewals of the Leases of one control plane. ``several``: controllers of which more than one process runs."""

    def __init__(self, clock: Callable[[], float], several: frozenset[str] = frozenset()) -> None:
        self._clock, self._several = clock, several
        self._seen: dict[str, _Renewal] = {}
        self._signs = 0
        #: Newest sign that a process has ended for which another one works; empty if there was none.
        self.suspicion = ""

    def judge(self, leases: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool]:
        """Controllers that are at work no more, in words, and whether a further look is due soon.

        ``leases`` are the specs of those that are there. One that is not belongs to none, or to one that has never
        worked: runs wait for that.
        """
        late, soon = [], False
        for name in CONTROLLERS:
            spec, before, now = leases.get(name), self._seen.get(name), self._clock()
            if spec is None:
                self._seen.pop(name, None)
                continue
            holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime"))
            if before is None or before.renewed != renewed:
                if before is not None and holder and before.holder and holder != before.holder:
                    self._sign(f"another process than before holds the Lease of {name}")
                last = holder or (before.holder if before else "")
                self._seen[name] = _Renewal(last, renewed, now, again=before is not None)
                continue
            if name in _OPTIONAL and not before.again:
                # It may be left from when the document named it.
                continue
            silent = (now - before.since) / max(DURATION, float(spec.get("leaseDurationSeconds") or 0))
            if name in self._several and silent >= GIVEN_UP and not before.told:
                self._seen[name] = replace(before, told=True)
                self._sign(f"nobody renews the Lease of {name}")
            # One that was not renewed since a run has ended may be that of a process which this run has replaced.
            certain = before.again and name not in self._several
            if silent >= (GIVEN_UP if certain else FORSAKEN):
                late.append(name)
            elif before.again and silent >= DOUBT:
                soon = True
        return f"at work no more, by their Leases: {', '.join(late)}" if late else "", soon

    @property
    def settled(self) -> bool:
        """True once each controller with a Lease was seen renewing it. Before that, one may just not be late yet."""
        return all(each.again or name in _OPTIONAL for name, each in self._seen.items())

    def _sign(self, what: str) -> None:
        self._signs += 1
        self.suspicion = f"{what} ({self._signs})"
