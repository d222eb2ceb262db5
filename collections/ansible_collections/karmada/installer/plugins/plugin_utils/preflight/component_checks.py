# SPDX-License-Identifier: Apache-2.0
"""Checks of components against the document: storage, classes, flags, audit policy, overlays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from ..components import audit_policy, etcd_configuration, known_flags
from ..components import own_images as own_images_of
from ..components.spec import Spec
from ..components.table import ETCD, agents, pod_rows, wanted_rows
from ..components.types import Component, image_pull_secrets, settings_of, settings_path
from ..document import manifest, overlay
from ..document.crd import nearest
from ..kube.errors import ApiError
from ..kube.objects import quantity
from ..problems import Problem, Reason
from ..render import etcd_nodes, etcd_pods
from ..run.run import Run
from . import account_rights


def host_path_nodes(run: Run) -> Iterable[Problem]:
    """Nodes for the members of etcd, before the first installation chooses them."""
    settings, path = settings_of(ETCD, run.spec), "spec.components.etcd.local"
    if not etcd_nodes.is_wanted(run.spec) or run.stored_state:
        return
    # Not a rule of the schema, because none sees into an open object such as affinity.
    if settings.affinity.get("nodeAffinity"):
        yield Problem(
            what="it cannot be followed with hostPath, where each member is bound to a node when it is installed",
            where=f"{path}.affinity.nodeAffinity",
            remedy="choose the nodes by nodeSelector and tolerations",
            reason=Reason.FIELD_WITHOUT_EFFECT,
        )
    nodes = run.host_cluster.list("v1", "Node")
    unfit = {each["metadata"]["name"]: why for each in nodes if (why := etcd_nodes.reason_unfit(each, settings))}
    fit = len(nodes) - len(unfit)
    if fit < settings.replicas:
        told = "".join(f"; {name}: {why}" for name, why in sorted(unfit.items())[:10])
        yield Problem(
            what=f"{settings.replicas} members of etcd with hostPath need as many nodes, and {fit} of {len(nodes)} "
            f"nodes can have one{told}",
            where=f"{path}.replicas",
            remedy="add nodes, tolerate their taints, ask for fewer members, or use a volumeClaim",
            reason=Reason.INSUFFICIENT_RESOURCES,
        )


def storage_class(run: Run) -> Iterable[Problem]:
    """StorageClass that the document names for etcd, if it does not exist."""
    wanted = settings_of(ETCD, run.spec).storage_class
    classes = {each["metadata"]["name"] for each in run.host_cluster.list("storage.k8s.io/v1", "StorageClass")}
    if wanted and wanted not in classes:
        yield Problem(
            what=f"there is no StorageClass {wanted} (there are: {', '.join(sorted(classes)) or 'none'})",
            where="spec.components.etcd.local.volumeData.volumeClaim.storageClassName",
            remedy="name one of them, or create it",
            reason=Reason.OBJECT_NOT_FOUND,
        )


def quota_above_volume(run: Run) -> Iterable[Problem]:
    """Quota of etcd's database above the size of its volume: that is full before etcd's alarm, and stops it.

    Nobody chooses a smaller one than etcd's own by itself: where it is installed, more may be in use already. So there
    an absent quota is told only, and before the first install it is to be named.
    """
    settings, flag = settings_of(ETCD, run.spec), "quota-backend-bytes"
    if ETCD not in pod_rows(run.spec) or run.state.etcd.storage != "volumeClaim":
        return
    size = settings.claim_size or etcd_pods.DEFAULT_SIZE
    given = quantity(settings.extra_args.get(flag, ""))
    quota, room = given or etcd_configuration.DEFAULT_QUOTA, quantity(size)
    if room is None or quota <= room:
        return
    what = f"etcd's database may grow to {quota / 2**30:.1f} GiB, and its volume has {size}"
    if not given and run.stored_state is not None:
        run.tell(Problem.hint(f"{what}; set extraArgs {flag} to less than that", Reason.INSUFFICIENT_RESOURCES))
        return
    larger = "" if given else f"; {int(room // 2)} is half of it. Or ask for a larger volume"
    yield Problem(
        what=f"{what}: that is full before etcd raises its alarm, and no member starts with a full volume",
        where=f"spec.components.etcd.local.extraArgs.{flag}",
        remedy=f"choose less than the volume has, as its log needs room, too{larger}",
        reason=Reason.INSUFFICIENT_RESOURCES,
    )


def priority_classes(run: Run) -> Iterable[Problem]:
    """PriorityClasses that do not exist; pods that name one would not be admitted, after the first change."""
    users: dict[str, list[Component]] = defaultdict(list)
    for component in pod_rows(run.spec):
        users[settings_of(component, run.spec).priority_class].append(component)
    for name, components in users.items():
        if name and run.host_cluster.get("scheduling.k8s.io/v1", "PriorityClass", name) is None:
            for component in components:
                yield Problem(
                    what=f"there is no PriorityClass {name}",
                    where=f"{settings_path(component)}.priorityClassName",
                    remedy='create it, name another one, or write "" to have none',
                    reason=Reason.OBJECT_NOT_FOUND,
                )


def pull_secrets(run: Run) -> Iterable[Problem]:
    """Missing pull secrets, as hints only: public images need none."""
    named: dict[str, list[str]] = defaultdict(list)
    for component in pod_rows(run.spec):
        for name in image_pull_secrets(component, run.spec):
            named[name].append(component.name)
    for name, components in named.items():
        if run.host_cluster.get("v1", "Secret", name, run.namespace) is None:
            run.tell(
                Problem.warning(
                    f"there is no Secret {run.namespace}/{name} in the host cluster, which is to pull images of "
                    f"{', '.join(components)}: a registry that asks for a login refuses them",
                    Reason.SECRET_NOT_FOUND,
                )
            )
    return ()


def overlays(run: Run) -> Iterable[Problem]:
    """Overlays that are wrong by themselves, or, if there is a namespace to try in, by the API server's judgement."""
    overlays, problems = overlay.read(run.spec, run.config_maps)
    yield from problems
    if not overlays:
        return
    objects = run.host_cluster_objects()
    found = list(overlay.find_problems(objects, overlays))
    yield from found
    if found or problems or account_rights.namespace_is_missing(run):
        return
    for each in overlay.laid_over(objects, overlays):
        concerned = [one.where for one in overlays if one.is_for(each)]
        # Data of Secrets, and what only a running instance knows, are no concern of overlays.
        if concerned and each["kind"] not in ("Secret", "ConfigMap"):
            try:
                run.host_cluster.apply(each, dry_run=True)
            except ApiError as error:
                what = f"the host cluster refuses {each['kind']} {each['metadata']['name']} with it: {error}"
                yield Problem(what, "; ".join(concerned), "correct what the message names", reason=error.problem_reason)


def audit(run: Run) -> Iterable[Problem]:
    """Problems of the audit policy in the ConfigMap that the document names, if any."""
    return audit_policy.find_problems(run.spec, run.config_maps)


def flags_and_gates(run: Run) -> Iterable[Problem]:
    """Flags and gates that a component of this release does not have: it would not start with them.

    Not a rule of the schema, because which they are is on record for each release.
    """
    release = run.instance.release
    for component in (*wanted_rows(run.spec), *agents(run.spec)):
        settings, path = settings_of(component, run.spec), settings_path(component)
        tag = settings.image_tag.partition("@")[0]
        if tag not in ("", getattr(release, component.image.release)):
            continue  # flags of somebody else's build are unknown
        flag = "setting" if component.settings_file else "flag"
        for field, given, kind, known in (
            ("extraArgs", settings.extra_args, flag, known_flags.flags(component, release)),
            ("featureGates", settings.feature_gates, "feature gate", known_flags.feature_gates(component, release)),
        ):
            for name in given:
                if name not in known:
                    near = nearest(name, known)
                    yield Problem(
                        what=f"{component.name} of Karmada {release.karmada} has no {kind} {name}",
                        where=f"{path}.{field}.{name}",
                        remedy=(f"did you mean {near}? " if near else "") + f"it has {_listed(known, kind)}",
                        reason=Reason.INVALID_FLAG,
                    )


def own_flags(run: Run) -> Iterable[Problem]:
    """Flags that only the installer sets: with another value it would look for data and members where they are not.

    Not a rule of the schema: a control plane that has run with one has to be backed up before the document changes.
    """
    for component in wanted_rows(run.spec):
        for name in settings_of(component, run.spec).extra_args:
            if name in component.own_flags:
                remedy = "take it out, the installer sets it"
                if component.keeps_data:
                    remedy += "; where etcd has run with it already, take a backup before, and restore it after"
                yield Problem(
                    what=f"{component.name} cannot be given {name}: by it the installer knows etcd's members and data",
                    where=f"{settings_path(component)}.extraArgs.{name}",
                    remedy=remedy,
                    reason=Reason.INVALID_FLAG,
                )


def own_images(run: Run) -> Iterable[Problem]:
    """Images that the document sets for single components, if they have no effect or do not fit the others.

    Not a rule of the schema, because what an absent tag means follows from the release.
    """
    release = run.instance.release
    for hint in own_images_of.hints(run.spec, release):
        run.tell(Problem.hint(hint, Reason.UNTESTED_VERSION))
    yield from own_images_of.problems(run.spec, release, _carried_out(run))


def etcd_version(run: Run, versions: Collection[str]) -> Iterable[Problem]:
    """Another minor version of etcd than may come after what its members run, by their answers (``versions``)."""
    return own_images_of.etcd_problems(run.spec, run.instance.release, _carried_out(run), versions)


def _carried_out(run: Run) -> Spec | None:
    """Spec of the last document that was carried out completely."""
    before = run.state.document
    return Spec(manifest.with_defaults(before)["spec"]) if before else None


def _listed(names: Sequence[str], kind: str) -> str:
    """List of names; if there are many, their number, and for gates a link to a list."""
    if len(names) <= 30:
        return ", ".join(names)
    told = f"{len(names)} {kind}s, from {names[0]} to {names[-1]}"
    page = "https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/"
    return f"{told}; {page} tells of those of Kubernetes" if kind == "feature gate" else told
