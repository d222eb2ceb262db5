# SPDX-License-Identifier: Apache-2.0
"""Plain hosts lose power, are shut down, and boot again with what they have on their disks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from karmada_lab import machine, network, registry
from karmada_lab.errors import LabError
from karmada_lab.shell import say, wait_for
from karmada_lab.state import Lab, MachineRecord, machine_records, save

#: Longer than the longest that a unit of a host may take to stop.
_SHUTDOWN_SECONDS = 120


def off(lab: Lab, names: Sequence[str]) -> None:
    """Pull the plug: the cable first, so that nobody hears a last word, then every process.

    What a host has written stays on its disk; that a real one may lose what it has not synced is not shown here.
    """
    for host in _hosts(lab, names):
        if host.off:
            say(f"ok  {host.name} is off already")
            continue
        _note(lab, host, off=True)
        network.cut(lab, host)
        say(f"    {host.name}: cut off at {time.time():.3f}")
        machine.kill_cgroups(network.namespace(lab, host.name))
        network.unplug(lab, host)
        say(f"ok  {host.name} is off")


def shutdown(lab: Lab, names: Sequence[str]) -> None:
    """Let systemd of each host stop everything in its order, and return when it has."""
    _each(_hosts(lab, names), lambda host: _shut_down(lab, host))


def on(lab: Lab, names: Sequence[str]) -> None:
    """Boot hosts that are off, all at once."""
    _each(_hosts(lab, names), lambda host: _boot(lab, host))


def _shut_down(lab: Lab, host: MachineRecord) -> None:
    if host.off:
        say(f"ok  {host.name} is off already")
        return
    _note(lab, host, off=True)
    say(f"    {host.name}: told to stop at {time.time():.3f}")
    # systemctl may be ended by what it has asked for before it can say that all is well.
    machine.execute(host, ["systemctl", "poweroff"], check=False)
    wait_for(f"the end of {host.name}", lambda: not machine.is_alive(host), timeout=_SHUTDOWN_SECONDS)
    machine.kill_cgroups(network.namespace(lab, host.name))
    network.unplug(lab, host)
    say(f"ok  {host.name} is off")


def _boot(lab: Lab, host: MachineRecord) -> None:
    if not host.off:
        say(f"ok  {host.name} is on already")
        return
    begin = time.monotonic()
    machine.kill_cgroups(network.namespace(lab, host.name))
    machine.boot(lab, host)
    _note(lab, host, off=False)
    say(f"ok  {host.name} has booted after {time.monotonic() - begin:.1f} s")


def _note(lab: Lab, host: MachineRecord, *, off: bool) -> None:
    host.off = off
    save(lab, host)


def _hosts(lab: Lab, names: Sequence[str]) -> list[MachineRecord]:
    """The named machines. Raises LabError for what is no finished plain host: nodes need mounts that are made once."""
    known = machine_records(lab)
    wrong = [
        name
        for name in names
        if name not in known or known[name].kind != "host" or not known[name].ready or name == registry.NAME
    ]
    if wrong:
        raise LabError(f"{', '.join(wrong)}: no plain host of this lab; `lab status` shows what is")
    return [known[name] for name in names]


def _each(hosts: Sequence[MachineRecord], work: Callable[[MachineRecord], None]) -> None:
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        for done in [pool.submit(work, host) for host in hosts]:
            done.result()
