# SPDX-License-Identifier: Apache-2.0
"""Annotations by which users ask the operator for something, checked before anything is made of them. No I/O.

Their text becomes variables of playbooks, which Ansible templates. So nothing passes but lists of names, and what is
wrong stops every run of the object, because a misspelt wish may have been meant to keep the operator from something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import GROUP
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import printable
from ansible_collections.karmada.installer.plugins.plugin_utils.run import manager

PREFIX = f"{GROUP}/"
#: Labels that keep an instance when its object is deleted: ours, and those of other installers that users know.
KEEP_LABELS = (
    manager.KEEP_LABEL,
    "operator.karmada.io/disable-cascading-deletion",
    "karmada.install.io/disable-cascading-deletion",
)
PAUSED = manager.PAUSED
DRY_RUN, RUN_NOW = (f"{PREFIX}{each}" for each in ("dry-run", "run-now"))
#: Annotation → variables of playbooks that get its list of names.
CONFIRMATIONS = {
    f"{PREFIX}confirm-leave": ("karmada_confirm_leave",),
    f"{PREFIX}abandon-members": ("member_leave_abandon", "uninstall_abandon_members"),
    f"{PREFIX}abandon-hosts": ("preflight_abandon_hosts", "uninstall_abandon_hosts"),
}
#: These variables are text, names with commas between; the others are lists.
_TEXTS = frozenset({"karmada_confirm_leave"})
#: Annotation of a namespace: names of others whose objects may install into it.
ALLOWED_FROM = f"{PREFIX}allowed-from"
KNOWN = (PAUSED, DRY_RUN, RUN_NOW, *CONFIRMATIONS)
#: Those of objects that belong to a control plane: EtcdBackups and EtcdRestores.
OF_BELONGINGS = (PAUSED, RUN_NOW)
#: Characters of one annotation: more than 1,000 names of members.
LONGEST = 64 * 1024
#: Characters of JSON with all names that one object hands on to a run, as often as its order and its variables have
#: them: a Job has both in an annotation, and Kubernetes allows 256 KiB for all that one has.
HANDED_ON = 192 * 1024
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,127}")


@dataclass(frozen=True)
class Wishes:
    """Wishes by the annotations of one object; ``confirmations`` are (annotation, names)."""

    paused: bool = False
    dry_run: bool = False
    run_now: str = ""
    confirmations: tuple[tuple[str, tuple[str, ...]], ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Wishes:
        """Wishes in the annotations of an object; what is wrong with them is in ``problems``."""
        problems: list[Problem] = []
        token = annotations.get(RUN_NOW, "")
        if token and not _TOKEN.fullmatch(token):
            problems.append(_problem(RUN_NOW, token, "Write a word that was not there before, such as the time."))
        found = cls(
            paused=_flag(annotations, PAUSED, problems),
            dry_run=_flag(annotations, DRY_RUN, problems),
            run_now=token if not problems else "",
            confirmations=tuple(
                (each, names) for each in CONFIRMATIONS if (names := _names(annotations, each, problems))
            ),
        )
        if too_much := handed_on(found.variables, found.confirmations):
            where = f"metadata.annotations[{', '.join(name for name, _ in found.confirmations)}]"
            problems.append(Problem(too_much, where, "Name fewer of them.", reason=Reason.INVALID_ARGUMENT))
            found = replace(found, confirmations=())
        return replace(found, problems=tuple(problems))

    @classmethod
    def asked_of(cls, metadata: Mapping[str, Any], known: Iterable[str], problems: Iterable[Problem] = ()) -> Wishes:
        """Wishes of an object, of these annotations; ``problems`` are what else keeps it from being used."""
        annotations = metadata.get("annotations") or {}
        found = cls.of({name: str(annotations[name]) for name in known if name in annotations})
        return replace(found, problems=(*problems, *found.problems))

    @property
    def variables(self) -> dict[str, str | list[str]]:
        """Extra variables of playbooks."""
        return {
            variable: ",".join(names) if variable in _TEXTS else list(names)
            for annotation, names in self.confirmations
            for variable in CONFIRMATIONS[annotation]
        }


def handed_on(*names: Any) -> str:
    """Return why so many names cannot be handed to a run; empty if they can."""
    size = sum(len(json.dumps(each)) for each in names)
    if size <= HANDED_ON:
        return ""
    return f"has names that make {size >> 10} KiB in the order of a run; {HANDED_ON >> 10} KiB can be handed on"


def allows(namespace: Mapping[str, Any], other: str) -> bool:
    """Return whether a namespace, by its metadata, allows objects of another one to install into it."""
    agreed = str((namespace.get("annotations") or {}).get(ALLOWED_FROM, ""))
    return other in [each.strip() for each in agreed.split(",")]


def _flag(annotations: Mapping[str, str], name: str, problems: list[Problem]) -> bool:
    text = annotations.get(name, "false")
    if text not in ("true", "false"):
        problems.append(_problem(name, text, 'Write "true" or "false", or take it away.'))
    return text == "true"


def _names(annotations: Mapping[str, str], name: str, problems: list[Problem]) -> tuple[str, ...]:
    text = annotations.get(name, "")
    names = [each.strip() for each in text.split(",")] if text and len(text) <= LONGEST else []
    if len(text) > LONGEST or not all(_NAME.fullmatch(each) for each in names):
        problems.append(_problem(name, text, "Write names with commas between, as in: member1,member2"))
        return ()
    return tuple(sorted(set(names)))


def _problem(name: str, text: str, remedy: str) -> Problem:
    return Problem(
        f"cannot be used: {printable(text, 60)!r}",
        f"metadata.annotations[{name}]",
        remedy,
        reason=Reason.INVALID_ARGUMENT,
    )
