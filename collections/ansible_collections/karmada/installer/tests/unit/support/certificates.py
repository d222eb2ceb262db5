# SPDX-License-Identifier: Apache-2.0
"""Authorities and certificates of one moment, and the reasons to issue them anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.x509 import Authority, Certificate
from cryptography import x509

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
YEAR, MONTH, SECOND = timedelta(days=365), timedelta(days=30), timedelta(seconds=1)
SERVER = Certificate(
    name="apiserver",
    authority="karmada",
    common_name="system:karmada:karmada-apiserver",
    dns_names=("localhost", "*.karmada-system.svc", "prod-apiserver.karmada-system.svc.cluster.local"),
    ip_addresses=("127.0.0.1", "fd00::1"),
    server=True,
)
CLIENT = Certificate(
    name="scheduler",
    authority="karmada",
    common_name="system:karmada:karmada-scheduler",
    organizations=("karmada:schedulers", "karmada:components"),
    client=True,
)
CA = pki.new_authority(Authority("karmada", "karmada-ca"), "ECDSA-P256", NOW)
# The same name, another key: what is left after an install that was wiped and done again.
TWIN = pki.new_authority(Authority("karmada", "karmada-ca"), "ECDSA-P256", NOW)
RSA_CA = pki.new_authority(Authority("karmada", "karmada-ca"), "RSA-3072", NOW)
RSA_SERVER = pki.issue(SERVER, RSA_CA, "RSA-3072", NOW, YEAR)


def issue(certificate: Certificate, validity: timedelta = YEAR, ca: KeyPair = CA, now: datetime = NOW) -> KeyPair:
    return pki.issue(certificate, ca, "ECDSA-P256", now, validity)


def reasons(
    certificate: Certificate,
    pair: KeyPair | None,
    ca: KeyPair = CA,
    algorithm: pki.KeyAlgorithm = "ECDSA-P256",
    now: datetime = NOW,
    renew_before: timedelta = MONTH,
) -> list[str]:
    return pki.reasons_to_reissue(certificate, pair, ca.certificate, algorithm, now, renew_before)


def load(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)
