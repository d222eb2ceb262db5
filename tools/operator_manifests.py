#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write operator/deploy/operator.yaml: what the operator's chart renders with its defaults, for those without Helm.

`make manifests` runs it; a contract test fails when the committed file differs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import helm

CHART = helm.ROOT / "operator/chart"
FILE = helm.ROOT / "operator/deploy/operator.yaml"
RELEASE, NAMESPACE = "karmada-installer", "karmada-system"
HEAD = f"""\
# SPDX-License-Identifier: Apache-2.0
# Generated from operator/chart by `make manifests`. Put your image in, and add a Role with its binding for each further
# namespace that is to be served, with an argument --namespace.
---
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""


def rendered(*options: str) -> str:
    """Objects of the chart, without the definition of the custom resource. Raises LabError, CalledProcessError."""
    command = [str(helm.program()), "template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *options]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def manifest() -> str:
    """The file, as it should be."""
    return HEAD + rendered().replace("app.kubernetes.io/managed-by: Helm\n", "app.kubernetes.io/managed-by: kubectl\n")


def main() -> None:
    """Write it."""
    Path(FILE).parent.mkdir(exist_ok=True)
    FILE.write_text(manifest(), encoding="utf-8")


if __name__ == "__main__":
    main()
