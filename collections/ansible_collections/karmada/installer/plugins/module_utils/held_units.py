# SPDX-License-Identifier: Apache-2.0
"""Keep units of the distribution from starting while their packages are installed, and leave them disabled.

Some distributions start what they install, with a configuration that nobody has chosen. A drop-in of ours holds a unit
by a condition that is never true, so its package installs without an error. After a run that was killed, the drop-in
also shows that only the package has enabled this unit: a mask would not show whose it is.

Runs on the host, as root (standard library, Python 3.9 or newer). A tree (see ``host_tree``) has in ``held`` for each
such unit ``{unit, drop_in}``, a name and a path.
"""

from __future__ import annotations

import contextlib

from ansible_collections.karmada.installer.plugins.module_utils.host_system import System, units, writing
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import Change, Tree

_NEVER = """\
# Of the installer, until the package of this unit is installed.
[Unit]
ConditionPathExists=!/
"""


def hold(system: System, tree: Tree, check: bool = False) -> list[Change]:
    """Hold the units that do not exist yet; an existing one may be in use by the site. Raises HostError."""
    there = units(system, [each["unit"] for each in tree["held"]])
    free = [each for each in tree["held"] if not (there[each["unit"]].known or system.path(each["drop_in"]).exists())]
    if free and not check:
        for each in free:
            path = system.path(each["drop_in"])
            with writing(path):
                path.parent.mkdir(mode=0o755, exist_ok=True)
                path.write_text(_NEVER)
                path.chmod(0o644)
        system.command("systemctl", "daemon-reload")
    return [Change("hold " + each["unit"]) for each in free]


def release(system: System, tree: Tree, check: bool = False) -> list[Change]:
    """Release the units that are held, and leave them disabled. Raises HostError."""
    held = [each for each in tree["held"] if system.path(each["drop_in"]).exists()]
    if held and not check:
        there = units(system, [each["unit"] for each in held])
        if known := [name for name, unit in there.items() if unit.known]:
            system.command("systemctl", "disable", "--quiet", "--now", "--", *known)
        for each in held:
            path = system.path(each["drop_in"])
            path.unlink()
            # Drop-ins of the site stay.
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        system.command("systemctl", "daemon-reload")
    return [Change("disable " + each["unit"]) for each in held]
