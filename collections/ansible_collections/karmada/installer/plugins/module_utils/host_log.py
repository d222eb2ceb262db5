# SPDX-License-Identifier: Apache-2.0
"""Recent log lines of units.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def newest_lines(
    system: System, unit: str, texts: Iterable[str], seconds: int, ignored: Iterable[str] = ()
) -> dict[str, str]:
    """Text → newest line of this unit that contains it, in the last ``seconds``; texts without a line are left out.

    Lines that contain one of the texts ``ignored`` do not count.
    """
    log = system.command(
        "journalctl", "--unit", unit, "--since", f"-{seconds}s", "--output", "cat", "--no-pager", "--quiet"
    )
    others = tuple(ignored)
    lines = [line for line in log.splitlines() if not any(text in line for text in others)]
    found = {text: next((line for line in reversed(lines) if text in line), "") for text in texts}
    return {text: line for text, line in found.items() if line}
