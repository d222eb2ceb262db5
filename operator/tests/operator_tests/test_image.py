# SPDX-License-Identifier: Apache-2.0
"""The image that the lab makes is the one that users make: both have the same settings."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]


def test_both_ways_to_make_the_image_have_the_same_settings() -> None:
    spec = importlib.util.spec_from_file_location("image", CHECKOUT / "molecule/operator_in_pods/image.py")
    assert spec
    assert spec.loader
    image = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(image)
    text = (CHECKOUT / "operator/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    last = text.rpartition("\nFROM ")[2]
    (variables,) = re.findall(r"^ENV (.*)$", last, re.MULTILINE)
    assert dict(each.split("=", 1) for each in shlex.split(variables)) == image.SETTINGS
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", last, re.MULTILINE)
    assert json.loads(entrypoint) == image.ENTRYPOINT
    (user,) = re.findall(r"^USER (.*)$", last, re.MULTILINE)
    assert user == image.IDENTITY
    (packages,) = re.findall(r"--no-install-recommends (.*?) *&&", last)
    assert set(packages.split()) | {"python3-venv"} == set(image.PACKAGES)
