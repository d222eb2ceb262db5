# SPDX-License-Identifier: Apache-2.0
"""Jobs of the template that a schedule launches each night: checks that fail by what they find and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import audit
from awx_site import Site, Unseen, failed, output, says, template


def drift(site: Site) -> None:
    """The check succeeds where all is as installed; of what somebody changes it names each thing, until it is mended.

    What is changed keeps nobody from looking: neither part serves an API.
    """
    nightly = _nightly()
    site.succeeded(**nightly)
    kubectl = [site.kubectl, f"--kubeconfig={site.kubeconfig}", f"--namespace={site.namespace}"]
    gone, scaled = f"{site.name}-scheduler", f"{site.name}-kube-controller-manager"
    output([*kubectl, "delete", "deployment", gone])
    output([*kubectl, "scale", "deployment", scaled, "--replicas=0"])
    since = audit.mark(site.audit_log)
    done = site.run(**nightly)
    failed(done)
    says(
        done,
        f"control plane {site.name} is not as the document says",
        "this run would make 2 changes",
        f"create Deployment {site.namespace}/{gone}",
        f"change Deployment {site.namespace}/{scaled}",
    )
    if written := list(site.writes(since)):
        raise Unseen(f"job {done.number}, a check, has written {len(written)} times")
    if not site.succeeded("install").changed:
        raise Unseen("an installation has mended nothing")
    site.succeeded(**nightly)


def _nightly() -> dict[str, Any]:
    """Arguments of a job as AWX makes it from the template; nobody answers a survey."""
    found = template("drift")
    options = {"--check": found["job_type"] == "check", "--diff": found["diff_mode"]}
    return {
        "verb": Path(found["playbook"]).stem,
        # The source has one control plane, and no site that copies the project chooses it.
        "variables": {**found["extra_vars"], "karmada_instance": ""},
        "arguments": [option for option, wanted in options.items() if wanted],
    }
