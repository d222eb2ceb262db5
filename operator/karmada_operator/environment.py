# SPDX-License-Identifier: Apache-2.0
"""Environment of a run: what it gets of ours, and what makes a folder its only home."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import RUN_ID

#: Variable with the directory of artifacts that were prepared.
ARTIFACTS = "KARMADA_OPERATOR_ARTIFACTS"
#: Variables that runs get. No secret is among them, and a proxy with a password is not passed on.
PASSED = (
    *("PATH", "LANG", "TZ", "SSL_CERT_FILE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
    *("ANSIBLE_COLLECTIONS_PATH", "XDG_CACHE_HOME", "K8S_AUTH_KUBECONFIG", "K8S_AUTH_CONTEXT"),
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
    *("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"),
    ARTIFACTS,
)
_LOG = logging.getLogger(__name__)


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of ``environment`` that a run gets. One with a secret is named in the log, without its text."""
    found = {key: environment[key] for key in PASSED if key in environment}
    secret = [key for key, text in found.items() if key.lower().endswith("_proxy") and "@" in text]
    if secret:
        _LOG.warning("runs do not get %s: it has the name of a user, or a password, in it", ", ".join(secret))
    return {key: text for key, text in found.items() if key not in secret}


def of_run(run_id: str, folder: Path) -> dict[str, str]:
    """Variables that a run has beside those: its id, and ``folder``, which is private to it, as its home."""
    return {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_CONFIG": str(Path(__file__).with_name("ansible.cfg")),
        # ansible-runner switches it off unless it is there.
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        # Locks and requests of the run carry it, and it marks all of its processes.
        RUN_ID: run_id,
    }
