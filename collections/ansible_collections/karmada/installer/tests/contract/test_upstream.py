# SPDX-License-Identifier: Apache-2.0
"""Our tables against what Karmada itself ships (artifacts/deploy of its Go module). Facts are compared.

``TEST_KARMADA_SOURCE`` names a checkout; without it ``go`` says where the module is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap
from ansible_collections.karmada.installer.tests.unit.support.samples import EVERYTHING, flags, pods, rendered

Object = dict[str, Any]


@pytest.fixture(scope="module", params=[release.karmada for release in releases.RELEASES])
def deploy(request: pytest.FixtureRequest) -> Path:
    version = request.param
    if named := os.environ.get("TEST_KARMADA_SOURCE"):
        return Path(named) / "artifacts" / "deploy"
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"github.com/karmada-io/karmada@{version}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd="/",
        env={**os.environ, "GOFLAGS": "-mod=mod"},
    )
    assert answer.returncode == 0, answer.stdout[-1000:] + answer.stderr[-1000:]
    return Path(json.loads(answer.stdout)["Dir"]) / "artifacts" / "deploy"


def documents(file: Path) -> list[Object]:
    text = re.sub(r"\{\{(\w+)\}\}", r"\1", file.read_text())
    return [each for each in yaml.safe_load_all(text) if each]


def shipped(deploy: Path) -> list[Object]:
    return [each for file in sorted(deploy.glob("*.yaml")) for each in documents(file)]


def ours() -> list[Object]:
    addresses = rendered(EVERYTHING).addresses
    return [
        each
        for stage in (
            bootstrap.rights("me"),
            bootstrap.registration("me"),
            bootstrap.foundation("me", [], addresses),
            bootstrap.aggregation("me", addresses, list(addresses.aggregated)),
            bootstrap.admission("me", addresses),
            bootstrap.discovery("me", addresses),
        )
        for each in stage
    ]


def test_webhooks(deploy: Path) -> None:
    def facts(objects: list[Object]) -> dict[tuple[str, str], Any]:
        return {
            (each["kind"], hook["name"]): {
                **{key: value for key, value in hook.items() if key not in ("name", "clientConfig")},
                "path": re.sub(r"^https://[^/]+", "", hook["clientConfig"]["url"]),
            }
            for each in objects
            if each["kind"].endswith("WebhookConfiguration")
            for hook in each["webhooks"]
        }

    wanted = facts(documents(deploy / "webhook-configuration.yaml"))
    assert len(wanted) == 22
    assert facts(ours()) == wanted


def test_rights(deploy: Path) -> None:
    def facts(objects: list[Object]) -> dict[tuple[str, str], Any]:
        found: dict[tuple[str, str], Any] = {}
        for each in objects:
            if each.get("apiVersion", "").startswith("rbac."):
                key = each["kind"], each["metadata"]["name"]
                labels = each["metadata"].get("labels") or {}
                found[key] = {
                    "rules": sorted(json.dumps(rule, sort_keys=True) for rule in each.get("rules") or []),
                    "role": (each.get("roleRef") or {}).get("name"),
                    "subjects": [(one["kind"], one["name"]) for one in each.get("subjects") or []],
                    "aggregation": {key for key in labels if "aggregate-to" in key},
                }
        return found

    wanted, found = facts(shipped(deploy)), facts(ours())
    assert len(wanted) >= 11
    # An administrator without rights would have the way to members all the same, by a name that nobody has here.
    assert set(wanted) - set(found) == {("ClusterRoleBinding", "cluster-proxy-admin")}
    assert {key: found.get(key) for key in set(wanted) & set(found)}.items() <= wanted.items()
    # the rest is ours: rights in the place of system:masters
    assert set(found) - set(wanted) == {
        ("ClusterRoleBinding", "system:karmada:components"),
        ("ClusterRoleBinding", "system:karmada:administrators"),
    }


def test_the_aggregated_apis(deploy: Path) -> None:
    def apis(objects: list[Object]) -> dict[str, Object]:
        return {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "APIService"}

    wanted, found = apis(shipped(deploy)), apis(ours())
    assert set(found) == set(wanted)
    for name, spec in wanted.items():
        for key in ("group", "version", "groupPriorityMinimum", "versionPriority"):
            assert found[name][key] == spec[key], (name, key)
        assert found[name]["service"].items() >= spec["service"].items()


FILES = {
    "karmada-apiserver": "karmada-apiserver.yaml",
    "karmada-aggregated-apiserver": "karmada-aggregated-apiserver.yaml",
    "kube-controller-manager": "kube-controller-manager.yaml",
    "karmada-controller-manager": "karmada-controller-manager.yaml",
    "karmada-scheduler": "karmada-scheduler.yaml",
    "karmada-webhook": "karmada-webhook.yaml",
    "karmada-descheduler": "karmada-descheduler.yaml",
    "karmada-search": "karmada-search.yaml",
    "karmada-metrics-adapter": "karmada-metrics-adapter.yaml",
    "karmada-scheduler-estimator": "karmada-scheduler-estimator.yaml",
}
#: What upstream sets and we do not, with the reason; a flag that is new upstream is not among them.
NOT_OURS = {
    "v": "verbosity is the user's",
    "logging-format": "the default is what people read",
    "runtime-config": "empty upstream",
    "allocate-node-cidrs": "there are no nodes",
    "cluster-cidr": "there are no nodes",
    "node-cidr-mask-size": "there are no nodes",
    "enable-pprof": "profiling is off",
    "profiling-bind-address": "profiling is off",
    "feature-gates": "the defaults of the release",
    "enable-no-execute-taint-eviction": "off by default; upstream's development script turns it on",
    "allow-no-execute-taint-policy": "off by default; upstream's development script turns it on",
}
VALUES = (
    "authorization-mode",
    "enable-bootstrap-token-auth",
    "controllers",
    "requestheader-allowed-names",
    "requestheader-username-headers",
    "cluster-status-update-frequency",
    "leader-elect-resource-namespace",
    "tls-min-version",
    "use-service-account-credentials",
)


def shipped_flags(file: Path) -> dict[str, str]:
    (workload,) = [each for each in documents(file) if each["kind"] == "Deployment"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    words = [*container["command"], *container.get("args", ())]
    pairs = [word.removeprefix("--").partition("=") for word in words if word.startswith("--")]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("name", FILES)
def test_flags(deploy: Path, name: str) -> None:
    wanted, found = shipped_flags(deploy / FILES[name]), flags(pods(rendered(EVERYTHING).workloads)[name])
    if name == "karmada-controller-manager":
        # upstream's development script turns on two controllers that are off by default
        assert "*" in wanted.pop("controllers").split(",")
    assert set(wanted) - set(found) - set(NOT_OURS) == set()
    for flag in VALUES:
        if flag in wanted and flag in found:
            assert set(found[flag].split(",")) == set(wanted[flag].split(",")), flag


def test_every_component_is_compared() -> None:
    assert {component.name for component in COMPONENTS} == {*FILES, "etcd"}
