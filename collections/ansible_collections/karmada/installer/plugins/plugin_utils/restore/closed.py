# SPDX-License-Identifier: Apache-2.0
"""Proof that API servers of a quarantined control plane refuse agents, by a certificate like those of agents.

Agents of Pull members are out of reach of a run, and each writes to its member what it reads in the control plane. So
nobody takes a configuration for the proof: every API server is asked by itself.
"""

from __future__ import annotations

from ..api_object import Object
from ..components.table import CLIENT_SIGNING_CA, KARMADA_APISERVER, KARMADA_CA
from ..components.types import KeyPair
from ..kube.errors import ApiError
from ..kube.kubeconfig import from_parts
from ..kube.port_forward import cluster_behind
from ..pki import x509
from ..run.run import Run
from ..run.snapshot import STEP_LIFETIME

#: Who asks. It has no rights, so that an API server which knows it answers 200 or 403.
_WHO = "system:karmada:installer-quarantine"
#: Answer to a certificate that no known authority has signed.
UNAUTHENTICATED = 401
#: Answer to one that it knows, and that may do nothing.
FORBIDDEN = 403
PATH = "/version"


def asker(run: Run) -> KeyPair:
    """Certificate like those of agents, of the moment."""
    wanted = x509.Certificate(_WHO, CLIENT_SIGNING_CA, _WHO, client=True)
    return x509.issue(wanted, run.state.authorities[CLIENT_SIGNING_CA], "ECDSA-P256", run.now, STEP_LIFETIME)


def api_servers(run: Run) -> list[str]:
    """Pods of API servers that have not come to their end. Raises ApiError if there is none: nothing was asked then.

    One that was evicted stays as an object, and answers nobody.
    """
    labels = run.instance.pod_selector(KARMADA_APISERVER.name)
    pods: list[Object] = run.host_cluster.list("v1", "Pod", run.namespace, labels=labels)
    found = [each["metadata"]["name"] for each in pods if not has_ended(each)]
    if not found:
        what = f"no pod of {KARMADA_APISERVER.name} is there to be asked"
        raise ApiError(run.host_cluster.name, "GET", "/api/v1/pods", 0, "", what)
    return found


def has_ended(pod: Object) -> bool:
    """Return whether nothing of a pod runs any more, or ever will."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def accepting_agents(run: Run) -> list[str]:
    """Pods of API servers that accept the certificate of an agent. Raises ApiError if one cannot be asked."""
    authorities, instance = run.state.authorities, run.instance
    shown = asker(run)
    port = KARMADA_APISERVER.listens(run.spec)["https"]
    parts = (authorities[KARMADA_CA].certificate, shown.certificate, shown.key)
    ca_pem, cert_pem, key_pem = (part.decode() for part in parts)
    url = f"https://{instance.service_host(KARMADA_APISERVER.name)}:{port}"
    access = from_parts(url, ca_pem=ca_pem, cert_pem=cert_pem, key_pem=key_pem)
    found = []
    for name in api_servers(run):
        server = cluster_behind(run.host_cluster, run.namespace, name, port, access, f"the API server {name}")
        try:
            server.get_raw(PATH, retry_seconds=0)
            found.append(name)
        except ApiError as error:
            if error.status == FORBIDDEN:
                found.append(name)
            elif error.status != UNAUTHENTICATED:
                raise
        finally:
            server.close()
    return found
