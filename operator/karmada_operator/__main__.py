# SPDX-License-Identifier: Apache-2.0
"""``python -m karmada_operator``: the operator, or a sentence on the Python packages that it lacks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping

#: Module → its package, of those that only the operator imports. ``setup.cfg`` declares the same packages.
NEEDED: Mapping[str, str] = {
    "ansible": "ansible-core",
    "ansible_runner": "ansible-runner",
    "prometheus_client": "prometheus_client",
}


def missing() -> str:
    """Packages that this Python does not find, and how to get them; empty if there are none. Imports none of them."""
    if importlib.util.find_spec("ansible_collections") is None:
        return "karmada.installer is missing: have PYTHONPATH name the folder that has ansible_collections"
    from ansible_collections.karmada.installer.plugins.plugin_utils import libraries  # noqa: PLC0415 - see above

    needed = {**NEEDED, **libraries.NEEDED}
    lacking = sorted({package for module, package in needed.items() if importlib.util.find_spec(module) is None})
    command = f"{sys.executable} -m pip install {' '.join(lacking)}"
    return f"Python packages are missing; install them: {command}" if lacking else ""


def main() -> int:
    """Start the operator; returns the exit code."""
    if told := missing():
        sys.stderr.write(f"{told}\n")
        return 2
    from .start import main as start  # noqa: PLC0415 - it imports what may be missing

    return start()


if __name__ == "__main__":
    sys.exit(main())
