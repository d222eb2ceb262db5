# SPDX-License-Identifier: Apache-2.0
"""Hosts of the inventory, with their groups and variables: of one control plane, or of several beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api_object import is_true
from ..components.spec import MemberEntry, Spec
from ..document.inventory_source import Source
from ..problems import ProblemsError
from . import inventory_names as names
from . import ssh
from .inventory_members import Member

if TYPE_CHECKING:
    # Has the client of API servers, which a document from a file does not need.
    from ..document.instances import Broken, Instance

#: Connection variables of inventory hosts that stand for this machine.
HERE = {"ansible_connection": "local"}
#: Theirs, too: the interpreter of the ansible-playbook that uses the inventory, which another one may have read.
HERE_TEMPLATES = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
#: Variable of a host among several control planes: its name and groups where its own is the only one.
ALONE = "karmada_alone"


@dataclass(frozen=True)
class Placed:
    """One host. ``templates`` are texts of our own; ``more`` is what expressions see and the host does not keep."""

    host: str
    groups: Sequence[str]
    variables: Mapping[str, Any]
    templates: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


def of_one(source: Source, members: Iterable[Member], *, live: bool) -> Iterator[Placed]:
    """Hosts of the only control plane; its own host is the first, so that it takes the steps that are taken once."""
    yield Placed(names.CONTROL, [everything(source)], {**HERE, **_of_control(source)}, HERE_TEMPLATES)
    for name, groups, variables, templates in _plain_hosts(source):
        yield Placed(name, groups, variables, templates)
    for name, groups, variables, more in _members(source, members, live=live):
        yield Placed(name, groups, variables, {}, more)


def everything(source: Source) -> str:
    """Group that playbooks work on."""
    return names.IN_PODS if Spec(source.deployment["spec"]).mode == "Container" else names.ON_HOSTS


def of_several(
    found: Iterable[tuple[Instance, Iterable[Member]]],
    groups: Mapping[str, Sequence[str]],
    everybody: Sequence[str],
    *,
    live: bool,
) -> Iterator[Placed]:
    """Hosts of several control planes. ``groups`` are those of each, by its host (``groups_of``).

    ``everybody`` are ``names_of`` all in the source.
    """
    for instance, members in found:
        source = instance.source
        metadata = source.deployment["metadata"]
        host = names.of_instance(metadata["namespace"], metadata["name"])
        group = [each for each in groups[host] if each.startswith(_INSTANCE)]
        named = {names.INSTANCE_NAME: f"{metadata['namespace']}/{metadata['name']}"}
        about: dict[str, Any] = {"karmada_phase": instance.phase, "karmada_version": instance.version, **named}
        about[names.INSTANCE_NAMES] = list(everybody)
        yield Placed(
            host,
            [names.INSTANCES, *groups[host]],
            {**HERE, **_of_control(source), **about, ALONE: {"name": names.CONTROL, "groups": [everything(source)]}},
            HERE_TEMPLATES,
        )
        for name, alone, variables, templates in _plain_hosts(source):
            # A host is worked on with its control plane, in whichever mode.
            own = {ALONE: {"name": name, "groups": [everything(source), *alone]}, **named}
            yield Placed(names.within(host, name), [names.ALL_HOSTS, *group], {**variables, **own}, templates)
        for name, _, variables, more in _members(source, members, live=live):
            yield Placed(names.within(host, name), [names.ALL_MEMBERS, *group], {**variables, **named}, {}, more)


def of_broken(found: Iterable[Broken], everybody: Sequence[str]) -> Iterator[Placed]:
    """Hosts that stand for objects that cannot be worked with, each with the reason."""
    for each in found:
        reason = {
            names.INSTANCE_NAME: f"{each.namespace}/{each.name}",
            names.INSTANCE_NAMES: list(everybody),
            "karmada_problems": [problem.plain for problem in each.problems],
            "karmada_broken_reason": str(ProblemsError(list(each.problems))),
        }
        yield Placed(names.of_instance(each.namespace, each.name), [names.BROKEN], {**HERE, **reason}, HERE_TEMPLATES)


def names_of(found: Iterable[Instance], broken: Iterable[Broken]) -> list[str]:
    """``<namespace>/<name>`` of all control planes of a source, sorted, those that cannot be read among them."""
    there = [each.source.deployment["metadata"] for each in found]
    return sorted(
        [
            *(f"{metadata['namespace']}/{metadata['name']}" for metadata in there),
            *(f"{each.namespace}/{each.name}" for each in broken),
        ]
    )


_INSTANCE = names.group("instance", "")


def groups_of(found: Iterable[Instance]) -> tuple[dict[str, list[str]], list[str]]:
    """Groups of each control plane by its host, and sentences about groups that there are not.

    Two different things whose names are the same as a group's would be one; neither is a group then.
    """
    words: dict[str, list[tuple[str, ...]]] = {}
    for instance in found:
        metadata = instance.source.deployment["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        of_it = [("namespace", namespace), ("instance", namespace, name)]
        of_it += [("mode", Spec(instance.source.deployment["spec"]).mode.lower())]
        of_it += [("version", instance.version)] if instance.version else []
        of_it += [("phase", instance.phase.lower())] if instance.phase else []
        of_it += [("label", key, value) if value else ("label", key) for key, value in instance.labels.items()]
        words[names.of_instance(namespace, name)] = of_it
    meant: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for of_it in words.values():
        for each in of_it:
            meant[names.group(*each)].add(each)
    met = {group: each for group, each in meant.items() if len(each) > 1}
    kept = {
        host: [group for group in (names.group(*each) for each in of_it) if group not in met]
        for host, of_it in words.items()
    }
    sentences = [
        f"{' and '.join(sorted('/'.join(each[1:]) for each in both))} would both be the group {group}, so there is none"
        for group, both in sorted(met.items())
    ]
    return kept, sentences


# -- parts of one control plane ----------------------------------------------------------------------------------------


def _of_control(source: Source) -> dict[str, Any]:
    return {
        "karmada_deployment": source.deployment,
        "karmada_connection": source.connection,
        "karmada_backups": list(source.backups),
        "karmada_restores": list(source.restores),
    }


def _plain_hosts(source: Source) -> Iterator[tuple[str, list[str], dict[str, Any], dict[str, str]]]:
    """Name, groups, variables and templates of each plain host."""
    spec, secrets = Spec(source.deployment["spec"]), source.connection["secrets"]
    here = str(Path.cwd()) if secrets else ""
    for host in spec.hosts:
        connection = ssh.variables(host.plain, spec.ssh, secrets, working_directory=here)
        # Such a text is our own and contains nothing of the document.
        templates = {
            name: value
            for name, value in connection.items()
            if isinstance(value, str) and any(each in value for each in ssh.TEMPLATES)
        }
        groups = [names.HOSTS, *(names.ROLE_GROUPS[role] for role in ssh.roles(spec, host))]
        yield host.name, groups, {"karmada_host": host.plain, **connection}, templates


def _members(
    source: Source, members: Iterable[Member], *, live: bool
) -> Iterator[tuple[str, list[str], dict[str, Any], dict[str, Any]]]:
    """Host name, groups, variables of each member, and what expressions see of it.

    The Cluster is for groups and composed variables only; thousands of whole ones are too much to show.
    """
    taken = {*names.RESERVED, *(host.name for host in Spec(source.deployment["spec"]).hosts)}
    for member in members:
        mode = names.MODE_GROUPS.get(MemberEntry(member.entry).plain.get("mode", ""))
        variables: dict[str, Any] = {"karmada_member_name": member.name, "karmada_member": member.entry}
        if live:
            variables["karmada_member_ready"] = is_true(member.cluster, "Ready")
        yield (
            f"member_{member.name}" if member.name in taken else member.name,
            [member.group, *([mode] if mode else [])],
            variables,
            {"karmada_cluster": member.cluster} if member.cluster else {},
        )
