# SPDX-License-Identifier: Apache-2.0
"""Members in mode Pull: an agent on each, with an identity of its own in the control plane.

The installer asks for the agent's certificate and approves the request itself, so that nobody else has to be allowed to
get one without being asked. Every step looks at what is there, so that a run that was killed is carried on by the next.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ..api_object import Object
from ..components.table import CLIENT_SIGNING_CA, KARMADA_CA
from ..components.types import KeyPair, agent_hosts, pulls
from ..control_plane.bootstrap import AGENT_GROUP, MEMBER_NAMESPACE
from ..kube.apply import Change, apply_all, delete_all
from ..kube.cluster import Cluster
from ..kube.errors import Conflict
from ..kube.objects import Ref, claimed_by, diff, owned_by
from ..kube.wait import wait_until
from ..pki import x509
from ..problems import Problem, ProblemsError
from ..render.agent_units import AgentAccess
from ..run.run import Run
from . import account_tokens, agent
from .agent import Identity
from .works import NO_NEW_WORKS_LABEL, ON_LEAVE_LABEL

#: How long the control plane may take to sign a certificate.
CERTIFICATE_SECONDS = 60.0
_PAUSE = 0.2
Look = Callable[..., list[Change]]


def survey_on_member(run: Run, entry: Mapping[str, Any], member: Cluster, look: Look) -> list[Change]:
    """What would change on the member; ``look`` compares, as ``plan`` and ``survey`` of ``apply`` do."""
    name = entry["name"]
    secret, found = _live_identity(member)
    wanted = _as_it_should_be(run, name, found)
    objects = _objects_on_member(run, entry, member, wanted)
    if wanted is None:
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": agent.SECRET, "namespace": MEMBER_NAMESPACE}}
        return [
            Change(Ref.of(made), "changed" if secret else "created", None, diff(None, made)),
            *look(member, objects),
        ]
    return [*_of_secret(run, name, secret, wanted, look, member), *look(member, objects)]


def survey_in_control_plane(run: Run, name: str, look: Look) -> list[Change]:
    """What would change in the control plane, where the member is registered already."""
    owner, control_plane = run.instance.owner, run.control_plane
    space = agent.namespace(name, owner)
    there = control_plane.get("v1", "Namespace", space["metadata"]["name"])
    made = [] if there else [Change(Ref.of(space), "created", None, diff(None, space))]
    if there and _was_leaving(there):
        made = [Change(Ref.of(space), "changed", there["metadata"]["uid"])]
    gone = [Change(ref, "deleted", uid) for ref, uid in _left_by_a_killed_run(run, name)]
    return [*made, *look(control_plane, agent.rights(name, owner)), *gone]


def grant(run: Run, name: str) -> list[Change]:
    """Give the agent its rights in the control plane, and take away what a killed run has left there."""
    owner, control_plane = run.instance.owner, run.control_plane
    space = agent.namespace(name, owner)
    changes = delete_all(control_plane, _left_by_a_killed_run(run, name), progress=run.say)
    there = control_plane.get("v1", "Namespace", space["metadata"]["name"])
    if there is None:
        changes += apply_all(control_plane, [space])
    elif labels := _was_leaving(there):
        patch = {"metadata": {"labels": dict.fromkeys(labels)}}
        control_plane.patch_merge("v1", "Namespace", space["metadata"]["name"], None, patch)
        changes.append(Change(Ref.of(space), "changed", there["metadata"]["uid"]))
    return changes + apply_all(control_plane, agent.rights(name, owner))


def _was_leaving(namespace: Object) -> list[str]:
    """Labels of a leave that did not come to its end, by which nothing new would be propagated to the member."""
    labels = namespace["metadata"].get("labels") or {}
    return [label for label in (ON_LEAVE_LABEL, NO_NEW_WORKS_LABEL) if label in labels]


def surplus(run: Run, entry: Mapping[str, Any]) -> list[Change]:
    """What goes from the member because its agent runs in the other way now: its Deployment, or its token."""
    ref = agent.other_form(on_hosts=bool(agent_hosts(entry)))
    uid = run.state.owned.get(f"member/{entry['name']}", {}).get(str(ref))
    return [Change(ref, "deleted", uid)] if uid and pulls(entry) else []


def access(run: Run, entry: Mapping[str, Any], member: Cluster) -> AgentAccess | None:
    """What its agent on hosts needs of the member; None while the member has not filled the token, or has none."""
    secret = member.get("v1", "Secret", agent.TOKEN.name, MEMBER_NAMESPACE) if agent_hosts(entry) else None
    kubeconfig = agent.host_access(entry["name"], member.access.server, secret)
    if kubeconfig is None:
        return None
    identity = _as_it_should_be(run, entry["name"], _live_identity(member)[1])
    return AgentAccess(kubeconfig, agent.config_hash(identity))


def wait_for_access(run: Run, entry: Mapping[str, Any], member: Cluster) -> AgentAccess:
    """The same when it is there. Raises ProblemsError when the member does not fill the token."""
    whose = "the token of its agent's account"
    return account_tokens.wait_for(lambda: access(run, entry, member), member, whose, str(agent.TOKEN))


def install(run: Run, entry: Mapping[str, Any], member: Cluster) -> list[Change]:
    """The agent on the member, with its identity. Its Cluster and its rights have to be there."""
    name = entry["name"]
    secret, found = _live_identity(member)
    if secret and (strange := agent.strange(secret)):
        run.say(
            f"member {name}: its Secret {MEMBER_NAMESPACE}/{agent.SECRET} is written anew with another certificate: "
            f"{strange}; see who else may write it"
        )
    identity = _as_it_should_be(run, name, found) or _new_identity(run, name)
    objects = _objects_on_member(run, entry, member, identity)
    first = _of_secret(run, name, secret, identity, apply_all, member)
    # Its account comes before its pods, which are refused without one.
    return [*first, *apply_all(member, objects[:-1]), *apply_all(member, objects[-1:])]


def _objects_on_member(run: Run, entry: Mapping[str, Any], member: Cluster, identity: Identity | None) -> list[Object]:
    on_hosts = bool(agent_hosts(entry))
    return agent.objects_on_member(run.instance, entry["name"], member.access.server, identity, on_hosts=on_hosts)


def wait(run: Run, member: Cluster, timeout: float) -> None:
    """Return when the agent runs and has found its Cluster. Raises NotReady with what its pods and their logs say."""
    wait_until(member, [agent.DEPLOYMENT], timeout=timeout, progress=run.say)


def forget(run: Run, name: str, timeout: float) -> list[Change]:
    """Take what the agent had in the control plane from it: its rights, and what it wrote to say that it is there."""
    control_plane, changes = run.control_plane, []
    # Without rights it cannot write its leases again.
    for targets in (_granted(run, name), _there(control_plane, *agent.leases(name))):
        changes += delete_all(control_plane, targets, check=run.check, timeout=timeout, progress=run.say)
    return changes


def survey_forget(run: Run, name: str) -> list[Change]:
    """What ``forget`` would take away."""
    found = [*_granted(run, name), *_there(run.control_plane, *agent.leases(name))]
    return [Change(ref, "deleted", uid) for ref, uid in found]


def _granted(run: Run, name: str) -> list[tuple[Ref, str]]:
    control_plane, owner = run.control_plane, run.state.owner
    refs = map(Ref.of, agent.rights(name, owner))
    found = ((ref, control_plane.get(ref.api_version, ref.kind, ref.name, ref.namespace)) for ref in refs)
    ours = [(ref, live["metadata"]["uid"]) for ref, live in found if live and claimed_by(live)[1] == owner]
    return [*ours, *_left_by_a_killed_run(run, name)]


def survey_end(run: Run, name: str, member: Cluster) -> list[Change]:
    """What of an agent is on a member that is to have none, what acts first."""
    found = (member.get(ref.api_version, ref.kind, ref.name, ref.namespace) for ref in agent.references())
    uids = run.state.uids(f"member/{name}")
    ours = [each for each in found if each and owned_by(each, run.state.owner, uids)]
    return [Change(Ref.of(each), "deleted", each["metadata"]["uid"], diff(each, None)) for each in ours]


def end(run: Run, name: str, member: Cluster, timeout: float) -> list[Change]:
    """End the agent of a member, and take away what it had on both sides. The workloads stay as they are.

    When this returns no agent acts, wherever it ran: its pods are gone, and one on a host has lost its token and its
    rights on the member and in the control plane.
    """
    recorded = run.state.owned.get(f"member/{name}", {})
    # Also what is on record and was taken away by a run that could not note it.
    gone = {ref: recorded[str(ref)] for ref in agent.references() if str(ref) in recorded}
    gone.update({each.ref: each.uid or "" for each in survey_end(run, name, member)})
    changes = []
    # What it acts by goes first: while that is there, a run that finds it can count on the agent.
    for acts in (True, False):
        targets = [(ref, uid) for ref, uid in gone.items() if (ref in agent.ACTS_BY) is acts]
        changes += delete_all(member, targets, timeout=timeout, progress=run.say, propagation="Foreground")
    return changes


def _there(cluster: Cluster, *refs: Ref) -> list[tuple[Ref, str]]:
    found = ((ref, cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace)) for ref in refs)
    return [(ref, live["metadata"]["uid"]) for ref, live in found if live]


def _left_by_a_killed_run(run: Run, name: str) -> list[tuple[Ref, str]]:
    """Requests that were made for this agent, which live for seconds unless their run ends early."""
    labels = agent.selector(name, run.instance.owner)
    found = run.control_plane.list(agent.CSR_API, "CertificateSigningRequest", labels=labels)
    return [(Ref.of(each), each["metadata"]["uid"]) for each in found]


# -- the identity ------------------------------------------------------------------------------------------------------


def _live_identity(member: Cluster) -> tuple[Object | None, Identity | None]:
    secret = member.get("v1", "Secret", agent.SECRET, MEMBER_NAMESPACE)
    return secret, agent.identity_of(secret)


def _as_it_should_be(run: Run, name: str, found: Identity | None) -> Identity | None:
    """The identity with the address and the authority of today; None if another certificate is needed."""
    authority = run.state.authorities[CLIENT_SIGNING_CA].certificate
    if found is None or agent.reasons_for_a_new_certificate(name, found, authority, run.now, _validity(run)):
        return None
    return replace(found, server=run.public_url, ca_pem=run.state.authorities[KARMADA_CA].certificate)


def _of_secret(
    run: Run, name: str, live: Mapping[str, Any] | None, identity: Identity, do: Look, member: Cluster
) -> list[Change]:
    """The Secret, written unless it says that already: the agent, which renews it, writes it in another form."""
    said = agent.identity_of(live)
    if live and said == identity and claimed_by(dict(live))[1] == run.instance.owner:
        return [Change(Ref.of(dict(live)), "unchanged", live["metadata"]["uid"])]
    return do(member, [agent.identity_secret(name, run.instance.owner, run.instance.full_name, identity)])


def _validity(run: Run) -> timedelta:
    return x509.parse_duration(run.spec["certificates"]["validity"])


def _new_identity(run: Run, name: str) -> Identity:
    """A certificate for the agent; the request for it is gone afterwards."""
    owner, control_plane = run.instance.owner, run.control_plane
    algorithm = run.spec["certificates"]["keyAlgorithm"]
    request, key = x509.certificate_request(agent.user(name), (AGENT_GROUP,), algorithm)
    wanted = agent.signing_request(name, owner, request, _validity(run))
    run.say(f"member {name}: asking for the certificate of its agent")
    try:
        certificate = _signed(control_plane, wanted, f"{run.instance.full_name} lists member {name}")
    finally:
        delete_all(control_plane, _there(control_plane, Ref.of(wanted)), progress=run.say)
    authority = run.state.authorities[KARMADA_CA].certificate
    return Identity(KeyPair(certificate, key), run.public_url, authority, x509.fingerprint(certificate))


def _signed(control_plane: Cluster, wanted: Object, why: str) -> bytes:
    """The certificate that was asked for, when it was approved and signed. Raises ProblemsError when it is not."""
    # A conflict: an attempt that was not heard has made it.
    with suppress(Conflict):
        control_plane.create(wanted)
    name, deadline = wanted["metadata"]["name"], time.monotonic() + CERTIFICATE_SECONDS
    while time.monotonic() < deadline:
        live = control_plane.get(agent.CSR_API, "CertificateSigningRequest", name)
        status = (live or {}).get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or []}
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        for refusal in (conditions[each] for each in ("Denied", "Failed") if each in conditions):
            raise _not_signed(name, f"was refused: {refusal.get('message') or refusal.get('reason')}")
        if live and "Approved" not in conditions:
            # Karmada approves what an administrator asks for, too, and may be faster.
            with suppress(Conflict):
                control_plane.replace(agent.approved(live, why), "approval")
        time.sleep(_PAUSE)
    raise _not_signed(name, f"was not signed within {CERTIFICATE_SECONDS:.0f} s")


def _not_signed(name: str, what: str) -> ProblemsError:
    return ProblemsError(
        Problem(
            what=f"the request for the certificate of its agent {what}",
            where=f"CertificateSigningRequest {name} in the control plane",
            remedy="see that csrsigning of kube-controller-manager runs (its flag controllers), then run again",
        )
    )
