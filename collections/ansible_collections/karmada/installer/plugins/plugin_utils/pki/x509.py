# SPDX-License-Identifier: Apache-2.0
"""Certificates: the wanted ones, reasons why present ones must be reissued, and issuing.

No I/O and no clock; the caller passes `now` (timezone-aware). Needs `cryptography` 44 or newer.

Facts behind this design:

* Clocks of servers differ, so everything is valid from `BACKDATE` before `now`, as much as kube-controller-manager's
  signer allows for (pkg/controller/certificates/signer/signer.go).
* Key files are PKCS#8, which every Kubernetes and etcd binary reads (k8s.io/client-go/util/keyutil, Go crypto/tls).
* Times in X.509 have a resolution of one second and both ends are inclusive (RFC 5280, 4.1.2.5).
* Go clients ignore the common name of a server (since Go 1.15), hence a server certificate must have alternative names.

A PEM from outside that cannot be read raises `ValueError`, with a sentence and never with key material. Only the two
`reasons_to_reissue` functions turn it into a reason instead.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes, PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..components.types import KeyPair
from ..encoding import base64_text

KeyAlgorithm = Literal["ECDSA-P256", "RSA-3072"]
_PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_E = TypeVar("_E", bound=x509.ExtensionType)

BACKDATE = timedelta(minutes=5)
"""Time before `now` at which a new certificate starts to be valid."""
SHORTEST = timedelta(minutes=1)
"""Shortest validity that `issue` accepts; below it the resolution of one second would matter."""
AUTHORITY_LIFETIME = timedelta(days=3650)

_USAGES = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|h|m|s))+")
_IPV4 = re.compile(r"[0-9.]+")
_UNREADABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)


@dataclass(frozen=True)
class Authority:
    """Desired state of one self-signed CA: `name` is ours, `common_name` is in the certificate."""

    name: str
    common_name: str


@dataclass(frozen=True)
class Certificate:
    """Desired state of one leaf, signed by the authority named `authority`; `name` is ours and not in the certificate.

    Names are normalised, so that equal desires compare equal: DNS names (wildcards allowed) in lower case without a
    final dot, IP addresses in their shortest form without a zone, both sorted, no duplicates. Raises `ValueError` if no
    client would accept it: no usage, a server without alternative names, an address among the DNS names.
    """

    name: str
    authority: str
    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    server: bool = False
    client: bool = False

    def __post_init__(self) -> None:
        dns = {name.lower().rstrip(".") for name in self.dns_names}
        try:
            addresses = {str(ipaddress.ip_address(ipaddress.ip_address(text).packed)) for text in self.ip_addresses}
            _name(self.common_name, self.organizations)
            [x509.DNSName(name) for name in dns]
        except ValueError as error:
            raise ValueError(f"Certificate {self.name} cannot be issued: {error}.") from error
        misplaced = sorted(name for name in dns if not name or ":" in name or _IPV4.fullmatch(name))
        if misplaced:
            raise ValueError(f"Certificate {self.name}: {misplaced} are no DNS names; addresses go to ip_addresses.")
        if not (self.server or self.client):
            raise ValueError(f"Certificate {self.name} is for neither server nor client.")
        if self.server and not (dns or addresses):
            raise ValueError(f"Certificate {self.name} is for a server and has no DNS name and no IP address.")
        object.__setattr__(self, "organizations", tuple(dict.fromkeys(self.organizations)))
        object.__setattr__(self, "dns_names", tuple(sorted(dns)))
        object.__setattr__(self, "ip_addresses", tuple(sorted(addresses)))


def new_authority(
    authority: Authority, algorithm: KeyAlgorithm, now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME
) -> KeyPair:
    """New self-signed CA, valid until `now + lifetime`, that may sign leaves only (path length 0)."""
    key, name, now = _new_key(algorithm), _name(authority.common_name, ()), _utc(now)
    builder = (
        _builder(name, name, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    certificate: Certificate, authority_pair: KeyPair, algorithm: KeyAlgorithm, now: datetime, validity: timedelta
) -> KeyPair:
    """New key and a leaf for it, valid until `now + validity` or the end of the CA, whichever comes first.

    Raises `ValueError` if the CA is unreadable, is no CA, does not match its key, or is not valid at `now`, or if
    `validity` is below `SHORTEST`.
    """
    authority, authority_key = _load_certificate(authority_pair.certificate), _load_key(authority_pair.key)
    now = _utc(now)
    if not _is_authority(authority):
        raise ValueError(f"{_text(authority.subject)} is not the certificate of a CA.")
    if not isinstance(authority_key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise ValueError(f"The key of CA {_text(authority.subject)} is neither ECDSA nor RSA.")
    if not _matches(authority, authority_key):
        raise ValueError(f"The key of CA {_text(authority.subject)} does not match its certificate.")
    start, end = authority.not_valid_before_utc, authority.not_valid_after_utc
    if not start <= now < end:
        raise ValueError(f"CA {_text(authority.subject)} is valid from {_iso(start)} to {_iso(end)} only.")
    if validity < SHORTEST:
        raise ValueError(f"A certificate must be valid for a minute at least, not for {validity}.")
    end = end if validity > end - now else now + validity

    key, name = _new_key(algorithm), _name(certificate.common_name, certificate.organizations)
    encipherment = isinstance(key, rsa.RSAPrivateKey)
    purposes = [oid for oid, usage in _USAGES.items() if getattr(certificate, usage)]
    authority_id = _extension(authority, x509.SubjectKeyIdentifier)
    if authority_id is None:
        authority_id = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    builder = (
        _builder(name, authority.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True, key_encipherment=encipherment), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
    )
    if names := _general_names(certificate):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(authority_key, hashes.SHA256()), key)


def reasons_to_reissue(
    certificate: Certificate,
    pair: KeyPair | None,
    authority_certificate: bytes,
    algorithm: KeyAlgorithm | None,
    now: datetime,
    renew_before: timedelta,
) -> list[str]:
    """Reasons why `pair` does not match `certificate`, one sentence each; empty if it is to be left untouched.

    Two rules prevent endless reissuing. `renew_before` is limited to two thirds of the certificate's own lifetime, so a
    new certificate is kept for at least a third of it, whatever was configured. And a certificate that ends together
    with its CA is not renewed for its age, because a new one could not last longer (rotate the CA).

    ``algorithm`` None: the key algorithm is somebody else's choice. Raises `ValueError` if `authority_certificate` is
    unreadable; `reasons_to_reissue_authority` reports that.
    """
    authority = _load_certificate(authority_certificate)
    if pair is None:
        return ["It is missing."]
    try:
        have = _load_certificate(pair.certificate)
    except ValueError as error:
        return [str(error)]
    reasons = _key_reasons(have, pair.key)
    subject = _name(certificate.common_name, certificate.organizations)
    if _attributes(subject) != _attributes(have.subject):
        reasons.append(f"The subject differs: wanted {_text(subject)}, found {_text(have.subject)}.")

    wanted_names = _alternative_names(_general_names(certificate))
    names = _alternative_names(_extension(have, x509.SubjectAlternativeName) or ())
    if wanted_names != names:
        differences = {"missing": sorted(wanted_names - names), "not wanted": sorted(names - wanted_names)}
        text = "; ".join(f"{what} {', '.join(some)}" for what, some in differences.items() if some)
        reasons.append(f"The alternative names differ: {text}.")

    wanted_usages, usages = {usage for usage in _USAGES.values() if getattr(certificate, usage)}, _usages(have)
    if wanted_usages != usages:
        found = ", ".join(sorted(usages)) or "nothing"
        reasons.append(f"The usage differs: wanted {', '.join(sorted(wanted_usages))}, found {found}.")

    if algorithm and _algorithm(have.public_key()) != algorithm:
        reasons.append(f"The key algorithm differs: wanted {algorithm}, found {_algorithm(have.public_key())}.")

    if not _signed_by(have, authority):
        same = " (an earlier CA of the same name signed it)" if have.issuer == authority.subject else ""
        reasons.append(f"It is not signed by the current CA {_text(authority.subject)}{same}.")

    return reasons + _time_reasons(have, authority, _utc(now), renew_before)


def reasons_to_reissue_authority(pair: KeyPair | None, now: datetime) -> list[str]:
    """Reasons why a CA can no longer be used: missing, unreadable, key and certificate do not match, expired.

    Nothing else, since everything that trusts the CA breaks when it is replaced; for its age see `authority_warnings`.
    """
    if pair is None:
        return ["It is missing."]
    try:
        have = _load_certificate(pair.certificate)
    except ValueError as error:
        return [str(error)]
    expired = [f"It expired at {_iso(have.not_valid_after_utc)}."] if _utc(now) > have.not_valid_after_utc else []
    return _key_reasons(have, pair.key) + expired


def authority_warnings(authority_certificate: bytes, now: datetime) -> list[str]:
    """Warnings for a CA with less than 20 % of its lifetime left, which should be rotated (never done unasked)."""
    have = _load_certificate(authority_certificate)
    start, end = have.not_valid_before_utc, have.not_valid_after_utc
    if end - _utc(now) >= (end - start) / 5:
        return []
    return [f"CA {_text(have.subject)} expires at {_iso(end)}, less than a fifth of its lifetime away; rotate it."]


def _time_reasons(
    have: x509.Certificate, authority: x509.Certificate, now: datetime, renew_before: timedelta
) -> list[str]:
    start, end = have.not_valid_before_utc, have.not_valid_after_utc
    if now > end:
        return [f"It expired at {_iso(end)}."]
    if now < start:
        return [f"It is not valid before {_iso(start)}."]
    lifetime = max(end - start - BACKDATE, timedelta(0))
    window = min(renew_before, lifetime * 2 / 3)
    if now < end - window or end >= authority.not_valid_after_utc:
        return []
    return [f"It expires at {_iso(end)}, and is renewed {window / timedelta(hours=1):.4g} hours before."]


def _key_reasons(have: x509.Certificate, key_pem: bytes) -> list[str]:
    try:
        return [] if _matches(have, _load_key(key_pem)) else ["The private key does not match the certificate."]
    except ValueError as error:
        return [str(error)]


def certificate_request(common_name: str, organizations: Iterable[str], algorithm: KeyAlgorithm) -> tuple[bytes, bytes]:
    """Certificate signing request for a new key, and that key; both PEM."""
    key = _new_key(algorithm)
    request = x509.CertificateSigningRequestBuilder(_name(common_name, organizations)).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def new_service_account_key(algorithm: KeyAlgorithm) -> tuple[bytes, bytes]:
    """Private and public PEM of a key that signs service-account tokens; shared with no certificate."""
    private = _key_pem(_new_key(algorithm))
    return private, public_key_of(private)


def public_key_of(private_pem: bytes) -> bytes:
    """The public half (PEM, SubjectPublicKeyInfo) of a private key."""
    public = _load_key(private_pem).public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def encryption_key() -> str:
    """Base64 of 32 random bytes: the size that aescbc, aesgcm and secretbox take in an EncryptionConfiguration."""
    return base64_text(secrets.token_bytes(32))


def fingerprint(cert_pem: bytes) -> str:
    """SHA-256 of the certificate (of its DER form), in lower-case hex."""
    return _load_certificate(cert_pem).fingerprint(hashes.SHA256()).hex()


def expiry(cert_pem: bytes) -> datetime:
    """Last moment at which the certificate is valid, in UTC (aware)."""
    return _load_certificate(cert_pem).not_valid_after_utc


def describe(cert_pem: bytes, *authority_pems: bytes) -> dict[str, Any]:
    """Facts about a certificate for a status; none is secret.

    `issuer_fingerprint` is that of the one of `authority_pems` whose key signed it, or None. `serial` is hex.
    """
    have = _load_certificate(cert_pem)
    signers = [pem for pem in authority_pems if _signed_by(have, _load_certificate(pem))]
    return {
        "subject": _text(have.subject),
        "sans": sorted(_alternative_names(_extension(have, x509.SubjectAlternativeName) or ())),
        "not_before": _iso(have.not_valid_before_utc),
        "not_after": _iso(have.not_valid_after_utc),
        "issuer": _text(have.issuer),
        "issuer_fingerprint": fingerprint(signers[0]) if signers else None,
        "serial": f"{have.serial_number:x}",
    }


def bundle(*cert_pems: bytes) -> bytes:
    """All certificates of all PEMs, in order, each once. Raises `ValueError` for a PEM without a readable one."""
    found: dict[bytes, None] = {}
    for pem in cert_pems:
        try:
            certificates = x509.load_pem_x509_certificates(pem)
        except _UNREADABLE as error:
            raise ValueError(f"A certificate of the bundle cannot be read: {error}.") from error
        found.update((certificate.public_bytes(serialization.Encoding.PEM), None) for certificate in certificates)
    return b"".join(found)


def parse_duration(text: str) -> timedelta:
    """Duration in Go's form (`8760h`, `1h30m`, `1.5h`, `0`), units h, m, s and ms. Raises `ValueError`."""
    if text != "0" and not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write hours, minutes and seconds, such as 8760h or 1h30m.")
    try:
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in re.findall("([0-9.]+)(ms|h|m|s)", text)))
    except OverflowError:
        raise ValueError(f"{text!r} is too long for a duration.") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _PrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    public, serial = key.public_key(), x509.random_serial_number()  # 159 bits, the most RFC 5280 4.1.2.2 allows
    builder = x509.CertificateBuilder(issuer, subject, public, serial, now - BACKDATE, end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _key_usage(**wanted: bool) -> x509.KeyUsage:
    names = "content_commitment data_encipherment key_agreement encipher_only decipher_only digital_signature"
    names += " key_encipherment key_cert_sign crl_sign"
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in names.split()})


def _new_key(algorithm: KeyAlgorithm) -> _PrivateKey:
    if algorithm == "ECDSA-P256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "RSA-3072":
        return rsa.generate_private_key(public_exponent=65537, key_size=3072)
    raise ValueError(f"{algorithm!r} is not a key algorithm; use ECDSA-P256 or RSA-3072.")


def _algorithm(key: CertificatePublicKeyTypes) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA-{key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "ECDSA-P256" if isinstance(key.curve, ec.SECP256R1) else f"ECDSA-{key.curve.name}"
    return type(key).__name__


def _key_pem(key: _PrivateKey) -> bytes:
    none = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)


def _pair(certificate: x509.Certificate, key: _PrivateKey) -> KeyPair:
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


@functools.lru_cache(maxsize=256)  # an authority is looked at for each certificate that it signed
def _load_certificate(pem: bytes) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificate(pem)
        # Parsed lazily by the library: ask now for all that is read later.
        _ = found.extensions, found.subject, found.issuer, found.public_key(), found.not_valid_after_utc
    except _UNREADABLE as error:
        raise ValueError("The certificate cannot be read.") from error
    return found


def _load_key(pem: bytes) -> PrivateKeyTypes:
    try:
        # The library's own validation of an RSA key costs 0.1 s, for the primes; _is_sound checks the rest.
        return serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
    except _UNREADABLE:
        raise ValueError("The private key cannot be read.") from None


def _matches(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    der, info = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if certificate.public_key().public_bytes(der, info) != key.public_key().public_bytes(der, info):
        return False
    return not isinstance(key, rsa.RSAPrivateKey) or _is_sound(key.private_numbers())


def _is_sound(rsa_key: rsa.RSAPrivateNumbers) -> bool:
    """Check an RSA key by RFC 8017, 3.2, as Go does when it loads one, except for the primality of p and q."""
    p, q, d, e = rsa_key.p, rsa_key.q, rsa_key.d, rsa_key.public_numbers.e
    return (
        min(p, q) > 1
        and p * q == rsa_key.public_numbers.n
        and d * e % (p - 1) == d * e % (q - 1) == 1
        and (rsa_key.dmp1, rsa_key.dmq1, rsa_key.iqmp * q % p) == (d % (p - 1), d % (q - 1), 1)
    )


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *_UNREADABLE):
        return False
    return True


def _extension(certificate: x509.Certificate, kind: type[_E]) -> _E | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _is_authority(certificate: x509.Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def _usages(certificate: x509.Certificate) -> set[str]:
    """Usages: server, client, or the OID of one that we never ask for; "CA" and "no signatures" for what spoils both.

    keyEncipherment does not count: other tools set it on ECDSA keys, too, where it has no meaning. Without an extension
    everything is allowed (RFC 5280, 4.2.1.3 and 4.2.1.12).
    """
    purposes, usage = _extension(certificate, x509.ExtendedKeyUsage), _extension(certificate, x509.KeyUsage)
    found = {"anything"} if purposes is None else {_USAGES.get(oid, oid.dotted_string) for oid in purposes}
    if usage is not None and not usage.digital_signature:
        found.add("no signatures")
    return found | {"CA"} if _is_authority(certificate) else found


def _general_names(certificate: Certificate) -> list[x509.GeneralName]:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in certificate.ip_addresses]
    return [*(x509.DNSName(name) for name in certificate.dns_names), *addresses]


def _alternative_names(names: Iterable[x509.GeneralName]) -> set[str]:
    """Names in OpenSSL's notation, so that an address among the DNS names (which clients ignore) is told apart."""
    kinds = {x509.DNSName: "DNS", x509.IPAddress: "IP"}
    return {f"{kinds.get(type(name), type(name).__name__)}:{str(name.value).lower()}" for name in names}


def _name(common_name: str, organizations: Iterable[str]) -> x509.Name:
    values = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, value) for value in dict.fromkeys(organizations)]
    return x509.Name([*values, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _attributes(name: x509.Name) -> list[tuple[str, str]]:
    # Order and grouping differ between tools (Go puts all O into one set) and mean nothing to Kubernetes.
    return sorted((attribute.oid.dotted_string, str(attribute.value)) for attribute in name)


def _text(name: x509.Name) -> str:
    return ", ".join(attribute.rfc4514_string() for attribute in reversed(list(name)))


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("The time must have a timezone.")
    return moment.astimezone(UTC)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
