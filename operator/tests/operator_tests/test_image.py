# SPDX-License-Identifier: Apache-2.0
"""The image that the lab makes is the one that users make, and its pod has room for what it may do at once."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import quantity
from karmada_operator.kinds import Lane
from karmada_operator.work_queue import BOUNDS

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


def test_the_pod_has_room_for_all_runs_that_there_may_be_at_once() -> None:
    values = yaml.safe_load((CHECKOUT / "operator/chart/values.yaml").read_text(encoding="utf-8"))
    runs, limit = values["runs"], quantity(values["resources"]["limits"]["memory"])
    lanes = {lane: int(runs[lane.value]) for lane in Lane if lane.value in runs}
    assert {*lanes, Lane.QUICK, Lane.ROUTINE} == set(Lane), "each lane has a value"
    assert lanes == {lane: BOUNDS[lane] for lane in lanes}
    # What is aimed at: MiB of the operator with 100 objects, and of a run with all its processes.
    operator, each = 96, 220
    most = operator + each * (sum(lanes.values()) + BOUNDS[Lane.ROUTINE])
    folders = quantity(runs["memory"])
    assert limit
    assert folders
    assert most * 1024 * 1024 + folders <= limit
    # The chart refuses less by the same figures.
    names = (CHECKOUT / "operator/chart/templates/_names.tpl").read_text(encoding="utf-8")
    assert f"{{{{- $operator := {operator} }}}}\n{{{{- $each := {each} }}}}\n" in names
    (added,) = re.findall(r"\$most := add (.*?) }}", names)
    assert added.split() == [*(f"$runs.{lane.value}" for lane in lanes), str(BOUNDS[Lane.ROUTINE])]
