# SPDX-License-Identifier: Apache-2.0
"""ansible-navigator's container acts as whom the environment says, as a run without it does."""

from __future__ import annotations

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import k8s_auth
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands


def test_each_variable_that_chooses_a_cluster_or_an_account_is_passed() -> None:
    """One that is dropped in silence has the run act as somebody else: without impersonation, by another credential."""
    settings = yaml.safe_load((ansible_commands.CHECKOUT / "ansible-navigator.yml").read_text(encoding="utf-8"))
    passed = settings["ansible-navigator"]["execution-environment"]["environment-variables"]["pass"]
    known = {k8s_auth.PREFIX + name for names in k8s_auth._NAMES.values() for name in names}
    assert sorted(passed) == sorted({"KUBECONFIG", "KARMADA_KUBECONFIG", *known})
