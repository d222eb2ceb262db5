# SPDX-License-Identifier: Apache-2.0
"""Flags and feature gates of each release's programs, as the programs themselves list them.

``schemas/program_flags.json`` holds program → version → ``flags`` and ``gates``, which
``tools/record_program_flags.py`` read from ``--help``; a contract test compares the two.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .releases import Release
from .types import Component

FILE = Path(__file__).parents[3] / "schemas" / "program_flags.json"
#: Flags of etcd that its configuration file lacks at top level: they are in sections there, or not at all.
_NOT_IN_FILE = re.compile(
    r"(config-file|version|help|((client|peer)-)?(cert|key)-file|(client|peer)-(client-)?(cert|key|crl|auto|skip|trusted)-.*"
    r"|peer-auto-tls|trusted-ca-file|auto-tls|discovery-.+|raft-.+|socket-.+)"
)


def flags(component: Component, release: Release) -> Sequence[str]:
    """Names of the flags that ``--help`` lists, sorted; for etcd those that its configuration file takes as well.

    Empty if this version is not recorded.
    """
    found = _record(component, release).get("flags", ())
    if not component.settings_file:
        return found
    return tuple(flag for flag in found if not _NOT_IN_FILE.fullmatch(flag))


def feature_gates(component: Component, release: Release) -> Sequence[str]:
    """Names of the feature gates, sorted; empty for a component that takes none."""
    return _record(component, release).get("gates", ()) if component.takes_feature_gates else ()


def program(component: Component) -> str:
    """Name of the program that a component runs."""
    return component.binary.rpartition("/")[2]


def _record(component: Component, release: Release) -> Mapping[str, Sequence[str]]:
    return _all().get(program(component), {}).get(getattr(release, component.image.release), {})


@functools.cache
def _all() -> Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]:
    found: dict[str, dict[str, dict[str, list[str]]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
