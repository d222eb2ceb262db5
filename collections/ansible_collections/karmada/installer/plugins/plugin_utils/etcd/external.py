# SPDX-License-Identifier: Apache-2.0
"""External etcd: checks of its fitness for this control plane, and ownership of the key prefix.

A prefix belongs to the control plane whose UUID is in the key ``<prefix>/karmada-installer/owner``. The installation
writes it, in one transaction, only if no other key is below the prefix; the uninstallation deletes the keys, in one
transaction, only while it names this control plane.

Pods may well reach what this machine cannot. So a refusal needs proof that something is wrong; if nothing could be
learnt, that is reported, and the API server itself will show whether etcd works.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..components import releases
from ..components.spec import ExternalEtcd
from ..kube.apply import Change
from ..kube.objects import Ref
from ..pki import x509
from ..problems import Problem, ProblemsError, Reason, number_of
from ..run.run import Run
from .client import Cause, EndpointStatus, EtcdClient, EtcdError, Found

FIELD = "spec.components.etcd.external"
_MARKER = b"/karmada-installer/owner"


@dataclass(frozen=True)
class Owner:
    """Owner of a prefix, as its marker names it."""

    uuid: str
    name: str
    marker: Found

    @classmethod
    def of(cls, marker: Found) -> Owner:
        """Owner in this marker. A value that cannot be parsed is treated as somebody else's."""
        try:
            said = json.loads(marker.value)
            return cls(str(said["owner"]), f"{said['namespace']}/{said['name']}", marker)
        except (ValueError, KeyError, TypeError):
            return cls("", "unknown", marker)


def connect(run: Run) -> EtcdClient:
    """Client of the document's etcd. Raises ProblemsError if its Secret is missing or cannot be used."""
    return EtcdClient(_endpoints(run), run.external_etcd_files, f"{FIELD}.secretRef")


def is_named(run: Run) -> bool:
    """Return whether the document names an external etcd."""
    return run.spec.external_etcd is not None


def _settings(run: Run) -> ExternalEtcd:
    if run.spec.external_etcd is None:
        raise LookupError("the document names no external etcd")
    return run.spec.external_etcd


def _endpoints(run: Run) -> Sequence[str]:
    return _settings(run).endpoints


def _prefix(run: Run) -> bytes:
    return _settings(run).key_prefix.encode()


# -- before the first change -------------------------------------------------------------------------------------------


def problems(run: Run) -> Iterable[Problem]:
    """Proven problems of the external etcd. Reads only; what could not be checked goes to ``run.tell``."""
    client = connect(run)
    yield from _certificate_problems(run)
    found = client.status()
    broken = list(_endpoint_problems(run, found))
    yield from broken
    for each in warnings(found):
        run.tell(each)
    if broken or not _askable(found):
        return
    try:
        yield from _prefix_problems(run, client)
    except EtcdError as error:
        yield Problem(
            f"it answers, but not with data: {error}",
            f"{FIELD}.endpoints",
            _remedy_for(str(error)),
            reason=Reason.ETCD_REFUSES,
        )


def _certificate_problems(run: Run) -> Iterable[Problem]:
    certificate = run.external_etcd_files["tls.crt"]
    begin, end = (datetime.fromisoformat(str(x509.describe(certificate)[key])) for key in ("not_before", "not_after"))
    if end <= run.now:
        yield Problem(
            f"the client certificate has expired ({end:%Y-%m-%d})",
            f"{FIELD}.secretRef",
            "put a new one there",
            reason=Reason.CERTIFICATE_EXPIRED,
        )
    if begin > run.now:
        yield Problem(
            f"the client certificate is not valid before {begin.isoformat()}",
            f"{FIELD}.secretRef",
            "compare the clocks",
            reason=Reason.CLOCK_SKEW,
        )


def _endpoint_problems(run: Run, found: Sequence[EndpointStatus]) -> Iterable[Problem]:
    reached = [each for each in found if each.cause is not Cause.UNREACHED]
    installed = run.stored_state is not None
    for each in found:
        where = f"{FIELD}.endpoints[{found.index(each)}]"
        if each.cause is Cause.WRONG:
            yield Problem(each.message, where, _remedy_for(each.message), reason=Reason.ETCD_REFUSES)
        elif each.cause is Cause.UNREACHED and reached and not installed:
            # Another endpoint was reached from here: so the network of this machine is not the reason.
            yield Problem(each.message, where, "check this endpoint, or leave it out", reason=Reason.ETCD_UNREACHABLE)
        elif each.cause is None:
            yield from _state_problems(each, where)
    clusters = {each.cluster_id for each in found if each.cluster_id}
    if len(clusters) > 1:
        yield Problem(
            "the endpoints belong to different etcd clusters: "
            + ", ".join(f"{each.url} to {each.cluster_id}" for each in found if each.cluster_id),
            f"{FIELD}.endpoints",
            "name the members of one cluster",
            reason=Reason.WRONG_CLUSTER,
        )


def _state_problems(member: EndpointStatus, where: str) -> Iterable[Problem]:
    oldest = releases.OLDEST_EXTERNAL_ETCD
    if _version(member.version) < oldest:
        yield Problem(
            f"it is etcd {member.version}; {'.'.join(map(str, oldest))} is the oldest that is supported",
            where,
            "upgrade it",
            reason=Reason.UNSUPPORTED_VERSION,
        )
    if member.alarms:
        yield Problem(
            f"it raises the alarm {', '.join(member.alarms)}, under which it takes no writes",
            where,
            "NOSPACE: compact and defragment it, or raise its quota, then disarm it; CORRUPT: replace the member",
            reason=Reason.ETCD_UNHEALTHY,
        )
    elif not member.healthy:
        yield Problem(
            f"it is not healthy: {member.message}", where, "mend that etcd first", reason=Reason.ETCD_UNHEALTHY
        )


def _remedy_for(message: str) -> str:
    if "user name is empty" in message or "permission denied" in message:
        return "let this etcd's users in by their certificates, or let in whoever has one; passwords are not supported"
    if "not signed by the CA" in message:
        return "ca.crt must be the authority of the members' server certificates"
    if "client certificate" in message:
        return "tls.crt must be signed by the authority that this etcd trusts for clients (its --trusted-ca-file)"
    if "not valid for this address" in message:
        return "name the endpoint as its certificate does"
    if "expired" in message:
        return "renew the certificate of this member"
    return "check the address and the port"


def _prefix_problems(run: Run, client: EtcdClient) -> Iterable[Problem]:
    prefix, where = _prefix(run), f"{FIELD}.keyPrefix"
    for above in _above(prefix):
        owner = _owner(client, above)
        if owner:
            yield Problem(
                f"{above.decode()} above it belongs to the control plane {owner.name}",
                where,
                "choose a prefix that is not inside of another one",
                reason=Reason.ETCD_PREFIX_TAKEN,
            )
    owner = _owner(client, prefix)
    if owner and owner.uuid != _own_uuid(run):
        yield Problem(
            f"{prefix.decode()} belongs to the control plane {owner.name} (owner {owner.uuid or 'unknown'})",
            where,
            "choose another prefix; if that control plane is gone for good and its data is not needed, delete the "
            f"keys: etcdctl del --prefix {prefix.decode()}/",
            reason=Reason.ETCD_PREFIX_TAKEN,
        )
    if owner is None and not _was_installed(run):
        count = client.count_below(prefix + b"/")
        if count:
            yield Problem(
                f"{number_of(count, 'key')} below {prefix.decode()}/ are not of this control plane",
                where,
                "choose a prefix that nobody uses",
                reason=Reason.ETCD_PREFIX_TAKEN,
            )


def _above(prefix: bytes) -> list[bytes]:
    parts = prefix.split(b"/")[1:]
    return [b"/" + b"/".join(parts[:length]) for length in range(1, len(parts))]


def _owner(client: EtcdClient, prefix: bytes) -> Owner | None:
    marker = client.get(prefix + _MARKER)
    return Owner.of(marker) if marker else None


def _own_uuid(run: Run) -> str | None:
    return run.stored_state.owner if run.stored_state else None


def _was_installed(run: Run) -> bool:
    """Return whether this control plane has been installed on this prefix before, by runs that could not mark it."""
    state = run.stored_state
    return state is not None and state.document is not None


def _askable(found: Sequence[EndpointStatus]) -> bool:
    return any(each.cause is None for each in found)


def _version(text: str) -> tuple[int, ...]:
    """Version as numbers; text that is not a version is older than all versions."""
    try:
        return tuple(int(part) for part in text.partition("-")[0].split("."))
    except ValueError:
        return (0,)


# -- the prefix --------------------------------------------------------------------------------------------------------


def claim(run: Run) -> list[Change]:
    """Mark the prefix as this control plane's, unless it is already. Raises ProblemsError if it is somebody else's.

    If etcd cannot be reached from here, the prefix stays unmarked, and that is reported.
    """
    try:
        client = connect(run)
        owner = _owner(client, _prefix(run))
        if owner and owner.uuid == _own_uuid(run):
            if not run.check and run.state.etcd.prefix != _prefix(run).decode():
                _remember(run)
            return []
        if run.check:
            return [_change(run, "created")]
        with run.writing("claim the key prefix in etcd"):
            _claim(run, client)
            run.save(replace(run.state, etcd=replace(run.state.etcd, prefix=_prefix(run).decode())))
        return [_change(run, "created")]
    except EtcdError as error:
        if error.cause is Cause.WRONG:
            raise ProblemsError(
                Problem(str(error), f"{FIELD}.endpoints", _remedy_for(str(error)), reason=Reason.ETCD_REFUSES)
            ) from None
        run.tell(Problem.warning(f"{_UNMARKED}: {error}", Reason.ETCD_UNREACHABLE))
        return []


_UNMARKED = "the key prefix is not marked as this control plane's, because etcd cannot be asked from this machine"


def _claim(run: Run, client: EtcdClient) -> None:
    prefix = _prefix(run)
    value = json.dumps(
        {"owner": run.state.owner, "namespace": run.namespace, "name": run.name}, sort_keys=True
    ).encode()
    done = (
        client.put_if_absent(prefix + _MARKER, value)
        if _was_installed(run)
        else client.put_if_none_below(prefix + _MARKER, value, prefix + b"/")
    )
    if not done:
        owner = _owner(client, prefix)
        if owner is None or owner.uuid != run.state.owner:
            whose = f"the control plane {owner.name}" if owner else "somebody else"
            raise ProblemsError(
                Problem(
                    f"{prefix.decode()} is in use by {whose}",
                    f"{FIELD}.keyPrefix",
                    "choose another prefix",
                    reason=Reason.ETCD_PREFIX_TAKEN,
                ),
                consequence="nothing was written to etcd",
            )


def _remember(run: Run) -> None:
    with run.writing("note the key prefix in etcd"):
        run.save(replace(run.state, etcd=replace(run.state.etcd, prefix=_prefix(run).decode())))


def _change(run: Run, action: str) -> Change:
    return Change(Ref("etcd", "KeyPrefix", _prefix(run).decode()), action)  # type: ignore[arg-type]


def release_problems(run: Run) -> list[Problem]:
    """Reasons why the keys could not be deleted, if the policy demands that."""
    if not _deletes_keys(run) or not run.state.etcd.prefix:
        return []
    try:
        _owner(connect(run), _prefix(run))
    except EtcdError as error:
        return [
            Problem(
                f"the keys below {run.state.etcd.prefix} in etcd would be left: {error}",
                f"{FIELD}.endpoints",
                "run this where etcd can be reached, or keep the data with spec.deletion.policy: Retain",
                reason=Reason.ETCD_UNREACHABLE,
            )
        ]
    except ProblemsError as error:
        return error.problems
    return []


def release(run: Run) -> list[Change]:
    """Delete the keys below the prefix, if the document's deletion policy says so and the prefix is marked as ours.

    Call it only once no process of this control plane runs any more. Raises ProblemsError if etcd does not answer.
    """
    if not _deletes_keys(run):
        return []
    if not run.state.etcd.prefix:
        run.tell(
            Problem.hint(
                f"the keys below {_prefix(run).decode()} in etcd stay, because they were never marked as ours",
                Reason.LEFT_BEHIND,
            )
        )
        return []
    client = connect(run)
    try:
        owner = _owner(client, _prefix(run))
        if owner is None or owner.uuid != run.state.owner:
            return []
        if not run.check and client.delete_below(_prefix(run) + b"/", owner.marker) is None:
            return []
    except EtcdError as error:
        problem = Problem(
            f"the keys below {_prefix(run).decode()} are still there: {error}",
            f"{FIELD}.endpoints",
            reason=Reason.REMOVAL_BLOCKED,
        )
        raise ProblemsError(problem, consequence="the rest of the control plane was not removed yet") from None
    return [_change(run, "deleted")]


def _deletes_keys(run: Run) -> bool:
    return is_named(run) and run.spec.deletion_policy == "Delete"


# -- for the report ----------------------------------------------------------------------------------------------------


def notes(run: Run, found: Sequence[EndpointStatus]) -> list[Problem]:
    """Warnings for the report; empty if etcd is ours, whose pods report by themselves."""
    if not is_named(run):
        return []
    remedy = "run the installation where it can be reached"
    unmarked = Problem.warning(f"{_UNMARKED}; {remedy}", Reason.ETCD_UNREACHABLE)
    return [*warnings(found), *([] if run.state.etcd.prefix else [unmarked])]


def warnings(found: Sequence[EndpointStatus]) -> list[Problem]:
    """Warnings for an operator about an etcd that is not refused."""
    told = []
    silent = [each for each in found if each.cause is not None]
    if silent and len(silent) == len(found):
        what = f"etcd cannot be asked from this machine, so nothing about it was checked: {silent[0].message}"
        told.append(Problem.warning(what, Reason.ETCD_UNREACHABLE))
    elif silent:
        told += [
            Problem.warning(f"etcd endpoint {each.url}: {each.message}", Reason.ETCD_UNREACHABLE) for each in silent
        ]
    told += [
        Problem.warning(f"etcd endpoint {each.url} is not healthy: {each.message}", Reason.ETCD_UNHEALTHY)
        for each in found
        if each.message and not each.cause
    ]
    for version in sorted({each.version for each in found if each.version}):
        floor = releases.ETCD_SECURITY_FLOOR.get(_version(version)[:2])
        if floor and _version(version) < floor:
            what = f"etcd {version} has known vulnerabilities; {'.'.join(map(str, floor))} is the first without them"
            told.append(Problem.warning(what, Reason.UNSUPPORTED_VERSION))
    return told
