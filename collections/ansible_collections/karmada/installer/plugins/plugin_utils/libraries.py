# SPDX-License-Identifier: Apache-2.0
"""Python packages that the collection imports on the machine of ansible-playbook, with the remedy if one is missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping

from .problems import Problem, ProblemsError, Reason

#: Module → its package. ``setup.cfg`` declares the same packages, and a test compares them.
NEEDED: Mapping[str, str] = {
    "celpy": "cel-python",
    "cryptography": "cryptography",
    "jinja2": "Jinja2",
    "jsonschema": "jsonschema",
    "urllib3": "urllib3",
    "websocket": "websocket-client",
    "yaml": "PyYAML",
}
#: As ``NEEDED``, for endpoints of type Route only.
NEEDED_FOR_ROUTES: Mapping[str, str] = {"kubernetes": "kubernetes", "openshift": "openshift"}
#: As ``NEEDED``, for backups only: the extra ``backup`` of ``setup.cfg``.
NEEDED_FOR_BACKUPS: Mapping[str, str] = {"boto3": "boto3", "botocore": "boto3", "pyrage": "pyrage"}
#: As ``NEEDED``, for queries of JMESPath only.
NEEDED_FOR_QUERIES: Mapping[str, str] = {"jmespath": "jmespath"}


def missing(module: str, purpose: str = "") -> Problem:
    """Problem for a module of the tables that cannot be imported, with the command that installs its package."""
    package = {**NEEDED, **NEEDED_FOR_ROUTES, **NEEDED_FOR_BACKUPS, **NEEDED_FOR_QUERIES}[module]
    return Problem(
        f"the Python package {package} (module {module}) is missing{f'; {purpose} need it' if purpose else ''}",
        sys.executable,
        f"Install it where Ansible runs: {sys.executable} -m pip install {package}",
        reason=Reason.MISSING_PROGRAM,
    )


def missing_library(module: str, purpose: str = "") -> ProblemsError:
    """Error for a missing module."""
    return ProblemsError(missing(module, purpose))


def all_missing() -> list[Problem]:
    """Problems for all modules of ``NEEDED`` that this Python does not find. Imports none of them."""
    return [missing(module) for module in NEEDED if importlib.util.find_spec(module) is None]
