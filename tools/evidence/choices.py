# SPDX-License-Identifier: Apache-2.0
"""Choices that the caller of a scenario or check has by the environment, and what a run with such a choice shows.

A scenario that has parts names them in ``vars/parts.yml`` (see ``molecule/shared/tasks/parts.yml``). A run of some of
them is none of the whole, nor is one with fewer kills than without a choice, or with something else in the place of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from evidence import tree

ALL = "all"
THOROUGH = {
    "lint": {},
    "unit": {"ETCD_HISTORIES": "10000", "ETCD_MOMENTS": "1", "LEADER_MOMENTS": "0", "RESTORE_MOMENTS": "1"},
    "contract": {
        "AWX_TEMPLATES": "all",
        "DRIFT_WORKS": "1000",
        "ETCD_LOSSES": "20",
        "INVENTORY_CONTROL_PLANES": "100",
        "TEST_ALL_RELEASES": "true",
        "TEST_NAVIGATOR": "true",
    },
    "publishable": {},
}
"""Check → variable → what makes it see the most there is, as ``make test-full`` asks."""

SEEDS = {"unit": "", "lint": "", "contract": "FAULTS_SEED", "publishable": ""}
"""Check → variable by which moments and faults are drawn; of scenarios it is ``SEED``."""


@dataclass(frozen=True)
class Choices:
    """Choices of one scenario or check.

    variables: those of the environment but for the seed. seed: name of that one; '' where nothing is drawn. defaults:
    variable → what holds where it is not set. thorough: variable → the one choice that shows all. by: variable that
    chooses parts; parts: all there are; by_default: those that run where it is not set.
    """

    variables: frozenset[str] = frozenset()
    seed: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    thorough: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    parts: tuple[str, ...] = ()
    by_default: tuple[str, ...] = ()

    def chosen(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Parts that a run in this environment, or with these settings, is asked for; also those that are not there."""
        asked = re.findall(r"[^ ,]+", environment.get(self.by, ""))
        return self.parts if asked == [ALL] else tuple(asked) or self.by_default

    def unknown(self, environment: Mapping[str, str]) -> list[str]:
        """Parts that are asked for and not there."""
        return [part for part in self.chosen(environment) if part not in self.parts]

    def settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Variables that make this run another one than without them, in one form for each choice."""
        found = {
            name: environment[name]
            for name in sorted(self.variables - {self.by})
            if environment.get(name, self.defaults.get(name, "")) != self.defaults.get(name, "")
        }
        if self.parts and set(self.chosen(environment)) != set(self.by_default):
            parts = sorted(set(self.chosen(environment)), key=self.parts.index)
            found[self.by] = ALL if set(parts) == set(self.parts) else " ".join(parts)
        return dict(sorted(found.items()))

    def shows(self, settings: Mapping[str, str], part: str = "") -> bool:
        """A run with these settings has seen this part, or else all of them, and nothing less than without settings."""
        seen = set(self.chosen(settings))
        return ({part} if part else set(self.parts)) <= seen and all(
            self._is_enough(name, value) for name, value in settings.items() if name != self.by
        )

    def _is_enough(self, name: str, value: str) -> bool:
        default = self.defaults.get(name, "")
        if value.isdecimal() and default.isdecimal() and name not in self.thorough:
            return int(value) >= int(default)
        return value == self.thorough.get(name, default)


def choices_of(root: Path, name: str) -> Choices:
    """Choices of the scenario or check of this name.

    Raises KeyError for a ``vars/parts.yml`` without its two words.
    """
    if name in tree.CHECKS:
        return Choices(frozenset(THOROUGH[name]), SEEDS[name], thorough=THOROUGH[name])
    asked = tree.asked_for(root, name)
    variables = frozenset(asked - {"SEED"})
    seed = "SEED" if "SEED" in asked else ""
    found = _parts(root, name)
    if not found:
        return Choices(variables, seed, tree.defaults(root, name))
    parts = tuple(found["parts_there_are"])
    return Choices(
        variables | {str(found["parts_by"])}, seed, tree.defaults(root, name), by=str(found["parts_by"]), parts=parts,
        by_default=tuple(found.get("parts_by_default", parts)),
    )  # fmt: skip


def _parts(root: Path, name: str) -> dict[str, list[str]]:
    file = root / "molecule" / name / "vars/parts.yml"
    found: dict[str, list[str]] = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found
