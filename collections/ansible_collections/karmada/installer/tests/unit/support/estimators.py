# SPDX-License-Identifier: Apache-2.0
"""Documents with estimators and the members that they are for."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.members import estimators, registration

Object = dict[str, Any]
ROW = estimators.ROW.name
ON: Object = {"karmadaSchedulerEstimator": {}}


def entry(name: str) -> Object:
    return {"name": name, "secretRef": {"name": name}}


def pushed(name: str) -> Object:
    return {"members": {name: registration.record(MemberEntry({**entry(name), "mode": "Push"}))}}


def nothing_of_them(what: object) -> bool:
    return "estimator" not in json.dumps(what)
