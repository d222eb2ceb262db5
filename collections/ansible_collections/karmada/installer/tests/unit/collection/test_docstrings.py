# SPDX-License-Identifier: Apache-2.0
"""Docstrings begin with a noun or a verb of the field, so that the first words of an editor's tooltip say something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
REPOSITORY = PLUGINS.parents[4]
#: All that runs outside of tests. A docstring of a test, or of what it stands on, tells what is expected.
FOLDERS = [
    PLUGINS,
    *(REPOSITORY / each for each in ("operator/karmada_operator", "lab", "tools", "bench", "molecule")),
]
FILES = sorted(each for folder in FOLDERS for each in folder.rglob("*.py") if "tests" not in each.parts[-3:])
FORBIDDEN = re.compile(
    r"(What|Whether|Which|Whose|Who|Why|Where|How|That|Those|These|Of|Its|It)\b"
    r"|The (same|reverse)\b"
    r"|One of\b.*\bfor each\b"
)
#: Beginnings of a comment that documents a constant or field; such a comment is read out of its order, too.
OF_ANOTHER = re.compile(r"The (same|reverse)\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def forbidden(source: str) -> Iterator[tuple[int, str]]:
    """Line and first line of each docstring that begins with words of which a reader learns nothing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)) and FORBIDDEN.match(text):
            yield node.body[0].lineno, text.partition("\n")[0]
    yield from of_constants(source)


def of_constants(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each ``#:`` comment that begins by pointing to another one, and of each string below a constant
    that begins as no docstring may.
    """
    lines = source.splitlines()
    for number, line in enumerate(lines, 1):
        _code, mark, text = line.partition("#: ")
        goes_on = number > 1 and lines[number - 2].lstrip().startswith("#: ")
        if mark and not goes_on and OF_ANOTHER.match(text):
            yield number, text
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for before, each in pairwise(body if isinstance(body, list) else ()):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(each, ast.Expr):
                text = getattr(each.value, "value", "")
                if isinstance(text, str) and FORBIDDEN.match(text):
                    yield each.lineno, text.partition("\n")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_docstrings_begin_with_a_word_of_the_field(path: Path) -> None:
    found = [f"{path}:{line}: {text}" for line, text in forbidden(path.read_text())]
    assert not found, "\n".join(found)


def test_there_are_files() -> None:
    assert len(FILES) > 300
    assert all(any(each.is_relative_to(folder) for each in FILES) for folder in FOLDERS)


@pytest.mark.parametrize(
    ("docstring", "found"),
    [
        ("What is taken from one API server.", True),
        ("Whether the Lease names us.", True),
        ("The reverse of to_files.", True),
        ("The same where it is no pod.", True),
        ("One of the components that there is for each member.", True),
        ("One line on the images that nothing pins.", False),
        ("Return whether the Lease names us.", False),
        ("Whole content of an answer.", False),
        ("Hosts of the document.", False),
    ],
)
def test_a_forbidden_beginning_is_found(docstring: str, found: bool) -> None:
    sources = (f'"""{docstring}"""', f'class A:\n    """{docstring}"""', f'async def a():\n    """{docstring}"""')
    assert all(bool(list(forbidden(source))) is found for source in sources)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("#: The same for others.\nA = 1\n", True),
        ("A = 1  #: The reverse of B.\n", True),
        ('A: int = 1\n"""The same for others."""\n', True),
        ('class A:\n    a = 1\n    "The same."\n', True),
        ('A = 1\n"""What references begin with."""\n', True),
        ('A = 1\n"""Beginning of references."""\n', False),
        ("#: Seconds of others, for\n#: The same reason.\nA = 1\n", False),
        ("# The same as above, in other words.\nA = 1\n", False),
    ],
)
def test_a_constant_that_is_told_by_another_is_found(source: str, found: bool) -> None:
    assert bool(list(forbidden(source))) is found
