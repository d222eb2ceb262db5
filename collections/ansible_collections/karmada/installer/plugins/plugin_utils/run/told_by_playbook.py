# SPDX-License-Identifier: Apache-2.0
"""Recognition of runs whose first play is certain to tell problems of the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import constants, context

from ..yaml_document import UnreadableError, documents_of

#: Names of the playbooks of this collection; each begins with ``_begin.yml``.
_PREFIX = "karmada.installer."
#: Options with which ansible-playbook runs nothing, or on other hosts than the first play needs.
_OTHERWISE = ("listhosts", "listtasks", "listtags", "syntax", "subset", "start_at_task", "step", "skip_tags")
#: Bytes of a playbook that are looked at.
_MOST = 1 << 20


def is_certain() -> bool:
    """Return whether all playbooks of this run are ours, and nothing keeps the first from telling the problems.

    Other commands, and runs of other playbooks, have to be told by the inventory plugin itself.
    """
    arguments: Any = context.CLIARGS
    playbooks = arguments.get("args")
    if "listtasks" not in arguments or not isinstance(playbooks, list | tuple) or not playbooks:
        return False
    if constants.INVENTORY_ANY_UNPARSED_IS_FAILED or any(arguments.get(each) for each in _OTHERWISE):
        return False
    if set(arguments.get("tags") or ()) - {"all"}:
        return False
    return all(_is_ours(str(each)) for each in playbooks)


def _is_ours(playbook: str) -> bool:
    """Return whether a playbook is of this collection, or a file that begins with an import of one."""
    if playbook.startswith(_PREFIX):
        return True
    try:
        with Path(playbook).open("rb") as file:
            (plays,) = documents_of(file.read(_MOST))
    except (OSError, UnreadableError, ValueError):
        return False
    first = plays[0] if isinstance(plays, list) and plays else None
    if not isinstance(first, dict):
        return False
    imported = first.get("ansible.builtin.import_playbook") or first.get("import_playbook") or ""
    return str(imported).startswith(_PREFIX) and "when" not in first
