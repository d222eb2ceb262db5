# SPDX-License-Identifier: Apache-2.0
"""Pages of roles and plugins, from their own documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from . import sources
from .sources import markdown, option_row, row

#: How the short description of a plugin begins that only our own playbooks and roles use.
INNER = "Inner "

PLUGINS_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from the documentation in plugins/ by `make reference`. Change that, not this page. -->

# Plugins

What the collection has for inventories and tasks of your own. `ansible-doc karmada.installer.NAME` tells this, too.
Most runs need none of it but the inventory source: the [playbooks](variables.md) are the way in, and the
[roles](roles.md) where playbooks of your own need another order.

{public}
## Inner steps

These actions are the steps of the roles. They need what the step before has left, so they are no interface: names and
options change without notice. They are listed because the output of a run names them.

{inner}
"""

ROLES_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from roles/*/meta/argument_specs.yml by `make reference`. Change those, not this page. -->

# Roles

The playbooks `karmada.installer.install`, `members` and `uninstall` run these roles in the order in which they need
each other. In playbooks of your own they are called in the same order, on the host `karmada_control`, or on
the group `karmada_on_hosts` for a control plane on plain hosts. The README of each role says what it changes and has an
example. All take `karmada_deployment`, `karmada_connection` and `karmada_operation`, which inventory and playbooks set.

{roles}
"""

_HEADS = {"inventory": "Inventory source", "module": "Action", "lookup": "Lookup", "callback": "Callback"}


def plugins_page() -> str:
    """Plugins for users in full, and a line for each that only our own roles use."""
    public: list[str] = []
    inner = ["| action | does |", "|---|---|"]
    kinds = sources.documented()
    for kind in (*_HEADS, *(kind for kind in kinds if kind not in (*_HEADS, "role", "keyword"))):
        for name, plugin in kinds.get(kind, {}).items():
            short = str(plugin["doc"]["short_description"])
            if short.startswith(INNER):
                inner.append(row(f"`{name}`", short.partition(": ")[2] or short))
            else:
                public += _section(_HEADS.get(kind, kind.capitalize()), name, plugin)
    return PLUGINS_PAGE.format(public="\n".join(public), inner="\n".join(inner))


def _section(kind: str, name: str, plugin: Mapping[str, Any]) -> Iterator[str]:
    doc = plugin["doc"]
    yield from (f"## {kind} `{name}`", "", f"{markdown(doc['short_description'])}.", "")
    for paragraph in _paragraphs(doc["description"]):
        yield from (*_wrapped(paragraph), "")
    if options := doc.get("options"):
        yield from ("| option | type | default | meaning |", "|---|---|---|---|")
        yield from (option_row(each, option) for each, option in sorted(options.items()))
        yield ""
    if modes := _modes(doc.get("attributes") or {}):
        yield from (*_wrapped(modes), "")
    if examples := str(plugin.get("examples") or "").strip("\n"):
        yield from ("```yaml", examples, "```", "")
    if returned := plugin.get("return"):
        yield from ("| returns | type | when | meaning |", "|---|---|---|---|")
        for each, value in returned.items():
            yield row(
                f"`{each}`", sources.type_of(value), str(value.get("returned", "")), markdown(value["description"])
            )
        yield ""


def _modes(attributes: Mapping[str, Any]) -> str:
    """Sentence on check mode and diff mode."""
    found = {name: attributes[name] for name in ("check_mode", "diff_mode") if name in attributes}
    told = []
    for name, attribute in found.items():
        details = markdown(attribute.get("details") or "")
        told.append(f"{name.replace('_', ' ').capitalize()}: {attribute['support']}.{' ' if details else ''}{details}")
    return " ".join(told)


def roles_page() -> str:
    """A section for each role, with a table of the variables of each of its entry points."""
    lines: list[str] = []
    for name, role in sources.documented()["role"].items():
        lines += [f"## `{name}`", ""]
        link = f"../../collections/ansible_collections/karmada/installer/roles/{name}/README.md"
        entries = role["entry_points"]
        for entry in sorted(entries, key=lambda each: (each != "main", each)):
            found = entries[entry]
            if entry != "main" and found == entries.get("main"):
                lines += [f"Its part for one place by itself: tasks `{entry}`.", ""]
                continue
            if entry != "main":
                lines += [f"Tasks `{entry}`:", ""]
            lines += _wrapped(f"{markdown(found['short_description'])}.")
            lines.append("")
            for paragraph in _paragraphs(found["description"]):
                lines += [*_wrapped(paragraph), ""]
            options = {each: option for each, option in found["options"].items() if each not in sources.GIVEN}
            if options and (entry == "main" or options != _options(entries, "main")):
                lines += ["| variable | type | default | meaning |", "|---|---|---|---|"]
                lines += [*(option_row(each, option) for each, option in sorted(options.items())), ""]
        lines += [f"[README of the role]({link})", ""]
    return ROLES_PAGE.format(roles="\n".join(lines).rstrip())


def _options(entries: Mapping[str, Any], entry: str) -> dict[str, Any]:
    given = entries.get(entry, {}).get("options", {})
    return {name: option for name, option in given.items() if name not in sources.GIVEN}


def _paragraphs(description: str | list[str]) -> list[str]:
    return [markdown(each) for each in ([description] if isinstance(description, str) else description)]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)
