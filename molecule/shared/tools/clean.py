# SPDX-License-Identifier: Apache-2.0
"""Remove every control plane from some clusters, and everything of Karmada from their members, by label and by force.

    clean.py CLUSTER...

For what a killed scenario left, which need not be in a state that the product can remove. The clusters are the lab's,
and are taken in the order given: first the host cluster, because a control plane that runs would put things back.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LAB = Path(__file__).resolve().parents[3] / "lab" / "lab"
OURS = "--selector=app.kubernetes.io/managed-by=karmada-installer"
SCENARIOS = "--selector=karmada-installer/scenario"
PROPAGATED = "--selector=karmada.io/managed=true"
OPERATOR = "--selector=app.kubernetes.io/part-of=karmada-installer"
DEFINITIONS = tuple(f"{each}.installer.karmada.io" for each in ("karmadadeployments", "etcdbackups", "etcdrestores"))
RIGHTS = "clusterroles,clusterrolebindings"
OF_OTHERS = re.compile("/karmada-(agent|impersonator|controller-manager:)")
NAMESPACES_OF_OTHERS = ("namespaces", "karmada-cluster", "karmada-system", "--ignore-not-found")
LEFTOVERS = (
    ("namespaces", OURS),
    ("namespaces", SCENARIOS),
    (RIGHTS, OURS),
    (RIGHTS, OPERATOR),
    ("customresourcedefinitions", *DEFINITIONS, "--ignore-not-found"),
    ("customresourcedefinitions", OURS),
    ("customresourcedefinitions", SCENARIOS),
    (RIGHTS, PROPAGATED),
    ("deployments,services,configmaps", "--all-namespaces", PROPAGATED),
)


def lab(*arguments: str) -> str:
    """The answer of the lab."""
    return subprocess.run([str(LAB), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def release(kubectl: str, kubeconfig: Path) -> None:
    """Take the finalizers from objects whose operator is gone: nobody else would."""
    command = [kubectl, f"--kubeconfig={kubeconfig}"]
    listed = subprocess.run(
        [*command, "get", "karmadadeployments", "--all-namespaces", "--output=json"],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    # It fails where there is no such kind.
    for each in json.loads(listed.stdout)["items"] if listed.returncode == 0 else ():
        meta = each["metadata"]
        patch = ["--type=merge", '--patch={"metadata":{"finalizers":null}}']
        where = [f"--namespace={meta['namespace']}", "karmadadeployment", meta["name"]]
        subprocess.run([*command, "patch", *where, *patch], check=True, stdout=subprocess.DEVNULL)


def rights_of_others(kubectl: str, kubeconfig: Path) -> list[str]:
    """Rights that Karmada's own tools make on a member, which have no label of anybody."""
    command = [kubectl, f"--kubeconfig={kubeconfig}", "get", RIGHTS, "--output=name"]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return [each for each in names if OF_OTHERS.search(each)]


def delete(kubectl: str, kubeconfig: Path, cluster: str, what: Sequence[str]) -> None:
    """Delete, and print what was there."""
    done = subprocess.run(
        [kubectl, f"--kubeconfig={kubeconfig}", "delete", *what, "--timeout=180s"],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    removed = [line for line in done.stdout.splitlines() if "deleted" in line]
    print("".join(f"{cluster}: {line}\n" for line in removed), end="")


def main() -> int:
    """Remove; what was there is printed."""
    kubectl = lab("artifacts", "path", "kubectl")
    with tempfile.TemporaryDirectory() as scratch:
        for cluster in sys.argv[1:]:
            kubeconfig = Path(scratch) / cluster
            lab("kubeconfig", cluster, "--output", str(kubeconfig))
            # An operator would put things back, and give what is released its finalizer again.
            delete(kubectl, kubeconfig, cluster, ("deployments", "--all-namespaces", OPERATOR))
            release(kubectl, kubeconfig)
            for what in (*LEFTOVERS, NAMESPACES_OF_OTHERS):
                delete(kubectl, kubeconfig, cluster, what)
            if rights := rights_of_others(kubectl, kubeconfig):
                delete(kubectl, kubeconfig, cluster, rights)
    return 0


if __name__ == "__main__":
    sys.exit(main())
