# SPDX-License-Identifier: Apache-2.0
"""Values of inventory variables: what is data, and what is a template, for every version of ansible-core."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from ansible import template

#: Text of these characters only is never a template, nor an expression with an effect.
_HARMLESS = re.compile(r"[A-Za-z0-9_./:@+-]*")
_PATH = re.compile(r"[a-z]\w*(\.[a-zA-Z]\w*)+", re.ASCII)
#: Answer of ``at_path`` if it is uncertain what Ansible would find.
NOT_PLAIN = object()


def at_path(expression: Any, variables: Any) -> Any:
    """Value of an expression like ``karmada_member.labels.tier``, or ``NOT_PLAIN`` if it is uncertain.

    It is uncertain if Ansible's result could differ: undefined, a method of a mapping, or in earlier versions a number
    from a string.
    """
    if not hasattr(template, "trust_as_template") or not _PATH.fullmatch(str(expression)):
        return NOT_PLAIN
    found = variables
    for step in str(expression).split("."):
        if not isinstance(found, Mapping) or step not in found or hasattr(found, step):
            return NOT_PLAIN
        found = found[step]
    return found


def as_data(value: Any) -> Any:
    """Value whose strings no version of ansible-core takes for templates or shows with more than their text.

    A string that cannot be a template is marked as trusted: `ansible-inventory` writes any other one as a mapping of
    its own, which with thousands of members takes more time than all else.
    """
    if isinstance(value, dict):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_data(item) for item in value]
    return _as_text(value) if isinstance(value, str) else value


def as_template(text: str) -> Any:
    """Text that every version of ansible-core takes for a template."""
    return template.trust_as_template(text) if hasattr(template, "trust_as_template") else text


@functools.lru_cache(maxsize=10_000)
def _as_text(text: str) -> Any:
    harmless = _HARMLESS.fullmatch(text) is not None
    if hasattr(template, "trust_as_template"):
        # Since 2.19 only strings that are marked as trusted are templates. Ours come from a reader that marks none, and
        # the plugin does not request it (trusted_by_default).
        return as_template(text) if harmless else text
    # Before, every string is a template unless it is marked as unsafe.
    from ansible.utils.unsafe_proxy import wrap_var  # noqa: PLC0415 - goes away in later versions

    return text if harmless else wrap_var(text)
