# SPDX-License-Identifier: Apache-2.0
"""Frame of a module that works on a plain host: its lock, and how it tells what the host refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System


def _nothing() -> Mapping[str, Any]:
    return {}


@contextlib.contextmanager
def refusals_told(module: AnsibleModule, result: Callable[[], Mapping[str, Any]] = _nothing) -> Iterator[None]:
    """End the module with the sentence of a HostError, if one is raised, and with the holder of a lock of another run.

    ``result`` gives what is told besides: what was done before the refusal.
    """
    try:
        yield
    except host_lock.LockedError as error:
        module.fail_json(msg=str(error), holder=error.holder, **result())
    except HostError as error:
        module.fail_json(msg=str(error), **result())


def working(system: System, wanted: Mapping[str, Any], check: bool) -> contextlib.AbstractContextManager[None]:
    """Work of the run ``holder`` on the instance ``name``, both of ``wanted``, for which its lock is renewed.

    A check changes nothing, so it needs no lock. Raises LockedError where another run has it.
    """
    return contextlib.nullcontext() if check else host_lock.working(system, wanted["name"], wanted["holder"])
