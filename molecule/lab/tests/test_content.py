# SPDX-License-Identifier: Apache-2.0
"""Images, configuration, names and diagnostics: what is written, without a lab."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from karmada_lab import configuration, diagnose, images, lifecycle, network
from karmada_lab.errors import LabError
from karmada_lab.images import Image
from karmada_lab.lifecycle import Wanted
from karmada_lab.state import ClusterRecord, Lab, MachineRecord, save


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("KARMADA_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KARMADA_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KARMADA_LAB_SUBNET", raising=False)
    return Lab.from_environment()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    bundle = tmp_path / "base/etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True)
    bundle.write_text("bundle")
    return tmp_path / "base"


def test_an_image_archive_is_whole_and_says_its_name(lab, base, tmp_path):
    binary = tmp_path / "tool"
    binary.write_bytes(b"\x7fELF")
    image = Image(
        "docker.io/library/tool:v1", {"/usr/local/bin/tool": str(binary)}, entrypoint=("/usr/local/bin/tool",)
    )
    archive = images.archive(lab, image, base, {})
    assert images.archive(lab, image, base, {}) == archive
    with tarfile.open(archive) as layout:

        def blob(digest: str) -> bytes:
            content = layout.extractfile("blobs/" + digest.replace(":", "/"))
            assert content is not None
            data = content.read()
            assert hashlib.sha256(data).hexdigest() == digest.split(":")[1]
            return data

        index = layout.extractfile("index.json")
        assert index is not None
        entry = json.loads(index.read())["manifests"][0]
        assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/tool:v1"
        manifest = json.loads(blob(entry["digest"]))
        config = json.loads(blob(manifest["config"]["digest"]))
        assert config["config"]["Entrypoint"] == ["/usr/local/bin/tool"]
        assert "User" not in config["config"]
        assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
        layer = tmp_path / "layer.tar"
        layer.write_bytes(blob(manifest["layers"][0]["digest"]))
    with tarfile.open(layer) as content:
        assert content.getmember("tmp").mode == 0o1777
        assert content.getmember("usr/local/bin/tool").mode == 0o755


def test_the_base_set_has_a_whole_control_plane(monkeypatch, base):
    monkeypatch.setattr(images, "workload_images", lambda _: [])
    references = {image.reference for image in images.image_set("karmada:v1.18.2", base)}
    assert "docker.io/karmada/karmada-webhook:v1.18.2" in references
    assert "registry.k8s.io/kube-apiserver:v1.35.4" in references
    assert "quay.io/coreos/etcd:v3.6.16" in references
    with pytest.raises(LabError, match="known: karmada"):
        images.image_set("karmda", base)


def test_kubeadm_documents_carry_what_this_kind_of_host_needs(lab):
    record = ClusterRecord("host", 3, 1, "v1.35.4")
    node = MachineRecord("host", 7, lab.machine_address(7), "node", "host")
    text = configuration.kubeadm_documents(lab, record, "v3.6.16", node)
    _, init, cluster, kubelet = (json.loads(part) if part.strip() else {} for part in text.split("---\n"))
    assert init["localAPIEndpoint"]["advertiseAddress"] == node.address
    assert init["nodeRegistration"]["taints"] == []
    assert cluster["networking"]["serviceSubnet"] == str(lab.service_range(3))
    assert {"name": "audit-log-path", "value": "/var/log/kubernetes/audit/audit.log"} in cluster["apiServer"][
        "extraArgs"
    ]
    assert kubelet["failCgroupV1"] is False
    assert kubelet["clusterDNS"] == [str(lab.service_range(3)[10])]


def test_rules_reject_what_leaves_the_lab(lab):
    rules = network.rules(lab)
    assert f'iifname != "{lab.id}" accept' in rules
    assert f"ip daddr != {lab.subnet} counter jump refuse" in rules
    assert network.hardware_address("10.60.0.11") == "02:4b:0a:3c:00:0b"


@pytest.mark.parametrize(("text", "expected"), [("host", ("host", 1)), ("host=3", ("host", 3))])
def test_cluster_words(text, expected):
    assert lifecycle.parse_cluster(text) == expected


@pytest.mark.parametrize("text", ["host=0", "host=5", "host=x", "Host", "-a", "a_b", "a" * 40, ""])
def test_bad_cluster_words(text):
    with pytest.raises(LabError):
        lifecycle.parse_cluster(text)


def test_name_clashes_are_told_at_once_before_anything_is_made(lab):
    save(lab, MachineRecord("h1", 0, "10.0.0.1", "host"))
    save(lab, ClusterRecord("a", 0, 1, "v1.35.4", ready=True))
    with pytest.raises(LabError) as caught:
        lifecycle.check_wanted(lab, Wanted(clusters={"h1": 1, "a": 3, "b": 2}, hosts=["b-2"]))
    message = str(caught.value)
    assert "h1 is a plain host" in message
    assert "cluster a is up with 1 node(s), not 3" in message
    assert "b-2 is wanted twice" in message


def test_an_unfinished_machine_is_a_leftover(lab):
    save(lab, MachineRecord("m", 0, "10.0.0.1", "host", pid=1, started=1, ready=False))
    assert [record.name for record in lifecycle.leftovers(lab)] == ["m"]


KEY = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"


def test_diagnostics_hold_no_secrets():
    encoded = base64.b64encode(KEY.encode()).decode()
    certificate = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()
    token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln"
    text = diagnose.redact_text(f"{KEY} {encoded} {certificate} Bearer {token} password: hunter2")
    assert "AAAA\n" not in text
    assert encoded not in text
    assert certificate in text
    assert token not in text
    assert "hunter2" not in text


def test_secret_objects_keep_their_keys_only():
    secret = {
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "data", "other": "kept"},
        },
        "data": {"password": "aHVudGVyMg=="},
    }
    shown = diagnose.redact_object({"kind": "List", "items": [secret]})["items"][0]
    assert shown["data"] == {"password": "REDACTED"}
    assert shown["metadata"]["annotations"] == {"other": "kept"}
