# SPDX-License-Identifier: Apache-2.0
"""Writes what ``ansible-test sanity`` is to pass over (``tests/sanity/ignore-*.txt``), with the reason of each line.

The files follow from the collection, so they are made for an artifact and not kept in the repository.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[1] / "collections/ansible_collections/karmada/installer"
#: ansible-core → the Pythons on which its ansible-test imports plugins of a control node.
PYTHONS = {
    "2.19": ("3.11", "3.12", "3.13"),
    "2.20": ("3.12", "3.13", "3.14"),
    "2.21": ("3.12", "3.13", "3.14"),
}
#: ansible-test imports without the packages of requirements.txt; the first task of every playbook names those that
#: lack. And it admits no other importer, while the engine has Python keep what it compiles
#: (``plugin_utils/__init__.py``).
ENGINE = "the engine needs the packages of requirements.txt, and has an importer of its own"
#: The licence that the sanity checks know is that of ansible-core's own plugins.
LICENCE = "the collection is under the Apache License 2.0"
UNUSED = "the name of what is not used, as everywhere in Python"
BY_CONSTRUCTION = "there always is one"
OTHERS = {
    "plugins/callback/report.py pylint:unidiomatic-typecheck": "the callback of ansible-runner inherits from this one",
    "plugins/module_utils/agent_identity.py pylint:ansible-bad-function": "it is also a program of a host",
    "plugins/plugin_utils/kube/transport.py replace-urlopen": "a method of a pool of urllib3, not that function",
    "plugins/plugin_utils/render/sockets.py pylint:stop-iteration-return": BY_CONSTRUCTION,
    "plugins/plugin_utils/render/units.py pylint:stop-iteration-return": BY_CONSTRUCTION,
    "plugins/plugin_utils/report/layout.py pylint:disallowed-name": "a bar that shows how far a run is",
}
#: ansible-core → what only its checks find.
OF_RELEASE = {
    "2.21": {
        "plugins/module_utils/host_restore.py pylint:ansible-bad-function": "it runs a program as the user of etcd",
        "plugins/module_utils/host_system.py pylint:ansible-bad-function": "it is used without a module object, too",
    },
}
#: Folders of plugins whose headers are looked at.
DOCUMENTED = ("callback", "inventory", "lookup", "modules")


def of_engine(collection: Path) -> Iterator[str]:
    """Files that are part of the engine or import it."""
    for path in sorted((collection / "plugins").rglob("*.py")):
        name = path.relative_to(collection).as_posix()
        if "plugin_utils" in name or "plugin_utils" in path.read_text(encoding="utf-8"):
            yield name


def of_unused_names(collection: Path) -> Iterator[str]:
    """Files in which something is assigned to ``_``."""
    for path in sorted((collection / "plugins").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if any(isinstance(each, ast.Name) and each.id == "_" and isinstance(each.ctx, ast.Store) for each in nodes):
            yield path.relative_to(collection).as_posix()


def lines(collection: Path, core: str) -> list[str]:
    """Lines of the file for one release of ansible-core."""
    documented = (path for folder in DOCUMENTED for path in sorted((collection / "plugins" / folder).glob("*.py")))
    return [
        *(f"{name} import-{python}!skip # {ENGINE}" for name in of_engine(collection) for python in PYTHONS[core]),
        *(f"{name} pylint:disallowed-name # {UNUSED}" for name in of_unused_names(collection)),
        *(
            f"{path.relative_to(collection).as_posix()} validate-modules:missing-gplv3-license # {LICENCE}"
            for path in documented
        ),
        *(f"{what} # {why}" for what, why in {**OTHERS, **OF_RELEASE.get(core, {})}.items()),
    ]


def main() -> int:
    """Write the files."""
    folder = COLLECTION / "tests/sanity"
    folder.mkdir(parents=True, exist_ok=True)
    for core in PYTHONS:
        (folder / f"ignore-{core}.txt").write_text("\n".join([*lines(COLLECTION, core), ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
