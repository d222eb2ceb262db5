# SPDX-License-Identifier: Apache-2.0
"""Component that the place of a problem names. No I/O."""

from __future__ import annotations

import functools
import re

from .table import PROGRAMS

#: Kinds of objects that bear the name of their component, with more behind it where there are many.
_KINDS = "Deployment|StatefulSet|Pod|Service|PodDisruptionBudget"


def component_in(where: str, instance: str) -> str:
    """Name of the component in a place, as ``etcd`` in these; empty if it names none.

    ``spec.components.etcd.local.replicas``, ``StatefulSet karmada/prod-etcd``, ``karmada-prod-etcd.service`` of an
    ``instance`` called prod.
    """
    field = re.search(r"\bspec\.components\.(\w+)", where)
    if field:
        return next((each.name for each in PROGRAMS if each.field == field[1]), "")
    found = _named(instance).search(where)
    return f"{_by_suffix()[found['object'] or found['unit']]}" if found else ""


@functools.cache
def _by_suffix() -> dict[str, str]:
    """Names of components by what objects and units are called after the instance, the longest first."""
    names = sorted((each.name for each in PROGRAMS), key=lambda each: -len(each))
    return {each.removeprefix("karmada-"): each for each in names}


@functools.lru_cache(maxsize=8)
def _named(instance: str) -> re.Pattern[str]:
    suffixes = "|".join(map(re.escape, sorted(_by_suffix(), key=lambda each: -len(each))))
    stem = re.escape(instance)
    return re.compile(
        rf"\b(?:{_KINDS}) [^\s/]+/{stem}-(?P<object>{suffixes})(?![a-z0-9])"
        rf"|\bkarmada-{stem}-(?P<unit>{suffixes})(?:-[-a-z0-9.]+)?\.service"
    )
