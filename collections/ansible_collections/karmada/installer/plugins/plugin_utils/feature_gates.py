# SPDX-License-Identifier: Apache-2.0
"""Which feature gates each component of a release has, as the programs themselves say it.

``schemas/feature_gates.json`` is written by ``tools/generate_feature_gates.py``; a contract test compares it with the
programs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

FILE = Path(__file__).parents[2] / "schemas" / "feature_gates.json"


def known(release: str, component: str) -> Sequence[str]:
    """Names of the gates, sorted; none for a component that takes no gates."""
    return _all().get(release, {}).get(component, ())


@functools.cache
def _all() -> Mapping[str, Mapping[str, Sequence[str]]]:
    found: dict[str, dict[str, list[str]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found
