# SPDX-License-Identifier: Apache-2.0
"""The packages of the engine are layers: each imports those below it only, and says so itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[3] / "plugins" / "plugin_utils"
COLLECTION = "ansible_collections.karmada.installer.plugins"
PREFIX = "ansible_collections.karmada.installer.plugins.plugin_utils"
#: package → the packages that it may import, beside itself and the files above all packages
BELOW = {
    "kube": (),
    "components": (),
    "document": ("kube", "components"),
    "pki": ("components",),
    "artifacts": ("components",),
    "render": ("kube", "components", "pki"),
    "run": ("kube", "components", "document", "pki", "artifacts", "render"),
    "etcd": ("kube", "components", "pki", "render", "run"),
    "backup": ("kube", "components", "document", "pki", "artifacts", "render", "run", "etcd"),
    "control_plane": ("kube", "components", "document", "pki", "render", "run", "etcd"),
    "members": ("kube", "components", "document", "pki", "render", "run", "control_plane"),
    "restore": ("kube", "components", "document", "pki", "render", "run", "etcd", "backup", "members"),
    "preflight": (
        *("kube", "components", "document", "pki", "artifacts", "render", "run", "etcd", "backup", "control_plane"),
        "members",
    ),
    "report": ("kube", "components", "pki", "render", "run", "etcd", "backup", "members", "restore", "preflight"),
}
#: Packages that know what modules on plain hosts do (``module_utils``). To the others they are as far as Ansible is.
KNOW_HOSTS = {"render", "run", "etcd", "backup", "members", "restore", "preflight"}
FILES = sorted(ENGINE.rglob("*.py"))


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """The line and the module of each import, imports of functions and for type checkers included.

    ``package`` is the package of the engine that the source is in, or empty for a file above all packages. A module of
    the engine is given by its path below the engine: ``kube.apply``.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            beside = package if node.level == 1 else ""
            base = ".".join(filter(None, (beside, node.module)))
            if node.level == 0 and base != PREFIX and not base.startswith(f"{PREFIX}."):
                yield node.lineno, base
                continue
            base = base.removeprefix(PREFIX).removeprefix(".")
            yield from ((node.lineno, f"{base}.{each.name}".removeprefix(".")) for each in node.names)


def upward(source: str, package: str) -> list[tuple[int, str]]:
    """The imports of a file that its package may not have."""
    allowed = (package, *BELOW.get(package, ()))
    found = []
    for line, module in imported(source, package):
        root = module.partition(".")[0]
        if root == "ansible_collections":
            of_hosts = f"{module}.".startswith(f"{COLLECTION}.module_utils.")
            above = not of_hosts or package not in KNOW_HOSTS
        else:
            above = (root in BELOW and root not in allowed) or (root == "ansible" and package != "run")
        if above:
            found.append((line, module))
    return found


def package_of(path: Path) -> str:
    parts = path.relative_to(ENGINE).parts
    return parts[0] if len(parts) > 1 else ""


def test_every_package_is_in_the_table() -> None:
    assert {each.parent.name for each in ENGINE.glob("*/__init__.py")} == set(BELOW)
    assert {package_of(each) for each in FILES} == {"", *BELOW}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ENGINE)))
def test_a_file_imports_what_is_below_it(path: Path) -> None:
    found = upward(path.read_text(), package_of(path))
    assert not found, "\n".join(f"{path}:{line}: {module} is not below {package_of(path)}" for line, module in found)


@pytest.mark.parametrize("package", BELOW)
def test_a_package_says_what_it_imports(package: str) -> None:
    purpose, says, *_details = (
        ast.get_docstring(ast.parse((ENGINE / package / "__init__.py").read_text())) or ""
    ).split("\n\n")
    assert purpose.endswith(".")
    below = BELOW[package]
    everything = set(BELOW) - {package, "report"}
    expected = (
        "every package but report" if set(below) == everything else ", ".join(below) or "the files beside it only"
    )
    assert " ".join(says.split()).startswith(f"Imports {expected}")


@pytest.mark.parametrize(
    ("source", "package", "found"),
    [
        ("from ..run.run import Run", "kube", ["run.run.Run"]),
        ("from ..run import run", "document", ["run.run"]),
        ("from .apply import Change", "kube", []),
        ("from . import apply", "kube", []),
        ("from .. import labels", "kube", []),
        ("from ..labels import NAME_LABEL", "kube", []),
        ("from .kube.apply import Change", "", ["kube.apply.Change"]),
        (f"from {PREFIX}.members import join", "run", ["members.join"]),
        ("def late():\n    from ..report import report", "members", ["report.report"]),
        (f"from {COLLECTION}.module_utils import host_lock", "kube", [f"{COLLECTION}.module_utils"]),
        (f"from {COLLECTION}.module_utils.etcd_requests import Hash", "", [f"{COLLECTION}.module_utils.etcd_requests"]),
        (f"from {COLLECTION}.module_utils.etcd_requests import Hash", "etcd", []),
        (f"import {COLLECTION}.action.report", "report", [f"{COLLECTION}.action.report"]),
        (f"import {PREFIX}.run.run", "kube", [f"{PREFIX}.run.run"]),
        ("import ansible.constants", "kube", ["ansible.constants"]),
        ("from ansible.plugins.action import ActionBase", "run", []),
    ],
)
def test_an_import_from_above_is_found(source: str, package: str, found: list[str]) -> None:
    assert [module for _line, module in upward(source, package)] == found
