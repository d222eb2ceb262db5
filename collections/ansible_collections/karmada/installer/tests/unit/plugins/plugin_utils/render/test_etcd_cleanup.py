# SPDX-License-Identifier: Apache-2.0
"""Pod that empties a folder of a volume: what it may reach, and by which words it is known to have done so."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_cleanup
from ansible_collections.karmada.installer.tests.unit.support import samples

MEMBER = "prod-etcd-0"


def test_it_reaches_this_folder_of_the_volume_and_nothing_else() -> None:
    pod = etcd_cleanup.pod(samples.rendered().instance, MEMBER, "gen-1-8e9e05c52164694d", "node-1")
    spec = pod["spec"]
    (container,) = spec["containers"]
    data = [each for each in container["volumeMounts"] if each["name"] == "data"]
    mount = f"{etcd_cleanup.SCRATCH}/log.tmp"
    assert data == [{"name": "data", "mountPath": mount, "subPath": "gen-1-8e9e05c52164694d"}]
    assert f"--wal-dir={mount.removesuffix('.tmp')}" in container["command"]
    assert [each["name"] for each in spec["volumes"]] == ["scratch", "data"]
    assert spec["volumes"][1]["persistentVolumeClaim"] == {"claimName": f"data-{MEMBER}"}
    assert "initContainers" not in spec
    assert spec["restartPolicy"] == "Never"
    assert spec["affinity"]["nodeAffinity"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == etcd_cleanup.NAME


def test_it_listens_on_loopback_only() -> None:
    urls = [each for each in etcd_cleanup.command("etcd", "/s") if "-urls=" in each]
    assert len(urls) == 4
    assert all("http://127.0.0.1:" in each for each in urls)


@pytest.mark.parametrize("folder", ["", ".", "gen-1/../gen-2", "member", "gen-", "gen-1-"])
def test_what_is_no_folder_of_ours_is_not_mounted(folder: str) -> None:
    with pytest.raises(AssertionError):
        etcd_cleanup.pod(samples.rendered().instance, MEMBER, folder, "")


@pytest.mark.parametrize(
    ("said", "empty"),
    [
        ('{"error":"unlinkat /s/log.tmp: device or resource busy"}', True),
        ('{"error":"unlinkat /s/log.tmp/member: device or resource busy"}', False),
        ('{"error":"openfdat /s/log.tmp: permission denied"}', False),
        ("", False),
    ],
)
def test_only_the_folder_itself_may_be_left(said: str, empty: bool) -> None:
    assert etcd_cleanup.is_empty(said, "/s") is empty
