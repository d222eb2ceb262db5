# SPDX-License-Identifier: Apache-2.0
"""What must not be shown is taken out, and what helps stays."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import redacted

HEADER = "-----BEGIN EC PRIVATE " + "KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"read {HEADER}\nMHcCAQEE\n-----END EC PRIVATE " + "KEY-----\nand went on", "MHcCAQEE"),
        (f"read {HEADER}\nMHcCAQEE", "MHcCAQEE"),
        (
            "key " + base64.b64encode(HEADER.encode()).decode() + " and went on",
            base64.b64encode(HEADER.encode()).decode()[-8:],
        ),
        ("token eyJhbGciOi.eyJpc3MiOi.c2lnbmVk is bad", "c2lnbmVk"),
        ("Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
        ("--token=abcdefgh --x=1", "abcdefgh"),
        ('{"password": "hunter22"}', "hunter22"),
        ("dial https://me:hunter22@registry.example.com/v2/", "hunter22"),
        ("bootstrap abcdef.0123456789abcdef refused", "0123456789abcdef"),
    ],
)
def test_secrets_are_taken_out(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redacted(text)
    assert "<redacted>" in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "Error: unknown flag: --no-such-flag",
        'Failed to pull image "docker.io/karmada/karmada-scheduler:v0.0.0": not found',
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "secret prod-webhook-cert not found",
        "pods prod-apiserver-6796459f5f-shvzb",
        "etcdserver: request timed out at 10.0.0.1:2379 after 5s",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert redacted(text) == text
