# SPDX-License-Identifier: Apache-2.0
"""Digests of what a run would carry out, which a check leaves and a later run of the same has to find again.

In a workflow a person approves between the check and the installation, and both read the document anew. Contents of
Secrets are no part of it: a credential that was renewed in between changes nothing that anybody approves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..document import manifest
from ..problems import Problem, Reason
from ..run.run import Run
from ..run.selection import SHOWN

#: Variable by which a check hands this on, as an artifact of its job, and a later run gets it.
VARIABLE = "karmada_document_seen"
#: Part that an account may not be able to read.
_HOST_CLUSTER = "the host cluster"


def of_run(run: Run) -> dict[str, Any]:
    """Document and its parts in a form that a job keeps: ``instance``, and ``parts``, from what it is to its digest."""
    return {"instance": run.full_name(run.name), "parts": {**_of_document(run.deployment), **_of_surroundings(run)}}


def problems(run: Run, seen: Mapping[str, Any], *, answers: bool) -> list[Problem]:
    """Problem if a check has seen something else than what this run would carry out; none if there was no check.

    ``answers`` is whether all that the run needs was found to be in order. If it is not, only the document is compared.
    """
    if not seen:
        return []
    instance, parts = seen.get("instance"), seen.get("parts")
    if not isinstance(instance, str) or not isinstance(parts, Mapping):
        remedy = "Leave it out, or take it unchanged from the artifacts of a job that has checked."
        return [Problem("is not what a check has passed on", VARIABLE, remedy, reason=Reason.INVALID_ARGUMENT)]
    here = run.full_name(run.name)
    if instance != here:
        return [_changed(f"the check before this run was of {instance[:200]!r}", here)]
    now = _of_document(run.deployment)
    if answers:
        now |= _of_surroundings(run)
    names = now.keys() | (parts.keys() if answers else {each for each in parts if str(each).startswith("spec.")})
    others = sorted(str(each) for each in names if now.get(each) != parts.get(each))
    if not now.get(_HOST_CLUSTER) or not parts.get(_HOST_CLUSTER):
        others = [each for each in others if each != _HOST_CLUSTER]
    if not others:
        return []
    listed = ", ".join(others[:SHOWN]) + (", …" if len(others) > SHOWN else "")
    return [_changed(f"it is not what was checked before this run; changed since: {listed}", here)]


def _changed(what: str, instance: str) -> Problem:
    remedy = (
        "Check it as it is now (karmada.installer.preflight). In AWX, launch the workflow anew: what somebody approves "
        "is then what is carried out."
    )
    return Problem(what, f"{manifest.KIND} {instance}", remedy, reason=Reason.DOCUMENT_CHANGED)


def _of_document(document: Mapping[str, Any]) -> dict[str, str]:
    """Digest of each field of the resolved spec. Annotations and labels decide nothing."""
    spec = manifest.carried_out(document)["spec"]
    return {f"spec.{name}": _digest(value) for name, value in spec.items()}


def _of_surroundings(run: Run) -> dict[str, str]:
    """Digests of what decides beside the document: its ConfigMaps, the cluster, and what follows where it is silent."""
    release = run.instance.release
    decided = {
        **{f"ConfigMap {name}": content for name, content in run.config_maps.items()},
        "the versions": [release.karmada, release.kubernetes, release.etcd],
        "where etcd keeps its data": run.state.etcd.storage,
    }
    if here := run.place.host_cluster_uid:
        decided[_HOST_CLUSTER] = here
    return {name: _digest(value) for name, value in decided.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
