# SPDX-License-Identifier: Apache-2.0
"""Pod Security Standards "baseline" and "restricted", implemented from the text of the standard.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.35. A contract test compares the
verdicts with those of a real API server. A dry run of the pods there would need no list, but also a namespace that
exists and the right to create pods in it, which a preflight has not, and it tells nothing of the field to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Pod = Mapping[str, Any]

#: Namespace label with the level that is enforced on its pods.
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_SYSCTLS = {
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
_CAPABILITIES = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
_SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(pod: Pod, level: str = RESTRICTED) -> list[str]:
    """Violations of this level by a pod with this spec; empty if it is admitted."""
    if level == PRIVILEGED:
        return []
    found = [*_baseline_pod(pod)]
    for container in _containers(pod):
        found += _baseline_container(container, pod)
    if level == RESTRICTED:
        found += _restricted_pod(pod)
        for container in _containers(pod):
            found += _restricted_container(container, _context(pod))
    return list(dict.fromkeys(found))


def _containers(pod: Pod) -> Iterator[Pod]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(kind) or []


def _context(holder: Pod) -> Mapping[str, Any]:
    return holder.get("securityContext") or {}


def _baseline_pod(pod: Pod) -> Iterator[str]:
    yield from (f"{each} is set" for each in ("hostNetwork", "hostPID", "hostIPC") if pod.get(each))
    context = _context(pod)
    yield from (f"sysctl {each['name']}" for each in context.get("sysctls") or [] if each["name"] not in _SYSCTLS)
    yield from (f"volume {each['name']} is of the host" for each in pod.get("volumes") or [] if "hostPath" in each)
    yield from _kernel("the pod", context)


def _baseline_container(container: Pod, pod: Pod) -> Iterator[str]:
    name, own = container["name"], _context(container)
    if own.get("privileged"):
        yield f"{name} is privileged"
    added = set((own.get("capabilities") or {}).get("add") or []) - _CAPABILITIES
    if added:
        yield f"{name} adds capabilities {', '.join(sorted(added))}"
    if own.get("procMount", "Default") != "Default":
        yield f"{name} unmasks /proc"
    if not pod.get("hostNetwork") and any(port.get("hostPort") for port in container.get("ports") or []):
        yield f"{name} has a host port"
    yield from _kernel(name, own)
    handlers = {each: container.get(each) for each in ("livenessProbe", "readinessProbe", "startupProbe")}
    handlers |= {each: (container.get("lifecycle") or {}).get(each) for each in ("postStart", "preStop")}
    for place, handler in handlers.items():
        if any(((handler or {}).get(way) or {}).get("host") for way in ("httpGet", "tcpSocket")):
            yield f"{name} has a host in its {place}"


def _kernel(name: str, context: Mapping[str, Any]) -> Iterator[str]:
    """Violations in the fields that the contexts of pods and containers share."""
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{name} is a host process"
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield f"{name} has seccomp profile Unconfined"
    if (context.get("appArmorProfile") or {}).get("type") == "Unconfined":
        yield f"{name} is unconfined by AppArmor"
    labels = context.get("seLinuxOptions") or {}
    if labels.get("user") or labels.get("role") or labels.get("type", "") not in _SELINUX_TYPES:
        yield f"{name} sets SELinux options"


def _restricted_pod(pod: Pod) -> Iterator[str]:
    for volume in pod.get("volumes") or []:
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES:
            yield f"volume {volume['name']} is of kind {', '.join(sorted(kinds))}"
    if _context(pod).get("runAsUser") == 0:
        yield "the pod runs as user 0"


def _restricted_container(container: Pod, pod: Mapping[str, Any]) -> Iterator[str]:
    name, own = container["name"], _context(container)
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may gain privileges"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []) or set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        yield f"{name} keeps capabilities"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if own.get("runAsUser") == 0:
        yield f"{name} runs as user 0"
    profile = (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type")
    if profile not in _SECCOMP:
        yield f"{name} has seccomp profile {profile}"
