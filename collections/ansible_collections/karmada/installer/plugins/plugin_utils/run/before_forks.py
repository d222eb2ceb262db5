# SPDX-License-Identifier: Apache-2.0
"""Preparation of the first process of a run, so that its forks do not each do again what they have in common.

Ansible forks for each task on each host: some twenty times in a run that has nothing to do.
"""

from __future__ import annotations

import gc

from ansible.plugins.loader import filter_loader

#: New objects after which Python looks for garbage, in place of 700. A run makes some 100,000 that stay, modules and
#: tasks, and little garbage that needs to be looked for, so that a tenth of it would be spent on looking.
_NEW_OBJECTS = 50_000


def prepare() -> None:
    """Load Ansible's filters, and keep forks from copying what they share with the first process."""
    # The first filter that a template names has Ansible load all of its own.
    filter_loader.get("default")
    look_for_garbage_rarely()


def look_for_garbage_rarely() -> None:
    """Have this process and its forks look for garbage rarely, and never among the objects that are there now."""
    # That writes to each object that is not frozen, so a fork copies the memory of all of them.
    gc.freeze()
    gc.set_threshold(max(_NEW_OBJECTS, gc.get_threshold()[0]), *gc.get_threshold()[1:])
