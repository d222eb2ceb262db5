#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run Helm, built from its Go module the first time: ``helm.py template operator/chart``.

It renders the operator's manifests out of its chart, so that both are one. Users of the chart bring their own Helm.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lab"), str(ROOT / "collections")]

from karmada_lab import artifacts  # noqa: E402
from karmada_lab.errors import LabError  # noqa: E402
from karmada_lab.products import Product  # noqa: E402
from karmada_lab.state import Lab  # noqa: E402

HELM = Product(
    name="helm",
    version="v4.3.1",
    packages={"helm": "helm.sh/helm/v4/cmd/helm"},
    modules=("helm.sh/helm/v4",),
    version_variables={"helm.sh/helm/v4/internal/version.version": "{version}"},
)


def program() -> Path:
    """The program in the lab's cache, built if it is not there. Raises LabError."""
    lab, products = Lab.from_environment(), {HELM.name: HELM}
    artifacts.ensure(lab, products, ["helm"], "go")
    return artifacts.path_of(lab, products, "helm")


def main() -> int:
    """Run it with the arguments of this command."""
    try:
        helm = program()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return subprocess.run([helm, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
