# SPDX-License-Identifier: Apache-2.0
"""The files that components read, and the kubeconfig that people get."""

from __future__ import annotations

import base64
import json

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import FileSet, Holds
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import files as pki_files
from ansible_collections.karmada.installer.tests.unit.support.samples import EVERYTHING, RUNNING, Rendered, rendered
from cryptography import x509
from cryptography.hazmat.primitives import serialization

FILE_SETS = {files.name: files for component in RUNNING for files in component.file_sets}


@pytest.fixture(scope="module")
def found() -> Rendered:
    return rendered(EVERYTHING)


def contents(found: Rendered, files: FileSet) -> dict[str, bytes]:
    return pki_files.contents(files, found.material, found.layout)


@pytest.mark.parametrize("files", FILE_SETS.values(), ids=FILE_SETS)
def test_certificate_key_and_authority_of_a_file_set_belong_together(found: Rendered, files: FileSet) -> None:
    have = contents(found, files)
    assert have
    if "tls.crt" not in have:
        return
    certificate = x509.load_pem_x509_certificate(have["tls.crt"])
    key = serialization.load_pem_private_key(have["tls.key"], None)
    assert certificate.public_key() == key.public_key()
    if "ca.crt" in have:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(have["ca.crt"]))


@pytest.mark.parametrize(
    "files", [each for each in FILE_SETS.values() if each.holds is Holds.IDENTITY], ids=lambda each: each.name
)
def test_a_kubeconfig_refers_only_to_the_files_beside_it(found: Rendered, files: FileSet) -> None:
    have = contents(found, files)
    config = yaml.safe_load(have["karmada.config"])
    beside = {f"/etc/karmada/{files.directory}/{name}" for name in have}
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    named = {cluster["certificate-authority"], user["client-certificate"], user["client-key"]}
    assert named <= beside
    assert len(named) == 3
    assert set(cluster) == {"server", "certificate-authority"}, "and TLS is verified"
    assert set(user) == {"client-certificate", "client-key"}, "a renewed certificate is picked up from its file"
    assert cluster["server"] == "https://prod-apiserver.karmada.svc.cluster.local:5443"
    (context,) = config["contexts"]
    assert config["current-context"] == context["name"]
    assert context["context"] == {"cluster": config["clusters"][0]["name"], "user": config["users"][0]["name"]}


def test_the_api_server_accepts_clients_of_exactly_two_authorities(found: Rendered) -> None:
    bundle = x509.load_pem_x509_certificates(contents(found, FILE_SETS["client-ca"])["ca.crt"])
    names = [each.subject.rfc4514_string() for each in bundle]
    assert names == ["CN=karmada-ca", "CN=karmada-client-signing-ca"]


def test_one_key_signs_tokens_and_the_other_half_verifies_them(found: Rendered) -> None:
    server, controller = (
        contents(found, FILE_SETS[f"{name}-service-account"])
        for name in ("karmada-apiserver", "kube-controller-manager")
    )
    assert server["sa.key"] == controller["sa.key"]
    public = serialization.load_pem_public_key(server["sa.pub"])
    assert serialization.load_pem_private_key(server["sa.key"], None).public_key() == public
    assert b"PRIVATE" not in server["sa.pub"]


def test_secrets_are_encrypted_with_a_key_of_the_right_length(found: Rendered) -> None:
    config = json.loads(contents(found, FILE_SETS["karmada-apiserver-encryption"])["encryption.yaml"])
    secret = config["resources"][0]["providers"][0]["secretbox"]["keys"][0]["secret"]
    assert len(base64.b64decode(secret, validate=True)) == 32
    assert config["resources"][0]["resources"] == ["secrets"]


def test_the_administrators_kubeconfig_is_whole_and_of_the_administrator(found: Rendered) -> None:
    config = yaml.safe_load(pki_files.admin_kubeconfig(found.material, "https://karmada.example.com:6443"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert cluster["server"] == "https://karmada.example.com:6443"
    assert "insecure-skip-tls-verify" not in cluster
    assert (
        base64.b64decode(cluster["certificate-authority-data"]) == found.material.authorities["karmada-ca"].certificate
    )
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    assert certificate.subject.rfc4514_string() == "CN=system:admin,O=system:karmada:administrators"
    assert (
        certificate.public_key()
        == serialization.load_pem_private_key(base64.b64decode(user["client-key-data"]), None).public_key()
    )


def test_material_does_not_show_itself(found: Rendered) -> None:
    for shown in (repr(found.material), str(found.material), f"{found.material}"):
        assert "PRIVATE" not in shown
        assert found.material.encryption_key not in shown
        assert len(shown) < 200


def test_a_leaf_has_names_only_if_it_serves(found: Rendered) -> None:
    for component in RUNNING:
        for leaf in component.certificates:
            want = pki_files.wanted(leaf, found.layout)
            assert bool(want.dns_names) == leaf.server, leaf.name
