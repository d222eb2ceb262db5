# SPDX-License-Identifier: Apache-2.0
"""The one exception that is shown to the user as a sentence, without a traceback."""

from __future__ import annotations


class LabError(Exception):
    """Something the user can act on: what is wrong, where, and how to mend it."""
