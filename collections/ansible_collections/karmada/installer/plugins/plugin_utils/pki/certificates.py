# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates of an instance: those present, those wanted, and those to be issued. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ..components.instance import Instance
from ..components.spec import Spec
from ..components.state import State
from ..components.table import (
    AUTHORITIES,
    COMPONENTS,
    KARMADA_CA,
    wanted_authorities,
    wanted_components,
    wanted_leaf_certificates,
)
from ..components.types import Component, FileSet, Holds, KeyPair, Layout, LeafCertificate
from ..problems import Problem, ProblemsError, Reason
from . import x509
from .files import Material, wanted

#: The administrator's certificate has no component, so its file set is defined here.
ADMIN_FILES = FileSet("admin-cert", "", Holds.CERTIFICATE, "admin")


@dataclass(frozen=True, repr=False)
class Issued:
    """All material of an instance, and the reasons why leaves were issued again: name → reasons."""

    material: Material
    reasons: Mapping[str, list[str]]


def file_set_of(leaf: LeafCertificate, components: Iterable[Component] = COMPONENTS) -> FileSet:
    """File set of a leaf of these components. Each leaf is in exactly one file set."""
    if leaf.name == ADMIN_FILES.certificate:
        return ADMIN_FILES
    return next(files for component in components for files in component.file_sets if files.leaf == leaf.name)


def new_keys(spec: Spec, now: datetime) -> dict[str, Any]:
    """Fields of a State that are generated once: authorities, service-account and encryption key."""
    algorithm = spec.certificates.key_algorithm
    return {
        "authorities": {
            name: x509.new_authority(x509.Authority(name, AUTHORITIES[name]), algorithm, now)
            for name in wanted_authorities(spec)
        },
        "service_account_key": x509.new_service_account_key(algorithm)[0],
        "encryption_key": x509.encryption_key(),
    }


def superuser(name: str, state: State, spec: Spec, now: datetime, validity: timedelta) -> KeyPair:
    """Certificate in group ``system:masters``, for which the API server asks no authorizer, so that nothing revokes it.

    Never stored by the installer: it is for one step of a run, or for a person in an emergency. Raises ProblemsError if
    the authority cannot be used.
    """
    problems = unusable_authorities(state, spec, now)
    if problems:
        raise ProblemsError(problems)
    wanted = x509.Certificate(name, KARMADA_CA, name, ("system:masters",), client=True)
    return x509.issue(wanted, state.authorities[KARMADA_CA], "ECDSA-P256", now, validity)


def unusable_authorities(state: State, spec: Spec, now: datetime) -> list[Problem]:
    """Problems of unusable authorities. They are never replaced in passing: all that trusts them would break."""
    return [
        Problem(
            what=f"the authority {name} cannot be used: {' '.join(reasons)}",
            where="the installer's state",
            remedy="restore the state from a backup; a new authority would lock out every component and member",
            reason=Reason.INVALID_AUTHORITY,
        )
        for name in wanted_authorities(spec)
        if (reasons := x509.reasons_to_reissue_authority(state.authorities.get(name), now))
    ]


def present_leaves(instance: Instance, secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, KeyPair]:
    """Leaves found in Secrets of the host cluster. ``secrets``: object name → Secret."""
    found, components = {}, wanted_components(instance.spec, pushed=instance.pushed)
    for leaf in wanted_leaf_certificates(instance.spec, pushed=instance.pushed):
        files = file_set_of(leaf, components)
        data = (secrets.get(instance.object_name(files.name)) or {}).get("data") or {}
        certificate, key = _decoded(data.get("tls.crt")), _decoded(data.get("tls.key"))
        if certificate and key:
            found[leaf.name] = KeyPair(certificate=certificate, key=key)
    return found


def issue_missing(
    instance: Instance,
    state: State,
    layout: Layout,
    present: Mapping[str, KeyPair],
    now: datetime,
    external_etcd: Mapping[str, bytes] | None = None,
    leaf_table: Sequence[LeafCertificate] | None = None,
) -> Issued:
    """Material with valid leaves kept and all others issued. Raises ProblemsError if an authority cannot be used.

    ``external_etcd`` is the client certificate for an external etcd: file name → content. ``leaf_table`` are the leaves
    to issue, by default all of the document.
    """
    problems = unusable_authorities(state, instance.spec, now)
    if problems:
        raise ProblemsError(problems)
    settings = instance.spec.certificates
    algorithm = settings.key_algorithm
    validity, renew_before = map(x509.parse_duration, (settings.validity, settings.renew_before))
    leaves: dict[str, KeyPair] = {}
    reasons: dict[str, list[str]] = {}
    every = wanted_leaf_certificates(instance.spec, pushed=instance.pushed) if leaf_table is None else leaf_table
    for leaf in every:
        want, authority, have = wanted(leaf, layout), state.authorities[leaf.authority], present.get(leaf.name)
        why = x509.reasons_to_reissue(want, have, authority.certificate, algorithm, now, renew_before)
        if have is None or why:
            reasons[leaf.name] = why
            leaves[leaf.name] = x509.issue(want, authority, algorithm, now, validity)
        else:
            leaves[leaf.name] = have
    material = Material(
        authorities=state.authorities,
        leaves=leaves,
        service_account_key=state.service_account_key,
        encryption_key=state.encryption_key,
        external_etcd=external_etcd or {},
        closed_to_agents=state.closed_to_agents,
    )
    return Issued(material, reasons)


def expiries(material: Material) -> dict[str, str]:
    """Certificate → end of its validity (UTC, ISO 8601), authorities included; for the report."""
    certificates = {name: pair.certificate for name, pair in {**material.authorities, **material.leaves}.items()}
    if material.external_etcd:
        certificates["external-etcd-client"] = material.external_etcd["tls.crt"]
    return {name: x509.expiry(certificate).isoformat() for name, certificate in sorted(certificates.items())}


def with_new_keys(state: State, spec: Spec, now: datetime) -> State:
    """First state, with everything that is generated only once."""
    return replace(state, **new_keys(spec, now))


def _decoded(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except binascii.Error:
        return b""
