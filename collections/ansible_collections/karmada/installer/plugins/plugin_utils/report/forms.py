# SPDX-License-Identifier: Apache-2.0
"""Forms in which a run leaves its report: the variable ``karmada_report``. No I/O."""

from __future__ import annotations

from ..problems import Problem, Reason

VARIABLE = "karmada_report"
#: The report as JSON is always written; ``html`` adds the page.
JSON, HTML = "json", "html"


def problem(given: str, file: str | None) -> Problem | None:
    """Problem with the form that was asked for, if there is one; ``file`` is that of the report as JSON."""
    if given not in (JSON, HTML):
        remedy = f"{JSON} for the report as JSON, which is the default; {HTML} for a page beside it as well"
        return Problem(f"{given!r} is no form of a report", VARIABLE, remedy, reason=Reason.INVALID_ARGUMENT)
    if given == HTML and not file:
        what, remedy = (
            "there is no file for the report, so that no page can be beside it",
            "set connection.report_output",
        )
        return Problem(what, VARIABLE, remedy, reason=Reason.INVALID_ARGUMENT)
    return None
