# SPDX-License-Identifier: Apache-2.0
"""The engine; `docs/architecture.md` names its packages. Here: what it runs on, and why it is not compiled each time.

An older ansible-core or Python, as in the execution environments that come with AWX, is refused in a sentence, before
it meets what it does not understand.

Ansible's importer compiles a collection's Python each time that a process reads it, which for all of the engine takes
some tenth of a run that has nothing to do. Ansible's plugins themselves, as all other Python, are read from
``__pycache__``. So modules are found here by Python's own importer, which keeps what it has compiled wherever it may
write (see ``PYTHONDONTWRITEBYTECODE`` and ``PYTHONPYCACHEPREFIX``), and does without where it may not.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

#: Oldest Python and ansible-core on the machine of ansible-playbook.
PYTHON, CORE = (3, 11), (2, 19)


def refuse_old() -> None:
    """Raise an error if Python is too old, or the ansible-core that runs this.

    That of Ansible is raised where it runs, which it tells without the words "this is probably a bug".
    """
    core = str(getattr(sys.modules.get("ansible.release"), "__version__", ""))
    if sys.version_info >= PYTHON and (not core or tuple(map(int, core.split(".")[:2])) >= CORE):
        return
    here = f"Python {'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    raise getattr(sys.modules.get("ansible.errors"), "AnsibleError", ImportError)(
        f"karmada.installer needs ansible-core {'.'.join(map(str, CORE))} and Python {'.'.join(map(str, PYTHON))} or "
        f"newer where Ansible runs, and this is {f'ansible-core {core} on ' if core else ''}{here}. In AWX, give the "
        "job template and the inventory source an execution environment with the collection; those that come with AWX "
        "are too old."
    )


refuse_old()

#: The engine, and what it shares with modules that run on hosts.
_OURS = tuple(f"{__name__.rpartition('.')[0]}.{each}." for each in ("plugin_utils", "module_utils"))


class KeptCompiled:
    """A finder of ``sys.meta_path`` that answers for the engine only."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Locate a module of the engine. None leaves it to Ansible's importer, as for a file that is not there."""
        if not name.startswith(_OURS):
            return None
        return next(filter(None, (_in(folder).find_spec(name) for folder in path or ())), None)


@functools.cache
def _in(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


# What another importer than Ansible's has read, as in tests, is not compiled anew.
if not isinstance(globals()["__loader__"], SourceFileLoader):
    sys.meta_path.insert(0, KeptCompiled)
