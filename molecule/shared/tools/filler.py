# SPDX-License-Identifier: Apache-2.0
"""Fill etcd by its API server: ConfigMaps with random content, until there are so many MB of it.

    filler.py --kubeconfig FILE --mb NUMBER

What is there already counts. Each object has 500 kB, which nothing can pack: so a backup is as large as what it holds.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from faulty_proxy import upstream_of
from steady_client import Api, Record

NAMESPACE = "filler"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
#: Bytes of one object; random bytes become a third more as base64.
SIZE = 500_000
AT_ONCE = 4


def fill(api: Api, megabytes: int) -> int:
    """Create what is lacking of so many MB; returns how many objects. Raises RuntimeError if one is refused."""
    # Karmada makes every namespace on each member, where it outlives the control plane.
    labels = {"namespace.karmada.io/skip-auto-propagation": "true"}
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    wanted = range(megabytes * 10**6 // SIZE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(lambda number: _created(api, number), wanted))


def _created(api: Api, number: int) -> bool:
    path = f"{CONFIG_MAPS}/filler-{number}"
    status, _content = api.request("GET", path)
    if status == http.client.OK:
        return False
    text = base64.b64encode(os.urandom(SIZE * 3 // 4)).decode()
    status, content = api.request("POST", CONFIG_MAPS, {"metadata": {"name": f"filler-{number}"}, "data": {"a": text}})
    if status != http.client.CREATED:
        raise RuntimeError(f"filler-{number}: {status} {content.get('message', '')}")
    return True


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, type=Path)
    parser.add_argument("--mb", required=True, type=int, help="millions of bytes")
    wanted = parser.parse_args(arguments)
    api = Api(upstream_of(yaml.safe_load(wanted.kubeconfig.read_text())), Record())
    created = fill(api, wanted.mb)
    print(f"created {created} objects of {SIZE} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
