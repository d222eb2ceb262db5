# SPDX-License-Identifier: Apache-2.0
"""The order of steps is that of the playbooks, whatever somebody has configured to make Ansible faster.

With another strategy every host goes on by itself: all members of etcd would restart at the same time, and what is to
be done once would be done for each host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support.playbook_runs import NO_STEP, RESULTS, given, run

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
PLAYS = [
    pytest.param(play, id=f"{path.relative_to(PLAYBOOKS)}: {play['name']}")
    for path in sorted(PLAYBOOKS.rglob("*.yml"))
    for play in yaml.safe_load(path.read_text())
    if "hosts" in play
]


def test_there_are_plays() -> None:
    assert len(PLAYS) >= len(list(PLAYBOOKS.glob("*.yml")))


@pytest.mark.parametrize("play", PLAYS)
def test_every_play_names_its_strategy(play: dict[str, Any]) -> None:
    assert play.get("strategy") == "linear"


NAMES = ("cp1", "cp2", "cp3")
# What somebody may have configured. host_pinned differs from free only in how many hosts begin, and that no play takes
# either is asked above. All turns are of one playbook: most are taken with one of these settings.
FREE, ONE_FORK = "strategy = free", "forks = 1"


def installed(tmp_path: Path, configured: str, **found: Any) -> tuple[str, list[dict[str, Any]]]:
    """Output of an install on three hosts with this setting of Ansible, and what its steps were given."""
    (tmp_path / "empty.cfg").write_text(f"[defaults]\n{configured}\n")
    (tmp_path / "more.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": dict.fromkeys(NAMES)}}))
    hosts = {name: {"ansible_connection": "local", "karmada_host": {"name": name}} for name in NAMES}
    answers = {
        "journal": {"changed": False, "due": True},
        "host_observe": {"changed": False, "reached": True},
        **found,
    }
    done, steps = run("install", tmp_path, RESULTS | answers, "-i", "more.yml", mode="Binary", hosts=hosts)
    return done.stdout + done.stderr, steps


def turns(steps: list[dict[str, Any]]) -> list[str]:
    """Restarts and changes of members of etcd, each with its host, and that locks are kept."""
    return [
        "keep" if _keeps(each) else f"{each.get('state', 'restart')} {each['host']}"
        for each in steps
        if each.get("wait_for") == "started" or _keeps(each) or each["step"] == "etcd_change"
    ]


def _keeps(step: dict[str, Any]) -> bool:
    return step.get("state") == "kept" or bool(step.get("keep"))


@pytest.mark.parametrize("configured", [FREE, ONE_FORK])
def test_hosts_restart_one_after_the_other_and_what_is_done_once_is_done_once(configured: str, tmp_path: Path) -> None:
    outdated = {"changed": True, "outdated": ["karmada-prod-webhook.service"]}
    output, steps = installed(tmp_path, configured, host_components=outdated)
    looks, one = ["keep"] * 3, lambda name: [*["keep"] * 3, f"restart {name}"]
    assert turns(steps) == [*looks, *one("cp1"), *one("cp2"), *one("cp3")], output
    assert [len(given(steps, name)) for name in ("preflight", "differences", "report")] == [1, 0, 1]
    # Nobody is ahead: all of them were looked at before the check, and have the journal before anything starts.
    order = [f"{each['step']} {each['state']}" if each["step"] == "journal" else each["step"] for each in steps]
    assert order[: order.index("preflight")].count("host_observe") == len(NAMES)
    assert order[order.index("programs") : order.index("host_programs")].count("journal written") == len(NAMES)


def test_members_of_etcd_restart_in_the_order_that_is_decided(tmp_path: Path) -> None:
    def turn(step: str, host: str) -> dict[str, Any]:
        return {**NO_STEP, "step": step, "host": host, "member": host}

    decided = [
        turn("restarted", "cp2"),
        turn("restarted", "cp3"),
        turn("led", "cp1"),
        turn("restarted", "cp1"),
        NO_STEP,
    ]
    outdated = {"changed": True, "outdated": ["karmada-prod-etcd.service"]}
    output, steps = installed(tmp_path, FREE, host_components=outdated, **{"etcd_members next_restart": decided})
    found = [each for each in turns(steps) if each != "keep"]
    assert found[:4] == ["restart cp2", "restart cp3", "led cp1", "restart cp1"], output
    (asked, *_) = [each for each in given(steps, "etcd_members") if each["state"] == "next_restart"]
    assert asked["outdated"] == [*NAMES]


def test_each_step_with_members_of_etcd_is_taken_by_one_host_and_then_all_are_asked(tmp_path: Path) -> None:
    def turn(step: str, host: str) -> dict[str, Any]:
        return {**NO_STEP, "step": step, "host": host, "member": "cp3", "identity": "abc"}

    decided = [
        turn("added", "cp1"),
        turn("look", ""),
        turn("added", "cp1"),
        turn("started", "cp3"),
        turn("promoted", "cp2"),
        turn("clients", ""),
        {**turn("removed", "cp1"), "stops": True},
        turn("removed", "cp1"),
        NO_STEP,
    ]
    # etcd cannot add it yet, and can then.
    adding = [{"changed": False, "later": "not yet"}, {"changed": True}]
    answers = {"etcd_members next": decided, "etcd_change added": adding, "etcd_change removed": {"changed": True}}
    output, steps = installed(tmp_path, ONE_FORK, **answers)
    asked, noted = ["asked"] * len(NAMES), ["noted"] * len(NAMES)
    started = ["start cp3"]
    following = [each for name in NAMES for each in (*["kept"] * len(NAMES), f"restart {name}")]
    found = in_words(steps)
    begins = found.index("decided") - len(NAMES)
    assert found[begins:][: found[begins:].index("the rest")] == [
        *(*asked, "decided", *noted, "added cp1"),
        *(*asked, "decided"),
        *(*asked, "decided", *noted, "added cp1", *started),
        *(*asked, "decided", *noted, *started),
        *(*asked, "decided", *noted, "promoted cp2"),
        *(*asked, "decided", *noted, *following),
        *(*asked, "decided", *noted, "removed cp1", "stopped cp3"),
        # Nobody reaches that one.
        *(*asked, "decided", *noted, "removed cp1"),
        *(*asked, "decided"),
    ], output
    (start, _again) = [each for each in given(steps, "host_components") if each.get("wait_for") == "running"]
    assert start["components"] == ["etcd"]
    # They have just answered, and nothing has happened since.
    assert found[begins:][found[begins:].index("the rest") :].count("asked") == len(NAMES), "for the report"


def test_an_api_server_restarts_for_its_new_member_when_the_one_before_it_answers(tmp_path: Path) -> None:
    def promoted(name: str, before: str = "") -> dict[str, Any]:
        step = {"step": "promoted", "host": "cp1", "member": name, "follows": name, "before": before}
        return {**NO_STEP, **step, "done": False}

    decided = [promoted("cp2"), promoted("cp3", "cp2"), promoted("cp3", "cp2"), {**NO_STEP, "before": "cp3"}]
    # The second one gets its vote at the second try.
    votes = [{"changed": True}, {"changed": False, "later": "not yet"}, {"changed": True}]
    output, steps = installed(tmp_path, "forks = 5", **{"etcd_members next": decided, "etcd_change promoted": votes})
    clients = ["karmada-apiserver", "karmada-aggregated-apiserver", "karmada-search"]
    found = []
    for each in steps:
        if each["step"] == "etcd_change":
            found.append(f"{each['state']} {each['member']}")
        elif each.get("components") == clients:
            verb = "restart" if each.get("restart", True) else "see"
            found.append(f"{verb} {each['host']}, {each.get('wait_for', 'all')}")
        elif each["step"] == "host_components" and each.get("wait_for") == "none" and "components" not in each:
            found.append("the others")
    assert found == [
        *("promoted cp2", "restart cp2, none"),
        *("promoted cp3", "promoted cp3", "see cp2, all", "restart cp3, none"),
        # Before those are told that are to restart for other reasons.
        *("see cp3, all", *["the others"] * len(NAMES)),
    ], output


def in_words(steps: list[dict[str, Any]]) -> list[str]:
    """Steps of the loop over members of etcd, and those of which it is told when they come."""
    words = {"etcd_member": "asked", "etcd_members next": "decided", "journal written": "noted", "journal kept": "kept"}
    found = []
    for each in steps:
        step = f"{each['step']} {each.get('state', '')}".strip()
        if each["step"] == "etcd_change":
            step = f"{each['state']} {each['host']}"
        elif each.get("wait_for") == "running":
            step = f"start {each['host']}"
        elif each.get("wait_for") == "started":
            step = f"restart {each['host']}"
        elif each.get("components") == ["etcd", "karmada-apiserver"]:
            step = "the rest"
        if step != "etcd_members clients_followed":
            found.append(words.get(step, step))
    return found


#: Calls for units of an install on hosts that run, by what is asked for; each is for all hosts.
ALWAYS = ["compared", "all, as they run", "all"]


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({}, set()),
        ({"members": False}, {"etcd, as they run"}),
        ({"servers": False}, {"etcd karmada-apiserver, as they run"}),
        # Somebody has to be waited for.
        ({"done": False}, {"etcd karmada-apiserver, as they run"}),
        ({"reason": "it starts"}, {"servers behind it, as they run"}),
    ],
)
def test_units_that_answer_are_not_started_and_waited_for_at_each_stage(
    changed: dict[str, Any], more: set[str], tmp_path: Path
) -> None:
    told = {"members": True, "servers": True, "done": True, "reason": "", **changed}
    due = {"changed": False, "due": True, "members_answer": told["members"], "api_servers_answer": told["servers"]}
    units = {"karmada-prod-webhook.service": {"program": "/bin/it", "reason": told["reason"]}}
    answers = {
        "journal": due,
        "host_components": {"changed": False, "changes": [], "outdated": [], "units": units},
        "etcd_members next": {**NO_STEP, "done": told["done"]},
    }
    output, steps = installed(tmp_path, "forks = 5", **answers)
    asked = [asked_of_units(each) for each in given(steps, "host_components")]
    assert sorted(asked) == sorted([*ALWAYS, *more] * len(NAMES)), output


def asked_of_units(step: dict[str, Any]) -> str:
    """What a step with units is about, in words."""
    if step.get("state") == "compared":
        return "compared"
    components = step.get("components", ["all"])
    name = "servers behind it" if "karmada-webhook" in components else " ".join(components)
    return name if step.get("restart", True) else f"{name}, as they run"
