# SPDX-License-Identifier: Apache-2.0
"""Page of all variables and tags of the playbooks."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import sources
from .sources import COLLECTION, markdown, row

PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from playbooks and argument specifications by `make reference`. Change those, not this page. -->

# Variables and tags

Everything that can be said to a run beside the document, for all playbooks: extra vars (`-e`, `--extra-vars`), tags
(`--tags`) and limits. What the control plane should be is in the
[document](manifest.md), never in a variable.

```shell
ansible-playbook -i site.karmada.yml karmada.installer.uninstall -e karmada_confirm=prod
ansible-playbook -i site.karmada.yml karmada.installer.uninstall -e karmada_confirm=prod \\
  -e '{{"uninstall_abandon_members": ["member2"]}}'
```

A list is written as JSON; those whose type says so take names with commas as well. In AWX a variable is an extra
variable of the job template, or an answer of its survey. `--check`, `--diff` and the other options of
`ansible-playbook` mean what they always mean.

## Playbooks

{playbooks}

A tag chooses a part of `members`; what each part needs is done with it. Where no tag is named, `--tags` has nothing to
choose, and a run with one does nothing. `--limit` takes names of members, or patterns.

## Confirmations and choices

{named}

A member or host that is given up is left as it is, and what is on it stays there.

## Timeouts

Seconds, for each wait. A playbook takes the variables of the roles that it runs.

{waiting}

## Other variables of roles

{other}

Not for `-e`: {inner}. Playbooks and roles set these for each other.
"""

#: What each playbook is for.
PURPOSES = {
    "awx_objects": "bring the objects of AWX to what files say",
    "backup": "take the backups that are due, or one at once",
    "backup_drill": "serve a backup on this machine and read it, and change nothing",
    "backup_list": "see which backups there are, and change nothing",
    "backup_verify": "fetch a backup and prove it, and change nothing",
    "break_glass": "make a kubeconfig for an emergency",
    "cordon": "place nothing new on members",
    "drain": "move everything away from members",
    "etcd_maintenance": "give free space of etcd back, and clear its alarm NOSPACE",
    "hand_over": "stop a control plane for good, with a final backup from which another place takes it over",
    "install": "install, or bring an instance to what the document says now",
    "members": "join members and let members go, and nothing else",
    "preflight": "check first, and change nothing",
    "release": "let a control plane that was restored work again, so that its members follow, or a part of them",
    "report": "see how it is now, and change nothing",
    "restore": "take a control plane back to a backup, into quarantine",
    "restore_cleanup": "remove data of etcd that no member uses any more, for good",
    "restore_undo": "take back a restore that was not released",
    "uncordon": "place workloads on members again",
    "uninstall": "remove an instance",
}
#: What ``--limit`` may choose, by what the first play is told.
LIMITS = {"control_plane": "not possible", "members": "some members", "any": "the members; they have to be named"}

#: Variables that the engine reads by itself: type, default, meaning and playbooks, which no argument specification has.
BESIDES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "karmada_instance": (
        "str",
        "",
        "Control plane to work on, as `<namespace>/<name>`, where the inventory has several (`instances: all`).",
        tuple(verb for verb in PURPOSES if verb != "awx_objects"),
    ),
    "karmada_members": (
        "list of str, or with commas",
        "all",
        "Members that the run is about, in place of `--limit`. It takes names that are not in the inventory, too.",
        ("members", "cordon", "drain", "uncordon"),
    ),
    "karmada_confirm_images": (
        "list of str, or with commas",
        "",
        "Images whose [tag leads elsewhere](../guides/settings.md#which-image-a-tag-means) than at first, and may.",
        ("install",),
    ),
    "karmada_confirm_manager": (
        "str",
        "",
        "UID of an object that [manages](../guides/operator.md#beside-runs-from-files) it, is not seen, and is gone.",
        ("install", "members", "preflight", "uninstall"),
    ),
    "karmada_lock_wait": (
        "int",
        "120",
        "Seconds for which a run waits for another one that writes to the same control plane in pods, then refuses.",
        ("backup", "etcd_maintenance", "install", "members", "release", "restore", "restore_undo", "uninstall"),
    ),
}

#: Variables that playbooks read by themselves, in the same form.
OF_PLAYBOOKS: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "karmada_awx_files": (
        "str",
        "`controller` in the working directory",
        "Folder with the [objects of AWX](../guides/awx.md#all-of-it-as-files), as infra.aap_configuration takes them.",
        ("awx_objects",),
    ),
    "karmada_awx_host_kubeconfig": (
        "str",
        "",
        "Content of the kubeconfig for the first credential. Without it, what is typed in AWX stays.",
        ("awx_objects",),
    ),
}

_NAMED = re.compile(r"(?<!\.)\b(karmada_\w+) *\| *default\(([^(),]*)(?:, *true)?\)")
_READ = re.compile(r"""variables(?:\.get\(|\[)["'](karmada_\w+)["']""")
#: Read by the engine and set by the inventory plugin, or by each play.
_FROM_INVENTORY = frozenset(
    {
        *("karmada_host", "karmada_member_ready", "karmada_deployment", "karmada_connection", "karmada_operation"),
        *("karmada_backups", "karmada_restores"),
    }
)


@functools.cache
def page() -> str:
    """The whole page. Raises ValueError for a playbook or a variable that nothing is said of."""
    used, named, alias = _used(), _named(), {}
    for role, options in used.items():
        for name, option in options.items():
            if found := _NAMED.search(str(option.get("default", ""))):
                alias[name] = found[1]
                old = named.get(found[1])
                verbs = {*(old[3] if old else ()), *_verbs_of(role)}
                told = (sources.type_of(option), _default(found), _meaning(option), sorted(verbs))
                named[found[1]] = told if old is None else (*old[:3], sorted(verbs))
    own = {name: (role, option) for role, options in used.items() for name, option in options.items()}
    handed_on = {name for name, (_, option) in own.items() if "_result." in str(option.get("default", ""))}
    inner = handed_on | set(set_by_others())
    kept = {name: each for name, each in own.items() if name not in inner and name not in alias}
    waiting = {name: each for name, each in kept.items() if name.endswith("_timeout")}
    other = {name: each for name, each in kept.items() if name not in waiting}
    return PAGE.format(
        playbooks=_playbooks(),
        named=_table(
            row(f"`{name}`", kind, default, _list(verbs), meaning)
            for name, (kind, default, meaning, verbs) in sorted(named.items())
        ),
        waiting=_role_table(waiting),
        other=_role_table(other),
        inner=", ".join(f"`{name}`" for name in sorted(set(own) & inner)),
    )


def known() -> set[str]:
    """Every variable that may be given with ``-e``."""
    return set(re.findall(r"^\| `([a-z_]+)` \|", page(), re.MULTILINE)) - set(sources.verbs())


def tags(verb: str) -> list[str]:
    """Tags that choose a part of a playbook."""
    found: set[str] = set()
    for use in sources.uses(verb):
        if use.selectable:
            given = use.content.get("tags", ())
            found |= {given} if isinstance(given, str) else set(given)
    return sorted(each for each in found if each != "always")


def _playbooks() -> str:
    lines = ["| playbook | to | tags | `--limit` |", "|---|---|---|---|"]
    for verb in sources.verbs():
        if verb not in PURPOSES:
            raise ValueError(f"say in PURPOSES what the playbook {verb} is for")
        limit = next(
            (
                str(use.content["vars"]["karmada_limit"])
                for use in sources.uses(verb)
                if "karmada_limit" in (use.content.get("vars") or {})
            ),
            "control_plane",
        )
        chosen = ", ".join(f"`{each}`" for each in tags(verb))
        lines.append(row(f"`karmada.installer.{verb}`", PURPOSES[verb], chosen, LIMITS[limit]))
    return "\n".join(lines)


def _used() -> dict[str, dict[str, Mapping[str, Any]]]:
    """Role → its variables, for the roles that playbooks run."""
    roles = {role for verb in sources.verbs() for use in sources.uses(verb) for role in sources.roles_of(use.content)}
    return {role: sources.role_options(role) for role in sorted(roles)}


def _verbs_of(role: str) -> list[str]:
    return [
        verb for verb in sources.verbs() if any(role in sources.roles_of(use.content) for use in sources.uses(verb))
    ]


def _named() -> dict[str, tuple[str, str, str, list[str]]]:
    """Variables that are no role's: those of playbooks, as options of the actions that get them, and of the engine."""
    read = {
        name
        for path in (COLLECTION / "plugins").rglob("*.py")
        for name in _READ.findall(path.read_text(encoding="utf-8"))
    }
    if read - _FROM_INVENTORY != set(BESIDES):
        raise ValueError(f"say in BESIDES what these are: {sorted(read - _FROM_INVENTORY ^ set(BESIDES))}")
    found: dict[str, tuple[str, str, str, list[str]]] = {
        name: (kind, default, meaning, sorted(verbs))
        for name, (kind, default, meaning, verbs) in {**BESIDES, **OF_PLAYBOOKS}.items()
    }
    users: dict[str, set[str]] = defaultdict(set)
    for verb in sources.verbs():
        for use in sources.uses(verb):
            called = sources.module_of(use.content)
            for option, value in called[1].items() if called else ():
                if called and (given := _NAMED.search(str(value))):
                    users[given[1]].add(verb)
                    described = sources.documented()["module"][called[0]]["doc"]["options"][option]
                    told = (sources.type_of(described), _default(given), _meaning(described), sorted(users[given[1]]))
                    found[given[1]] = told
    given_by_plays = set_by_others()
    return {name: each for name, each in found.items() if name not in given_by_plays}


def _default(found: re.Match[str]) -> str:
    """Default of a variable in a template, and what plays set in its place; a variable of the command line wins."""
    default = found[2].strip("'\"")
    values = dict.fromkeys(str(value) for value in set_by_others().get(found[1], ()) if "{{" not in str(value))
    return ", ".join([*([f"`{default}`"] if default else []), *(f"in some playbooks `{each}`" for each in values)])


def _meaning(option: Mapping[str, Any]) -> str:
    """Description without the sentence that names the variable, which the table does."""
    told = markdown(option.get("description", ""))
    return re.sub(r" Usually (?:given|set)[^.]*karmada_\w+[^.]*\.", "", told)


@functools.cache
def set_by_others() -> Mapping[str, Sequence[Any]]:
    """Variables that plays, blocks and tasks of the collection set, with their values."""
    found: dict[str, list[Any]] = defaultdict(list)

    def look(content: Any) -> None:
        if isinstance(content, Mapping):
            for key in ("vars", "ansible.builtin.set_fact"):
                for name, value in (content.get(key) or {}).items():
                    found[name].append(value)
            content = content.values()
        elif not isinstance(content, list):
            return
        for each in content:
            look(each)

    for folder in ("playbooks", "roles/*/tasks"):
        for path in sorted(COLLECTION.glob(f"{folder}/**/*.yml")):
            look(sources.load(path))
    return found


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| variable | type | default | playbooks | meaning |", "|---|---|---|---|---|", *rows])


def _role_table(found: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    def rows() -> Iterator[str]:
        for name, (role, option) in sorted(found.items()):
            default = sources.default_of(option)
            yield row(f"`{name}`", sources.type_of(option), default, _list(_verbs_of(role)), _meaning(option))

    return _table(rows())


def _list(verbs: Iterable[str]) -> str:
    return ", ".join(f"`{verb}`" for verb in verbs)
