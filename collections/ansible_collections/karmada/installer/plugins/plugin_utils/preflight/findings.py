# SPDX-License-Identifier: Apache-2.0
"""Everything that can be found wrong before the first change. All checks run, and their problems are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from ..components import releases
from ..document import mode_fields
from ..etcd import external as external_etcd
from ..etcd import members_wanted, wanted_on_hosts, ways_in_pods, ways_on_hosts
from ..kube.errors import collected
from ..kube.limits import CLUSTERS_AT_ONCE
from ..members.plan import Clusters
from ..pki.certificates import unusable_authorities
from ..problems import Problem, ProblemsError, Reason
from ..run import manager, restoring
from ..run import selection as selected_members
from ..run.run import Run
from . import (
    account_rights,
    cluster_checks,
    component_checks,
    endpoint_checks,
    fixed_settings,
    host_cluster_identity,
    host_preflight,
    member_checks,
    namespace_checks,
    reach_from_hosts,
)


@dataclass(frozen=True)
class Findings:
    """Problems found. ``problems`` concern the whole and stop the run; ``members``, by name, stop only that member."""

    problems: list[Problem]
    members: dict[str, list[Problem]] = field(default_factory=dict)

    @property
    def all(self) -> list[Problem]:
        """Every problem once, in the order of the document."""
        everything = [*self.problems, *(each for found in self.members.values() for each in found)]
        return list(dict.fromkeys(everything))

    def with_members(self, more: Mapping[str, list[Problem]]) -> Findings:
        """Findings with further problems of members."""
        names = dict.fromkeys([*self.members, *more])
        return Findings(self.problems, {name: [*self.members.get(name, []), *more.get(name, [])] for name in names})


@dataclass(frozen=True)
class EtcdMembersAsked:
    """Wishes of the user about members of etcd: their smaller number, those to replace, and nodes that are given up."""

    confirmed: int = 0
    replace: tuple[str, ...] = ()
    abandoned_nodes: tuple[str, ...] = ()


def findings(
    run: Run,
    abandoned_hosts: Sequence[str] = (),
    host_cluster: str = "",
    asked_of_etcd: EtcdMembersAsked = EtcdMembersAsked(),
) -> Findings:
    """Run all checks and return every problem. Changes nothing.

    Plain hosts that have left may be given up by name, and another host cluster confirmed by its UID.
    """
    members = selected_members.entries(run)
    with ThreadPoolExecutor(min(len(members), CLUSTERS_AT_ONCE) + 6) as pool:
        # Checks that need the host cluster wait for its first answer, so that a failure is reported only once.
        access = pool.submit(collected, partial(_place_access, run, host_cluster))
        registered = pool.submit(lambda: Clusters() if access.result() else member_checks.registered_clusters(run))
        checks: list[Callable[[], Iterable[Problem]]] = [
            partial(_of_place, run, abandoned_hosts),
            partial(selected_members.problems, run, registered.result),
            partial(_crds, run),
            partial(_external_etcd, run),
            partial(_etcd_members, run, asked_of_etcd),
        ]
        each = member_checks.MemberChecks(run, lambda: not access.result(), registered.result)
        of_members = pool.map(collected, [partial(each.problems, entry) for entry in members])
        version, *others = pool.map(
            collected, [partial(_version, run), *(partial(_with_host, access, check) for check in checks)]
        )
        wrong = {entry.name: found for entry, found in zip(members, of_members, strict=True)}
    for name, problem in each.of_same_cluster().items():
        wrong[name].append(problem)
    untold: list[Problem] = []
    try:
        for name, problems in host_preflight.of_members(run).items():
            if selected_members.holds(run, name):
                wrong[name] += problems
    except ProblemsError as error:  # such as a release that cannot be followed, which is no problem of a member
        untold += error.problems
    # One member that follows another place tells of all of them: nothing of this one is to work again.
    moved = [problem for found in wrong.values() for problem in found if problem.reason is Reason.MOVED]
    found = Findings(
        [problem for found in (version, access.result(), *others, untold, moved) for problem in found],
        {name: rest for name, found in wrong.items() if (rest := [each for each in found if each not in moved])},
    )
    return found.with_members(reach_from_hosts.from_hosts(run))


def uninstall_problems(run: Run, abandoned_hosts: Sequence[str] = (), host_cluster: str = "") -> list[Problem]:
    """Problems that would stop an uninstall; its members are checked later, one by one."""
    look = partial(_uninstall_access if run.place.in_pods else _place_access, run, host_cluster)
    access = collected(look)
    if run.place.in_pods and (access or not run.hosts):
        return access
    # In mode Binary the state also knows the hosts. Below pods, a run works only on those of the document.
    unnamed = host_preflight.unnamed_members(run, abandoned_hosts) if run.place.in_pods else []
    return list(dict.fromkeys([*access, *unnamed, *host_preflight.unreachable_hosts(run, abandoned_hosts)]))


def _uninstall_access(run: Run, host_cluster: str) -> Iterable[Problem]:
    run.host_cluster.version(retry_seconds=5)
    if away := manager.not_at_home(run):
        yield from away
        return
    yield from account_rights.told(run.host_cluster.can_i(account_rights.in_namespace(run.namespace)))
    # Reading the state may raise as well.
    state = run.stored_state
    yield from list(host_cluster_identity.problems(run, host_cluster)) or _managed(run)
    if state and state.etcd.storage == "directory" and not run.hosts:
        yield Problem(
            what=f"its etcd is on hosts ({', '.join(state.etcd.nodes)}), and the document names none",
            where="spec.hosts",
            remedy="write them as they were at the install, so that etcd is taken away there, too",
            reason=Reason.HOST_NOT_LISTED,
        )


def _with_host(access: Future[list[Problem]], check: Callable[[], Iterable[Problem]]) -> Iterable[Problem]:
    """Problems of a check; none if the place cannot be used, which is reported without its consequences."""
    return check() if not access.result() else ()


def _version(run: Run) -> Iterable[Problem]:
    """Unknown release. Not a rule of the schema, which would change with every release."""
    if run.spec.version:
        releases.get(run.spec.version)
    return ()


def _place_access(run: Run, host_cluster: str) -> Iterable[Problem]:
    """Problems that make the place unusable, such as another host cluster. Plain hosts are checked one by one."""
    if run.place.in_pods:
        run.host_cluster.version(retry_seconds=5)
        # What the account may not do in a cluster that is not meant is no right to grant.
        lacking = list(manager.not_at_home(run)) or list(account_rights.problems(run))
        # Without rights, the state that may name the cluster cannot be read either.
        lacking = lacking or list(host_cluster_identity.problems(run, host_cluster))
    else:
        lacking = list(manager.not_at_home(run))
    # What another one manages is no concern of this run, whatever else is wrong there.
    yield from lacking or _managed(run)


def _managed(run: Run) -> Iterable[Problem]:
    """Problem if another object than that of this run manages the instance, or a restore holds it."""
    held = restoring.problem(run.stored_state, run.operation, run.place.where)
    return [*manager.verdict(run, run.stored_state).problems, *([held] if held else [])]


def _of_place(run: Run, abandoned: Sequence[str]) -> Iterable[Problem]:
    """Problems of the control plane and its place.

    Checks run one after the other, because most of them ask for values that a run determines once.
    """
    if run.hosts:
        yield from collected(partial(host_preflight.problems, run, abandoned))
    for check in OF_PLACE:
        yield from collected(partial(check, run))


def _versions_of_host_cluster(run: Run) -> Iterable[Problem]:
    """Clock and version of the host cluster; the only check that needs one, as ``NoCluster`` has neither."""
    if not run.place.in_pods:
        return
    yield from cluster_checks.clock(run.host_cluster, "host cluster")
    version = run.host_cluster.version()
    minor = cluster_checks.minor(version)
    if minor < releases.OLDEST_HOST_MINOR:
        oldest = ".".join(str(part) for part in releases.OLDEST_HOST_MINOR)
        yield Problem(
            what=f"it runs Kubernetes {version['gitVersion']}; {oldest} is the oldest that is supported",
            where="host cluster",
            remedy="upgrade it, or choose another host cluster",
            reason=Reason.UNSUPPORTED_VERSION,
        )
    if minor > releases.NEWEST_TESTED_HOST_MINOR:
        newest = ".".join(str(part) for part in releases.NEWEST_TESTED_HOST_MINOR)
        run.tell(
            Problem.hint(
                f"the host cluster runs Kubernetes {version['gitVersion']}; {newest} is the newest that was tried",
                Reason.UNTESTED_VERSION,
            )
        )


def _of_mode(run: Run) -> Iterable[Problem]:
    """Settings without effect where components run on hosts.

    An installed control plane cannot change its namespace, not even to none. One that earlier versions have installed
    with a needless one keeps it.
    """
    for problem in mode_fields.problems(run.deployment):
        if problem.where == mode_fields.NAMESPACE and run.stored_state:
            what = f"{problem.what}; leave it as it was at the install"
            run.tell(Problem.hint(what, Reason.FIELD_WITHOUT_EFFECT, problem.where))
        else:
            yield problem


def _release(run: Run) -> Iterable[Problem]:
    """Release that an existing installation cannot follow."""
    if run.stored_state:
        releases.choose(run.spec.version, run.stored_state.version)
    return ()


def _authorities(run: Run) -> Iterable[Problem]:
    """Keys of the CAs of an existing installation that cannot be used."""
    return unusable_authorities(run.stored_state, run.spec, run.now) if run.stored_state else ()


def _changed(run: Run) -> Iterable[Problem]:
    """Settings that an existing installation cannot change."""
    return fixed_settings.changed(run) if run.stored_state else ()


def _store(run: Run) -> Iterable[Problem]:
    """Location of the data of an existing installation, which cannot change."""
    return fixed_settings.store(run) if run.stored_state else ()


def _external_etcd(run: Run) -> Iterable[Problem]:
    if external_etcd.is_named(run) and not (run.stored_state and fixed_settings.store_moved(run)):
        yield from external_etcd.problems(run)


def _etcd_members(run: Run, asked: EtcdMembersAsked) -> Iterable[Problem]:
    yield from ways_on_hosts.problems(run)
    yield from ways_in_pods.problems(run)
    if run.stored_state and not fixed_settings.store_moved(run):
        looked = members_wanted.look_before(run)
        versions = looked.versions if looked else wanted_on_hosts.versions(run)
        yield from collected(partial(component_checks.etcd_version, run, versions))
        yield from members_wanted.problems(
            run,
            confirmed=asked.confirmed,
            replace_names=asked.replace,
            abandoned_nodes=asked.abandoned_nodes,
            looked=looked,
        )
        yield from wanted_on_hosts.problems(run, confirmed=asked.confirmed, replace_names=asked.replace)


def _crds(run: Run) -> Iterable[Problem]:
    """Fetch the CRDs now: they are cached, and a mirror that does not answer is found before the first change."""
    if run.spec.installs_crd:
        run.crds()
    return ()


#: Checks of a control plane wherever it runs, each by itself, so that no problem hides another. Where there is no host
#: cluster, those of pods have nothing to look at: ``NoCluster`` is empty, and no component is a pod.
OF_PLACE: tuple[Callable[[Run], Iterable[Problem]], ...] = (
    _versions_of_host_cluster,
    _of_mode,
    _release,
    _authorities,
    _changed,
    _store,
    namespace_checks.problems,
    component_checks.storage_class,
    component_checks.host_path_nodes,
    component_checks.quota_above_volume,
    endpoint_checks.node_port,
    endpoint_checks.leads,
    endpoint_checks.ingress,
    endpoint_checks.route,
    component_checks.flags_and_gates,
    component_checks.own_flags,
    component_checks.own_images,
    component_checks.priority_classes,
    component_checks.pull_secrets,
    component_checks.audit,
    component_checks.overlays,
    fixed_settings.service_subnet,
)
