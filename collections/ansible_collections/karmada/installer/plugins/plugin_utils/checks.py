# SPDX-License-Identifier: Apache-2.0
"""What can go wrong and can be known before the first change. Every check adds its problems; none stops the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial

from ansible_collections.karmada.installer.plugins.plugin_utils import (
    component_checks,
    endpoint_checks,
    external_etcd,
    fixed_settings,
    host_preflight,
    host_rights,
    member_join,
    mode_fields,
    namespace_checks,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import ApiError, collected
from ansible_collections.karmada.installer.plugins.plugin_utils.certificates import unusable_authorities
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane_objects import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd_on_hosts import EtcdOnHostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import (
    CLUSTER_API,
    CONTROL_PLANE_ANNOTATION,
    IMPERSONATOR,
    role,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref, claimed_by
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run_with_hosts import RunWithHosts

#: How far clocks may be apart.
CLOCK_TOLERANCE = timedelta(seconds=30)
#: (verb, API group, resource, namespace) that joining needs on a member.
MEMBER_RIGHTS: tuple[tuple[str, str, str, str | None], ...] = (
    ("create", "", "namespaces", None),
    ("patch", "", "serviceaccounts", MEMBER_NAMESPACE),
    ("patch", "", "secrets", MEMBER_NAMESPACE),
    ("get", "", "secrets", MEMBER_NAMESPACE),
    ("patch", "rbac.authorization.k8s.io", "clusterroles", None),
    ("patch", "rbac.authorization.k8s.io", "clusterrolebindings", None),
    # Nobody can hand out rights that they do not hold, and Karmada's account gets all of them.
    ("*", "*", "*", None),
)


def all_problems(run: Run, abandoned_hosts: Sequence[str] = ()) -> list[Problem]:
    """Everything that is wrong, told at once. Changes nothing. Plain hosts that have left may be given up by name."""
    members = run.spec["members"]
    with ThreadPoolExecutor(len(members) + 5) as pool:
        # What needs the host cluster waits until it has answered, so that it is asked, and told of, only once.
        access = pool.submit(collected, partial(_place_access, run))
        checks: list[Callable[[], Iterable[Problem]]] = [
            partial(_version, run),
            partial(_hosts, run, abandoned_hosts)
            if isinstance(run, HostsRun)
            else partial(_with_host, access, partial(_host, run)),
            *(
                (partial(_with_host, access, partial(host_preflight.problems, run)),)
                if isinstance(run, EtcdOnHostsRun)
                else ()
            ),
            partial(_with_host, access, partial(_crds, run)),
            partial(_with_host, access, partial(_external_etcd, run)),
            *(partial(_member, run, entry, access) for entry in members),
        ]
        found = [*pool.map(collected, checks), access.result()]
    return list(dict.fromkeys(problem for problems in (found[0], found[-1], *found[1:-1]) for problem in problems))


def uninstall_problems(run: Run, abandoned_hosts: Sequence[str] = ()) -> list[Problem]:
    """What would keep an uninstall from its work; its members are asked later, one by one."""
    access = [] if isinstance(run, HostsRun) else collected(partial(_uninstall_access, run))
    if access or not isinstance(run, RunWithHosts):
        return access
    # Which hosts there are, the state knows, too. Beneath pods, a run works on those of the document alone.
    unnamed = [] if isinstance(run, HostsRun) else host_preflight.unnamed_members(run, abandoned_hosts)
    return unnamed + host_preflight.unreachable_hosts(run, abandoned_hosts)


def _uninstall_access(run: Run) -> Iterable[Problem]:
    run.host.version(retry_seconds=5)
    yield from host_rights.told(run.host.can_i(host_rights.in_namespace(run.namespace)))
    # Reading it has refusals of its own.
    state = run.stored_state
    if state and state.etcd.storage == "directory" and not isinstance(run, RunWithHosts):
        yield Problem(
            what=f"its etcd is on hosts ({', '.join(state.etcd.nodes)}), and the document names none",
            where="spec.hosts",
            remedy="write them as they were at the install, so that etcd is taken away there, too",
        )


def _with_host(access: Future[list[Problem]], check: Callable[[], Iterable[Problem]]) -> Iterable[Problem]:
    """The check, unless the host cluster cannot be used: then that is told, and nothing that follows from it."""
    return check() if not access.result() else ()


def _version(run: Run) -> Iterable[Problem]:
    if run.spec.get("version"):
        releases.get(run.spec["version"])
    return ()


def _place_access(run: Run) -> Iterable[Problem]:
    """Whether the host cluster can be worked with at all. Of plain hosts each tells for itself."""
    if isinstance(run, HostsRun):
        return
    run.host.version(retry_seconds=5)
    yield from host_rights.problems(run)


def _host(run: Run) -> Iterable[Problem]:
    yield from _clock(run.host, "host cluster")
    version = run.host.version()
    minor = _minor(version)
    if minor < releases.OLDEST_HOST_MINOR:
        oldest = ".".join(str(part) for part in releases.OLDEST_HOST_MINOR)
        yield Problem(
            what=f"it runs Kubernetes {version['gitVersion']}; {oldest} is the oldest that is supported",
            where="host cluster",
            remedy="upgrade it, or choose another host cluster",
        )
    if minor > releases.NEWEST_TESTED_HOST_MINOR:
        newest = ".".join(str(part) for part in releases.NEWEST_TESTED_HOST_MINOR)
        run.say(f"the host cluster runs Kubernetes {version['gitVersion']}; {newest} is the newest that was tried")
    yield from mode_fields.problems(run.deployment)
    yield from _recorded(run)
    checks = (
        namespace_checks.problems,
        component_checks.storage_class,
        component_checks.host_path_nodes,
        endpoint_checks.node_port,
        endpoint_checks.ingress,
        endpoint_checks.route,
        component_checks.flags_and_gates,
        component_checks.priority_classes,
        component_checks.pull_secrets,
        component_checks.audit,
        component_checks.overlays,
        fixed_settings.service_subnet,
    )
    for check in checks:
        yield from collected(partial(check, run))


def _minor(version: Object) -> tuple[int, int]:
    """Of the version document of an API server, as (1, 35)."""
    return int(version["major"]), int(version["minor"].rstrip("+"))


def _hosts(run: HostsRun, abandoned: Sequence[str]) -> Iterable[Problem]:
    yield from host_preflight.problems(run, abandoned)
    yield from _recorded(run)
    for check in (component_checks.flags_and_gates, component_checks.audit, fixed_settings.service_subnet):
        yield from collected(partial(check, run))


def _recorded(run: Run) -> Iterable[Problem]:
    """What does not go with an installation that is there. Reading its state and choosing the release refuse, too."""
    state = run.stored_state
    if state:
        releases.choose(run.spec.get("version"), state.version)
        yield from unusable_authorities(state, run.spec, run.now)
        yield from fixed_settings.changed(run)
        yield from fixed_settings.store(run)


def _external_etcd(run: Run) -> Iterable[Problem]:
    if external_etcd.is_named(run) and not (run.stored_state and fixed_settings.store_moved(run)):
        yield from external_etcd.problems(run)


def _crds(run: Run) -> Iterable[Problem]:
    """Fetching early is cheap (it is kept), and a mirror that does not answer is found before the first change."""
    if run.spec["installCRD"]:
        run.crds()
    return ()


def _member(run: Run, entry: member_join.Entry, access: Future[list[Problem]]) -> Iterable[Problem]:
    with member_join.connected(run, entry) as member:
        try:
            version = member.version(retry_seconds=5)
        except ApiError as error:
            yield Problem(
                what=str(error),
                where=f"spec.members[{entry['name']}].secretRef",
                remedy="check that this kubeconfig works from here: kubectl --kubeconfig … get nodes",
            )
            return
        yield from _clock(member, member.name)
        yield from _loopback_endpoint(entry, member)
        denied = member.can_i(MEMBER_RIGHTS)
        if denied:
            yield Problem(
                what=f"the account may not: {'; '.join(str(each) for each in denied)}",
                where=member.name,
                remedy="use an account that may create accounts and rights there, such as its administrator",
            )
            return
        member_join.registration_of(member)
        yield from _with_host(access, partial(_other_owner, run, entry, member))
        yield from _with_host(access, partial(_tell_of_member_version, run, member, version))


def _tell_of_member_version(run: Run, member: Cluster, version: Object) -> Iterable[Problem]:
    """A member of another version may well work, so this is said and nothing is refused."""
    oldest, newest = releases.validated_members(run.instance.release)
    if not oldest <= _minor(version) <= newest:
        run.say(
            f"{member.name} runs Kubernetes {version['gitVersion']}; Karmada {run.instance.release.karmada} was "
            f"validated with members from {oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        )
    return ()


def _clock(cluster: Cluster, where: str) -> Iterable[Problem]:
    """Certificates and tokens that one side makes would not be valid yet, or no more, for the other."""
    ahead = cluster.clock_ahead(retry_seconds=5)
    if abs(ahead) > CLOCK_TOLERANCE:
        seconds, side = round(abs(ahead).total_seconds()), "ahead of" if ahead > timedelta(0) else "behind"
        yield Problem(
            what=f"its clock is {seconds} s {side} the clock of this machine",
            where=where,
            remedy="set the wrong one (timedatectl shows whether it is synchronized); certificates made by one would "
            "not be valid for the other",
        )


def _loopback_endpoint(entry: member_join.Entry, member: Cluster) -> Iterable[Problem]:
    server = member.access.server
    if any(f"//{name}" in server for name in ("127.", "localhost", "[::1]")):
        yield Problem(
            what=f"its kubeconfig leads to {server}, which means another machine to the control plane",
            where=f"spec.members[{entry['name']}].secretRef",
            remedy="put an address into that kubeconfig that the pods of the host cluster can reach",
        )


def _joined_by_hand(run: Run, entry: member_join.Entry, member: Cluster) -> bool:
    """Whether other tools have registered this very cluster here under this name, so that listing it adopts it."""
    if run.stored_state is None or not run.control_plane_exists:
        return False
    try:
        live = run.control_plane.get(CLUSTER_API, "Cluster", entry["name"])
    except (ApiError, ProblemsError):
        return False
    same = live is not None and live["spec"].get("id") == member_join.registration_of(member).cluster_id
    return same and live is not None and claimed_by(live) == (None, None)


def _other_owner(run: Run, entry: member_join.Entry, member: Cluster) -> Iterable[Problem]:
    """A member has one control plane: the account by which it acts for users has the same name for each."""
    for ref in (
        Ref("rbac.authorization.k8s.io/v1", "ClusterRole", role(entry["name"]), None),
        Ref("v1", "ServiceAccount", IMPERSONATOR, MEMBER_NAMESPACE),
    ):
        live = member.get(ref.api_version, ref.kind, ref.name, ref.namespace)
        if live is None or (run.stored_state and claimed_by(live)[1] == run.stored_state.owner):
            continue
        holder = (live["metadata"].get("annotations") or {}).get(CONTROL_PLANE_ANNOTATION)
        if not holder and _joined_by_hand(run, entry, member):
            continue
        yield Problem(
            what=f"it holds {ref}, which {f'control plane {holder}' if holder else 'another control plane or tool'} "
            "has put there",
            where=member.name,
            remedy="take it out of the members of that control plane first, or uninstall that one"
            if holder
            else "remove this member there first (karmadactl unjoin)",
        )
        return
