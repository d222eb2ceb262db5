# SPDX-License-Identifier: Apache-2.0
"""What pods reach: a short-lived one tries, with the client of etcd, whose image every control plane has.

Images of components hold one program each and no shell. etcdctl makes a verified TLS connection to whatever it is told
is an etcd, within a given time, and says in the words of Go what kept it from that. An API server answers its request
with an error of HTTP, which means that it was reached. Authorities come with the pod, as annotations that a volume has
as files, so that there is nothing to remove but the pod. Nothing else is handed to it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds

from ..api_object import Object
from ..components import image_pins
from ..components.instance import Instance
from ..components.ip_families import bracketed
from ..components.table import ETCD
from ..components.types import Component
from ..kube.cluster import Cluster
from ..kube.errors import Forbidden
from ..problems import Problem, ProblemsError, Reason
from ..redaction import redacted
from ..render.pods import pod_template
from ..run.reach import Fault, Target
from . import probe_pods

#: The name label of the pods, so that those of a run that was killed are found.
PROBE = "reach-probe"
#: Targets of one pod, each with a container, and what its annotations may hold of certificates (in all 256 KiB).
TARGETS, AUTHORITY_BYTES = 10, 200 * 1024
#: How long one may take to be reached.
CONNECT_SECONDS = 5
#: How much is shown of words that are not known.
LONGEST = 300
#: How long a namespace that was made just now may be without the account that its pods have.
_ACCOUNT_SECONDS = 15.0
_ANNOTATION = "installer.karmada.io/authority-"
_VOLUME, _FOLDER = "authorities", "/etc/reach"

#: What etcdctl says → what kept it. The first that fits counts.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"x509: certificate has expired or is not yet valid: current time \S+ is before", kinds.NOT_YET_VALID),
    (r"x509: certificate has expired", kinds.EXPIRED),
    (r"x509: certificate signed by unknown authority", kinds.OTHER_AUTHORITY),
    (
        r"x509: (certificate is valid for|certificate is not valid for|cannot validate certificate for)",
        kinds.OTHER_NAME,
    ),
    (r"x509: ", kinds.OTHER_AUTHORITY),
    (r"first record does not look like a TLS handshake", kinds.NOT_TLS),
    (r"dial tcp: lookup |no such host", kinds.UNKNOWN_NAME),
    (r"connect: connection refused", kinds.REFUSED),
    (r"no route to host|network is unreachable", kinds.NO_ROUTE),
    (r"i/o timeout|waiting for connections to become ready|operation was canceled", kinds.SILENT),
)
#: What it says of somebody it has reached: it checks how to go on only when the certificate was right.
_REACHED = re.compile(
    r"unexpected HTTP status code|missing selected ALPN property|AuthInfo: 'tls'"
    r"|remote error: tls: (bad certificate|certificate required)"
)
#: Of a proxy, which does not speak its language, it has reached the port unless it could not dial.
_NOT_DIALED = re.compile(r"Error while dialing|waiting for connections to become ready")
_CAUSE = re.compile(r'desc = \\?"(?:transport: )?([^"\\]+)')


def fault_of(said: str, *, tls: bool = True) -> Fault | None:
    """What kept etcdctl from its target, of what it printed; None if nothing did. Without ``tls``, from the port."""
    if _REACHED.search(said) or (not tls and not _NOT_DIALED.search(said)):
        return None
    for pattern, kind in _WORDS:
        if re.search(pattern, said):
            return Fault(kind)
    last = (_CAUSE.findall(said) or said.strip().splitlines() or [""])[-1]
    return Fault(kinds.OTHER, redacted(last.strip())[:LONGEST])


def batches(targets: Iterable[Target]) -> Iterator[list[Target]]:
    """Targets that go into one pod."""
    batch: list[Target] = []
    size = 0
    for target in targets:
        if batch and (len(batch) == TARGETS or size + len(target.authority) > AUTHORITY_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(target)
        size += len(target.authority)
    if batch:
        yield batch


def pod(instance: Instance, component: Component, namespace: str, targets: Sequence[Target], seconds: int) -> Object:
    """The pod that tries these targets from where pods of this component are."""
    spec = pod_template(instance, component, "", [])["spec"]
    digest = hashlib.sha256("\n".join(target.name for target in targets).encode()).hexdigest()[:10]
    trusted = [number for number, target in enumerate(targets) if target.authority]
    metadata = {
        "name": f"{instance.name}-{PROBE}-{digest}",
        "namespace": namespace,
        "labels": instance.labels(PROBE),
        "annotations": {f"{_ANNOTATION}{number}": targets[number].authority for number in trusted},
    }
    mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
    containers = [
        probe_pods.container(
            spec,
            name=f"target-{number}",
            image=image_pins.reference(instance, ETCD),
            command=command(target, f"{_FOLDER}/{number}.pem"),
            volumeMounts=[mount],
            # What it has printed is in the pod's status then.
            terminationMessagePolicy="FallbackToLogsOnError",
        )
        for number, target in enumerate(targets)
    ]
    found = probe_pods.pod(metadata, spec, containers, seconds)
    files = [
        {"path": f"{number}.pem", "fieldRef": {"fieldPath": f"metadata.annotations['{_ANNOTATION}{number}']"}}
        for number in trusted
    ]
    found["spec"]["volumes"] = [{"name": _VOLUME, "downwardAPI": {"items": files}}]
    return found


def command(target: Target, authority: str) -> list[str]:
    """What tries a target; ``authority`` is the file with those that may have signed its certificate."""
    trust = [f"--cacert={authority}"] if target.authority else ["--insecure-skip-tls-verify"]
    place = f"{bracketed(target.host)}:{target.port}"
    return [
        *("etcdctl", "endpoint", "status", f"--endpoints={'https' if target.tls else 'http'}://{place}"),
        *(f"--dial-timeout={CONNECT_SECONDS}s", f"--command-timeout={CONNECT_SECONDS}s"),
        *(trust if target.tls else []),
    ]


def verdicts(live: Mapping[str, Any], targets: Sequence[Target]) -> tuple[dict[str, Fault], str] | None:
    """Of a pod: name → what keeps it from that target, and why it cannot tell, if it cannot. None: not decided yet."""
    status = live.get("status") or {}
    found: dict[str, Fault] = {}
    ended = 0
    for each in status.get("containerStatuses") or []:
        target = targets[int(each["name"].rpartition("-")[2])]
        state = each.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        reason = waiting.get("reason", "")
        if reason in probe_pods.UNPULLED or reason.endswith("ContainerError"):
            return {}, " ".join((waiting.get("message") or reason).split())
        if not terminated:
            continue
        if terminated.get("reason") in ("StartError", "ContainerCannotRun", "OOMKilled"):
            return {}, " ".join((terminated.get("message") or terminated["reason"]).split())
        ended += 1
        fault = fault_of(terminated.get("message") or "", tls=target.tls) if terminated.get("exitCode") else None
        if fault:
            found[target.name] = fault
    if ended == len(targets):
        return found, ""
    if status.get("phase") == "Failed":
        return {}, status.get("message") or status.get("reason") or "the pod failed"
    return None


def look(cluster: Cluster, wanted: Object, targets: Sequence[Target], seconds: int) -> dict[str, Fault]:
    """What the pod finds. It is made here, and removed by the caller. Raises ProblemsError if it cannot tell."""
    deadline = time.monotonic() + seconds
    metadata = wanted["metadata"]
    _create(cluster, wanted)
    live: Mapping[str, Any] = {}
    while True:
        live = cluster.get("v1", "Pod", metadata["name"], metadata["namespace"]) or {}
        found = verdicts(live, targets)
        if found and found[1]:
            raise _untold(metadata["namespace"], cluster, found[1])
        if found:
            return found[0]
        if time.monotonic() >= deadline:
            break
        probe_pods.pause(0.5)
    waits = probe_pods.unmet(live.get("status") or {})
    raise _untold(
        metadata["namespace"], cluster, f"nothing is known after {seconds} s" + (f" ({waits})" if waits else "")
    )


def _create(cluster: Cluster, wanted: Object) -> None:
    deadline = time.monotonic() + _ACCOUNT_SECONDS
    while True:
        try:
            cluster.create(wanted)
        except Forbidden as error:
            if "serviceaccount" not in str(error) or time.monotonic() > deadline:
                raise
            probe_pods.pause(0.5)
        else:
            return


def _untold(namespace: str, cluster: Cluster, why: str) -> ProblemsError:
    return ProblemsError(
        Problem(
            what=f"what pods reach cannot be tried: {why}",
            where=f"namespace {namespace} of the {cluster.name}",
            remedy="let it run a pod with the image of etcd, or do not ask for this (karmada_preflight_reach_members)",
            reason=Reason.CHECK_SKIPPED,
        )
    )
