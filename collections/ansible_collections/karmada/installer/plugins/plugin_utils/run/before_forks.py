# SPDX-License-Identifier: Apache-2.0
"""Preparation of the first process of a run, so that its forks do not each do again what they have in common.

Ansible forks for each task on each host: some twenty times in a run that has nothing to do.
"""

from __future__ import annotations

import gc

from ansible.plugins.loader import filter_loader


def prepare() -> None:
    """Load Ansible's filters, and keep forks from copying what they share with the first process."""
    # The first filter that a template names has Ansible load all of its own.
    filter_loader.get("default")
    # A collection of garbage writes to each object that is not frozen, so a fork copies the memory of all of them.
    gc.freeze()
