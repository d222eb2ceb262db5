# SPDX-License-Identifier: Apache-2.0
"""What we issue must satisfy strangers (a second verifier, a real TLS handshake); what is asked, told and secret."""

from __future__ import annotations

import base64
import ipaddress
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.x509 import Authority
from ansible_collections.karmada.installer.tests.unit.support.certificates import (
    CA,
    CLIENT,
    NOW,
    RSA_CA,
    RSA_SERVER,
    SERVER,
    TWIN,
    YEAR,
    issue,
    load,
    reasons,
)
from cryptography import x509
from cryptography.x509 import verification

RSA_CLIENT = pki.issue(CLIENT, RSA_CA, "RSA-3072", NOW, YEAR)


# --- strangers accept what we issue


def chains() -> list[Any]:
    return [
        pytest.param("ECDSA-P256", CA, issue(SERVER), issue(CLIENT), id="ECDSA-P256"),
        pytest.param("RSA-3072", RSA_CA, RSA_SERVER, RSA_CLIENT, id="RSA-3072"),
    ]


@pytest.mark.parametrize(("algorithm", "ca", "server", "client"), chains())
def test_chain_satisfies_the_verifier_of_cryptography(algorithm, ca, server, client):
    builder = verification.PolicyBuilder().store(verification.Store([load(ca)])).time(NOW)
    for name in (
        x509.DNSName("localhost"),
        x509.DNSName("any.karmada-system.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("fd00:0::1")),
    ):
        assert builder.build_server_verifier(name).verify(load(server), []) == [load(server), load(ca)]
    with pytest.raises(verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("elsewhere.example")).verify(load(server), [])

    # The verifier's default is the web's rule that a client certificate has alternative names; ours have none.
    leaf = verification.ExtensionPolicy.permit_all().require_present(
        x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, None
    )
    clients = builder.extension_policies(
        ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(), ee_policy=leaf
    ).build_client_verifier()
    assert clients.verify(load(client), []).chain == [load(client), load(ca)]
    assert reasons(SERVER, server, ca, algorithm) == reasons(CLIENT, client, ca, algorithm) == []


def handshake(
    tmp_path, ca: KeyPair, server: KeyPair, client: KeyPair, trusted_by_client: KeyPair, host: str
) -> dict[str, Any]:
    """A mutual TLS handshake over a pair of sockets; what the server saw of the client's certificate."""
    contexts = {}
    for side, pair, purpose, trusted in (
        ("server", server, ssl.Purpose.CLIENT_AUTH, ca),
        ("client", client, ssl.Purpose.SERVER_AUTH, trusted_by_client),
    ):
        file = tmp_path / side
        file.write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(purpose, cadata=trusted.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        context.load_cert_chain(file)
        contexts[side] = context
    left, right = socket.socketpair()
    left.settimeout(300)
    right.settimeout(300)
    seen: dict[str, Any] = {}

    def serve() -> None:
        try:
            with contexts["server"].wrap_socket(left, server_side=True) as tls:
                seen["peer"] = tls.getpeercert()
                tls.sendall(b"welcome")
        except OSError as error:
            seen["error"] = error
        finally:
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with contexts["client"].wrap_socket(right, server_hostname=host) as tls:
            seen["received"] = tls.recv(7)
    finally:
        right.close()
        thread.join()
    return seen


def real_time_chain(algorithm: pki.KeyAlgorithm) -> tuple[KeyPair, KeyPair, KeyPair]:
    now = datetime.now(UTC)
    ca = pki.new_authority(Authority("karmada", "karmada-ca"), algorithm, now)
    return ca, *(pki.issue(wanted, ca, algorithm, now, YEAR) for wanted in (SERVER, CLIENT))


@pytest.mark.parametrize("algorithm", ["ECDSA-P256", "RSA-3072"])
def test_mutual_tls_handshake(tmp_path, algorithm):
    ca, server, client = real_time_chain(algorithm)
    seen = handshake(tmp_path, ca, server, client, ca, "any.karmada-system.svc")
    assert seen["received"] == b"welcome"
    assert (("commonName", CLIENT.common_name),) in seen["peer"]["subject"]
    assert (("organizationName", "karmada:schedulers"),) in seen["peer"]["subject"]
    assert handshake(tmp_path, ca, server, client, ca, "fd00::1")["received"] == b"welcome"


def test_handshake_fails_for_a_name_not_covered_for_another_ca_and_for_the_wrong_usage(tmp_path):
    ca, server, client = real_time_chain("ECDSA-P256")
    other = real_time_chain("ECDSA-P256")[0]
    for attempt in (
        (ca, server, client, ca, "elsewhere.example"),
        (ca, server, client, other, "localhost"),
        (ca, client, client, ca, "localhost"),
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(tmp_path, *attempt)
    with pytest.raises(OSError, match=r"(?i)alert|eof|reset"):  # the server refuses a server's certificate as a client
        handshake(tmp_path, ca, server, server, ca, "localhost")


def test_a_leaf_cannot_sign_and_a_ca_signs_leaves_only():
    ca = load(CA).extensions
    constraints = ca.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = ca.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (True, True, False)
    for pair, encipherment in ((issue(SERVER), False), (RSA_SERVER, True)):
        leaf = load(pair).extensions
        assert not leaf.get_extension_for_class(x509.BasicConstraints).value.ca
        assert leaf.get_extension_for_class(x509.KeyUsage).value.key_encipherment is encipherment
        assert not leaf.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    with pytest.raises(ValueError, match="not the certificate of a CA"):
        issue(CLIENT, ca=issue(SERVER))
    with pytest.raises(ValueError, match="does not match"):
        issue(CLIENT, ca=KeyPair(CA.certificate, TWIN.key))


def test_serials_are_long_and_never_repeat():
    serials = [load(issue(CLIENT)).serial_number for _ in range(20)]
    assert len(set(serials)) == 20
    assert max(serials).bit_length() > 128


# --- desired state


def test_desired_state_is_normalised():
    one = replace(SERVER, dns_names=("B.example.", "a.example", "b.example"), ip_addresses=("::0001", "0:0::1"))
    two = replace(SERVER, dns_names=("a.example", "b.example"), ip_addresses=("::1",))
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"server": False}, "neither server nor client"),
        ({"dns_names": (), "ip_addresses": ()}, "no DNS name and no IP address"),
        ({"dns_names": ("10.0.0.1",)}, "are no DNS names"),
        ({"dns_names": ("fd00::1",)}, "are no DNS names"),
        ({"dns_names": ("",)}, "are no DNS names"),
        ({"dns_names": ("münchen.example",)}, "cannot be issued"),
        ({"ip_addresses": ("localhost",)}, "cannot be issued"),
        ({"common_name": "x" * 65}, "cannot be issued"),
        ({"common_name": ""}, "cannot be issued"),
    ],
)
def test_what_no_client_would_accept_is_refused(fault, message):
    with pytest.raises(ValueError, match=message):
        replace(SERVER, **fault)


# --- secrets


def test_no_key_leaks_through_repr_or_errors():
    pair = issue(CLIENT)
    lines = pair.key.decode().splitlines()[1:-1]
    shown = [repr(pair), str(pair), f"{pair}", repr([pair])]
    for broken in (KeyPair(pair.key, pair.key), KeyPair(pair.certificate, pair.key[:-40])):
        shown += reasons(CLIENT, broken)
        with pytest.raises(ValueError, match="cannot be read") as raised:
            issue(CLIENT, ca=broken)
        shown += [repr(raised.value), repr(raised.value.__cause__)]
    assert all(line not in text and "PRIVATE" not in text for line in lines for text in shown)


@pytest.mark.parametrize("algorithm", ["ECDSA-P256", "RSA-3072"])
def test_service_account_key(algorithm):
    private, public = pki.new_service_account_key(algorithm)
    assert private.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert public.startswith(b"-----BEGIN PUBLIC KEY-----")
    assert pki.public_key_of(private) == public
    with pytest.raises(ValueError, match="cannot be read"):
        pki.public_key_of(public)


def test_encryption_keys_have_32_bytes_and_differ():
    keys = {pki.encryption_key() for _ in range(10)}
    assert len(keys) == 10
    assert {len(base64.b64decode(key, validate=True)) for key in keys} == {32}


# --- describing


def test_fingerprint_agrees_with_openssl():
    output = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256"], input=CA.certificate, capture_output=True, check=True
    ).stdout.decode()
    assert output.split("=")[1].strip().replace(":", "").lower() == pki.fingerprint(CA.certificate)


def test_describe():
    pair = issue(SERVER)
    found = pki.describe(pair.certificate, TWIN.certificate, CA.certificate)
    assert found == {
        "subject": "CN=system:karmada:karmada-apiserver",
        "sans": [
            "DNS:*.karmada-system.svc",
            "DNS:localhost",
            "DNS:prod-apiserver.karmada-system.svc.cluster.local",
            "IP:127.0.0.1",
            "IP:fd00::1",
        ],
        "not_before": "2026-03-01T11:55:00Z",
        "not_after": "2027-03-01T12:00:00Z",
        "issuer": "CN=karmada-ca",
        "issuer_fingerprint": pki.fingerprint(CA.certificate),
        "serial": f"{load(pair).serial_number:x}",
    }
    assert pki.describe(pair.certificate, TWIN.certificate)["issuer_fingerprint"] is None


def test_bundle_keeps_order_and_drops_duplicates():
    a, b = CA.certificate, TWIN.certificate
    assert pki.bundle(b, a + b, b"# comment\n" + a.replace(b"\n", b"\r\n")) == b + a
    assert pki.bundle() == b""
    with pytest.raises(ValueError, match="bundle"):
        pki.bundle(a, b"junk")


def test_kubeconfig():
    pair = issue(CLIENT)
    config = pki_kubeconfig.kubeconfig(
        "plane", "https://[::1]:5443", CA.certificate, "admin", pair, "main", "apiserver", "team"
    )
    cluster = config["clusters"][0]["cluster"]
    assert base64.b64decode(cluster.pop("certificate-authority-data")) == CA.certificate
    assert cluster == {"server": "https://[::1]:5443", "tls-server-name": "apiserver"}
    user = config["users"][0]["user"]
    assert base64.b64decode(user["client-certificate-data"]) == pair.certificate
    assert base64.b64decode(user["client-key-data"]) == pair.key
    assert config["contexts"] == [
        {"name": "main", "context": {"cluster": "plane", "user": "admin", "namespace": "team"}}
    ]
    assert config["current-context"] == "main"
    plain = pki_kubeconfig.kubeconfig("plane", "https://x", CA.certificate, "admin", "token", "main")
    assert plain["users"] == [{"name": "admin", "user": {"token": "token"}}]
    assert "namespace" not in plain["contexts"][0]["context"]
    assert "tls-server-name" not in plain["clusters"][0]["cluster"]


@pytest.mark.parametrize(
    ("text", "minutes"), [("8760h", 525600), ("90m", 90), ("1h30m", 90), ("1.5h", 90), ("30s", 0.5), ("0", 0)]
)
def test_durations(text, minutes):
    assert pki.parse_duration(text) == timedelta(minutes=minutes)


@pytest.mark.parametrize("text", ["", "5", "1d", "-1h", "1h ", "h", "1 h", "1h30", "٣h", "9999999999999999h", "1h\n"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        pki.parse_duration(text)


def test_a_whole_control_plane_is_issued_in_no_time():
    """30 leaves take 10 ms of an idle core (ECDSA); of CPU time, since the machine may be busy."""
    begin = time.process_time()
    for _ in range(30):
        issue(SERVER)
    assert time.process_time() - begin < 1
