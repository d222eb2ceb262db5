# SPDX-License-Identifier: Apache-2.0
"""What can go wrong and can be known before the first change. Every check adds its problems; none stops the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import (
    audit_policy,
    endpoint,
    external_etcd,
    host_path,
    ip_families,
    kubernetes_layout,
    manifest,
    member_join,
    other_installers,
    overlay,
    pod_security,
    program_flags,
    quota,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils import render_kubernetes as render
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import ApiError, Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.certificates import unusable_authorities
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import (
    Component,
    settings_of,
    settings_path,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane_objects import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.crd import nearest
from ansible_collections.karmada.installer.plugins.plugin_utils.instance import (
    FIELD_MANAGER,
    INSTANCE_LABEL,
    NAME_LABEL,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import (
    CONTROL_PLANE_ANNOTATION,
    IMPERSONATOR,
    role,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref, claimed_by
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Object, Run

#: How far clocks may be apart.
CLOCK_TOLERANCE = timedelta(seconds=30)
_WORKERS = 16
_READ, _WRITE = ("get", "list", "watch"), ("create", "patch", "delete")
#: (API group, resource) → verbs that an installation needs in its namespace.
HOST_RIGHTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "secrets", (*_READ, *_WRITE)),
    ("", "configmaps", (*_READ, *_WRITE)),
    ("", "services", (*_READ, *_WRITE)),
    ("", "persistentvolumeclaims", ("get", "list", "watch", "delete")),
    ("", "pods", (*_READ, "delete")),
    ("", "pods/log", ("get",)),
    ("", "pods/portforward", ("get", "create")),
    ("", "events", ("list",)),
    ("", "resourcequotas", ("list",)),
    ("", "limitranges", ("list",)),
    ("apps", "deployments", (*_READ, *_WRITE)),
    ("apps", "statefulsets", (*_READ, *_WRITE)),
    ("policy", "poddisruptionbudgets", (*_READ, *_WRITE)),
    ("networking.k8s.io", "networkpolicies", (*_READ, *_WRITE)),
    ("coordination.k8s.io", "leases", ("get", "create", "update", "delete")),
)
#: What is needed beside that where etcd keeps its data in directories of the nodes, on persistentvolumes.
HOST_PATH_RIGHTS = ("get", "list", "create", "patch", "delete")
#: Fields that data, addresses or everybody's certificates hang on.
FIXED_SETTINGS = (
    "components.etcd.local.replicas",
    "components.etcd.local.volumeData",
    "components.etcd.external.keyPrefix",
    "encryption.provider",
    "hostCluster.domain",
)
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


def all_problems(run: Run) -> list[Problem]:
    """Everything that is wrong, told at once. Changes nothing."""
    members = run.spec["members"]
    with ThreadPoolExecutor(len(members) + 5) as pool:
        # What needs the host cluster waits until it has answered, so that it is asked, and told of, only once.
        access = pool.submit(_collected, partial(_host_access, run))
        checks: list[Callable[[], Iterable[Problem]]] = [
            partial(_version, run),
            partial(_with_host, access, partial(_host, run)),
            partial(_with_host, access, partial(_crds, run)),
            partial(_with_host, access, partial(_external_etcd, run)),
            *(partial(_member, run, entry, access) for entry in members),
        ]
        found = [*pool.map(_collected, checks), access.result()]
    return list(dict.fromkeys(problem for problems in (found[0], found[-1], *found[1:-1]) for problem in problems))


def uninstall_problems(run: Run) -> list[Problem]:
    """What would keep an uninstall from its work at the host cluster; its members are asked later, one by one."""
    return _collected(partial(_uninstall_access, run))


def _uninstall_access(run: Run) -> Iterable[Problem]:
    run.host.version(retry_seconds=5)
    yield from _denied(run.host.can_i(_rights_in_namespace(run.namespace)))
    # Reading it has refusals of its own.
    _ = run.stored_state


def _with_host(access: Future[list[Problem]], check: Callable[[], Iterable[Problem]]) -> Iterable[Problem]:
    """The check, unless the host cluster cannot be used: then that is told, and nothing that follows from it."""
    return check() if not access.result() else ()


def _collected(check: Callable[[], Iterable[Problem]]) -> list[Problem]:
    """What a check finds, with what it found before something made it stop."""
    found: list[Problem] = []
    try:
        found.extend(check())
    except ProblemsError as error:
        found += error.problems
    except ApiError as error:
        what = str(error).removeprefix(f"{error.cluster}: ")
        found.append(Problem(what, error.cluster, "check the address, the network and the credentials"))
    return found


def _version(run: Run) -> Iterable[Problem]:
    if run.spec.get("version"):
        releases.get(run.spec["version"])
    return ()


def _host_access(run: Run) -> Iterable[Problem]:
    """Whether the host cluster can be worked with at all."""
    run.host.version(retry_seconds=5)
    yield from _denied_on_host(run)


def _host(run: Run) -> Iterable[Problem]:
    yield from _clock(run.host, "host cluster")
    version = run.host.version()
    minor = (int(version["major"]), int(version["minor"].rstrip("+")))
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
    # Reading the state and choosing the release have refusals of their own.
    state = run.stored_state
    if state:
        releases.choose(run.spec.get("version"), state.version)
        yield from unusable_authorities(state, run.spec, run.now)
        yield from _fixed_settings(run)
        yield from _fixed_store(run)
    checks = (
        _namespace,
        _storage,
        _host_path,
        _node_port,
        _ingress,
        _route,
        _flags_and_gates,
        _priority_classes,
        _audit_policy,
        _overlay,
        _service_subnet,
    )
    for check in checks:
        yield from _collected(partial(check, run))


def _denied_on_host(run: Run) -> Iterable[Problem]:
    wanted = _rights_in_namespace(run.namespace)
    if _namespace_is_missing(run):
        # Made by server-side apply, and removed again by an uninstall.
        wanted += [
            (verb, "", "namespaces", None if verb == "create" else run.namespace, "", run.namespace) for verb in _WRITE
        ]
    wanted.append(("list", "storage.k8s.io", "storageclasses", None))
    wanted.append(("get", "scheduling.k8s.io", "priorityclasses", None))
    wanted += _endpoint_rights(run.spec["endpoint"], run.namespace)
    if _wants_host_path(run):
        wanted += [(verb, "", "persistentvolumes", None) for verb in HOST_PATH_RIGHTS]
        wanted.append(("list", "", "nodes", None))
    yield from _denied(run.host.can_i(wanted))


def _rights_in_namespace(namespace: str) -> list[tuple[str | None, ...]]:
    """As can_i takes them. A Role suffices for all of them, for looking at the namespace itself, too."""
    inside: list[tuple[str | None, ...]] = [
        (verb, group, *_with_subresource(resource, namespace))
        for group, resource, verbs in HOST_RIGHTS
        for verb in verbs
    ]
    return [*inside, ("get", "", "namespaces", namespace, "", namespace)]


def _denied(permissions: Sequence[object]) -> Iterable[Problem]:
    if permissions:
        yield Problem(
            what=f"the account may not: {'; '.join(str(each) for each in permissions)}",
            where="host cluster",
            remedy="grant these rights (docs/reference/rights.md lists them all), or use another account",
        )


def _endpoint_rights(settings: Mapping[str, Any], namespace: str) -> list[tuple[str | None, ...]]:
    """What only this type of endpoint needs."""
    kind = settings["type"]
    if kind == "NodePort":
        return [] if settings.get("host") else [("list", "", "nodes", None)]
    passage = endpoint.PASSAGES.get(kind)
    if not passage:
        return []
    wanted: list[tuple[str | None, ...]] = [
        (verb, passage.group, passage.resource, namespace) for verb in (*_READ, *_WRITE)
    ]
    if kind == "Ingress":
        wanted.append(("list", passage.group, "ingressclasses", None))
    elif settings.get("host"):
        # OpenShift asks for more from those who choose a name themselves.
        wanted += [(verb, passage.group, passage.resource, namespace, "custom-host") for verb in ("create", "update")]
    return wanted


def _namespace_is_missing(run: Run) -> bool:
    try:
        return run.host.get("v1", "Namespace", run.namespace) is None
    except Forbidden:
        return False  # to look is one of the rights that are asked for


def _with_subresource(resource: str, namespace: str) -> tuple[str, str, str]:
    kind, _, subresource = resource.partition("/")
    return kind, namespace, subresource


def _fixed_settings(run: Run) -> Iterable[Problem]:
    """Settings that an existing control plane cannot follow, because data or addresses hang on them."""
    if not run.state.document:
        return
    # It may be older than some of the fields that are compared.
    before = manifest.with_defaults(run.state.document)["spec"]
    moved = _store_moved(run)
    for path in FIXED_SETTINGS:
        old, new = _at(before, path), _at(run.spec, path)
        if old != new and not (moved and path.startswith("components.etcd.")):
            yield _cannot_follow(path, old, new)


def _service_subnet(run: Run) -> Iterable[Problem]:
    """Left out it means the one that was chosen, so this is no fixed setting like others."""
    wanted = run.spec["components"]["karmadaAPIServer"].get("serviceSubnet")
    if not wanted:
        return
    chosen = run.state.service_subnet
    if run.state.document and wanted != chosen:
        yield _cannot_follow("components.karmadaAPIServer.serviceSubnet", chosen, wanted)
    elif run.seen_families and (problem := ip_families.problem(wanted, run.seen_families)):
        yield problem


def _cannot_follow(path: str, old: Any, new: Any) -> Problem:
    return Problem(
        what=f"it was {old!r} at the install and is {new!r} now; that cannot be changed in place",
        where=f"spec.{path}",
        remedy=f"set it back to {old!r}, or install a second control plane",
    )


def _store_moved(run: Run) -> bool:
    """Whether the document wants the store elsewhere: in pods or not."""
    return (run.state.etcd.storage == "external") != external_etcd.is_named(run)


def _fixed_store(run: Run) -> Iterable[Problem]:
    """The recorded choice holds before the first installation has come to its end, too."""
    etcd = run.state.etcd
    if _store_moved(run):
        yield Problem(
            what=f"etcd of this control plane is {'external' if etcd.storage == 'external' else 'local'}, and its data "
            "does not move",
            where="spec.components.etcd",
            remedy="set it back, or install a second control plane",
        )
    elif etcd.prefix not in ("", _at(run.spec, "components.etcd.external.keyPrefix")) and not run.state.document:
        yield Problem(
            what=f"the keys of this control plane are below {etcd.prefix}; that cannot be changed in place",
            where="spec.components.etcd.external.keyPrefix",
            remedy=f"set it back to {etcd.prefix!r}, or install a second control plane",
        )


def _external_etcd(run: Run) -> Iterable[Problem]:
    if external_etcd.is_named(run) and not (run.stored_state and _store_moved(run)):
        yield from external_etcd.problems(run)


def _at(spec: Mapping[str, Any], path: str) -> Any:
    found: Any = spec
    for key in path.split("."):
        found = (found or {}).get(key)
    return found


def _namespace(run: Run) -> Iterable[Problem]:
    """What is in the namespace, where it exists: under our names, of other tools, and rules for what comes into it."""
    namespace = run.host.get("v1", "Namespace", run.namespace)
    if namespace is None:
        return
    # As far as it can be said without keys.
    outline = render.outline(run.instance, kubernetes_layout.layout(run.instance), run.state.etcd)
    with ThreadPoolExecutor(_WORKERS) as pool:
        refs = map(Ref.of, outline)
        found = pool.map(lambda ref: run.host.get(ref.api_version, ref.kind, ref.name, ref.namespace), refs)
    present = [each for each in found if each]
    others = _collected(partial(_other_control_planes, run))
    yield from others
    if not others:  # else each of their objects would be told once more
        yield from _taken_names(run, present)
    for check in (
        partial(_pod_security, run, namespace, outline),
        partial(_quotas, run, outline, present),
    ):
        yield from _collected(check)


def _taken_names(run: Run, present: Iterable[Object]) -> Iterable[Problem]:
    """Objects under our names that are not ours."""
    for each in present:
        maker, owner = claimed_by(each)
        if (maker, owner) != (FIELD_MANAGER, run.state.owner):
            if maker == FIELD_MANAGER:
                maker = f"{maker}, as a part of control plane {each['metadata']['labels'].get(INSTANCE_LABEL)}"
            yield Problem(
                what=f"{each['kind']} {run.namespace}/{each['metadata']['name']} exists and is not of this "
                "control plane" + (f" (managed by {maker})" if maker else ""),
                where="host cluster",
                remedy="remove it with the tool that made it, or choose another metadata.name or namespace",
            )


def _other_control_planes(run: Run) -> Iterable[Problem]:
    """Before the first installation only: what comes later beside ours is not our business."""
    if run.stored_state:
        return
    workloads = [
        each for kind in ("Deployment", "StatefulSet") for each in run.host.list("apps/v1", kind, run.namespace)
    ]
    yield from other_installers.problems(run.namespace, workloads, _karmadas(run))


def _quotas(run: Run, outline: Sequence[Object], present: Iterable[Object]) -> Iterable[Problem]:
    quotas, limit_ranges = (run.host.list("v1", kind, run.namespace) for kind in ("ResourceQuota", "LimitRange"))
    ours = [each for each in present if claimed_by(each) == (FIELD_MANAGER, run.state.owner)]
    return quota.problems(run.namespace, quotas, limit_ranges, outline, ours)


def _karmadas(run: Run) -> list[Object]:
    """Objects of Karmada's operator, where there are any and we may look."""
    if run.host.resource(*other_installers.KARMADA) is None:
        return []
    if run.host.can_i([("list", "operator.karmada.io", "karmadas", run.namespace)]):
        return []
    return list(run.host.list(*other_installers.KARMADA, run.namespace))


def _pod_security(run: Run, namespace: Object, outline: Sequence[Object]) -> Iterable[Problem]:
    """Pods that this namespace would not admit. What the API server enforces by default cannot be seen from outside."""
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(pod_security.ENFORCE_LABEL)
    pods = {
        each["metadata"]["labels"][NAME_LABEL]: each["spec"]["template"]["spec"]
        for each in outline
        if each["kind"] in ("Deployment", "StatefulSet")
    }
    for name, pod in pods.items():
        found = pod_security.violations(pod, level or pod_security.BASELINE)
        if found and level:
            yield Problem(
                what=f"it enforces the Pod Security level {level}, and the pods of {name} break it: {'; '.join(found)}",
                where=f"namespace {run.namespace} of the host cluster",
                remedy=f"set {settings_path(BY_NAME[name])} otherwise, or give the namespace another level",
            )
        elif found:
            run.say(
                f"pods of {name} break the Pod Security level baseline ({'; '.join(found)}); the namespace has none, "
                "and which one its API server enforces without that cannot be seen from here"
            )


def _wants_host_path(run: Run) -> bool:
    return "hostPath" in (settings_of(ETCD, run.spec).get("volumeData") or {})


def _host_path(run: Run) -> Iterable[Problem]:
    """Nodes for the members, before the first installation chooses them."""
    settings, path = settings_of(ETCD, run.spec), "spec.components.etcd.local"
    if not _wants_host_path(run) or run.stored_state:
        return
    if (settings.get("affinity") or {}).get("nodeAffinity"):
        yield Problem(
            what="it cannot be followed with hostPath, where each member is bound to a node when it is installed",
            where=f"{path}.affinity.nodeAffinity",
            remedy="choose the nodes by nodeSelector and tolerations",
        )
    nodes = run.host.list("v1", "Node")
    unfit = {each["metadata"]["name"]: why for each in nodes if (why := host_path.reason_unfit(each, settings))}
    fit = len(nodes) - len(unfit)
    if fit < settings["replicas"]:
        told = "".join(f"; {name}: {why}" for name, why in sorted(unfit.items())[:10])
        yield Problem(
            what=f"{settings['replicas']} members of etcd with hostPath need as many nodes, and {fit} of {len(nodes)} "
            f"nodes can have one{told}",
            where=f"{path}.replicas",
            remedy="add nodes, tolerate their taints, ask for fewer members, or use a volumeClaim",
        )


def _storage(run: Run) -> Iterable[Problem]:
    claim = (settings_of(ETCD, run.spec).get("volumeData") or {}).get("volumeClaim") or {}
    wanted = claim.get("storageClassName")
    classes = {each["metadata"]["name"] for each in run.host.list("storage.k8s.io/v1", "StorageClass")}
    if wanted and wanted not in classes:
        yield Problem(
            what=f"there is no StorageClass {wanted} (there are: {', '.join(sorted(classes)) or 'none'})",
            where="spec.components.etcd.local.volumeData.volumeClaim.storageClassName",
            remedy="name one of them, or create it",
        )


def _priority_classes(run: Run) -> Iterable[Problem]:
    """Without its class no pod of a component is admitted, which would only be seen after the first change."""
    users: dict[str, list[Component]] = defaultdict(list)
    for component in wanted_components(run.spec):
        users[settings_of(component, run.spec)["priorityClassName"]].append(component)
    for name, components in users.items():
        if name and run.host.get("scheduling.k8s.io/v1", "PriorityClass", name) is None:
            for component in components:
                yield Problem(
                    what=f"there is no PriorityClass {name}",
                    where=f"{settings_path(component)}.priorityClassName",
                    remedy='create it, name another one, or write "" to have none',
                )


def _overlay(run: Run) -> Iterable[Problem]:
    """What can be said without asking; then what the API server says of the result, if there is a namespace for it."""
    overlays, problems = overlay.read(run.spec, run.config_maps)
    yield from problems
    if not overlays:
        return
    objects = run.host_objects()
    found = list(overlay.find_problems(objects, overlays))
    yield from found
    if found or problems or _namespace_is_missing(run):
        return
    for each in overlay.laid_over(objects, overlays):
        concerned = [one.where for one in overlays if one.is_for(each)]
        # The data of Secrets and what only a running instance knows are not a matter of overlays.
        if concerned and each["kind"] not in ("Secret", "ConfigMap"):
            try:
                run.host.apply(each, dry_run=True)
            except ApiError as error:
                what = f"the host cluster refuses {each['kind']} {each['metadata']['name']} with it: {error}"
                yield Problem(what, "; ".join(concerned), "correct what the message names")


def _audit_policy(run: Run) -> Iterable[Problem]:
    return audit_policy.find_problems(run.spec, run.config_maps)


def _flags_and_gates(run: Run) -> Iterable[Problem]:
    """Flags and gates that a component of this release does not have: it would not start with them."""
    release = run.instance.release
    for component in wanted_components(run.spec):
        settings, path = settings_of(component, run.spec), settings_path(component)
        if settings.get("imageTag") not in (None, getattr(release, component.image.release)):
            continue  # of a program that somebody else has built nothing is on record
        for field, kind, known in (
            ("extraArgs", "setting" if component is ETCD else "flag", program_flags.flags(component, release)),
            ("featureGates", "feature gate", program_flags.feature_gates(component, release)),
        ):
            for name in settings.get(field) or {}:
                if name not in known:
                    near = nearest(name, known)
                    yield Problem(
                        what=f"{component.name} of Karmada {release.karmada} has no {kind} {name}",
                        where=f"{path}.{field}.{name}",
                        remedy=(f"did you mean {near}? " if near else "") + f"it has {_listed(known, kind)}",
                    )


def _listed(names: Sequence[str], kind: str) -> str:
    """All names; where they are many, how many, and for gates where to read of them."""
    if len(names) <= 30:
        return ", ".join(names)
    told = f"{len(names)} {kind}s, from {names[0]} to {names[-1]}"
    page = "https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/"
    return f"{told}; {page} tells of those of Kubernetes" if kind == "feature gate" else told


def _node_port(run: Run) -> Iterable[Problem]:
    settings = run.spec["endpoint"]
    if settings["type"] != "NodePort" or not settings.get("port"):
        return
    ours = run.instance.object_name(KARMADA_APISERVER.name)
    denied = run.host.can_i([("list", "", "services", None)])
    services = [] if denied else run.host.list("v1", "Service")
    for service in services:
        metadata = service["metadata"]
        if (metadata["namespace"], metadata["name"]) == (run.namespace, ours):
            continue
        if any(port.get("nodePort") == settings["port"] for port in service["spec"].get("ports") or []):
            yield Problem(
                what=f"node port {settings['port']} belongs to Service {metadata['namespace']}/{metadata['name']}",
                where="spec.endpoint.port",
                remedy="choose another port, or leave it out to have one chosen",
            )


def _ingress(run: Run) -> Iterable[Problem]:
    """Whether an Ingress controller is there that passes TLS through, and the name is free with it."""
    settings = run.spec["endpoint"]
    if settings["type"] != "Ingress":
        return
    own = settings.get("ingress") or {}
    classes = run.host.list(*endpoint.INGRESS_CLASS)
    chosen = endpoint.ingress_class(settings, classes)
    if chosen is None:
        there = ", ".join(sorted(each["metadata"]["name"] for each in classes)) or "none"
        wanted = f"no IngressClass {own['className']}" if own.get("className") else "no default IngressClass"
        yield Problem(
            what=f"there is {wanted} (there are: {there})",
            where="spec.endpoint.ingress.className",
            remedy="name one of them" if classes else "install an Ingress controller, or choose another endpoint.type",
        )
        return
    name, controller = chosen["metadata"]["name"], str(chosen["spec"].get("controller", ""))
    instead = endpoint.instead_of_ingress(controller)
    if instead:
        yield Problem(
            what=f"IngressClass {name} is served by {controller}, which cannot pass TLS through for an Ingress",
            where="spec.endpoint.ingress.className",
            remedy=f"use {instead}, or name another IngressClass",
        )
    elif not endpoint.pass_through(controller) and not own.get("annotations"):
        run.say(
            f"IngressClass {name} is served by {controller}, which is not known here: if it passes TLS through only "
            "when told so, tell it by spec.endpoint.ingress.annotations"
        )
    yield from _taken_host(run, name)


def _route(run: Run) -> Iterable[Problem]:
    settings, passage = run.spec["endpoint"], endpoint.PASSAGES["Route"]
    if settings["type"] != passage.kind:
        return
    if run.host.resource(passage.api_version, passage.kind) is None:
        yield Problem(
            what="the host cluster has no Routes, so it is not one of OpenShift",
            where="spec.endpoint.type",
            remedy="choose another type, such as Ingress",
        )
    elif settings.get("host"):
        yield from _taken_host(run, "")


def _taken_host(run: Run, class_name: str) -> Iterable[Problem]:
    """An Ingress (of this class) or a Route of somebody else that has the name; as far as we may look."""
    settings = run.spec["endpoint"]
    passage = endpoint.PASSAGES[settings["type"]]
    ours = (run.namespace, run.instance.object_name(KARMADA_APISERVER.name))
    everywhere = not run.host.can_i([("list", passage.group, passage.resource, None)])
    for each in run.host.list(passage.api_version, passage.kind, None if everywhere else run.namespace):
        where = (each["metadata"]["namespace"], each["metadata"]["name"])
        if where != ours and endpoint.takes(each, settings["host"], class_name):
            yield Problem(
                what=f"the name {settings['host']} belongs to {passage.kind} {'/'.join(where)}",
                where="spec.endpoint.host",
                remedy="choose another name, or remove that object",
            )


def _crds(run: Run) -> Iterable[Problem]:
    """Fetching early is cheap (it is kept), and a mirror that does not answer is found before the first change."""
    if run.spec["installCRD"]:
        run.crds()
    return ()


def _member(run: Run, entry: member_join.Entry, access: Future[list[Problem]]) -> Iterable[Problem]:
    with member_join.connected(run, entry) as member:
        try:
            member.version(retry_seconds=5)
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
        yield Problem(
            what=f"it holds {ref}, which {f'control plane {holder}' if holder else 'another control plane or tool'} "
            "has put there",
            where=member.name,
            remedy="take it out of the members of that control plane first, or uninstall that one"
            if holder
            else "remove this member there first (karmadactl unjoin)",
        )
        return
