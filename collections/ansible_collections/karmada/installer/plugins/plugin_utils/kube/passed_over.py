# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs that the environment names and that do not count there, because something stronger does."""

from __future__ import annotations

from collections.abc import Mapping

from ..problems import Problem, ProblemsError, Reason, Severity
from . import k8s_auth
from .kubeconfig import from_environment

_OF_KUBECONFIG = (f"{k8s_auth.PREFIX}KUBECONFIG", f"{k8s_auth.PREFIX}CONTEXT")


def problem(environment: Mapping[str, str]) -> Problem | None:
    """Warning if the environment names a kubeconfig of another server than the one that counts; None if it does not.

    In AWX these are two credentials of one job, of which the bearer token counts, whichever was added last.
    """
    try:
        given = k8s_auth.settings(environment)
        if not given.is_whole or not given.kubeconfig:
            return None
        alone = {name: environment[name] for name in _OF_KUBECONFIG if name in environment}
        other = from_environment(None, alone, prepared=False).server
    except ProblemsError:
        # What counts is told where it is used; what does not count may be as it likes.
        return None
    counts = str(given.cluster["server"]).rstrip("/")
    if other == counts:
        return None
    return Problem(
        f"it leads to {other}, and is not used: {given.named['host']} and its credential lead to {counts}",
        given.place("kubeconfig"),
        "If the other cluster is meant, take the bearer token away: in AWX, give the job template one of the two "
        "credentials.",
        reason=Reason.OTHER_HOST_CLUSTER,
        severity=Severity.WARNING,
    )
