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
from karmada_lab.lifecycle import Shape, Wanted
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


def test_a_set_of_another_release_has_the_kubernetes_that_goes_with_it(monkeypatch, base):
    monkeypatch.setattr(images, "workload_images", lambda _: [])
    versions = {image.reference: image.version for image in images.image_set("karmada:v1.16.0", base)}
    assert versions["docker.io/karmada/karmada-webhook:v1.16.0"] == "v1.16.0"
    assert versions["registry.k8s.io/kube-apiserver:v1.34.4"] == "v1.34.4"


def test_a_single_component_is_a_set(base):
    (image,) = images.image_set("karmada-search:v1.16.0", base)
    assert image.reference == "docker.io/karmada/karmada-search:v1.16.0"


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


def documents_and_files(lab, family):
    """kubeadm's documents by kind, and the node's files, of a cluster of that family."""
    record = ClusterRecord("host", 3, 1, "v1.35.4", family)
    first, *others = lab.machine_addresses(7, family)
    node = MachineRecord("host", 7, first, "node", "host", second_address="".join(others))
    text = configuration.kubeadm_documents(lab, record, "v3.6.16", node)
    found = [json.loads(part) for part in text.split("---\n") if part.strip()]
    return {each["kind"]: each for each in found}, configuration.node_files(lab, record, node)


def test_a_cluster_of_ipv6_has_nothing_else(lab):
    documents, files = documents_and_files(lab, "ipv6")
    address = lab.machine_address6(7)
    cluster = documents["ClusterConfiguration"]
    assert documents["InitConfiguration"]["localAPIEndpoint"]["advertiseAddress"] == address
    assert cluster["controlPlaneEndpoint"] == f"[{address}]:6443"
    assert cluster["networking"]["serviceSubnet"] == str(lab.service_range6(3))
    assert documents["KubeletConfiguration"]["clusterDNS"] == [str(lab.service_range6(3)[10])]
    ipam = json.loads(files["/etc/cni/net.d/10-lab.conflist"])["plugins"][0]["ipam"]
    assert ipam["ranges"] == [[{"subnet": str(lab.node_pod_range6(3, 0))}]]
    assert ipam["routes"] == [{"dst": "::/0"}]
    assert files["/etc/sysctl.d/90-lab.conf"] == "net.ipv6.conf.all.forwarding=1\n"
    assert str(lab.subnet).rsplit(".", 2)[0] not in json.dumps([documents, files])


def test_a_dual_stack_cluster_has_both_and_prefers_ipv4(lab):
    documents, files = documents_and_files(lab, "dual")
    four, six = lab.machine_address(7), lab.machine_address6(7)
    assert documents["ClusterConfiguration"]["controlPlaneEndpoint"] == f"{four}:6443"
    assert {four, six} <= set(documents["ClusterConfiguration"]["apiServer"]["certSANs"])
    assert documents["ClusterConfiguration"]["networking"]["serviceSubnet"] == (
        f"{lab.service_range(3)},{lab.service_range6(3)}"
    )
    assert {"name": "node-ip", "value": f"{four},{six}"} in documents["InitConfiguration"]["nodeRegistration"][
        "kubeletExtraArgs"
    ]
    ipam = json.loads(files["/etc/cni/net.d/10-lab.conflist"])["plugins"][0]["ipam"]
    assert [each[0]["subnet"] for each in ipam["ranges"]] == [
        str(lab.node_pod_range(3, 0)), str(lab.node_pod_range6(3, 0))
    ]  # fmt: skip
    proxy = json.loads(files["/etc/kubernetes/kube-proxy.json"])
    assert proxy["clusterCIDR"] == f"{lab.cluster_pod_range(3)},{lab.cluster_pod_range6(3)}"


def test_pods_take_the_address_of_their_node_outside_of_their_own_network(lab):
    rules = network.masquerade_rules([(lab.cluster_pod_range(0), lab.subnet), (lab.cluster_pod_range6(0), lab.subnet6)])
    assert f"ip saddr {lab.cluster_pod_range(0)} ip daddr != {lab.subnet} oifname" in rules
    assert f"ip6 saddr {lab.cluster_pod_range6(0)} ip6 daddr != {lab.subnet6} oifname" in rules


def test_rules_reject_what_leaves_the_lab(lab):
    rules = network.rules(lab)
    assert f'iifname != "{lab.id}" accept' in rules
    assert f"ip daddr != {lab.subnet} counter jump refuse" in rules
    assert f"ip6 daddr != {{ {lab.subnet6}, fe80::/10 }} counter jump refuse" in rules
    assert network.hardware_address("10.60.0.11") == "02:4b:0a:3c:00:0b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", Shape()),
        ("host=3", Shape(3)),
        ("host,ipv6", Shape(1, "ipv6")),
        ("host=3,dual", Shape(3, "dual")),
    ],
)
def test_cluster_words(text, expected):
    assert lifecycle.parse_cluster(text) == ("host", expected)


@pytest.mark.parametrize(
    "text", ["host=0", "host=5", "host=x", "host,", "host,ip6", "host,3", "Host", "-a", "a_b", "a" * 40, ""]
)
def test_bad_cluster_words(text):
    with pytest.raises(LabError):
        lifecycle.parse_cluster(text)


@pytest.mark.parametrize(("text", "family"), [("cp1", "ipv4"), ("cp1,ipv6", "ipv6"), ("cp1,dual", "dual")])
def test_host_words(text, family):
    assert lifecycle.parse_host(text) == ("cp1", family)


@pytest.mark.parametrize("text", ["cp1=3", "cp1,", "cp1,ip6", "Cp1", ""])
def test_bad_host_words(text):
    with pytest.raises(LabError):
        lifecycle.parse_host(text)


def test_a_host_does_not_change_its_family(lab):
    save(lab, MachineRecord("h1", 0, "10.0.0.1", "host"))
    lifecycle.check_wanted(lab, Wanted(hosts={"h1": "ipv4"}))
    with pytest.raises(LabError, match=r"host h1 is up with 10\.0\.0\.1, not dual: `lab down h1` first"):
        lifecycle.check_wanted(lab, Wanted(hosts={"h1": "dual"}))


def test_name_clashes_are_told_at_once_before_anything_is_made(lab):
    save(lab, MachineRecord("h1", 0, "10.0.0.1", "host"))
    save(lab, ClusterRecord("a", 0, 1, "v1.35.4", ready=True))
    with pytest.raises(LabError) as caught:
        lifecycle.check_wanted(
            lab, Wanted({"h1": Shape(), "a": Shape(3, "dual"), "b": Shape(2)}, hosts={"b-2": "ipv4"})
        )
    message = str(caught.value)
    assert "h1 is a plain host" in message
    assert "cluster a is up with 1 node(s), ipv4, not 3, dual" in message
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


@pytest.mark.parametrize("value", [{"automountServiceAccountToken": False}, {"f:token": {"a": {}}}, {"token": ["b"]}])
def test_diagnostics_in_json_can_be_read_as_json(value):
    text = diagnose.redact_text(json.dumps([value, {"token": "hunter2", "password": None}], indent=1))
    assert json.loads(text) == [value, {"token": "REDACTED", "password": None}]


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
