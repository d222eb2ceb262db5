# SPDX-License-Identifier: Apache-2.0
"""Filter with a query of JMESPath."""

from __future__ import annotations

DOCUMENTATION = r"""
name: json_query
short_description: What a query of JMESPath finds in data
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Looks something up in a report, in variables of the inventory or in any other data, by an expression of JMESPath. It
    takes what C(community.general.json_query) takes, and gives the same.
  - What finds nothing is null.
  - Needs the Python package C(jmespath) where Ansible runs.
positional: expr
options:
  _input:
    description: The data.
    type: raw
    required: true
  expr:
    description: The expression.
    type: str
    required: true
seealso:
  - plugin: karmada.installer.karmada
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Say which members are not ready
  ansible.builtin.debug:
    msg: "{{ karmada_status | karmada.installer.json_query('members[?!ready].name') }}"

- name: Say which control planes have more than three members
  ansible.builtin.debug:
    msg: >-
      {{ groups.karmada_instances | map('extract', hostvars)
         | karmada.installer.json_query('[?length(karmada_deployment.spec.members) > `3`].karmada_instance_name') }}
"""

RETURN = r"""
_value:
  description: What the expression finds.
  type: raw
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.karmada.installer.plugins.plugin_utils import jmespath_query
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.plain import plain


def json_query(data: Any, expr: Any) -> Any:
    """Answer of the expression over the data. Raises AnsibleFilterError if it cannot be evaluated."""
    try:
        # JMESPath knows the types of JSON by their names, which those of Ansible's tagged strings are not.
        return jmespath_query.search(plain(expr), _plain(data), "json_query")
    except ProblemsError as error:
        raise AnsibleFilterError("; ".join(map(str, error.problems))) from error


def _plain(data: Any) -> Any:
    """Plain copy of data that may have mappings and sequences of Ansible's own in it."""
    if isinstance(data, dict) or hasattr(data, "keys"):
        return {str(key): _plain(data[key]) for key in data}
    if isinstance(data, list | tuple | set):
        return [_plain(each) for each in data]
    return plain(data) if data is None or isinstance(data, str | int | float | bool) else str(data)


class FilterModule:
    """See DOCUMENTATION."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters of this file by name."""
        return {"json_query": json_query}
