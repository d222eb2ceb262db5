# SPDX-License-Identifier: Apache-2.0
"""What playbooks tell their steps, and how they end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support.playbook_runs import (
    BROKEN,
    COLLECTION,
    LATE,
    REPORT,
    RESULTS,
    STAYS,
    given,
    named,
    run,
)


@pytest.mark.parametrize(
    ("playbook", "said", "told"),
    [
        ("backup", "backup_now=nightly", {"now": "nightly", "only": "", "restores": []}),
        ("backup", "backup_only=nightly", {"now": "", "only": "nightly", "restores": []}),
        ("backup_list", "backup_now=nightly", {"state": "listed"}),
        ("backup_drill", "backup_name=b1", {"state": "drilled", "name": "b1", "identity": ""}),
        ("backup_verify", "backup_name=b1", {"state": "verified", "name": "b1", "identity": ""}),
    ],
)
def test_what_is_said_of_backups_reaches_their_step(
    tmp_path: Path, playbook: str, said: str, told: dict[str, Any]
) -> None:
    results = {**RESULTS, "backup": {"changed": False, "backups": [], "verified": [], "drilled": []}}
    done, steps = run(playbook, tmp_path, results, "-e", said)
    assert done.returncode == 0, done.stdout + done.stderr
    (step,) = given(steps, "backup")
    assert step == {"step": "backup", "selected": [], "backups": [], **told}
    # only what writes has a lock to give back
    assert bool(given(steps, "journal")) == (playbook == "backup")


@pytest.mark.parametrize("playbook", ["install", "members"])
def test_in_pods_a_broken_member_stops_no_step_and_the_run_fails_when_it_has_been_reported(
    playbook: str, tmp_path: Path
) -> None:
    done, steps = run(playbook, tmp_path, RESULTS)
    assert given(steps, "preflight")[0]["on_broken_member"] == "tell"
    (joining,) = given(steps, "member_join")
    assert (joining["broken"], joining["on_broken_member"]) == (BROKEN, "tell")
    assert given(steps, "member_leave")[-1]["on_broken_member"] == "tell"
    # What the run did was brought to its end, and the lock is let go of.
    assert [each["state"] for each in given(steps, "journal")] == ["closed", "released"]
    assert steps[-1] == {**REPORT, "broken_members": [*BROKEN, *STAYS]}
    assert done.returncode == 2, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert said.index("Look at the control plane as it is now") < said.index("m1: it does not answer")


@pytest.mark.parametrize("playbook", ["install", "members"])
def test_on_hosts_what_registration_finds_broken_is_not_waited_for(playbook: str, tmp_path: Path) -> None:
    done, steps = run(playbook, tmp_path, RESULTS, mode="Binary")
    registration, readiness = given(steps, "member_join")
    assert (registration["broken"], registration["on_broken_member"]) == (BROKEN, "tell")
    assert (readiness["broken"], readiness["on_broken_member"]) == (BROKEN, "tell")
    assert steps[-1] == {**REPORT, "broken_members": [*BROKEN, *LATE, *STAYS]}
    assert given(steps, "journal")[-1]["state"] == "closed"
    assert done.returncode == 2, done.stdout + done.stderr


@pytest.mark.parametrize("playbook", ["install", "members"])
def test_agents_on_hosts_run_before_their_members_are_waited_for_and_end_when_these_have_left(
    playbook: str, tmp_path: Path
) -> None:
    there = {name: {**RESULTS[name], "has_agents_on_hosts": True} for name in ("member_join", "member_join readiness")}
    hosts = {"gw1": {"ansible_connection": "local", "karmada_host": {"name": "gw1", "roles": ["agent"]}}}
    _, steps = run(playbook, tmp_path, {**RESULTS, **there}, mode="Binary", hosts=hosts)
    told = [f"{each['step']} {each.get('stage', '')}".strip() for each in steps]
    agents = [place for place, each in enumerate(steps) if each.get("components") == ["karmada-agent"]]
    first, last = agents
    assert given(steps[told.index("member_join registration") : first], "journal")[0]["state"] == "written"
    assert first < told.index("member_join readiness") < told.index("member_leave leave") < last
    # Which image a program came out of is on record before a host has it.
    assert told[first - 3 : first] == ["programs", "journal", "host_programs"]
    assert steps[first - 2]["state"] == "written"
    assert steps[last].get("state", "present") == "present"
    assert last < told.index("report")


@pytest.mark.parametrize("found", [[], ["Deployment karmada/prod-scheduler is missing"]])
@pytest.mark.parametrize("mode", ["Container", "Binary"])
def test_steps_for_etcd_and_the_control_plane_are_left_out_where_nothing_differs(
    mode: str, found: list[str], tmp_path: Path
) -> None:
    _, steps = run("install", tmp_path, {**RESULTS, "differences": {"changed": False, "found": found}}, mode=mode)
    names = {each["step"] for each in steps}
    bringing_up = {"control_plane", "etcd_prefix", "admin_kubeconfig"}
    bringing_up |= {"workloads", "etcd_rollout"} if mode == "Container" else set()
    assert names & bringing_up == (bringing_up if found else set())
    assert names >= {"preflight", "member_join", "member_leave", "report"}


def test_in_pods_a_run_that_finds_nothing_to_do_forks_for_little_that_it_then_skips(tmp_path: Path) -> None:
    """Each fork takes some hundredth of such a run; ``meta`` takes none.

    Roles that are used with many hosts do not end by it all the same: Ansible's own output names it for each of them.
    """
    settled = {
        **RESULTS,
        "differences": {"changed": False, "found": []},
        "report": {**RESULTS["report"], "failure": ""},
    }
    done, steps = run("install", tmp_path, settled)
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = [part.partition("]")[0] for part in done.stdout.split("\nTASK [")[1:] if "skipping: [" in part]
    assert [task.rpartition(" : ")[2] for task in tasks] == [
        "Pass on what was checked",
        "Bring up what differs",
        "Bring hosts to that",
        "Say how those are now that have left",
        "Hosts that have left the document",
        "Fail if anything is not as the document says",
    ]
    assert len(steps) == 12


def test_what_ends_a_role_or_a_play_asks_nothing_that_may_be_undefined() -> None:
    """``meta`` is judged in the first process: an error there ends it at once, with locks that nobody lets go of."""
    files = [*COLLECTION.glob("roles/*/tasks/**/*.yml"), *COLLECTION.glob("playbooks/**/*.yml")]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    registered = {name for text in texts.values() for name in re.findall(r"register: (\w+)", text)}
    ends = {
        (file.relative_to(COLLECTION), condition)
        for file, text in texts.items()
        for condition in re.findall(r"builtin\.meta: end_\w+\n +when: (.*)", text)
    }
    assert len(ends) >= 4
    for where, condition in ends:
        for name in re.findall(r"\b\w+", condition):
            of_a_result = rf"\b{name}\.\w+ \| default\("
            assert name not in registered or re.search(of_a_result, condition), f"{where}: {condition}"


def test_on_hosts_where_something_is_to_be_done_all_steps_are_taken_without_another_look(tmp_path: Path) -> None:
    _, steps = run("install", tmp_path, {**RESULTS, "journal": {"changed": False, "due": True}}, mode="Binary")
    names = {each["step"] for each in steps}
    assert "control_plane" in names
    assert "differences" not in names


@pytest.mark.parametrize(
    ("playbook", "hosts"),
    [
        ("install", {}),
        *((playbook, {"karmada_control": ["m1"]}) for playbook in ("install", "members", "preflight")),
    ],
)
def test_members_that_hosts_have_to_reach_are_looked_at_before_the_check_and_others_are_not(
    playbook: str, hosts: dict[str, list[str]], tmp_path: Path
) -> None:
    targets = {"reach_targets": {"changed": False, "hosts": hosts}}
    _, steps = run(playbook, tmp_path, {**RESULTS, **targets}, mode="Binary")
    names = [each["step"] for each in steps]
    looking = ["reach_targets", "reach_from_host"] if hosts else ["reach_targets"]
    assert [each for each in names[: names.index("preflight")] if each.startswith("reach_")] == looking
    assert names.count("reach_from_host") == bool(hosts)


@pytest.mark.parametrize("playbook", ["install", "members"])
def test_on_hosts_it_is_told_why_a_member_is_not_ready(playbook: str, tmp_path: Path) -> None:
    explained = [{**LATE[0], "problem": "it is not ready\nconnection refused"}]
    found = {
        "member_join readiness": {**RESULTS["member_join readiness"], "broken_members": LATE, "not_ready": ["m2"]},
        "member_join reasons": {**RESULTS["member_join readiness"], "broken_members": explained},
        "member_leave leave": {"changed": False, "broken_members": []},
    }
    _, steps = run(playbook, tmp_path, {**RESULTS, **found}, mode="Binary")
    last = given(steps, "member_join")[-1]
    assert (last["stage"], last["broken"], last["on_broken_member"]) == ("reasons", LATE, "tell")
    assert steps[-1] == {**REPORT, "broken_members": explained}


def test_where_nothing_is_broken_the_run_succeeds(tmp_path: Path) -> None:
    well = {
        **{name: {**each, "broken_members": []} for name, each in RESULTS.items()},
        "report": {**RESULTS["report"], "failure": ""},
    }
    done, steps = run("members", tmp_path, well)
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps[-1]["broken_members"] == []


def test_a_user_may_have_it_refused_and_the_check_alone_refuses_it(tmp_path: Path) -> None:
    refused = {"preflight": {"failed": True, "msg": "1 problem; nothing was changed"}}
    done, steps = run("members", tmp_path, refused, "-e", "karmada_on_broken_member=fail")
    assert given(steps, "preflight")[0]["on_broken_member"] == "fail"
    assert given(steps, "member_join") == []
    assert done.returncode == 2


def test_the_check_alone_fails_for_a_broken_member(tmp_path: Path) -> None:
    _, steps = run("preflight", tmp_path, RESULTS)
    assert given(steps, "preflight")[0]["on_broken_member"] == "fail"


CHOSEN = {
    "join": (["member_join all"], ["member_leave confirm", "member_leave leave", "scheduler_estimators"]),
    "leave": (["member_leave confirm", "member_leave leave"], ["member_join all", "scheduler_estimators"]),
    "estimators": (["scheduler_estimators"], ["member_join all", "member_leave confirm", "member_leave leave"]),
}
GATEWAY = {"gw1": {"ansible_connection": "local", "karmada_host": {"name": "gw1", "roles": ["agent"]}}}


@pytest.mark.parametrize("tag", CHOSEN)
def test_in_pods_a_tag_chooses_what_is_done_for_members(tag: str, tmp_path: Path) -> None:
    done, steps = run("members", tmp_path, RESULTS, "--tags", tag)
    wanted, others = CHOSEN[tag]
    assert [name for name in named(steps) if name in {*wanted, *others}] == wanted, done.stdout + done.stderr
    # Nothing of what every run needs is left out.
    assert {"require_document", "preflight", "report"} <= set(named(steps))
    assert [each["state"] for each in given(steps, "journal")] == ["closed", "released"]


@pytest.mark.parametrize("tag", CHOSEN)
def test_on_hosts_a_tag_chooses_what_is_done_for_members(tag: str, tmp_path: Path) -> None:
    there = {"has_agents_on_hosts": True}
    results = {
        **{name: {**result, **there} if name.startswith("member_") else result for name, result in RESULTS.items()},
        "scheduler_estimators": {"changed": True, "due": True},
    }
    done, steps = run("members", tmp_path, results, "--tags", tag, mode="Binary", hosts=GATEWAY)
    wanted = {"join": ["member_join registration", "member_join readiness"]}.get(tag, CHOSEN[tag][0])
    others = {
        "member_join registration",
        "member_join readiness",
        *(name for each in CHOSEN.values() for name in each[0]),
    }
    assert [name for name in named(steps) if name in others] == wanted, done.stdout + done.stderr
    assert {"require_document", "host_observe", "preflight", "report"} <= set(named(steps))
    written = [each["state"] for each in given(steps, "journal")]
    assert (written[-1], given(steps, "journal")[-1]["write"]) == ("released", True)
    # Which image a program came out of is on record before a host has it.
    told = [name for name in named(steps) if name in ("programs", "journal", "host_programs")]
    for place in (place for place, name in enumerate(told) if name == "host_programs"):
        assert told[place - 2 : place] == ["programs", "journal"]
    units = [each["components"] for each in given(steps, "host_components") if "components" in each]
    assert (
        units
        == {
            "join": [["karmada-agent"], ["karmada-agent"]],
            "leave": [["karmada-agent"]],
            "estimators": [["karmada-scheduler-estimator"]],
        }[tag]
    )


@pytest.mark.parametrize("mode", ["Container", "Binary"])
def test_an_installation_has_no_part_that_a_tag_could_choose(mode: str, tmp_path: Path) -> None:
    """Members would leave without a check, without the lock, and without being asked twice."""
    done, steps = run("install", tmp_path, RESULTS, "--tags", ",".join(CHOSEN), mode=mode)
    assert steps == [], done.stdout + done.stderr


ROLE = """\
- hosts: karmada_in_pods:karmada_on_hosts
  gather_facts: false
  vars: {preflight_result: {broken_members: []}}
  tasks:
    - ansible.builtin.include_role: {name: karmada.installer.NAME}
"""
PLACES = {
    "control_plane": {"Container": "workloads", "Binary": "host_components"},
    "members": {"Container": "member_join all", "Binary": "member_join registration"},
    "uninstall": {"Container": "uninstall components", "Binary": "hosts_leaving"},
}


@pytest.mark.parametrize("mode", ["Container", "Binary"])
@pytest.mark.parametrize("role", PLACES)
def test_a_role_does_its_work_in_the_place_of_the_document(role: str, mode: str, tmp_path: Path) -> None:
    due = {"journal": {"changed": False, "due": True}, "uninstall": {"changed": False, "installed": False}}
    hosts = {"cp1": {"ansible_connection": "local", "karmada_host": {"name": "cp1"}}} if mode == "Binary" else None
    play = ROLE.replace("NAME", role)
    done, steps = run(play, tmp_path, {**RESULTS, **due}, mode=mode, hosts=hosts, grouped=mode == "Binary")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(PLACES[role].values()) & set(named(steps)) == {PLACES[role][mode]}


@pytest.mark.parametrize("mode", ["Container", "Binary"])
def test_stages_of_a_control_plane_have_one_order(mode: str, tmp_path: Path) -> None:
    due = {"journal": {"changed": False, "due": True}}
    _, steps = run("install", tmp_path, {**RESULTS, **due}, mode=mode)
    order = ["rights", "foundation", "aggregation", "admission", "discovery", "addons"]
    done = [each["stage"] for each in given(steps, "control_plane") if each["stage"] != "withdrawal"]
    # On hosts the last one is waited for when its units have answered.
    assert done == (order if mode == "Container" else [*order, "addons"])


@pytest.mark.parametrize("limit", ["m1", "karmada_members:!m2", "karmada_control:m1"])
def test_a_limit_chooses_members(limit: str, tmp_path: Path) -> None:
    done, steps = run("members", tmp_path, RESULTS, "--limit", limit)
    assert named(steps) == [
        *("require_document", "preflight", "member_leave confirm", "member_join all", "scheduler_estimators"),
        *("member_leave leave", "journal", "journal", "report"),
    ], done.stdout + done.stderr
    assert given(steps, "require_document")[0]["limit"] == "members"
    assert [each["selected"] for each in steps[1:]] == [["m1"]] * (len(steps) - 1)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("Container", []),
        ("Container", ["-e", "karmada_members=m2"]),
        ("Binary", []),
        ("Binary", ["-e", '{"karmada_members": ["m2"]}']),
    ],
)
def test_members_are_chosen_by_name_in_both_modes(options: list[str], mode: str, tmp_path: Path) -> None:
    done, steps = run("members", tmp_path, RESULTS, *options, mode=mode)
    joining = given(steps, "member_join")
    assert [each["selected"] for each in joining] == [["m2"] if options else []] * len(joining), done.stdout
    assert joining


@pytest.mark.parametrize(
    ("playbook", "limit"),
    [
        *((playbook, "gw1") for playbook in ("install", "uninstall", "preflight", "members", "break_glass")),
        ("install", "m1"),
        ("install", "karmada_control"),
    ],
)
def test_whatever_the_limit_is_somebody_looks_at_it(playbook: str, limit: str, tmp_path: Path) -> None:
    refused = {**RESULTS, "require_document": {"failed": True, "msg": "it leaves out gw1"}}
    done, steps = run(playbook, tmp_path, refused, "--limit", limit, mode="Binary", hosts=GATEWAY)
    assert named(steps) == ["require_document"]
    assert done.returncode == 2


@pytest.mark.parametrize("mode", ["Container", "Binary"])
def test_the_administrator_gets_a_kubeconfig_when_the_rights_are_there(mode: str, tmp_path: Path) -> None:
    """Or one who has the kubeconfig of an earlier version would lose them for as long as the run takes."""
    due = {**RESULTS, "journal": {"changed": True, "due": True}, "host_components": {"changed": True}}
    done, steps = run("install", tmp_path, due, mode=mode)
    order = [each["step"] + str(each.get("stage", "")) for each in steps]
    assert order.index("control_planerights") < order.index("admin_kubeconfig"), done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["Container", "Binary"])
def test_breaking_the_glass_looks_at_hosts_and_writes_one_file(mode: str, tmp_path: Path) -> None:
    options = ["-e", "karmada_confirm=prod", "-e", "karmada_break_glass_output=/run/x"]
    done, steps = run(
        "break_glass", tmp_path, RESULTS, *options, mode=mode, hosts=GATEWAY if mode == "Binary" else None
    )
    assert done.returncode == 0, done.stdout + done.stderr
    looked = ["host_observe"] if mode == "Binary" else []
    assert [each for each in named(steps) if each not in ("require_document", "ssh_files")] == [*looked, "break_glass"]
    last = steps[-1]
    assert (last["confirm"], last["path"], last["validity"]) == ("prod", "/run/x", "1h")


@pytest.mark.parametrize(
    ("playbook", "restarts", "waiting"),
    [
        ("install", ["karmada-search"], []),
        ("members", ["karmada-search"], ["m2"]),
        # Killed after the restart.
        ("members", [], ["m2"]),
    ],
)
def test_on_hosts_what_holds_former_connections_starts_again_host_after_host_before_agents_come(
    playbook: str, restarts: list[str], waiting: list[str], tmp_path: Path
) -> None:
    changed = {**RESULTS["member_join"], "restarts": restarts, "without_agent": waiting, "has_agents_on_hosts": True}
    agents = {**RESULTS["member_join"], "broken_members": [*BROKEN, *LATE], "has_agents_on_hosts": True}
    two = {name: {"ansible_connection": "local", "karmada_host": {"name": name}} for name in ("cp1", "cp2")}
    hosts = {**two, **GATEWAY}
    results = {**RESULTS, "member_join registration": changed, "member_join agents": agents}
    done, steps = run(playbook, tmp_path, results, mode="Binary", hosts=hosts, grouped=True)
    told = [f"{each['step']} {each.get('stage', each.get('event', ''))}".strip() for each in steps]
    again = [place for place, each in enumerate(steps) if each.get("components") == restarts]
    assert len(again) == (3 if restarts else 0), done.stdout
    ended, come = told.index("journal restarted"), told.index("member_join agents")
    assert all(place < ended for place in again)
    assert ended < come < told.index("member_join readiness")
    assert steps[come]["broken"] == BROKEN
    units = [place for place, each in enumerate(steps) if each.get("components") == ["karmada-agent"]]
    assert come < units[0], "agents of hosts run when their members are prepared"
    assert "written" in [each["state"] for each in given(steps[come : units[0]], "journal")]
    assert given(steps, "member_join")[-1]["broken"] == [*BROKEN, *LATE]


@pytest.mark.parametrize("playbook", ["install", "members"])
def test_on_hosts_it_is_written_what_is_to_start_again_before_anything_changes(playbook: str, tmp_path: Path) -> None:
    first = {**RESULTS["member_join"], "changed": False, "to_note": True, "restarts": ["karmada-search"]}
    hosts = {"cp1": {"ansible_connection": "local", "karmada_host": {"name": "cp1"}}}
    results = {**RESULTS, "member_join registration": first}
    _, steps = run(playbook, tmp_path, results, mode="Binary", hosts=hosts, grouped=True)
    told = [f"{each['step']} {each.get('stage', each.get('state', ''))}".strip() for each in steps]
    noting, registering = (place for place, each in enumerate(told) if each == "member_join registration")
    assert told[noting + 1 : registering] == ["journal written"]
    assert [steps[place].get("noted") for place in (noting, registering)] == [False, True]
    assert steps[registering]["broken"] == BROKEN


def test_on_hosts_nothing_starts_again_where_no_connection_has_changed(tmp_path: Path) -> None:
    unchanged = {**RESULTS["member_join"], "restarts": [], "without_agent": []}
    _, steps = run("members", tmp_path, {**RESULTS, "member_join registration": unchanged}, mode="Binary")
    assert "agents" not in {each.get("stage") for each in steps}
    assert "restarted" not in {each.get("event") for each in steps}


def test_playbooks_of_a_checkout_bring_their_collection_along_from_any_directory(tmp_path: Path) -> None:
    (tmp_path / "prod.karmada.yml").write_text(
        "plugin: karmada.installer.karmada\nname: prod\nnamespace: prod\nkubeconfig: nowhere\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    playbook = COLLECTION.parents[3] / "playbooks" / "report.yml"
    command = [shutil.which("ansible-playbook") or "", "-i", "prod.karmada.yml", str(playbook)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "kubeconfig: there is no file nowhere" in ran.stdout
    assert not ran.stderr


@pytest.mark.parametrize("mode", ["Container", "Binary"])
@pytest.mark.parametrize("playbook", ["restore", "restore_undo", "restore_cleanup", "release", "hand_over"])
def test_however_a_restore_ends_it_is_written_how_far_it_came_and_others_may_write(
    playbook: str, mode: str, tmp_path: Path
) -> None:
    refused = {"failed": True, "msg": "it cannot be done"}
    hosts = GATEWAY if mode == "Binary" else None
    results = {**RESULTS, "restore": refused, "hand_over": refused}
    done, steps = run(playbook, tmp_path, results, mode=mode, hosts=hosts, grouped=bool(hosts))
    assert done.returncode != 0, done.stdout
    assert "it cannot be done" in done.stdout
    on_hosts = ["journal written", "journal released", "journal released", "hosts_outcome"]
    end = on_hosts if hosts else ["journal released"]
    assert [" ".join(filter(None, (each["step"], each.get("state")))) for each in steps[-len(end) :]] == end
