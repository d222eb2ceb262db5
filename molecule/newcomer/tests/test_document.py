# SPDX-License-Identifier: Apache-2.0
"""What somebody new copies out of README is what the scenario runs."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import yaml

SCENARIO = Path(__file__).resolve().parents[1]
README = SCENARIO.parents[1] / "README.md"


def _blocks(language: str) -> list[str]:
    """Fenced blocks of README in this language, without their indentation."""
    text = README.read_text(encoding="utf-8")
    return [
        textwrap.dedent(each) for each in re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    ]


def test_the_document_is_that_of_readme() -> None:
    documents = [
        found for each in _blocks("yaml") if (found := yaml.safe_load(each)).get("kind") == "KarmadaDeployment"
    ]
    # The first of them is the one that is installed; later ones show other ways.
    assert documents[0] == yaml.safe_load((SCENARIO / "karmada.yaml").read_text(encoding="utf-8"))
