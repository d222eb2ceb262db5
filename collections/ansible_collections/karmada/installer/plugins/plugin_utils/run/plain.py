# SPDX-License-Identifier: Apache-2.0
"""Plain data: what JSON can hold, of Ansible's wrapped values and of records that steps hand on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


def plain(value: Any) -> Any:
    """Copy of a value without the tags on Ansible's strings, which serializers do not know."""
    return json.loads(json.dumps(value))


@dataclass(frozen=True)
class Record:
    """Base of dataclasses whose plain form is a map of their fields."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Instance from its plain form."""
        return cls(**given)

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)
