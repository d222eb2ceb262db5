# SPDX-License-Identifier: Apache-2.0
"""What is issued, what is left alone, and what is never made anew in passing."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import AUTHORITIES, leaf_certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EVERYTHING,
    NOW,
    RUNNING,
    Rendered,
    authorities,
    rendered,
    state,
)
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

ALL = {leaf.name for leaf in leaf_certificates(RUNNING)}
FIRST = rendered(EVERYTHING)
_ADMIN = workloads.secret(
    FIRST.instance,
    "admin",
    certificates.ADMIN_FILES.name,
    {"tls.crt": FIRST.material.leaves["admin"].certificate, "tls.key": FIRST.material.leaves["admin"].key},
)
SECRETS = {each["metadata"]["name"]: each for each in (*FIRST.secrets, _ADMIN)}


def issue(found: Rendered, present: dict[str, KeyPair], after: timedelta = timedelta(0)) -> certificates.Issued:
    return certificates.issue_missing(found.instance, found.remembered, found.layout, present, NOW + after)


def present() -> dict[str, KeyPair]:
    return certificates.present_leaves(FIRST.instance, SECRETS)


def test_the_first_run_makes_everything() -> None:
    issued = issue(FIRST, {})
    assert set(issued.reasons) == set(issued.material.leaves) == ALL


def test_certificates_are_made_for_components_that_are_wanted_only() -> None:
    optional = {leaf.name for component in RUNNING if component.optional for leaf in component.certificates}
    assert len(optional) == 7
    plain = rendered()
    assert set(issue(plain, {}).material.leaves) == ALL - optional
    # those of a component that was switched off are neither kept nor renewed
    assert set(certificates.present_leaves(plain.instance, SECRETS)) == ALL - optional
    assert set(issue(plain, present()).material.leaves) == ALL - optional
    # and switched on again, only they are made
    kept = certificates.present_leaves(plain.instance, SECRETS)
    assert set(issue(FIRST, kept).reasons) == optional


def test_what_was_stored_is_found_again() -> None:
    assert present() == FIRST.material.leaves


def test_a_second_run_makes_nothing() -> None:
    issued = issue(FIRST, present(), timedelta(days=1))
    assert issued.reasons == {}
    assert issued.material.leaves == FIRST.material.leaves


def test_an_administrator_of_an_earlier_version_gets_another_certificate_once() -> None:
    masters = pki.Certificate("admin", "karmada-ca", "system:admin", ("system:masters",), client=True)
    was = pki.issue(masters, FIRST.remembered.authorities["karmada-ca"], "ECDSA-P256", NOW, timedelta(days=365))
    issued = issue(FIRST, {**present(), "admin": was})
    assert list(issued.reasons) == ["admin"]
    assert "The subject differs" in issued.reasons["admin"][0]
    assert issue(FIRST, dict(issued.material.leaves)).reasons == {}


def test_each_generation_of_the_administrator_is_somebody_else_in_every_way() -> None:
    """Name and group: each of them alone is bound to rights, here or on members."""
    later = rendered({"certificates": {"administratorGeneration": 7}, **EVERYTHING})
    issued = issue(later, present())
    assert list(issued.reasons) == ["admin"]
    told = pki.describe(issued.material.leaves["admin"].certificate)["subject"]
    assert told == "CN=system:admin:7, O=system:karmada:administrators:7"
    assert issue(later, dict(issued.material.leaves)).reasons == {}


def test_a_run_works_with_a_certificate_for_hours_that_is_nowhere_else() -> None:
    made = certificates.superuser("somebody", FIRST.remembered, FIRST.instance.spec, NOW, timedelta(hours=2))
    authority = FIRST.remembered.authorities["karmada-ca"].certificate
    told = pki.describe(made.certificate, authority)
    assert told["subject"] == "CN=somebody, O=system:masters"
    assert told["issuer_fingerprint"] == pki.fingerprint(authority)
    assert pki.expiry(made.certificate) == NOW + timedelta(hours=2)
    assert made not in FIRST.material.leaves.values()


def test_with_an_authority_that_has_ended_it_has_none_and_says_so() -> None:
    late = NOW + pki.AUTHORITY_LIFETIME + timedelta(days=1)
    with pytest.raises(ProblemsError, match="karmada-ca cannot be used"):
        certificates.superuser("somebody", FIRST.remembered, FIRST.instance.spec, late, timedelta(hours=2))


@given(st.sets(st.sampled_from(sorted(ALL))))
@settings(max_examples=15, deadline=None)
def test_exactly_what_is_missing_is_made(missing: set[str]) -> None:
    have = {name: pair for name, pair in present().items() if name not in missing}
    issued = issue(FIRST, have)
    assert set(issued.reasons) == missing
    assert all(issued.material.leaves[name] is pair for name, pair in have.items())


@pytest.mark.parametrize(
    "data",
    [None, {}, {"tls.crt": "", "tls.key": ""}, {"tls.crt": "not base64!", "tls.key": "AA=="}, {"tls.crt": "AAAA"}],
)
def test_a_damaged_secret_is_replaced(data: dict[str, str] | None) -> None:
    damaged = {**SECRETS, "prod-webhook-cert": {**SECRETS["prod-webhook-cert"], "data": data}}
    issued = issue(FIRST, certificates.present_leaves(FIRST.instance, damaged))
    assert set(issued.reasons) == {"karmada-webhook"}


def test_a_secret_that_holds_something_else_is_replaced() -> None:
    text = base64.b64encode(b"no certificate").decode()
    damaged = {**SECRETS, "prod-webhook-cert": {"data": {"tls.crt": text, "tls.key": text}}}
    issued = issue(FIRST, certificates.present_leaves(FIRST.instance, damaged))
    assert set(issued.reasons) == {"karmada-webhook"}
    assert issued.reasons["karmada-webhook"] == ["The certificate cannot be read."]


def test_a_new_name_reissues_the_certificate_that_carries_it_and_no_other() -> None:
    other = rendered({"endpoint": {"extraSANs": ["karmada.example.com"]}, **EVERYTHING})
    issued = issue(other, present())
    assert set(issued.reasons) == {"karmada-apiserver"}
    assert "karmada.example.com" in issued.reasons["karmada-apiserver"][0]


def test_certificates_are_renewed_in_time_and_not_before() -> None:
    """The default: valid for a year, renewed when a third of it is left."""
    assert issue(FIRST, present(), timedelta(hours=8760 - 2920 - 1)).reasons == {}
    assert set(issue(FIRST, present(), timedelta(hours=8760 - 2920)).reasons) == ALL


def test_validity_and_algorithm_are_the_documents() -> None:
    other = rendered({"certificates": {"validity": "48h", "renewBefore": "24h", "keyAlgorithm": "ECDSA-P256"}})
    for pair in other.material.leaves.values():
        assert pki.expiry(pair.certificate) == NOW + timedelta(hours=48)
    algorithm = rendered({"certificates": {"keyAlgorithm": "RSA-3072"}})
    have = {name: pair for name, pair in present().items() if name != "karmada-webhook"}
    # keys that exist are replaced when the algorithm changes, each with the reason
    reasons = issue(algorithm, {"karmada-webhook": present()["karmada-webhook"]}).reasons["karmada-webhook"]
    assert reasons == ["The key algorithm differs: wanted RSA-3072, found ECDSA-P256."]
    assert have


def test_leaves_live_a_year_at_most_by_default() -> None:
    for pair in FIRST.material.leaves.values():
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        assert certificate.not_valid_after_utc - NOW <= timedelta(days=365)


def damaged_authorities() -> dict[str, tuple[dict[str, KeyPair], str]]:
    mine, other = authorities(), pki.new_authority(pki.Authority("x", "x"), "ECDSA-P256", NOW)
    return {
        "missing": ({name: pair for name, pair in mine.items() if name != "etcd-ca"}, "missing"),
        "unreadable": ({**mine, "etcd-ca": KeyPair(b"junk", mine["etcd-ca"].key)}, "cannot be read"),
        "key of another": ({**mine, "etcd-ca": KeyPair(mine["etcd-ca"].certificate, other.key)}, "does not match"),
    }


@pytest.mark.parametrize("damage", damaged_authorities())
def test_an_authority_is_never_replaced_in_passing(damage: str) -> None:
    held, reason = damaged_authorities()[damage]
    found = Rendered(FIRST.deployment, state=state(authorities=held))
    with pytest.raises(ProblemsError) as refused:
        issue(found, present())
    assert [problem.what for problem in refused.value.problems if reason in problem.what]
    assert "etcd-ca" in str(refused.value)
    assert "PRIVATE" not in str(refused.value)


def test_an_expired_authority_is_told() -> None:
    (first, *_) = certificates.unusable_authorities(state(), FIRST.spec, NOW + timedelta(days=3651))
    assert "expired" in first.what
    assert certificates.unusable_authorities(state(), FIRST.spec, NOW) == []


def test_another_authority_reissues_what_the_old_one_signed() -> None:
    mine = authorities()
    new = pki.new_authority(pki.Authority("etcd-ca", "karmada-etcd-ca"), "ECDSA-P256", NOW)
    found = Rendered(FIRST.deployment, state=state(authorities={**mine, "etcd-ca": new}))
    issued = issue(found, present())
    assert set(issued.reasons) == {leaf.name for leaf in leaf_certificates(RUNNING) if leaf.authority == "etcd-ca"}


def test_a_first_state_has_everything_that_is_made_once_and_no_two_are_alike() -> None:
    empty = replace(state(), authorities={}, service_account_key=b"", encryption_key="")
    one, two = (certificates.with_new_keys(empty, FIRST.spec, NOW) for _ in range(2))
    assert set(one.authorities) == set(AUTHORITIES)
    keys: list[Any] = [pair.key for each in (one, two) for pair in each.authorities.values()]
    keys += [one.service_account_key, two.service_account_key, one.encryption_key, two.encryption_key]
    assert len(set(keys)) == len(keys)


def test_the_report_knows_the_end_of_every_certificate() -> None:
    ends = certificates.expiries(FIRST.material)
    assert set(ends) == ALL | set(AUTHORITIES)
    assert ends["karmada-webhook"] == (NOW + timedelta(days=365)).isoformat()


def test_what_was_issued_does_not_show_itself() -> None:
    assert "PRIVATE" not in repr(issue(FIRST, present()))
