# SPDX-License-Identifier: Apache-2.0
"""What can go wrong and can be known before the first change. Every check adds its problems; none stops the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from ..components import releases
from ..document import mode_fields
from ..etcd import external as external_etcd
from ..kube.errors import collected
from ..members.plan import Clusters
from ..pki.certificates import unusable_authorities
from ..problems import Problem, Reason, Severity
from ..run import selection as selected_members
from ..run.run import Run
from . import (
    account_rights,
    cluster_checks,
    component_checks,
    endpoint_checks,
    fixed_settings,
    host_preflight,
    member_checks,
    namespace_checks,
    reach_from_hosts,
)

#: More than join at the same moment (``members.join.AT_ONCE``): a look is a few requests, and one that does not answer
#: takes its time and is not to delay the others.
MEMBERS_AT_ONCE = 32


@dataclass(frozen=True)
class Findings:
    """What is wrong. ``problems`` are of the whole, so that nothing can be done; ``members`` are those of single
    members by name, which keep only that member from its due.
    """

    problems: list[Problem]
    members: dict[str, list[Problem]] = field(default_factory=dict)

    @property
    def all(self) -> list[Problem]:
        """Every problem once, in the order of the document."""
        everything = [*self.problems, *(each for found in self.members.values() for each in found)]
        return list(dict.fromkeys(everything))

    def with_members(self, more: Mapping[str, list[Problem]]) -> Findings:
        """The same, and what else is wrong with members."""
        names = dict.fromkeys([*self.members, *more])
        return Findings(self.problems, {name: [*self.members.get(name, []), *more.get(name, [])] for name in names})


def findings(run: Run, abandoned_hosts: Sequence[str] = ()) -> Findings:
    """Everything that is wrong, told at once. Changes nothing. Plain hosts that have left may be given up by name."""
    members = selected_members.entries(run)
    with ThreadPoolExecutor(min(len(members), MEMBERS_AT_ONCE) + 6) as pool:
        # What needs the host cluster waits until it has answered, so that it is asked, and told of, only once.
        access = pool.submit(collected, partial(_place_access, run))
        registered = pool.submit(lambda: Clusters() if access.result() else member_checks.registered_clusters(run))
        checks: list[Callable[[], Iterable[Problem]]] = [
            partial(_version, run),
            partial(_hosts, run, abandoned_hosts)
            if not run.place.in_pods
            else partial(_with_host, access, partial(_host, run)),
            *((partial(_with_host, access, partial(host_preflight.problems, run)),) if run.place.etcd_apart else ()),
            partial(_with_host, access, partial(selected_members.problems, run, registered.result)),
            partial(_with_host, access, partial(_crds, run)),
            partial(_with_host, access, partial(_external_etcd, run)),
        ]
        each = member_checks.MemberChecks(run, lambda: not access.result(), registered.result)
        of_members = pool.map(collected, [partial(each.problems, entry) for entry in members])
        version, *others = pool.map(collected, checks)
        wrong = {entry["name"]: found for entry, found in zip(members, of_members, strict=True)}
    for name, problem in each.of_same_cluster().items():
        wrong[name].append(problem)
    for name, problems in ({} if run.place.in_pods else host_preflight.of_members(run)).items():
        if selected_members.holds(run, name):
            wrong[name] += problems
    found = Findings(
        [problem for found in (version, access.result(), *others) for problem in found],
        {name: found for name, found in wrong.items() if found},
    )
    return found.with_members(reach_from_hosts.from_hosts(run))


def uninstall_problems(run: Run, abandoned_hosts: Sequence[str] = ()) -> list[Problem]:
    """What would keep an uninstall from its work; its members are asked later, one by one."""
    access = collected(partial(_uninstall_access, run)) if run.place.in_pods else []
    if access or not run.hosts:
        return access
    # Which hosts there are, the state knows, too. Beneath pods, a run works on those of the document alone.
    unnamed = host_preflight.unnamed_members(run, abandoned_hosts) if run.place.in_pods else []
    return unnamed + host_preflight.unreachable_hosts(run, abandoned_hosts)


def _uninstall_access(run: Run) -> Iterable[Problem]:
    run.host_cluster.version(retry_seconds=5)
    yield from account_rights.told(run.host_cluster.can_i(account_rights.in_namespace(run.namespace)))
    # Reading it has refusals of its own.
    state = run.stored_state
    if state and state.etcd.storage == "directory" and not run.hosts:
        yield Problem(
            what=f"its etcd is on hosts ({', '.join(state.etcd.nodes)}), and the document names none",
            where="spec.hosts",
            remedy="write them as they were at the install, so that etcd is taken away there, too",
            reason=Reason.HOST_NOT_LISTED,
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
    if not run.place.in_pods:
        return
    run.host_cluster.version(retry_seconds=5)
    yield from account_rights.problems(run)


def _host(run: Run) -> Iterable[Problem]:
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
            Problem(
                f"the host cluster runs Kubernetes {version['gitVersion']}; {newest} is the newest that was tried",
                reason=Reason.UNTESTED_VERSION,
                severity=Severity.HINT,
            )
        )
    yield from mode_fields.problems(run.deployment)
    yield from _recorded(run)
    checks = (
        namespace_checks.problems,
        component_checks.storage_class,
        component_checks.host_path_nodes,
        endpoint_checks.node_port,
        endpoint_checks.leads,
        endpoint_checks.ingress,
        endpoint_checks.route,
        component_checks.flags_and_gates,
        component_checks.own_images,
        component_checks.priority_classes,
        component_checks.pull_secrets,
        component_checks.audit,
        component_checks.overlays,
        fixed_settings.service_subnet,
    )
    for check in checks:
        yield from collected(partial(check, run))


def _hosts(run: Run, abandoned: Sequence[str]) -> Iterable[Problem]:
    yield from host_preflight.problems(run, abandoned)
    yield from _recorded(run)
    for check in (
        endpoint_checks.leads,
        component_checks.flags_and_gates,
        component_checks.own_images,
        component_checks.audit,
        fixed_settings.service_subnet,
    ):
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
