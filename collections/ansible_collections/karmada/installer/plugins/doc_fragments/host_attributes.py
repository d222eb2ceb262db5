# SPDX-License-Identifier: Apache-2.0
"""Attributes for the documentation of actions on plain hosts."""

from __future__ import annotations


class ModuleDocFragment:
    """Meaning of the attributes. A module states its diff support; the others have full support."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: With C(--check) it says what it would change, and changes nothing.
    support: full
  diff_mode:
    description: With C(--diff) it shows each file before and after the change, and nothing of keys.
  idempotent:
    description: Run again under the same circumstances, it changes nothing.
    support: full
  action:
    description: What is to be done is worked out inside C(ansible-playbook), and done on the host by a module.
    support: full
"""
