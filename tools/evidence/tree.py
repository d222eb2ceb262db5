# SPDX-License-Identifier: Apache-2.0
"""Code that decides the result of a check: the checkout cut into parts, and a digest of the content of each.

Documentation decides nothing for a scenario, nor do tests of other levels, nor what git ignores; of what lies outside
of the collection and the lab, that decides which the scenario's own files name. A digest is of contents, so a commit, a
rebase or a branch does not change it, and an edit that is not committed does.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

CHECKS = ("lint", "unit", "contract", "publishable")
"""Checks that are recorded beside scenarios."""

RECORDS = "molecule/records"
TOTALS = f"{RECORDS}/targets"
"""Folder for records of whole targets of make."""

CAPABILITIES = "docs/reference/capabilities.md"

_COLLECTION = "collections/ansible_collections/karmada/installer/"
_DOCUMENTATION, _TESTS, _BUILD, _ENVIRONMENT = "documentation", "tests", "build", "environment"
_OF_ENVIRONMENT = (
    ".ci",
    ".config",
    "ansible.cfg",
    "requirements-test.txt",
    "requirements.txt",
    "requirements.yml",
    "setup.cfg",
)
_PARTS = {
    **{first: first for first in ("bench", "ee", "examples", "lab", "operator", "playbooks")},
    **dict.fromkeys(_OF_ENVIRONMENT, _ENVIRONMENT),
    "docs": _DOCUMENTATION,
    "inventory_plugins": "inventory",
}
_NO_PART_OF_SCENARIOS = frozenset({_DOCUMENTATION, _TESTS, _BUILD, "bench", "ee", "examples", "operator"})
# Each file of these is a part by itself: who needs one does not need the others.
_FILES_APART = ("docs/guides/", "docs/reference/", "tools/", "requirements-")
# What makes the artifact and looks at it, of files that are a part each; else the artifact has the collection alone.
_PUBLISHING = frozenset(
    {
        *("requirements-publish.txt", "requirements-sanity.txt"),
        *("tools/changelog.py", "tools/publishable.py", "tools/sanity_ignores.py"),
    }
)
# Of the documentation what contract tests apply to an API server.
_APPLIED = frozenset({"docs/reference/host-rights.yaml"})
_NOT_PUBLISHED = frozenset({_TESTS, "bench", "examples", "lab", "operator", "shared"})
_NAMED = re.compile(
    r"(?<![\w.-])(?<!shared/)(?:requirements-[a-z]+\.txt|(?:bench|docs|ee|examples|operator|tools)/[\w./-]*\w)"
)
_DOCUMENTING = frozenset({"ANSIBLE_METADATA", "DOCUMENTATION", "EXAMPLES", "RETURN"})


def part_of(path: str) -> str:
    """The part of the checkout that a file belongs to; '' for what the records themselves are.

    A package of the engine is a part (as in ``plugin_utils/kube``), as are each other kind of plugin, ``roles``,
    ``playbooks`` and ``schemas``; a scenario's folder is the part of its name. Each program in ``tools`` is one, as is
    what of ``docs`` programs read (``docs/reference/host-rights.yaml``).
    """
    if path.startswith(f"{RECORDS}/") or path == CAPABILITIES:
        return ""
    folders, name = PurePosixPath(path).parts[:-1], PurePosixPath(path).name
    if name == "LICENSE" or name.endswith(".md"):
        return _DOCUMENTATION
    if "tests" in folders:
        return _TESTS
    if path.startswith(_COLLECTION):
        return _part_of_collection(folders[_COLLECTION.count("/") :])
    if folders[:1] == ("molecule",):
        return folders[1]
    return _part_of_rest(path, folders)


def _part_of_collection(folders: tuple[str, ...]) -> str:
    if folders[:2] == ("plugins", "plugin_utils"):
        return "/".join(folders[1:3])
    if folders[:1] == ("changelogs",) or folders[:2] == ("plugins", "doc_fragments"):
        return _DOCUMENTATION
    if folders[:1] == ("plugins",):
        return folders[1]
    return folders[0] if folders else "collection"


def _part_of_rest(path: str, folders: tuple[str, ...]) -> str:
    if path not in _PARTS and path.startswith(_FILES_APART):
        return "/".join(folders[:2]) if folders[:1] == ("tools",) and folders[1:] else path
    return _PARTS.get(folders[0] if folders else path, _BUILD)


def scenarios(root: Path) -> list[str]:
    """Names of all scenarios."""
    return sorted(each.parent.name for each in (root / "molecule").glob("*/molecule.yml"))


def taken_along(root: Path, scenario: str) -> set[str]:
    """Scenarios whose files this one uses, itself included."""
    known, found, new = set(scenarios(root)), set[str](), {scenario}
    while new:
        found |= new
        texts = [_text(file) for name in new for file in _files_of(root, name)]
        new = {
            word
            for text in texts
            for word in re.findall(r"(?:\.\./|molecule/|SCENARIO_SHARED: )(\w+)", text)
            if word in known
        } - found
    return found


def named(root: Path, scenario: str) -> set[str]:
    """Parts outside of the collection and the lab that a scenario uses: those that its files, or files of the scenarios
    and of the shared tasks and tools that it takes along, name by their path in the checkout.
    """
    paths = _paths(root)
    found = set[str]()
    for text in _texts(root, scenario):
        for name in _NAMED.findall(text):
            found |= {_part(root, path) for path in paths if path == name or path.startswith(f"{name}/")}
    return found - {"", _DOCUMENTATION, _TESTS}


def _texts(root: Path, scenario: str) -> list[str]:
    """Texts of the files of a scenario, those that it takes along included. One of what all scenarios share is taken
    along where its name is a word of another one: each imports or includes it by that.
    """
    along = [_text(file) for each in taken_along(root, scenario) for file in _files_of(root, each)]
    shared = {file: _text(file) for file in _files_of(root, "shared") if "tests" not in file.parts}
    while True:
        words = {word for text in along for word in re.findall(r"\w+", text)}
        new = [file for file in shared if file.stem in words]
        if not new:
            return along
        along += [shared.pop(file) for file in new]


def asked_for(root: Path, scenario: str) -> set[str]:
    """Variables of the environment by which the caller changes what a scenario does, ``SEED`` included."""
    texts = [_text(file) for each in taken_along(root, scenario) for file in _files_of(root, each)]
    words = {word for text in texts for word in re.findall(r"ansible\.builtin\.env', '([A-Z_]+)'", text)}
    return {word for word in words if not word.startswith(("MOLECULE_", "SCENARIO_"))}


def defaults(root: Path, scenario: str) -> dict[str, str]:
    """Variable of ``asked_for`` → what the scenario takes where it is not set, of those that say so."""
    along = sorted(taken_along(root, scenario), key=lambda each: (each == scenario, each))
    texts = [_text(file) for each in along for file in _files_of(root, each)]
    return {
        name: default
        for text in texts
        for name, default in re.findall(r"ansible\.builtin\.env', '([A-Z_]+)', default='([^']*)'", text)
    }


def contents(root: Path) -> dict[str, str]:
    """Part → digest of its content, of the whole checkout."""
    files: dict[str, list[str]] = {}
    for path in _paths(root):
        part, file = _part(root, path), root / path
        if part and (file.is_symlink() or file.is_file()):
            files.setdefault(part, []).append(path)
    return {part: _digest(root, paths) for part, paths in sorted(files.items())}


def digests(root: Path, name: str, parts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Digests of the parts of ``contents`` (which can be handed in) that decide the result of a scenario or a check."""
    parts = contents(root) if parts is None else parts
    if name in CHECKS:
        chosen = deciding(parts, name, (), scenarios(root))
    else:
        chosen = deciding(parts, name, taken_along(root, name) | named(root, name), scenarios(root))
    return {part: digest for part, digest in parts.items() if part in chosen}


def deciding(parts: Iterable[str], name: str, along: Iterable[str], known: Iterable[str]) -> set[str]:
    """Parts, of these, that decide the result.

    ``along`` are the scenarios that it uses, of all the ``known``, and what else its files name.
    """
    parts, along = set(parts), set(along)
    if name == "contract":
        return {part for part in parts if part in _APPLIED or not (part == _DOCUMENTATION or part.startswith("docs/"))}
    if name == "publishable":
        apart = {part for part in parts if part.startswith(_FILES_APART)}
        return parts - _NOT_PUBLISHED - (apart - _PUBLISHING) - set(known)
    if name in CHECKS:
        return parts
    elsewhere = {part for part in parts if part in _NO_PART_OF_SCENARIOS or part.startswith(_FILES_APART)}
    return parts - (elsewhere - along) - (set(known) - along)


def whole(parts: Mapping[str, str]) -> str:
    """One digest for all parts together."""
    return hashlib.sha256("".join(f"{part} {digest}\n" for part, digest in sorted(parts.items())).encode()).hexdigest()[
        :12
    ]


def commit(root: Path) -> str:
    """The commit that is checked out, short; '' where there is none."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def edited(root: Path, parts: Iterable[str]) -> bool:
    """Some file of these parts differs from the commit that is checked out."""
    done = _git(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    return any(_part(root, entry[3:]) in set(parts) for entry in done.split("\0") if entry)


def _part(root: Path, path: str) -> str:
    """As ``part_of``; a module that is only documentation (of the action of its name) belongs to that."""
    part = part_of(path)
    return _DOCUMENTATION if part == "modules" and _only_documents(root / path) else part


def _only_documents(module: Path) -> bool:
    if module.suffix != ".py" or not module.is_file():
        return False
    try:
        lines = ast.parse(_text(module)).body
    except SyntaxError:
        return False
    return bool(lines) and all(
        (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        or (isinstance(line, ast.ImportFrom) and line.module == "__future__")
        or (
            isinstance(line, ast.Assign)
            and isinstance(line.value, ast.Constant)
            and all(isinstance(each, ast.Name) and each.id in _DOCUMENTING for each in line.targets)
        )
        for line in lines
    )


def _paths(root: Path) -> list[str]:
    """Files that git knows, or would add."""
    return [path for path in _git(root, "ls-files", "-z", "-co", "--exclude-standard").split("\0") if path]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout


def _files_of(root: Path, scenario: str) -> list[Path]:
    return sorted(path for path in (root / "molecule" / scenario).rglob("*") if path.is_file())


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _digest(root: Path, paths: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        file = root / path
        if file.is_symlink():
            kind, content = "link", str(file.readlink()).encode()
        else:
            kind, content = "program" if file.stat().st_mode & 0o100 else "file", file.read_bytes()
        digest.update(f"{kind} {path} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]
