# SPDX-License-Identifier: Apache-2.0
"""Docstrings begin with a noun or a verb of the field, so that the first words of an editor's tooltip say something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
REPOSITORY = PLUGINS.parents[4]
#: All that runs outside of tests. A docstring of a test, or of what it stands on, tells what is expected.
FOLDERS = [
    PLUGINS,
    *(REPOSITORY / each for each in ("operator/karmada_operator", "lab", "tools", "bench", "molecule/shared/tools")),
]
FILES = sorted(each for folder in FOLDERS for each in folder.rglob("*.py") if "tests" not in each.parts[-3:])
FORBIDDEN = re.compile(
    r"(What|Whether|Which|Whose|Who|Why|Where|How|That|Those|These|Of|Its|It)\b"
    r"|The (same|reverse)\b"
    r"|One of\b.*\bfor each\b"
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def forbidden(source: str) -> Iterator[tuple[int, str]]:
    """Line and first line of each docstring that begins with words of which a reader learns nothing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)) and FORBIDDEN.match(text):
            yield node.body[0].lineno, text.partition("\n")[0]


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
