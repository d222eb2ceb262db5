# SPDX-License-Identifier: Apache-2.0
"""Administrator's kubeconfig, for programs and for people."""

from __future__ import annotations

from ..api_object import Object
from ..components.table import KARMADA_APISERVER, KARMADA_CA
from ..components.types import KeyPair
from ..document.manifest import API_VERSION, KIND
from ..pki import files as pki_files
from ..render import workloads
from ..run import manager
from ..run.run import Run


def secret(run: Run) -> Object:
    """Secret for programs in the host cluster."""
    content = pki_files.admin_kubeconfig(run.material, run.public_url).encode()
    return workloads.secret(run.instance, "admin", "admin-config", {"kubeconfig": content})


def beside_object(run: Run) -> Object | None:
    """Secret beside the object that this run is for, where the control plane is elsewhere; it goes with the object.

    Whoever reads an object finds its kubeconfig there, also of a control plane on plain hosts or in another cluster.
    """
    uid, metadata = run.connection.object_uid, run.deployment["metadata"]
    if uid is None:
        return None
    if run.namespace == metadata["namespace"] and manager.is_in_host_cluster(run):
        return None
    found = secret(run)
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": metadata["name"], "uid": uid}
    found["metadata"].update(namespace=metadata["namespace"], ownerReferences=[owner])
    return found


def for_person(run: Run, who: KeyPair | None = None) -> str:
    """Kubeconfig, as YAML, of the administrator, or of ``who`` in an emergency.

    With a ClusterIP a person connects by port-forward, and so uses an address of their own machine.
    """
    there = run.public_url if run.endpoint_host else f"https://localhost:{KARMADA_APISERVER.ports['https']}"
    if who is None:
        return pki_files.admin_kubeconfig(run.material, there)
    authority = run.state.authorities[KARMADA_CA].certificate
    return pki_files.kubeconfig_of(who, authority, there, "karmada-break-glass")
