# SPDX-License-Identifier: Apache-2.0
"""Members in mode Pull: an agent on each, with an identity of its own in the control plane.

The installer requests the agent's certificate and approves the request itself, so that nobody else needs a right to
unattended approval. Every step reads the live state, so that the next run carries on after one that was killed.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from ..api_object import Object, condition
from ..components.spec import MemberEntry
from ..components.table import CLIENT_SIGNING_CA, KARMADA_CA
from ..components.types import KeyPair
from ..control_plane.bootstrap import AGENT_GROUP, MEMBER_NAMESPACE
from ..kube.apply import Change, Target, Treatment, delete_all, target
from ..kube.cluster import Cluster
from ..kube.errors import Conflict, Forbidden
from ..kube.objects import Ref, claimed_by, owned_by
from ..kube.readiness import is_backing_off
from ..kube.snapshot import listed
from ..kube.step import Step, StepRunner
from ..kube.wait import wait_until
from ..pki import x509
from ..problems import Problem, ProblemsError, Reason
from ..redaction import shown
from ..render.agent_units import AgentAccess
from ..run.run import Run
from . import account_tokens, agent
from .agent import Identity
from .works import NO_NEW_WORKS_LABEL, ON_LEAVE_LABEL

#: Time within which the control plane must sign a certificate.
CERTIFICATE_SECONDS = 60.0
_PAUSE = 0.2
#: Restarts after which a pod is replaced. kubelet doubles its pause with each, from 10 s up to 5 min (Kubernetes
#: documentation, "Container restart policy"), so that the next start is 80 s away, and soon more than a run waits for.
RESTARTS = 3


def grant(run: Run, name: str, control_plane: Cluster) -> Iterator[Step]:
    """Steps that grant the agent its rights in the control plane and delete what a killed run has left there."""
    space = agent.namespace(name, run.instance.owner)
    yield Step(delete=_left_by_a_killed_run(run, name, control_plane))
    there = control_plane.get("v1", "Namespace", space["metadata"]["name"])
    if there is None:
        yield Step([space])
    elif _listed_again(there):
        yield Step(edits={Ref.of(space): _listed_again})
    yield Step(agent.rights(name, run.instance.owner))


def _listed_again(namespace: Object) -> Object | None:
    """Merge patch that removes labels of an aborted leave, which would keep new Works from the member; None if none."""
    labels = namespace["metadata"].get("labels") or {}
    found = [label for label in (ON_LEAVE_LABEL, NO_NEW_WORKS_LABEL) if label in labels]
    return {"metadata": {"labels": dict.fromkeys(found)}} if found else None


def surplus(run: Run, entry: MemberEntry) -> list[Target]:
    """Object to delete from the member because its agent takes the other form now: its Deployment, or its token."""
    ref = agent.other_form(on_hosts=bool(entry.agent_hosts))
    uid = run.state.owned.get(f"member/{entry.name}", {}).get(str(ref))
    return [(ref, uid)] if uid and entry.pulls else []


def access(run: Run, entry: MemberEntry, member: Cluster) -> AgentAccess | None:
    """Access of an agent on hosts to the member; None without such an agent or before the token is filled."""
    secret = member.get("v1", "Secret", agent.TOKEN.name, MEMBER_NAMESPACE) if entry.agent_hosts else None
    kubeconfig = agent.host_access(entry.name, member.access.server, secret)
    if kubeconfig is None:
        return None
    identity = _as_it_should_be(run, entry.name, _live_identity(member)[1])
    return AgentAccess(kubeconfig, agent.config_hash(identity))


def wait_for_access(run: Run, entry: MemberEntry, member: Cluster) -> AgentAccess:
    """Access of an agent on hosts, once the member has filled the token. Raises ProblemsError if it does not."""
    whose = "the token of its agent's account"
    return account_tokens.wait_for(lambda: access(run, entry, member), member, whose, str(agent.TOKEN))


def install(run: Run, entry: MemberEntry, runner: StepRunner) -> None:
    """Install the agent on the member, with its identity. Its Cluster and its rights must exist."""
    name, instance = entry.name, run.instance
    secret, found = _live_identity(runner.cluster)
    if runner.writes and secret and (strange := agent.strange(secret)):
        run.say(
            f"member {name}: its Secret {MEMBER_NAMESPACE}/{agent.SECRET} is written anew with another certificate: "
            f"{strange}; see who else may write it"
        )
    known = _as_it_should_be(run, name, found)
    identity = runner.late(lambda: known, lambda: known or _new_identity(run, name))
    objects = _objects_on_member(run, entry, runner.cluster, identity)

    def unless_renewed(live: Object) -> Treatment:
        """Keep a Secret that holds this identity: the agent writes it in another form when it renews."""
        same = identity is not None and agent.identity_of(live) == identity
        return "keep" if same and claimed_by(live)[1] == instance.owner else "ours"

    with_identity = [agent.identity_secret(name, instance.owner, instance.full_name, identity)]
    read_once = listed(runner.cluster, [], known=[secret]) if secret else runner.cluster
    replace(runner, cluster=read_once).take([Step(with_identity, unless_renewed)])
    # Pods are refused while their service account does not exist.
    runner.take([Step(objects[:-1]), Step(objects[-1:])])


def _objects_on_member(run: Run, entry: MemberEntry, member: Cluster, identity: Identity | None) -> list[Object]:
    on_hosts = bool(entry.agent_hosts)
    return agent.objects_on_member(run.instance, entry.name, member.access.server, identity, on_hosts=on_hosts)


def start_at_once(run: Run, name: str, member: Cluster) -> list[Change]:
    """Delete pods of an agent that have failed often and wait to be started again; new ones start at once.

    An agent fails for as long as its control plane is away, and the pauses that this has earned it outlast that.
    """
    labels = ",".join(f"{key}={value}" for key, value in run.instance.selector(agent.ROW.name, name).items())
    changes: list[Change] = []
    # Whoever may not do this waits for kubelet.
    with suppress(Forbidden):
        for pod in member.list("v1", "Pod", MEMBER_NAMESPACE, labels=labels):
            ref, uid = target(pod)
            if is_backing_off(pod, RESTARTS) and member.delete(*ref, uid=uid):
                changes.append(Change(ref, "deleted", uid, note="it had failed often, and would have waited longer"))
    return changes


def wait(run: Run, member: Cluster, timeout: float) -> None:
    """Wait until the agent runs and has found its Cluster. Raises NotReady with the status and logs of its pods."""
    wait_until(member, [agent.DEPLOYMENT], timeout=timeout, progress=run.say)


def forget(run: Run, name: str, control_plane: Cluster) -> Iterator[Step]:
    """Steps that delete the agent's rights in the control plane, and then its leases."""
    # Without rights it cannot create its leases again.
    yield Step(delete=_granted(run, name, control_plane))
    yield Step(delete=_there(control_plane, *agent.leases(name)))


def _granted(run: Run, name: str, control_plane: Cluster) -> list[Target]:
    owner = run.state.owner
    refs = map(Ref.of, agent.rights(name, owner))
    found = (control_plane.get(*ref) for ref in refs)
    ours = [target(live) for live in found if live and claimed_by(live)[1] == owner]
    return [*ours, *_left_by_a_killed_run(run, name, control_plane)]


def end(run: Run, name: str, member: Cluster) -> Iterator[Step]:
    """Steps that stop the agent of a member and delete its objects there. The workloads stay as they are.

    After this and ``forget`` no agent works, wherever it ran: its pods are gone, and an agent on a host has lost its
    token and its rights on the member and in the control plane.
    """
    recorded, uids = run.state.owned.get(f"member/{name}", {}), run.state.uids(f"member/{name}")
    # Also recorded objects that a killed run deleted without recording that.
    gone: dict[Ref, str | None] = {ref: recorded[str(ref)] for ref in agent.references() if str(ref) in recorded}
    found = (member.get(*ref) for ref in agent.references())
    gone.update(target(each) for each in found if each and owned_by(each, run.state.owner, uids))
    # The Deployment or token goes first: a run that finds one of them can rely on the rest of the agent.
    for acts in (True, False):
        targets = [(ref, uid) for ref, uid in gone.items() if (ref in agent.ACTS_BY) is acts]
        yield Step(delete=targets, propagation="Foreground")


def _there(cluster: Cluster, *refs: Ref) -> list[Target]:
    return [target(live) for ref in refs if (live := cluster.get(*ref))]


def _left_by_a_killed_run(run: Run, name: str, control_plane: Cluster) -> list[Target]:
    """CertificateSigningRequests of this agent; they outlive their run only if it was killed."""
    labels = agent.selector(name, run.instance.owner)
    return [target(each) for each in control_plane.list(agent.CSR_API, "CertificateSigningRequest", labels=labels)]


# -- the identity ------------------------------------------------------------------------------------------------------


def _live_identity(member: Cluster) -> tuple[Object | None, Identity | None]:
    secret = member.get("v1", "Secret", agent.SECRET, MEMBER_NAMESPACE)
    return secret, agent.identity_of(secret)


def _as_it_should_be(run: Run, name: str, found: Identity | None) -> Identity | None:
    """Identity with the current address and authority; None if a new certificate is needed."""
    authority = run.state.authorities[CLIENT_SIGNING_CA].certificate
    if found is None or agent.reasons_for_a_new_certificate(name, found, authority, run.now, _validity(run)):
        return None
    return replace(found, server=run.public_url, ca_pem=run.state.authorities[KARMADA_CA].certificate)


def _validity(run: Run) -> timedelta:
    return x509.parse_duration(run.spec.certificates.validity)


def _new_identity(run: Run, name: str) -> Identity:
    """Issue a certificate for the agent; the request for it is deleted afterwards."""
    owner, control_plane = run.instance.owner, run.control_plane
    algorithm = run.spec.certificates.key_algorithm
    request, key = x509.certificate_request(agent.user(name), (AGENT_GROUP,), algorithm)
    wanted = agent.signing_request(name, owner, request, _validity(run))
    run.say(f"member {name}: asking for the certificate of its agent")
    try:
        certificate = _signed(control_plane, wanted, f"{run.instance.full_name} lists member {name}")
    finally:
        ref = Ref.of(wanted)
        live = control_plane.get(*ref)
        delete_all(control_plane, [target(live)] if live and agent.asks_for(live, wanted) else [], progress=run.say)
    authority = run.state.authorities[KARMADA_CA].certificate
    return Identity(KeyPair(certificate, key), run.public_url, authority, x509.fingerprint(certificate))


def _signed(control_plane: Cluster, wanted: Object, why: str) -> bytes:
    """Create the request, approve it and return the signed certificate. Raises ProblemsError if it is not signed."""
    # Conflict: an earlier attempt, whose answer was lost, has created it.
    with suppress(Conflict):
        control_plane.create(wanted)
    name, deadline = wanted["metadata"]["name"], time.monotonic() + CERTIFICATE_SECONDS
    while time.monotonic() < deadline:
        live = control_plane.get(agent.CSR_API, "CertificateSigningRequest", name)
        if live and not agent.asks_for(live, wanted):
            # Agents may make requests, too. Whoever knew the name would have the certificate of another member.
            raise ProblemsError(
                Problem(
                    what="the request for the certificate of its agent is not the one of this run: somebody else has "
                    f"made one of this name (as {shown(str(live['spec'].get('username')))})",
                    where=f"CertificateSigningRequest {name} in the control plane",
                    remedy="it was not approved; see who that is, delete it, and run again",
                    reason=Reason.NAME_TAKEN,
                )
            )
        status = (live or {}).get("status") or {}
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        for refusal in filter(None, (condition(live, kind) for kind in ("Denied", "Failed"))):
            raise _not_signed(name, f"was refused: {refusal.get('message') or refusal.get('reason')}")
        if live and not condition(live, "Approved"):
            # Karmada, too, approves requests of administrators, and may be faster.
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
            reason=Reason.CREDENTIALS_NOT_ISSUED,
        )
    )
