# SPDX-License-Identifier: Apache-2.0
"""Questions that AWX asks before a job: the variables that a playbook takes, as a survey has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from . import sources, variables

#: Variables that nobody is asked for in AWX, with the reason.
NOT_ASKED = {
    "backup_identity": "a file of the machine that Ansible runs on, which a credential of the job gives it",
    "karmada_fail_on_drift": "who launches a check reads what it says; the template that nobody launches sets it",
    "member_join_noted": "the tasks noted_on_hosts set it",
    "restore_identity": "a file of the machine that Ansible runs on, which a credential of the job gives it",
}
#: Variables without which a playbook refuses to begin, beside those of playbooks that are about members.
REQUIRED = {("uninstall", "karmada_confirm")}
#: Type of a variable → type of its question. A list is a line of names, as a survey has no lists of one's own.
QUESTIONS = {"int": "integer", "float": "float", "bool": "multiplechoice", "str": "text", "list": "text"}
#: Default of a variable that is another one, with the default of that.
_ALIAS = re.compile(r"\{\{ *(\w+) *\| *default\(([^(),]*)(?:, *true)?\)(?: *\| *\w+)? *\}\}")
#: Sentences and clauses that say how a variable is given on a command line.
_FOR_COMMAND_LINES = re.compile(r", as in -e [^.;]*(?=[.;])| Usually (?:given|set)\b[^.]*\.(?=\s|$)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@functools.cache
def taken(verb: str) -> Mapping[str, Mapping[str, Any]]:
    """Variable → its option, for all that somebody may be asked before this playbook runs; sorted by name."""
    own: dict[str, Mapping[str, Any]] = {}
    taken_over: dict[str, Mapping[str, Any]] = {}
    for name, option in _offered(verb):
        if alias := _ALIAS.fullmatch(str(option.get("default", "")).strip()):
            taken_over.setdefault(alias[1], {**option, "default": yaml.safe_load(alias[2])})
        else:
            own.setdefault(name, option)
    found = {**taken_over, **own}
    inner = {*variables.set_by_others(), *sources.GIVEN, *NOT_ASKED}
    return {
        name: option
        for name, option in sorted(found.items())
        if name not in inner
        and "_result." not in str(option.get("default", ""))
        and option.get("type", "str") in QUESTIONS
        and option.get("elements", "str") == "str"
    }


def offered(verb: str) -> set[str]:
    """Variables that somebody may give this playbook, those that nobody is asked for included."""
    return {name for name, _option in _offered(verb)}


def _offered(verb: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Variables of the roles that a playbook runs, of the actions that it calls, and of the engine."""
    for use in sources.uses(verb):
        for role, entry in sources.entries_of(use.content):
            entries = sources.documented()["role"][role]["entry_points"]
            yield from (entries.get(entry) or entries.get("main") or {}).get("options", {}).items()
        called = sources.module_of(use.content)
        for option, value in called[1].items() if called else ():
            if called and (alias := _ALIAS.fullmatch(str(value))):
                described = sources.documented()["module"][called[0]]["doc"]["options"][option]
                yield alias[1], {**described, "required": False, "default": yaml.safe_load(alias[2])}
    for name, (kind, _default, meaning, verbs) in variables.BESIDES.items():
        if verb in verbs:
            yield name, {"type": "list" if kind.startswith("list") else kind, "description": meaning}


def survey(verb: str) -> dict[str, Any]:
    """Survey of a playbook as AWX takes it; empty if nothing is to be asked."""
    about_members = any((use.content.get("vars") or {}).get("karmada_limit") == "any" for use in sources.uses(verb))
    required = {*REQUIRED, *({(verb, "karmada_members")} if about_members else ())}
    asked = [
        question(name, {**option, "required": option.get("required") or (verb, name) in required})
        for name, option in taken(verb).items()
    ]
    # AWX refuses a survey without questions.
    return {"name": "", "description": "", "spec": asked} if asked else {}


def question(name: str, option: Mapping[str, Any]) -> dict[str, Any]:
    """Question for one variable.

    What is not required may be left empty. AWX keeps a default of ``""`` as an answer, so there is none where the
    variable has none that can be written down.
    """
    kind, default = str(option.get("type", "str")), option.get("default")
    choices = ["true", "false"] if kind == "bool" else [str(each) for each in option.get("choices") or ()]
    asked: dict[str, Any] = {
        "question_name": name.removeprefix("karmada_").replace("_", " ").capitalize(),
        "question_description": _meaning(option) + (" Names, separated by commas." if kind == "list" else ""),
        "variable": name,
        "type": "multiplechoice" if choices else QUESTIONS[kind],
        "required": bool(option.get("required", False)),
    }
    if choices:
        asked["choices"] = choices
    if kind == "int":
        asked["min"] = 1 if name.endswith("_timeout") else 0
    if kind == "bool" and isinstance(default, bool):
        asked["default"] = str(default).lower()
    elif kind in ("int", "float") and isinstance(default, int | float) and default:
        asked["default"] = default
    elif kind == "str" and default and "{{" not in str(default):
        asked["default"] = str(default)
    return asked


def _meaning(option: Mapping[str, Any]) -> str:
    told = option.get("description", "")
    text = _FOR_COMMAND_LINES.sub("", told if isinstance(told, str) else " ".join(told))
    return _LINK.sub(r"\1", sources.markdown(text)).replace("`", "").replace("**", "")
