# SPDX-License-Identifier: Apache-2.0
"""Remove every control plane from some clusters, and everything of Karmada from their members, by label and by force.

    clean.py CLUSTER...

For what a killed scenario left, which need not be in a state that the product can remove. The clusters are the lab's,
and are taken in the order given: first the host cluster, because a control plane that runs would put things back.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LAB = Path(__file__).resolve().parents[3] / "lab" / "lab"
OURS = "--selector=app.kubernetes.io/managed-by=karmada-installer"
SCENARIOS = "--selector=karmada-installer/scenario"
PROPAGATED = "--selector=karmada.io/managed=true"
RIGHTS = "clusterroles,clusterrolebindings"
LEFTOVERS = (
    ("namespaces", OURS),
    ("namespaces", SCENARIOS),
    (RIGHTS, OURS),
    ("customresourcedefinitions", OURS),
    (RIGHTS, PROPAGATED),
    ("deployments,services,configmaps", "--all-namespaces", PROPAGATED),
)


def lab(*arguments: str) -> str:
    """The answer of the lab."""
    return subprocess.run([str(LAB), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> int:
    """Remove; what was there is printed."""
    kubectl = lab("artifacts", "path", "kubectl")
    with tempfile.TemporaryDirectory() as scratch:
        for cluster in sys.argv[1:]:
            kubeconfig = Path(scratch) / cluster
            lab("kubeconfig", cluster, "--output", str(kubeconfig))
            for what in LEFTOVERS:
                done = subprocess.run(
                    [kubectl, f"--kubeconfig={kubeconfig}", "delete", *what, "--timeout=180s"],
                    check=True, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
                removed = [line for line in done.stdout.splitlines() if "deleted" in line]
                print("".join(f"{cluster}: {line}\n" for line in removed), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
