# SPDX-License-Identifier: Apache-2.0
"""Attributes for the documentation of all actions."""

from __future__ import annotations


class ModuleDocFragment:
    """Meaning of the attributes, which have full support unless a module says otherwise."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: With C(--check) it says what it would change, and changes nothing.
    support: full
  diff_mode:
    description: >-
      With C(--diff) it shows each object before and after the change. The data of Secrets is replaced by whether it
      differs.
    support: full
  idempotent:
    description: Run again under the same circumstances, it changes nothing and sends no write.
    support: full
  action:
    description: The work is done inside C(ansible-playbook). Nothing is copied to a host.
    support: full
  action_group:
    description: Use C(group/karmada.installer.karmada) in C(module_defaults) to set options for all of these at once.
    support: full
    membership:
      - karmada.installer.karmada
"""
