# SPDX-License-Identifier: Apache-2.0
"""The order of a restore on plain hosts, played with stand-ins for its steps: what is done where, and what ends it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.in_pods import InPods
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.on_hosts import OnHosts
from ansible_collections.karmada.installer.tests.unit.collection.test_backup_on_hosts import STAND_IN, order
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

HOSTS = ("h1", "h2")
COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
STEPS = sorted(each.stem for each in (COLLECTION / "plugins/action").glob("[a-z]*.py"))
PLAY = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.import_role:
        name: karmada.installer.{role}
        tasks_from: {entry}
        rolespec_validate: false
"""
LOOK = ["restore_on_host seen"]
PLACED = "backup placed"
#: What is decided is on every host before anything is done there.
DECIDE = [*LOOK, "restore next", "journal written"]


def step(name: str, tasks: str = "", **more: Any) -> dict[str, Any]:
    return {
        "step": name,
        "tasks": tasks,
        "components": ["karmada-scheduler"],
        "series": "disk",
        "changed": True,
        "again": False,
        "goes_on": True,
        **more,
    }


END: dict[str, Any] = {"step": "", "tasks": "", "again": False, "goes_on": False}
SNAPSHOT = {"file": "/cache/run-1/snapshot.db", "size": 9, "digest": "d"}


def played(
    folder: Path,
    *steps: dict[str, Any],
    code: int = 0,
    role: str = "restore",
    entry: str = "main",
    in_pods: bool = False,
    above: bool = False,
    **answers: Any,
) -> list[tuple[str, str, dict[str, Any]]]:
    """Steps in their order, each with its host and what it was given; ``above``: all but etcd is in pods."""
    collection = folder / "ansible_collections/karmada/installer"
    (collection / "plugins/action").mkdir(parents=True)
    for name in STEPS:
        (collection / f"plugins/action/{name}.py").write_text(STAND_IN)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (folder / "play.yml").write_text(PLAY.format(role=role, entry=entry))
    told = {
        f"{role} next": [*steps, END],
        "restore delivered": [{"snapshot": SNAPSHOT}],
        "programs looked_for": [{"turns": [], "lacking": {}}],
        **{name.replace("__", " "): value for name, value in answers.items()},
    }
    (folder / "answers").write_text(json.dumps(told))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    hosts: dict[str, Any] = (
        {"karmada_control": {}}
        if in_pods
        else {"karmada_control": {}} | {name: {"karmada_host": {"name": name}} for name in HOSTS}
    )
    inventory = {
        "all": {"hosts": hosts, "vars": here},
        **({} if in_pods or above else {"karmada_on_hosts": {"hosts": {key: {} for key in hosts}}}),
        "karmada_hosts": {"hosts": {} if in_pods else {key: {} for key in HOSTS}},
    }
    (folder / "hosts.json").write_text(json.dumps(inventory))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml"),
        directory=folder,
        collection=False,
        KARMADA_TEST=str(folder),
    )
    assert done.returncode == code, done.stdout + done.stderr
    return [tuple(json.loads(line)) for line in (folder / "log").read_text().splitlines()]


def order_of(steps: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """Order without the question which host has the backups; tests of its own show what comes of it."""
    return order([each for each in steps if each[0] != PLACED])


def after_begin(steps: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    names = order_of(steps)
    begin = [*LOOK, "restore judged", "restore begun"]
    assert names[: len(begin)] == begin
    return names[len(begin) :]


def decisions(steps: list[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What the action was given in each turn."""
    return [given for name, _host, given in steps if name == "restore next"]


def test_there_are_tasks_for_each_step_that_leaves_some() -> None:
    there = {each.stem for each in (COLLECTION / "roles/restore/tasks/on_hosts").glob("*.yml")}
    assert set(OnHosts.tasks.values()) - {"stages", "fenced"} == there - {"look", "copied", "taken_over", "cleaned"}
    assert set(InPods.tasks.values()) == {"stages", "fenced"}


def test_what_needs_no_host_is_written_to_each_and_that_is_all(tmp_path: Path) -> None:
    steps = played(tmp_path, step("Close"))
    assert after_begin(steps) == [*DECIDE, *DECIDE]
    hosts = {host for name, host, _given in steps if name in ("journal written", "restore_on_host seen")}
    assert hosts == set(HOSTS)
    assert {host for name, host, _given in steps if name.startswith("restore ")} == {"karmada_control"}


def test_a_step_with_tasks_is_ended_with_the_begin_of_the_next_one(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StopWriters", "stopped"))
    assert after_begin(steps) == [*DECIDE, "host_components", *DECIDE]
    (stopped, *_others) = [given for name, _host, given in steps if name == "host_components"]
    assert stopped == {"components": ["karmada-scheduler"], "restart": False, "wait_for": "none"}
    assert [(each["step"], each["backup"], each["troubles"]) for each in decisions(steps)] == [
        ("", "", []),
        ("StopWriters", "", []),
    ]


def test_etcd_stops_when_no_host_has_a_client_of_it_any_more(tmp_path: Path) -> None:
    both = step("StopServers", "stopped", components=["karmada-apiserver", "etcd"])
    steps = played(tmp_path, both)
    stopped = [given["components"] for name, _host, given in steps if name == "host_components"]
    assert stopped == [*[["karmada-apiserver"]] * len(HOSTS), *[["etcd"]] * len(HOSTS)]
    assert after_begin(steps) == [*DECIDE, "host_components", *DECIDE], "hosts are looked at once"


def test_a_component_alone_stops_alone(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StopEtcd", "stopped", components=["etcd"]))
    assert [given["components"] for name, _host, given in steps if name == "host_components"] == [["etcd"]] * len(HOSTS)


def test_members_tell_what_they_have_as_soon_as_they_have_started(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StartEtcd", "etcd_restored"))
    assert after_begin(steps) == [*DECIDE, "host_components", "restore_on_host counted", *DECIDE]
    waits = [given.get("wait_for") for name, _host, given in steps if name == "host_components"]
    assert waits == [*["none"] * len(HOSTS), *[None] * len(HOSTS)], "all are started before one is waited for"


@pytest.mark.parametrize(
    ("entry", "name", "first"),
    [("main", "StartServers", True), ("undo", "StartAll", True), ("release", "StartAll", False)],
)
def test_api_servers_start_before_all_else_is_looked_at_where_nobody_is_served(
    tmp_path: Path, entry: str, name: str, *, first: bool
) -> None:
    # The stages go no further here than to their begin.
    stages = {"journal__chosen": [{"failed": True, "msg": "that is all"}]}
    steps = played(tmp_path, step(name, "stages"), entry=entry, code=2, **stages)
    names = order_of(steps)
    assert names[names.index("restore next") :] == [
        *("restore next", "journal written", *(["host_components"] if first else []), "journal chosen")
    ]
    given = [given for each, _host, given in steps if each == "host_components"]
    assert given == [{"components": ["karmada-apiserver"], "restart": False, "wait_for": "none"}] * len(given)


def test_nobody_looks_once_more_when_the_goal_is_reached(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StopWriters", "stopped"), step("Compare", goes_on=False))
    assert after_begin(steps) == [*DECIDE, "host_components", *DECIDE]


def test_the_snapshot_is_deleted_here_whatever_comes_of_it(tmp_path: Path) -> None:
    sent = ["programs looked_for", "journal written", "host_programs", "restore delivered", "restore_on_host made"]
    steps = played(tmp_path, step("Prepare", "prepared"))
    begin = [*DECIDE, *sent, "restore forgotten"]
    assert after_begin(steps) == [*begin, *DECIDE]
    given = {name: told for name, _host, told in steps}
    assert given["restore_on_host made"]["snapshot"] == given["restore forgotten"]["snapshot"] == SNAPSHOT
    again = tmp_path / "again"
    again.mkdir()
    broken = {"restore_on_host__made": [{"failed": True, "msg": "no room"}]}
    steps = played(again, step("Prepare", "prepared"), code=2, **broken)
    assert after_begin(steps) == begin


def test_what_is_there_is_backed_up_while_the_hosts_stay_locked(tmp_path: Path) -> None:
    stored = {"stored": True, "anew": False, "troubles": [], "changed": False}
    steps = played(
        tmp_path,
        step("BackUp", "backed_up"),
        backup__begun=[{"sender": "h1", "witness": "h2"}],
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}],
        backup__stored=[stored],
        backup__recorded=[{**stored, "changed": True, "name": "prod-b"}],
    )
    names = after_begin(steps)
    assert "host_observe" not in " ".join(names)
    assert "journal released" not in names
    ended = decisions(steps)[-1]
    assert (ended["step"], ended["backup"], ended["troubles"]) == ("BackUp", "prod-b", [])
    (asked,) = [given for name, _host, given in steps if name == "backup stored"]
    assert (asked["now"], asked["at_once"]) == ("disk", True)


def test_a_backup_that_fails_is_told_to_who_decides(tmp_path: Path) -> None:
    steps = played(
        tmp_path,
        step("BackUp", "backed_up"),
        backup__begun=[{"sender": "h1", "witness": "h2"}],
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}],
        backup__stored=[{"stored": False, "anew": False, "troubles": ["it is full"], "changed": False}],
    )
    ended = decisions(steps)[-1]
    assert (ended["backup"], ended["troubles"]) == ("", ["it is full"])


@pytest.mark.parametrize(
    ("answers", "backup_steps"),
    [
        ({"backup__begun": [{"failed": True, "msg": "1 problem", "problems": [{"what": "no room"}]}]}, []),
        (
            {
                "backup__begun": [{"sender": "h1", "witness": "h2"}],
                "etcd_snapshot": [{"failed": True, "msg": "no room"}],
            },
            ["etcd_snapshot"],
        ),
    ],
    ids=["nobody sends", "it does not come"],
)
def test_a_backup_that_cannot_be_fetched_is_told_to_who_decides(
    tmp_path: Path, answers: dict[str, Any], backup_steps: list[str]
) -> None:
    steps = played(tmp_path, step("BackUpAgain", "backed_up"), entry="release", **answers)
    ended = decisions(steps)[-1]
    assert (ended["step"], ended["backup"], ended["troubles"]) == ("BackUpAgain", "", ["no room"])
    assert order_of(steps) == [*DECIDE, "etcd_member", "backup begun", "journal written", *backup_steps, *DECIDE]


def test_what_went_wrong_with_an_earlier_backup_is_not_told_of_a_later_one(tmp_path: Path) -> None:
    stored = {"stored": True, "anew": False, "troubles": [], "changed": False}
    steps = played(
        tmp_path,
        *[step("BackUpAgain", "backed_up")] * 2,
        entry="release",
        backup__begun=[{"sender": "h1", "witness": "h2"}] * 2,
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}] * 2,
        backup__stored=[{**stored, "stored": False, "troubles": ["it is full"]}, stored],
        backup__recorded=[{**stored, "changed": True, "name": "prod-b"}],
    )
    assert [(each["backup"], each["troubles"]) for each in decisions(steps)] == [
        ("", []),
        ("", ["it is full"]),
        ("prod-b", []),
    ]


def test_members_are_asked_again_until_they_agree(tmp_path: Path) -> None:
    prove = step("Prove", "counted")
    steps = played(tmp_path, prove, {**prove, "again": True})
    asked = "restore_on_host counted"
    assert after_begin(steps) == [*DECIDE, asked, *DECIDE, asked, *DECIDE]
    assert [(each["step"], each["last"]) for each in decisions(steps)] == [
        ("", False),
        ("Prove", False),
        ("Prove", False),
    ]


def test_what_is_held_is_on_record_before_it_is_written_and_hosts_are_asked_until_it_is_in_force(
    tmp_path: Path,
) -> None:
    hold = step("Hold", "held")
    steps = played(tmp_path, hold, {**hold, "again": True}, entry="release", restore__held=[{"anew": False}] * 2)
    assert order_of(steps) == [*DECIDE, "restore held", *DECIDE, "restore held", *DECIDE]
    assert [(each["step"], each["last"]) for each in decisions(steps)] == [("", False), *[("Hold", False)] * 2]
    (given,) = {json.dumps(given) for name, _host, given in steps if name == "restore held"}
    assert json.loads(given)["goal"] == "release"


def test_controllers_begin_anew_once_where_something_is_let_go(tmp_path: Path) -> None:
    let = step("Let", "held")
    steps = played(tmp_path, let, {**let, "again": True}, entry="release", restore__held=[{"anew": True}] * 2)
    restarted = "restore_on_host restarted"
    assert order_of(steps) == [*DECIDE, "restore held", restarted, *DECIDE, "restore held", *DECIDE]
    assert {host for name, host, _given in steps if name == restarted} == set(HOSTS)


@pytest.mark.parametrize("entry", ["release", "undo"])
def test_agents_on_hosts_begin_anew_when_they_are_accepted_again(tmp_path: Path, entry: str) -> None:
    steps = played(tmp_path, step("WakeAgents", "woken"), entry=entry)
    woken = "restore_on_host woken"
    assert order_of(steps) == [*DECIDE, woken, *DECIDE]
    assert {host for name, host, _given in steps if name == woken} == set(HOSTS)


@pytest.mark.parametrize(("entry", "goal"), [("release", "release"), ("undo", "undo")])
def test_members_of_etcd_start_together(tmp_path: Path, entry: str, goal: str) -> None:
    steps = played(tmp_path, step("StartFormer", "etcd_started"), entry=entry)
    assert order_of(steps) == [*DECIDE, "host_components", *DECIDE]
    waits = [given.get("wait_for") for name, _host, given in steps if name == "host_components"]
    assert waits == [*["none"] * len(HOSTS), *[None] * len(HOSTS)], "all are started before one is waited for"
    assert {given["goal"] for given in decisions(steps)} == {goal}


def test_in_pods_no_host_is_asked_and_the_stages_are_taken(tmp_path: Path) -> None:
    steps = played(tmp_path, step("Close"), step("StartServers", "stages"), in_pods=True)
    assert {host for _name, host, _given in steps} == {"karmada_control"}
    names = order_of(steps)
    assert names[:2] == ["restore begun", "restore next"]
    assert names[2] == "workloads", "the API server"
    assert names[-1] == "restore next"
    assert not {"journal written", "host_components", "restore_on_host seen"} & set(names)
    assert [given["step"] for given in decisions(steps)] == ["", "", "StartServers"]


@pytest.mark.parametrize("entry", ["main", "undo"])
def test_above_hosts_members_of_etcd_are_worked_on_there_and_the_stages_taken_once(tmp_path: Path, entry: str) -> None:
    etcd = step("StopEtcd", "stopped", components=["etcd"])
    steps = played(tmp_path, etcd, step("StartServers", "stages"), entry=entry, above=True)
    assert hosts_of(steps, "restore_on_host seen", "host_components") == set(HOSTS)
    names = order_of(steps)
    assert names[names.index("restore next") :][:5] == [
        *("restore next", "journal written", "host_components", *LOOK, "restore next")
    ]
    (stopped,) = {json.dumps(given) for name, _host, given in steps if name == "host_components"}
    assert json.loads(stopped)["components"] == ["etcd"], "none of their hosts has an API server"
    configured = [host for name, host, _given in steps if name == "host_components"]
    assert len(configured) == 2 * len(HOSTS), "once to stop, and once when members have their votes"
    stages = [(host, given.get("components", ())) for name, host, given in steps if name == "workloads"]
    assert {host for host, _components in stages} == {"karmada_control"}
    assert [components for _host, components in stages].count(["karmada-apiserver"]) == 1


@pytest.mark.parametrize("above", [False, True])
def test_what_a_survivor_has_is_copied_from_its_host_and_judged_with_the_begin(tmp_path: Path, *, above: bool) -> None:
    copied = {"file": "/cache/run-1/survivor.db"}
    steps = played(
        tmp_path,
        step("Close"),
        above=above,
        restore__judged=[{"sender": "h2"}],
        restore_on_host__copied=[{"copied": copied}],
    )
    names = order_of(steps)
    assert names[:5] == [*LOOK, "restore judged", "journal kept", "restore_on_host copied", "restore begun"]
    (begun,) = [given for name, _host, given in steps if name == "restore begun"]
    assert begun["snapshot"] == copied


# -- old data -------------------------------------------------------------------------------------------------------


def test_old_data_goes_from_every_host_after_the_decision_is_there_and_before_it_is_forgotten(tmp_path: Path) -> None:
    steps = played(tmp_path, entry="cleanup", restore__cleaned=[{"on_hosts": True}])
    assert order_of(steps) == [
        *("restore_on_host listed", "restore cleaned", "journal written"),
        *("restore_on_host removed", "restore removed", "journal written"),
    ]
    assert {host for name, host, _given in steps if name == "restore_on_host removed"} == set(HOSTS)
    assert {host for name, host, _given in steps if name.startswith("restore ")} == {"karmada_control"}


def test_a_host_that_has_not_removed_it_leaves_it_on_record(tmp_path: Path) -> None:
    broken = {"restore_on_host__removed": [{"failed": True, "msg": "gen-1 is used"}]}
    steps = played(tmp_path, entry="cleanup", code=2, restore__cleaned=[{"on_hosts": True}], **broken)
    assert order_of(steps) == [
        *("restore_on_host listed", "restore cleaned", "journal written", "restore_on_host removed")
    ]


@pytest.mark.parametrize("in_pods", [True, False])
def test_without_old_data_on_hosts_nothing_is_removed_there(tmp_path: Path, *, in_pods: bool) -> None:
    steps = played(tmp_path, entry="cleanup", in_pods=in_pods, restore__cleaned=[{"on_hosts": False}])
    assert order_of(steps) == [*([] if in_pods else ["restore_on_host listed"]), "restore cleaned"]


# -- a hand-over, which takes the same turns ------------------------------------------------------------------------


def test_a_hand_over_is_on_every_host_before_anything_stops_there(tmp_path: Path) -> None:
    steps = played(
        tmp_path,
        step("StopWriters", "stopped"),
        step("BackUp", "backed_up"),
        step("HandedOver", goes_on=False, backup="prod-b", signer="key"),
        role="hand_over",
        backup__begun=[{"sender": "h1", "witness": "h2"}],
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}],
        backup__stored=[{"stored": True, "anew": False, "troubles": [], "changed": False}],
        backup__recorded=[{"stored": True, "troubles": [], "changed": True, "name": "prod-b"}],
    )
    names = order_of(steps)
    decide = [*LOOK, "hand_over next", "journal written"]
    assert names[:2] == [*LOOK, "hand_over begun"]
    assert names[2 : 2 + len(decide) * 2 + 1] == [*decide, "host_components", *decide]
    assert names[-len(decide) :] == decide, "and that is all"
    turns = [given for name, _host, given in steps if name == "hand_over next"]
    assert [(each["step"], each["backup"]) for each in turns] == [("", ""), ("StopWriters", ""), ("BackUp", "prod-b")]
    (stopped,) = {json.dumps(given) for name, _host, given in steps if name == "host_components"}
    assert json.loads(stopped)["components"] == ["karmada-scheduler"]


def test_etcd_starts_together_when_a_hand_over_is_taken_back(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StartFormer", "etcd_started"), role="hand_over")
    waits = [given.get("wait_for") for name, _host, given in steps if name == "host_components"]
    assert waits == [*["none"] * len(HOSTS), *[None] * len(HOSTS)]
    turns = [given for name, _host, given in steps if name == "hand_over next"]
    assert [each["step"] for each in turns] == ["", "StartFormer"]


def test_a_hand_over_in_pods_asks_no_host(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StopWriters"), step("StartAll", "stages"), role="hand_over", in_pods=True)
    assert {host for _name, host, _given in steps} == {"karmada_control"}
    turns = [given for name, _host, given in steps if name == "hand_over next"]
    assert [each["step"] for each in turns] == ["", "", "StartAll"]


#: What a step answers that holds members.
HOLDING: dict[str, Any] = {"restore__held": [{"anew": False}]}


def hosts_of(steps: list[tuple[str, str, dict[str, Any]]], *names: str) -> set[str]:
    return {host for name, host, _given in steps if name in names}


def test_a_restore_of_what_lies_on_a_host_goes_by_its_connection(tmp_path: Path) -> None:
    steps = played(
        tmp_path, step("Prepare", "prepared"), step("Release", "held"), **HOLDING, backup__placed=[{"host": "h2"}]
    )
    opening = ("restore judged", "restore begun", "restore next", "restore delivered", "restore held")
    assert {name for name, _host, _given in steps} >= set(opening)
    assert hosts_of(steps, *opening) == {"h2"}
    assert hosts_of(steps, "restore forgotten", PLACED) == {"karmada_control"}
    # It is asked once, and hosts are worked on as ever.
    assert [name for name, _host, _given in steps].count(PLACED) == 1
    assert hosts_of(steps, "restore_on_host made") == set(HOSTS)


@pytest.mark.parametrize("entry", ["release", "undo"])
def test_each_way_out_of_a_restore_knows_the_host_with_the_backups(tmp_path: Path, entry: str) -> None:
    steps = played(tmp_path, step("Close"), entry=entry, backup__placed=[{"host": "h2"}])
    assert hosts_of(steps, "restore next") == {"h2"}


def test_a_hand_over_stores_its_final_backup_on_the_host_that_is_named(tmp_path: Path) -> None:
    steps = played(
        tmp_path,
        step("BackUp", "backed_up"),
        role="hand_over",
        backup__placed=[{"host": "h2"}],
        backup__begun=[{"sender": "h1", "witness": "h2"}],
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}],
        backup__stored=[{"stored": True, "anew": False, "troubles": []}],
        backup__recorded=[{"changed": True, "name": "prod-1", "anew": False, "troubles": []}],
    )
    opening = ("hand_over begun", "hand_over next", "backup stored", "backup recorded")
    assert {name for name, _host, _given in steps} >= set(opening)
    assert hosts_of(steps, *opening) == {"h2"}
    assert hosts_of(steps, "etcd_snapshot") == {"h1"}
