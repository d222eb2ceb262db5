# SPDX-License-Identifier: Apache-2.0
"""The Pod Security Standard "restricted" (and with it "baseline"), written down from the standard's text.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.35.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(pod: dict[str, Any]) -> list[str]:
    """What the admission controller would say about this pod spec; empty when it may run in a restricted namespace."""
    return [*_of_pod(pod), *(found for each in _containers(pod) for found in _of_container(each, _context(pod)))]


def _containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(kind) or []


def _context(holder: dict[str, Any]) -> dict[str, Any]:
    return holder.get("securityContext") or {}


def _of_pod(pod: dict[str, Any]) -> Iterator[str]:
    yield from (f"{each} is set" for each in ("hostNetwork", "hostPID", "hostIPC") if pod.get(each))
    context = _context(pod)
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "is a host process"
    yield from (f"sysctl {each['name']}" for each in context.get("sysctls") or [] if each["name"] not in SYSCTLS)
    for volume in pod.get("volumes") or []:
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES or len(kinds) != 1:
            yield f"volume {volume['name']} is of kind {sorted(kinds)}"


def _of_container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    name, own = container["name"], _context(container)
    if own.get("privileged"):
        yield f"{name} is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may gain privileges"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []) or set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        yield f"{name} keeps capabilities"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield f"{name} runs as user 0"
    yield from _of_kernel(name, own, pod)
    if any(port.get("hostPort") for port in container.get("ports") or []):
        yield f"{name} has a host port"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        for way in ("httpGet", "tcpSocket"):
            if ((container.get(probe) or {}).get(way) or {}).get("host"):
                yield f"{name} has a host in its {probe}"


def _of_kernel(name: str, own: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    profile = (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type")
    if profile not in SECCOMP:
        yield f"{name} has seccomp profile {profile}"
    if own.get("procMount", "Default") != "Default":
        yield f"{name} unmasks /proc"
    for source in (own, pod):
        if (source.get("appArmorProfile") or {}).get("type") == "Unconfined":
            yield f"{name} is unconfined by AppArmor"
        if set(source.get("seLinuxOptions") or {}) & {"user", "role"}:
            yield f"{name} sets SELinux user or role"
