# SPDX-License-Identifier: Apache-2.0
"""Endpoint as its users see it, as JSON: look.py KUBECTL HOST_KUBECONFIG USERS_KUBECONFIG NAMESPACE INSTANCE

address       where the user's kubeconfig leads
usable        the same kubeconfig lists the members
in_secret     where the kubeconfig in the host cluster's Secret leads
cluster_info  where the ConfigMap cluster-info of the control plane leads
names         DNS names and addresses in the certificate that is served there, which is that of the Secret
certificates  Secret → SHA-256 of its certificate
pods          component → UIDs of its pods
passages      Ingresses and Routes of the namespace
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509

Object = dict[str, Any]


def looked(kubectl: str, host: str, user: str, namespace: str, instance: str) -> Object:
    """Everything that the module's text lists."""

    def get(kubeconfig: str, *arguments: str) -> Object:
        command = [kubectl, f"--kubeconfig={kubeconfig}", "get", *arguments]
        found: Object = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return found

    secrets = get(host, "--output=json", "secrets", f"--namespace={namespace}")["items"]
    contents = {
        one["metadata"]["name"]: {key: base64.b64decode(value) for key, value in (one.get("data") or {}).items()}
        for one in secrets
    }
    pods: dict[str, list[str]] = {}
    for one in get(host, "--output=json", "pods", f"--namespace={namespace}")["items"]:
        if not one["metadata"].get("deletionTimestamp"):
            component = one["metadata"]["labels"]["app.kubernetes.io/name"]
            pods.setdefault(component, []).append(one["metadata"]["uid"])
    address = _server(yaml.safe_load(Path(user).read_text(encoding="utf-8")))
    passages = get(host, "--output=json", "ingresses,routes", f"--namespace={namespace}")["items"]
    # By its path: an API server that has just started may leave groups of other servers out of discovery for a minute.
    clusters = get(user, "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters")["items"]
    return {
        "address": address,
        "usable": [one["metadata"]["name"] for one in clusters],
        "in_secret": _server(yaml.safe_load(contents[f"{instance}-admin-config"]["kubeconfig"])),
        "cluster_info": _server(
            yaml.safe_load(
                get(user, "--raw", "/api/v1/namespaces/kube-public/configmaps/cluster-info")["data"]["kubeconfig"]
            )
        ),
        "names": _served_names(address, contents[f"{instance}-apiserver-cert"]["tls.crt"]),
        "certificates": {
            name: hashlib.sha256(files["tls.crt"]).hexdigest() for name, files in contents.items() if "tls.crt" in files
        },
        "pods": {component: sorted(uids) for component, uids in pods.items()},
        "passages": sorted(f"{one['kind']}/{one['metadata']['name']}" for one in passages),
    }


def _server(kubeconfig: Object) -> str:
    return str(kubeconfig["clusters"][0]["cluster"]["server"])


def _served_names(address: str, stored: bytes) -> list[str]:
    parts = urlsplit(address)
    served = x509.load_pem_x509_certificate(
        ssl.get_server_certificate((str(parts.hostname), parts.port or 443), timeout=10).encode()
    )
    if served != x509.load_pem_x509_certificate(stored):
        raise SystemExit(f"what is served at {address} is not the certificate of the Secret")
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


if __name__ == "__main__":
    print(json.dumps(looked(*sys.argv[1:])))
