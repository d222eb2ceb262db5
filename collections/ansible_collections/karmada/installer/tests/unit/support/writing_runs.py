# SPDX-License-Identifier: Apache-2.0
"""Runs of a control plane in pods that write without a Lease."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import (
    FakeCluster,
    fake_run,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    document,
    rendered,
)


def fresh(spec: dict[str, Any] | None = None, *objects: Any) -> Run:
    return fake_run(document(spec), FakeCluster("host cluster", *objects))


class NoLock:
    """Stands for the Lease, which has tests of its own; ``taken`` counts, ``lost`` says that another run has it."""

    taken = 0
    lost = False

    def acquire(self, *_: Any) -> None:
        NoLock.taken += 1

    def check(self) -> None:
        if NoLock.lost:
            raise LockLost("lost the lock")

    def held(self, *, release: bool = True) -> Any:  # noqa: ARG002
        return nullcontext()

    def release(self) -> None:
        pass


def webhook() -> list[dict[str, Any]]:
    found = rendered()
    return [found.one("Deployment", "prod-webhook"), found.one("Service", "prod-webhook")]
