# SPDX-License-Identifier: Apache-2.0
"""The engine; `docs/architecture.md` names its packages. Here: why it is not compiled anew at each run.

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
