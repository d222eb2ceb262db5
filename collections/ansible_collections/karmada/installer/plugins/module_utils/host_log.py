# SPDX-License-Identifier: Apache-2.0
"""What units have logged lately.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def newest_lines(system: System, unit: str, texts: Iterable[str], seconds: int) -> dict[str, str]:
    """Text → the last line of this unit that has it in it, of these seconds; without those that no line has."""
    log = system.command(
        "journalctl", "--unit", unit, "--since", f"-{seconds}s", "--output", "cat", "--no-pager", "--quiet"
    )
    lines = log.splitlines()
    found = {text: next((line for line in reversed(lines) if text in line), "") for text in texts}
    return {text: line for text, line in found.items() if line}
