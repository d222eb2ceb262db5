# SPDX-License-Identifier: Apache-2.0
"""Reachability from pods: a short-lived pod tries with etcdctl, whose image every control plane has.

Images of components contain one program each and no shell. etcdctl makes a verified TLS connection, within a timeout,
to any address given as an etcd endpoint, and reports failures in the words of Go. An API server answers with an HTTP
error, which shows that it was reached. Authorities are annotations of the pod that a volume presents as files, so that
only the pod has to be removed. Nothing else is handed to it.
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

#: Name label of the pods, by which those of a killed run are found.
PROBE = "reach-probe"
#: Limits of one pod: targets, each with a container, and bytes of certificates (annotations may have 256 KiB in all).
TARGETS, AUTHORITY_BYTES = 10, 200 * 1024
#: Timeout for one target.
CONNECT_SECONDS = 5
#: Characters shown of an unknown message.
LONGEST = 300
#: Seconds that a new namespace may lack the service account of its pods.
_ACCOUNT_SECONDS = 15.0
_ANNOTATION = "installer.karmada.io/authority-"
_VOLUME, _FOLDER = "authorities", "/etc/reach"

#: Message of etcdctl → kind of fault. The first match counts.
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
#: Messages about a server that was reached: etcdctl checks the protocol only after it has verified the certificate.
_REACHED = re.compile(
    r"unexpected HTTP status code|missing selected ALPN property|AuthInfo: 'tls'"
    r"|remote error: tls: (bad certificate|certificate required)"
)
#: A proxy does not speak etcd's protocol, so its port was reached unless dialing failed.
_NOT_DIALED = re.compile(r"Error while dialing|waiting for connections to become ready")
_CAUSE = re.compile(r'desc = \\?"(?:transport: )?([^"\\]+)')


def fault_of(said: str, *, tls: bool = True) -> Fault | None:
    """Fault in the output of etcdctl, or None. Without ``tls`` only the port had to be reached."""
    if _REACHED.search(said) or (not tls and not _NOT_DIALED.search(said)):
        return None
    for pattern, kind in _WORDS:
        if re.search(pattern, said):
            return Fault(kind)
    last = (_CAUSE.findall(said) or said.strip().splitlines() or [""])[-1]
    return Fault(kinds.OTHER, redacted(last.strip())[:LONGEST])


def batches(targets: Iterable[Target]) -> Iterator[list[Target]]:
    """Targets in groups that fit into one pod."""
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
    """Pod that tries these targets, scheduled like pods of this component."""
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
            # So the output is in the pod's status.
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
    """Command that tries a target; ``authority`` is the file with the CAs that may have signed its certificate."""
    trust = [f"--cacert={authority}"] if target.authority else ["--insecure-skip-tls-verify"]
    place = f"{bracketed(target.host)}:{target.port}"
    return [
        *("etcdctl", "endpoint", "status", f"--endpoints={'https' if target.tls else 'http'}://{place}"),
        *(f"--dial-timeout={CONNECT_SECONDS}s", f"--command-timeout={CONNECT_SECONDS}s"),
        *(trust if target.tls else []),
    ]


def verdicts(live: Mapping[str, Any], targets: Sequence[Target]) -> tuple[dict[str, Fault], str] | None:
    """Results of a pod: faults by name, and the reason if it cannot tell; None while it is undecided."""
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
    """Create the pod and return its faults; the caller deletes it. Raises ProblemsError if it cannot tell."""
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
