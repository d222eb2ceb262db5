# SPDX-License-Identifier: Apache-2.0
"""A module on a host tells a refusal with its sentence, who has the lock, and what was done before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock, host_module
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System

ANNA, BEN = "one/b/1/1", "two/b/2/2"
WANTED = {"name": "prod", "holder": BEN}


class FailedError(Exception):
    """End of a module that has failed, with its result."""

    def __init__(self, **result: Any) -> None:
        super().__init__(result)
        self.result = result


class Module:
    """AnsibleModule in the place of one that would end this process."""

    def fail_json(self, **result: Any) -> NoReturn:
        raise FailedError(**result)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(str(tmp_path))


def test_a_refusal_is_told_with_what_was_done_before() -> None:
    changes = ["start a unit"]

    def work() -> None:
        with host_module.refusals_told(Module(), lambda: {"changed": bool(changes), "changes": changes}):
            changes.append("start another")
            raise HostError("the disk is full")

    with pytest.raises(FailedError) as failed:
        work()
    assert failed.value.result == {
        "msg": "the disk is full",
        "changed": True,
        "changes": ["start a unit", "start another"],
    }


def test_a_fault_of_ours_is_no_refusal() -> None:
    with pytest.raises(ZeroDivisionError), host_module.refusals_told(Module()):
        raise ZeroDivisionError


def test_the_lock_of_another_run_is_told_with_its_holder(system: System) -> None:
    host_lock.take(system, "prod", ANNA)
    done = []
    with (
        pytest.raises(FailedError) as failed,
        host_module.refusals_told(Module()),
        host_module.working(system, WANTED, False),
    ):
        done.append("a change")
    assert failed.value.result["holder"] == ANNA
    assert ANNA in failed.value.result["msg"]
    assert not done


def test_who_has_the_lock_works(system: System) -> None:
    host_lock.take(system, "prod", BEN)
    done = []
    with host_module.refusals_told(Module()), host_module.working(system, WANTED, False):
        done.append("a change")
    assert done


def test_check_mode_needs_no_lock(system: System) -> None:
    host_lock.take(system, "prod", ANNA)
    looked = []
    with host_module.refusals_told(Module()), host_module.working(system, WANTED, True):
        looked.append("as it is")
    assert looked
