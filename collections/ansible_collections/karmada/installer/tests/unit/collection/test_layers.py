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
#: Modules of the engine that the operator stands on, as far as it has to → what of them it needs. All that a run does
#: it leaves to runs, so it imports nothing that renders, changes a control plane or knows how one is installed.
UNDER_OPERATOR = {
    "kube": "requests to API servers, watches, the Lease of who leads",
    "api_object": "objects and their conditions",
    "encoding": "contents of Secrets",
    "labels": "marks of our objects and of our writes",
    "libraries": "what is said where a Python package is missing",
    "problems": "the form of what a status and an Event tell",
    "redaction": "texts without secrets",
    "run_process": "marks of a run's processes and of who holds a Lease",
    "document": "what an object of each of the three kinds says",
    "components.table": "ports and Leases of components that are probed",
    "components.types": "names that components have in all control planes",
    "backup.due": "when a backup is due, by one rule for objects and for the playbook",
    "control_plane.probes": "what an API server answers if all is well, by one rule for objects and for stages",
    "report.hold": "reasons why a control plane is held, which a status has",
    "report.report": "bounds of a status, which runs write as well",
    "run.manager": "annotations that name who works on a control plane",
    "run.phases": "phases of steps, which a run tells by name",
    "run.said": "what a step says, as it comes out of a run",
}
OPERATOR_FILES = sorted((Path(__file__).parents[7] / "operator" / "karmada_operator").glob("*.py"))


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """The line and the module of each import, imports of functions and for type checkers included.

    ``package`` is where the source is below the engine, as in ``report.html``, or empty for a file above all packages.
    A module of the engine is given by its path below the engine: ``kube.apply``; each other one by its whole name.
    """
    here = f"{PREFIX}.{package}".rstrip(".").split(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) + 1 - node.level] if node.level else []
            base = ".".join(filter(None, (*above, node.module)))
            if base != PREFIX and not base.startswith(f"{PREFIX}."):
                yield node.lineno, base
                continue
            base = base.removeprefix(PREFIX).removeprefix(".")
            yield from ((node.lineno, f"{base}.{each.name}".removeprefix(".")) for each in node.names)


def upward(source: str, package: str) -> list[tuple[int, str]]:
    """The imports of a file that its package, or the package that this one is in, may not have."""
    top = package.partition(".")[0]
    allowed = (top, *BELOW.get(top, ()))
    found = []
    for line, module in imported(source, package):
        root = module.partition(".")[0]
        if root == "ansible_collections":
            of_hosts = f"{module}.".startswith(f"{COLLECTION}.module_utils.")
            above = not of_hosts or top not in KNOW_HOSTS
        else:
            above = (root in BELOW and root not in allowed) or (root == "ansible" and top != "run")
        if above:
            found.append((line, module))
    return found


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ENGINE).parts[:-1])


def test_every_package_is_in_the_table() -> None:
    assert {each.parent.name for each in ENGINE.glob("*/__init__.py")} == set(BELOW)
    assert {package_of(each).partition(".")[0] for each in FILES} == {"", *BELOW}


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
        ("from ...module_utils.etcd_requests import Hash", "kube", [f"{COLLECTION}.module_utils.etcd_requests"]),
        ("from ..module_utils.etcd_requests import Hash", "", [f"{COLLECTION}.module_utils.etcd_requests"]),
        ("from ...module_utils.etcd_requests import Hash", "etcd", []),
        ("from ... import action", "etcd", [COLLECTION]),
        ("from ...run.run import Run", "report.html", []),
        ("from ...control_plane import stages", "report.html", ["control_plane.stages"]),
        ("from .. import report", "report.html", []),
        (f"import {COLLECTION}.action.report", "report", [f"{COLLECTION}.action.report"]),
        (f"import {PREFIX}.run.run", "kube", [f"{PREFIX}.run.run"]),
        ("import ansible.constants", "kube", ["ansible.constants"]),
        ("from ansible.plugins.action import ActionBase", "run", []),
    ],
)
def test_an_import_from_above_is_found(source: str, package: str, found: list[str]) -> None:
    assert [module for _line, module in upward(source, package)] == found


def of_the_collection(source: str) -> set[str]:
    """Modules of the collection that a file of the operator imports, by their path below the engine."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names] if node.level == 0 else []
        found |= {name for name in names if name.split(".")[0] in ("ansible", "ansible_collections")}
    return {name.removeprefix(f"{PREFIX}.") for name in found}


def test_the_operator_imports_what_it_stands_on_and_nothing_else() -> None:
    imports = {path.name: of_the_collection(path.read_text()) for path in OPERATOR_FILES}
    used = {
        (name, module): [each for each in UNDER_OPERATOR if f"{module}.".startswith(f"{each}.")]
        for name, modules in imports.items()
        for module in modules
    }
    assert [each for each, by in used.items() if not by] == []
    # A row that nothing needs any more goes.
    assert {each for by in used.values() for each in by} == set(UNDER_OPERATOR)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"from {PREFIX}.run import run, said", {"run.run", "run.said"}),
        (f"from {PREFIX}.render.units import unit_name", {"render.units.unit_name"}),
        (f"def late():\n    from {PREFIX}.members import join", {"members.join"}),
        (f"import {PREFIX}.members.join", {"members.join"}),
        (f"from {COLLECTION}.module_utils import host_lock", {f"{COLLECTION}.module_utils.host_lock"}),
        ("from ansible.plugins.action import ActionBase", {"ansible.plugins.action.ActionBase"}),
        ("import ansible_runner\nfrom . import parts", set()),
    ],
)
def test_what_a_file_of_the_operator_imports_is_found(source: str, found: set[str]) -> None:
    assert of_the_collection(source) == found
