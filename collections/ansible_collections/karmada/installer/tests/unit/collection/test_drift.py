# SPDX-License-Identifier: Apache-2.0
"""A check that somebody is told of only if it fails: playbooks as Ansible runs them, and the template of AWX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.run import not_given
from ansible_collections.karmada.installer.tests.unit.support.playbook_runs import RESULTS, given, run

TEMPLATES = Path(__file__).parents[7] / "examples/awx/controller/templates.yml"
FAILURE = "control plane prod is not as the document says; without --check this run would make 1 change"


def ended(failure: str) -> dict[str, Any]:
    """Answers of all steps where no member is broken and the report ends with this."""
    well = {
        name: {**each, **({"broken_members": []} if "broken_members" in each else {})} for name, each in RESULTS.items()
    }
    return {**well, "report": {**RESULTS["report"], "failure": failure}}


def is_told(step: dict[str, Any]) -> bool:
    """What an action takes the option for; a variable of a command line is a text."""
    value = not_given.left_out(step, {"fail_on_drift": {"type": "bool", "default": False}}).get("fail_on_drift", False)
    return str(value).lower() == "true"


@pytest.mark.parametrize("mode", ["Container", "Binary"])
@pytest.mark.parametrize("playbook", ["install", "members"])
def test_a_check_that_is_to_fail_by_drift_fails_when_its_report_is_passed_on(
    playbook: str, mode: str, tmp_path: Path
) -> None:
    asked = ("--check", "-e", "karmada_fail_on_drift=true")
    done, steps = run(playbook, tmp_path, ended(FAILURE), *asked, mode=mode)
    assert done.returncode == 2, done.stdout + done.stderr
    assert [is_told(each) for each in (*given(steps, "require_document"), *given(steps, "report"))] == [True, True]
    assert steps[-1]["step"] == "report", "it is the very end"
    said = done.stdout
    assert said.index("Pass the report on") < said.index(FAILURE), "AWX has the report as an artifact"


@pytest.mark.parametrize("asked", [("-e", "karmada_fail_on_drift=true"), ("-e", "karmada_fail_on_drift="), ()])
def test_a_check_that_finds_nothing_or_is_not_to_fail_by_it_succeeds(asked: tuple[str, ...], tmp_path: Path) -> None:
    done, steps = run("install", tmp_path, ended(""), "--check", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    told = asked[-1:] == ("karmada_fail_on_drift=true",)
    assert [is_told(each) for each in given(steps, "report")] == [told]


def test_the_template_of_awx_asks_for_it(tmp_path: Path) -> None:
    templates = yaml.safe_load(TEMPLATES.read_text(encoding="utf-8"))["controller_templates"]
    (drift,) = (each for each in templates if each["name"].endswith(" drift"))
    assert (drift["job_type"], drift["diff_mode"], drift["playbook"]) == ("check", True, "playbooks/install.yml")
    assert not drift["ask_job_type_on_launch"], "as a run it would be refused, and it is launched by nobody"
    variables = {**drift["extra_vars"], "karmada_instance": ""}
    done, steps = run("install", tmp_path, ended(FAILURE), "--check", "--diff", "-e", json.dumps(variables))
    assert done.returncode == 2, done.stdout + done.stderr
    assert [is_told(each) for each in given(steps, "report")] == [True]
    assert FAILURE in done.stdout
