# SPDX-License-Identifier: Apache-2.0
"""Scenarios that end runs do so by each of the signals that end runs, also when nobody says how often."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

SCENARIOS = Path(__file__).parents[2]


def number_of_kills(scenario: str) -> int:
    """How often an install is ended where the environment does not say."""
    text = (SCENARIOS / scenario / "tasks/main.yml").read_text()
    (found,) = re.findall(r"^ +kills: .*'KILLS', default='(\d+)'", text, re.MULTILINE)
    return int(found)


@pytest.mark.parametrize(("scenario", "file"), [("run_interrupted", "killed"), ("hosts_faults", "kill")])
def test_an_install_is_ended_by_every_signal(scenario: str, file: str) -> None:
    tasks: list[dict[str, Any]] = yaml.safe_load((SCENARIOS / scenario / f"tasks/{file}.yml").read_text())
    (text,) = (each["ansible.builtin.set_fact"]["signal"] for each in tasks if "signal" in str(each.get("name")))
    template = NativeEnvironment().from_string(text)
    assert {template.render(number=number) for number in range(number_of_kills(scenario))} == {"TERM", "HUP", "KILL"}
