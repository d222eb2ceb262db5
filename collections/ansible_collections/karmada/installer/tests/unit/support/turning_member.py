# SPDX-License-Identifier: Apache-2.0
"""A member in memory that is as it should be at first, and means harm from one of its requests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden, Unreachable
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster

#: Methods of a cluster that are requests to it.
REQUESTS = ("get", "list", "version", "resource", "listable_kinds", "create", "apply", "delete", "patch_merge")
#: Objects that no API server has; all of them are JSON that may arrive.
ODD: dict[str, Any] = {
    "metadata-is-text": {"metadata": "a text"},
    "nothing-in-it": {},
    "other-types": {"metadata": {"name": 7, "uid": ["u"], "labels": ["x"], "annotations": "y", "managedFields": 3}},
    "is-a-list": [["x"]],
}


def _silent(_method: str) -> Any:
    raise Unreachable("member m1", "GET", "/", 0, "Unreachable", "it does not come to an end within 35 s")


def _refusing(_method: str) -> Any:
    raise Forbidden("member m1", "GET", "/", 403, "Forbidden", "no")


def _answering(odd: Any) -> Callable[[str], Any]:
    def answer(method: str) -> Any:
        if method in ("list", "listable_kinds"):
            return [odd, odd]
        return True if method == "delete" else odd

    return answer


#: Way in which one turns → what it answers to a method from then on.
WAYS: dict[str, Callable[[str], Any]] = {
    "silent": _silent,
    "refusing": _refusing,
    **{name: _answering(odd) for name, odd in ODD.items()},
}


class TurningMember:
    """Stands before the member ``api``: honest for ``good`` requests, then as ``way`` says; ``asked`` counts all."""

    def __init__(self, api: FakeCluster, good: int, way: str) -> None:
        self._api, self._good, self._way = api, good, WAYS[way]
        self.asked = 0

    def with_patience(self, **_: float) -> TurningMember:
        """The same, which turns for everybody at once."""
        return self

    def __getattr__(self, name: str) -> Any:
        honest = getattr(self._api, name)
        if name not in REQUESTS:
            return honest

        def request(*arguments: Any, **more: Any) -> Any:
            self.asked += 1
            return honest(*arguments, **more) if self.asked <= self._good else self._way(name)

        return request
