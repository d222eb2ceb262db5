# SPDX-License-Identifier: Apache-2.0
"""Facts that AWX tells a job about itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

#: Label of a job in the name of a lock's holder. Of what somebody may call themselves only harmless characters are
#: kept: the name is shown, and copied into a command.
_LABEL = re.compile(r"awx-job-(?P<job>[0-9]{1,20})\.(?P<operation>[a-z0-9_-]{1,40})(@(?P<user>[A-Za-z0-9_.+-]{1,64}))?")
_UNFIT = re.compile(r"[^A-Za-z0-9_.+-]")
_UNFIT_OPERATION = re.compile(r"[^a-z0-9_-]")


def label(variables: Mapping[str, Any], operation: str) -> str:
    """Label of the job that these variables of a task belong to; empty if it is none of AWX.

    AWX gives them as extra variables, also by the older prefix.
    """
    job = str(variables.get("awx_job_id") or variables.get("tower_job_id") or "")
    user = str(variables.get("awx_user_name") or variables.get("tower_user_name") or "")
    # Playbooks of a project are named as somebody likes.
    named = _UNFIT_OPERATION.sub("_", operation.lower())[:40] or "run"
    found = f"awx-job-{job}.{named}" + (f"@{_UNFIT.sub('_', user)[:64]}" if user else "")
    return found if _LABEL.fullmatch(found) else ""


def in_words(given: str) -> str:
    """Job that a label names, for people; empty for another text."""
    found = _LABEL.fullmatch(given)
    if not found:
        return ""
    started = f", started by {found['user']}" if found["user"] else ""
    return f"AWX job {found['job']} ({found['operation']}{started})"


def artifacts(environment: Mapping[str, str] | None = None) -> str:
    """Folder that outlives the working directory of a job of AWX, which is deleted with it; empty if this is none.

    ansible-runner names its folder for artifacts to every run; a number has a job of AWX only. So whoever works with
    ansible-navigator in a folder of their own is not taken for one.
    """
    environment = os.environ if environment is None else environment
    return environment.get("AWX_ISOLATED_DATA_DIR", "") if environment.get("JOB_ID") else ""
