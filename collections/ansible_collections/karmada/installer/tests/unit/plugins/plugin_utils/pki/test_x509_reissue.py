# SPDX-License-Identifier: Apache-2.0
"""Certificates that we issue are left alone, until a change or the time gives a reason to issue them anew."""

from __future__ import annotations

import base64
import re
import ssl
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.x509 import Authority, Certificate
from ansible_collections.karmada.installer.tests.unit.support.certificates import (
    CA,
    CLIENT,
    MONTH,
    NOW,
    RSA_CA,
    RSA_SERVER,
    SECOND,
    SERVER,
    TWIN,
    YEAR,
    issue,
    load,
    reasons,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

# --- what we issue is left alone, and every change is noticed as what it is

labels = st.from_regex(r"[a-zA-Z]([a-z0-9-]{0,14}[a-z0-9])?", fullmatch=True)
dns_names = st.builds(
    lambda star, parts, dot: star + ".".join(parts) + dot,
    st.sampled_from(["", "*."]),
    st.lists(labels, min_size=1, max_size=4),
    st.sampled_from(["", "."]),
)
letters = st.characters(categories=["L", "N"], include_characters=":-., =+")
words = st.text(letters, min_size=1, max_size=60).filter(lambda word: len(word.encode()) <= 64)  # X.520: ub-common-name
specs = st.builds(
    Certificate,
    name=st.just("x"),
    authority=st.just("karmada"),
    common_name=words,
    organizations=st.lists(words, max_size=3).map(tuple),
    dns_names=st.lists(dns_names, min_size=1, max_size=4).map(tuple),
    ip_addresses=st.lists(st.ip_addresses().map(str), max_size=4).map(tuple),
    server=st.just(True),
    client=st.booleans(),
)
validities = st.timedeltas(min_value=timedelta(minutes=1), max_value=timedelta(days=20000))


@settings(deadline=None, max_examples=60)
@given(specs, validities, st.timedeltas(timedelta(0), timedelta(days=30000)), st.integers(0, 999_999))
def test_issued_is_left_alone_whatever_is_asked(spec, validity, renew_before, microsecond):
    now = NOW.replace(microsecond=microsecond)
    assert reasons(spec, issue(spec, validity, now=now), now=now, renew_before=renew_before) == []


CHANGES = {
    "common_name": "The subject differs",
    "organizations": "The subject differs",
    "dns_names": "The alternative names differ",
    "ip_addresses": "The alternative names differ",
    "server": "The usage differs",
    "client": "The usage differs",
}


@settings(deadline=None, max_examples=80)
@given(specs, specs, st.sampled_from(sorted(CHANGES)))
def test_one_changed_field_yields_its_reason_and_no_other(spec, other, changed):
    if changed == "server":
        spec, other = replace(spec, client=True), replace(spec, client=True, server=False)
    value = getattr(other, changed)
    wanted = replace(spec, **{changed: value})
    assume(set(getattr(wanted, changed)) != set(getattr(spec, changed)) if isinstance(value, tuple) else wanted != spec)
    found = reasons(wanted, issue(spec))
    assert len(found) == 1
    assert found[0].startswith(CHANGES[changed])


def test_every_reason_together_and_in_words():
    wrong = replace(SERVER, common_name="old", dns_names=("localhost", "gone.example"), ip_addresses=(), client=True)
    pair = replace(issue(wrong, ca=TWIN), key=TWIN.key)
    names = (
        "missing DNS:*.karmada-system.svc, DNS:prod-apiserver.karmada-system.svc.cluster.local, IP:127.0.0.1, "
        "IP:fd00::1; not wanted DNS:gone.example"
    )
    assert reasons(SERVER, pair, algorithm="RSA-3072", now=NOW + 2 * YEAR) == [
        "The private key does not match the certificate.",
        "The subject differs: wanted CN=system:karmada:karmada-apiserver, found CN=old.",
        f"The alternative names differ: {names}.",
        "The usage differs: wanted server, found client, server.",
        "The key algorithm differs: wanted RSA-3072, found ECDSA-P256.",
        "It is not signed by the current CA CN=karmada-ca (an earlier CA of the same name signed it).",
        "It expired at 2027-03-01T12:00:00Z.",
    ]


def test_missing_and_unreadable():
    good = issue(CLIENT)
    assert reasons(CLIENT, None) == ["It is missing."]
    for junk in (b"", b"junk", good.key, good.certificate[:200], good.certificate.replace(b"M", b"N", 3)):
        assert reasons(CLIENT, KeyPair(junk, good.key)) == ["The certificate cannot be read."]
    for junk in (b"", b"junk", good.certificate, good.key[:100]):
        assert reasons(CLIENT, KeyPair(good.certificate, junk)) == ["The private key cannot be read."]
    locked = serialization.load_pem_private_key(good.key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    assert reasons(CLIENT, KeyPair(good.certificate, locked)) == ["The private key cannot be read."]
    with pytest.raises(ValueError, match="cannot be read"):
        reasons(CLIENT, good, KeyPair(b"junk", b""))


@pytest.mark.parametrize("which", [0, 1], ids=["begin", "end"])
def test_a_certificate_with_a_date_that_does_not_exist_is_unreadable(which):
    good = issue(CLIENT)
    content = ssl.PEM_cert_to_DER_cert(good.certificate.decode())
    moment = re.findall(rb"[0-9]{12}Z", content)[which]
    of_nobody = ssl.DER_cert_to_PEM_cert(content.replace(moment, moment[:2] + b"0231" + moment[6:])).encode()
    assert reasons(CLIENT, KeyPair(of_nobody, good.key)) == ["The certificate cannot be read."]


def flipped(pem: bytes, position: int, bit: int) -> bytes:
    head, *lines, foot = pem.splitlines()
    der = bytearray(base64.b64decode(b"".join(lines)))
    der[position % len(der)] ^= 1 << bit
    return b"\n".join([head, base64.b64encode(der), foot, b""])


ECDSA_SERVER = issue(SERVER)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_a_certificate_is_noticed_and_never_raises(position, bit):
    leaf = load(ECDSA_SERVER)
    size = len(leaf.public_bytes(serialization.Encoding.DER))
    # The one byte that the library does not look at: how many bits of the signature's last byte are unused.
    assume(position % size != size - len(leaf.signature) - 1)
    pair = KeyPair(flipped(ECDSA_SERVER.certificate, position, bit), ECDSA_SERVER.key)
    assert reasons(SERVER, pair) != []
    pki.reasons_to_reissue_authority(pair, NOW)


@settings(deadline=None, max_examples=100)
@given(st.integers(40, 1700), st.integers(0, 7))  # the modulus begins at 37; the key has 1790 bytes or a few more
def test_a_flipped_bit_in_the_numbers_of_an_rsa_key_is_noticed(position, bit):
    """The library's own validation is skipped (too slow for every run), so ours must find what Go would refuse."""
    pair = replace(RSA_SERVER, key=flipped(RSA_SERVER.key, position, bit))
    assert reasons(SERVER, pair, RSA_CA, "RSA-3072")[0].startswith("The private key ")


def test_another_ca_is_noticed_by_its_signature_and_not_by_its_name():
    for ca in (TWIN, RSA_CA):
        assert reasons(CLIENT, issue(CLIENT), ca) == [
            "It is not signed by the current CA CN=karmada-ca (an earlier CA of the same name signed it)."
        ]
    named_otherwise = pki.new_authority(Authority("karmada", "other"), "ECDSA-P256", NOW)
    assert reasons(CLIENT, issue(CLIENT), named_otherwise) == ["It is not signed by the current CA CN=other."]


def test_an_address_among_the_dns_names_does_not_pass_for_an_address():
    wanted = replace(SERVER, dns_names=(), ip_addresses=("10.0.0.1",))
    leaf, key = load(issue(wanted)), serialization.load_pem_private_key(CA.key, None)
    builder = x509.CertificateBuilder(
        leaf.issuer, leaf.subject, leaf.public_key(), 1, leaf.not_valid_before_utc, leaf.not_valid_after_utc
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName("10.0.0.1")]), critical=False)
    have = KeyPair(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), b"")
    assert reasons(wanted, have) == [
        "The private key cannot be read.",
        "The alternative names differ: missing IP:10.0.0.1; not wanted DNS:10.0.0.1.",
        "The usage differs: wanted server, found anything.",
    ]


def test_certificates_of_openssl_with_another_order_of_names_are_kept(tmp_path):
    """A certificate that a user brings is replaced for what matters only, not for how its maker writes it."""
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    (tmp_path / "ca.key").write_bytes(CA.key)
    (tmp_path / "ext").write_text(
        "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth,serverAuth\n"
        "subjectAltName=IP:fd00:0:0::1,DNS:LocalHost\n"
    )
    subject = "/CN=a/O=two+O=one"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "k"]
    subprocess.run(
        ["openssl", "req", *new_key, "-multivalue-rdn", "-subj", subject, "-out", "csr"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    sign = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext", "-days", "90"]
    subprocess.run(
        ["openssl", "x509", "-req", "-in", "csr", *sign, "-out", "crt"], cwd=tmp_path, check=True, capture_output=True
    )
    wanted = Certificate(
        "x", "karmada", "a", ("one", "two"), ("localhost",), ("FD00:0000::1",), server=True, client=True
    )
    pair = KeyPair((tmp_path / "crt").read_bytes(), (tmp_path / "k").read_bytes())
    assert reasons(wanted, pair, now=datetime.now(UTC)) == []


# --- time


def test_boundaries_of_time():
    pair = issue(CLIENT)
    end = NOW + YEAR
    assert pki.expiry(pair.certificate) == end
    start = NOW - timedelta(minutes=5)
    expires = [f"It expires at {end:%Y-%m-%dT%H:%M:%SZ}, and is renewed 720 hours before."]
    for moment, expected in (
        (start - SECOND, ["It is not valid before 2026-03-01T11:55:00Z."]),
        (start, []),
        (end - MONTH - SECOND, []),
        (end - MONTH, expires),
        (end, expires),
        (end + SECOND, ["It expired at 2027-03-01T12:00:00Z."]),
    ):
        assert reasons(CLIENT, pair, now=moment) == expected


@pytest.mark.parametrize("minutes", [1, 10, 60, 60 * 24 * 90])
def test_renew_before_beyond_the_lifetime_counts_for_two_thirds_of_it(minutes):
    validity = timedelta(minutes=minutes)
    pair = issue(CLIENT, validity)
    due = NOW + validity / 3
    assert reasons(CLIENT, pair, now=due - SECOND, renew_before=10 * YEAR) == []
    assert len(reasons(CLIENT, pair, now=due, renew_before=10 * YEAR)) == 1


def test_a_leaf_never_outlives_its_ca_and_is_not_renewed_in_vain():
    end = pki.expiry(CA.certificate)
    late = end - timedelta(days=10)
    pair = issue(CLIENT, now=late)
    assert pki.expiry(pair.certificate) == end
    assert reasons(CLIENT, pair, now=end - SECOND, renew_before=YEAR) == []
    assert reasons(CLIENT, pair, now=end + SECOND) == [f"It expired at {end:%Y-%m-%dT%H:%M:%SZ}."]
    assert issue(CLIENT, validity=timedelta.max).certificate
    for moment in (end, NOW - timedelta(minutes=6)):
        with pytest.raises(ValueError, match="is valid from"):
            issue(CLIENT, now=moment)
    with pytest.raises(ValueError, match="a minute at least"):
        issue(CLIENT, validity=timedelta(0))


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 400), st.integers(1, 900), st.integers(0, 1000))
@example(ca_days=365, leaf_days=90, renew_days=1000)
def test_runs_every_day_until_the_ca_ends_reissue_seldom(ca_days, leaf_days, renew_days):
    """The whole life of a CA, one run a day: never an expired leaf, and no more reissues than thirds of a lifetime."""
    ca = pki.new_authority(Authority("karmada", "ca"), "ECDSA-P256", NOW, timedelta(days=ca_days))
    validity, renew_before = timedelta(days=leaf_days), timedelta(days=renew_days)
    pair, issued = None, 0
    for day in range(ca_days):
        now = NOW + timedelta(days=day)
        if reasons(CLIENT, pair, ca, now=now, renew_before=renew_before):
            pair, issued = issue(CLIENT, validity, ca, now), issued + 1
        assert pair is not None
        assert now < pki.expiry(pair.certificate)
    assert issued <= 2 + 3 * ca_days / leaf_days


def test_authority_is_replaced_for_what_makes_it_useless_only():
    end = pki.expiry(CA.certificate)
    assert pki.reasons_to_reissue_authority(None, NOW) == ["It is missing."]
    assert pki.reasons_to_reissue_authority(KeyPair(b"x", CA.key), NOW) == ["The certificate cannot be read."]
    assert pki.reasons_to_reissue_authority(KeyPair(CA.certificate, b"x"), NOW) == ["The private key cannot be read."]
    assert pki.reasons_to_reissue_authority(KeyPair(CA.certificate, TWIN.key), NOW) == [
        "The private key does not match the certificate."
    ]
    for moment in (NOW - YEAR, NOW, end - SECOND, end):
        assert pki.reasons_to_reissue_authority(CA, moment) == []
    assert pki.reasons_to_reissue_authority(CA, end + SECOND) == [f"It expired at {end:%Y-%m-%dT%H:%M:%SZ}."]
    assert pki.authority_warnings(CA.certificate, NOW + 7.9 * YEAR) == []
    assert "rotate it" in pki.authority_warnings(CA.certificate, NOW + 8.1 * YEAR)[0]


def test_a_time_without_zone_is_refused():
    with pytest.raises(ValueError, match="timezone"):
        issue(CLIENT, now=NOW.replace(tzinfo=None))
