# SPDX-License-Identifier: Apache-2.0
"""Everything that changes a host asks the lock in the name of its run; a check asks nobody, and writes nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.action import host_programs, journal
from ansible_collections.karmada.installer.plugins.module_utils import host_lock, host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_lock import LockedError
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.modules import _etcd_change as etcd_change
from ansible_collections.karmada.installer.plugins.modules import _etcd_room as etcd_room
from ansible_collections.karmada.installer.plugins.modules import _etcd_snapshot as etcd_snapshot
from ansible_collections.karmada.installer.plugins.modules import _host_program_files as host_program_files
from ansible_collections.karmada.installer.plugins.modules import _host_restore as host_restore
from ansible_collections.karmada.installer.plugins.modules import _host_state as host_state_module
from ansible_collections.karmada.installer.plugins.modules import _host_tree as host_tree
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_action
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock import ANNA, BEN
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host, tree
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

Object = dict[str, Any]
ROOT = Path(__file__).parents[4]
PROGRAM = b"a program"
STATE = Stored(1, {"key": base64.b64encode(b"1").decode()}).plain


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def on(module: Any, host: System, holder: str, check: bool, **wanted: Any) -> Object:
    """What a module does on a host, with what it is given beside name and holder."""
    found: Any = module._perform(host, {"name": "prod", "holder": holder, **wanted}, check)
    return found


def tree_step(state: str) -> Callable[[Host, str, bool], Object]:
    wanted = {"tree": json.dumps({**tree(config="a"), "held": []}), "state": state, "restart": True}

    def step(host: Host, holder: str, check: bool) -> Object:
        changes: list[Any] = []
        of_module = {"name": "prod", "holder": holder, "wait_for": "all", "timeout": 60, **wanted}
        return host_tree._perform(host, of_module, check, changes) | {"changed": bool(changes)}

    return step


def program_step(state: str) -> Callable[[Host, str, bool], Object]:
    def step(host: Host, holder: str, check: bool) -> Object:
        arrived = Path(host.root).with_name("arrived")
        arrived.write_bytes(PROGRAM)
        checksum = hashlib.sha256(PROGRAM).hexdigest()
        programs = [{"path": "/usr/local/lib/karmada/v1/etcd", "sha256": checksum}]
        return on(
            host_program_files, host, holder, check, state=state, programs=programs, arrived={checksum: str(arrived)}
        )

    return step


def state_step(state: str) -> Callable[[Host, str, bool], Object]:
    return lambda host, holder, check: on(
        *(host_state_module, host, holder, check),
        state=state,
        content=json.dumps(STATE),
        dead_holder="",
        expected="",
        silence=600,
    )


def etcd_step(state: str) -> Callable[[Host, str, bool], Object]:
    wanted = {"state": state, "url": "https://192.0.2.1:2379", "folder": "/etc/none", "identity": "a", "peer_url": ""}
    return lambda host, holder, check: on(etcd_change, host, holder, check, **wanted, seconds=0)


def snapshot_step(state: str) -> Callable[[Host, str, bool], Object]:
    wanted = {"state": state, "url": "https://192.0.2.1:2379", "folder": "/etc/none", "reader": "root"}
    return lambda host, holder, check: on(etcd_snapshot, host, holder, check, **wanted)


def room_step(state: str) -> Callable[[Host, str, bool], Object]:
    wanted = {"state": state, "url": "https://192.0.2.1:2379", "folder": "/etc/none", "revision": 7, "member": "a"}
    return lambda host, holder, check: on(etcd_room, host, holder, check, **wanted)


def restore_step(state: str) -> Callable[[Host, str, bool], Object]:
    texts = dict.fromkeys(("digest", "program", "url", "authority", "certificate", "key", "certificates"), "")
    numbers = dict.fromkeys(("size", "room", "revision"), 0)
    wanted = {**texts, **numbers, "state": state, "folder": "/etc/none", "user": "root", "reader": "root"}
    others: Object = {"units": [], "flags": [], "prefixes": {}, "member": None, "admission": None}
    others |= {"aside": ["gen-1"], "used": ""}
    return lambda host, holder, check: on(host_restore, host, holder, check, **wanted, **others)


#: Module and state → a step that has it do that on a host.
STEPS = {
    **{f"_host_tree {state}": tree_step(state) for state in ("present", "stopped", "absent", "held")},
    **{f"_host_program_files {state}": program_step(state) for state in ("present", "absent")},
    **{f"_host_state {state}": state_step(state) for state in ("kept", "written", "absent")},
    **{f"_etcd_change {state}": etcd_step(state) for state in ("added", "promoted", "removed", "led")},
    **{f"_etcd_room {state}": room_step(state) for state in ("compacted", "defragmented", "disarmed")},
    **{f"_etcd_snapshot {state}": snapshot_step(state) for state in ("taken", "absent")},
    **{
        f"_host_restore {state}": restore_step(state)
        for state in ("seen", "expected", "made", "absent", "copied", "counted", "listed", "removed", "restarted")
    },
}
#: What asks nobody for the lock, and why.
WITHOUT_LOCK = {
    "_host_state read": "changes nothing",
    "_host_state locked": "takes the lock",
    "_host_state released": "gives the lock back if it is the holder's",
}


def files_of(host: Host) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(host.root).rglob("*")) if path.is_file()}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What etcd and etcdutl were asked for, which are not here; and only root may give files to root."""
    found: list[str] = []

    def note(name: str, answer: Object) -> Callable[..., Object]:
        def of(*_arguments: Any, **_more: Any) -> Object:
            found.append(name)
            return dict(answer)

        return of

    def post(path: str, *_arguments: Any) -> Object:
        found.append(path)
        return {}

    monkeypatch.setattr("os.chown", lambda *_arguments: None)
    monkeypatch.setattr(etcd_change.etcd_member, "poster", lambda *_arguments: post)
    monkeypatch.setattr(etcd_change.etcd_member, "change", note("change", {"changed": True}))
    monkeypatch.setattr(etcd_snapshot.host_snapshot, "take", note("take", {"size": 1}))
    for name in ("look", "expect", "make", "copy", "content", "restart"):
        monkeypatch.setattr(host_restore.host_restore, name, note(name, {}))
    monkeypatch.setattr(host_restore.host_old_data, "remove", note("remove", {}))
    monkeypatch.setattr(host_restore.host_old_data, "look", note("list", {}))
    return found


def states_of(module: str) -> list[str]:
    """States that a module takes, as its documentation has them."""
    source = (ROOT / f"plugins/modules/{module}.py").read_text()
    (text,) = re.findall(r'^DOCUMENTATION = r"""\n(.*?)^"""', source, re.DOTALL | re.MULTILINE)
    return [f"{module} {state}" for state in yaml.safe_load(text)["options"]["state"]["choices"]]


def test_every_state_of_every_module_that_changes_a_host_is_among_the_steps() -> None:
    """So a module or a state that is new is tried without the lock, or has a reason."""
    every = [state for module in (*host_action.CHANGING_MODULES, "_host_state") for state in states_of(module)]
    assert sorted([*STEPS, *WITHOUT_LOCK]) == sorted(every)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("has_it", [BEN, ""])
def test_what_changes_a_host_is_refused_without_the_lock_and_has_changed_nothing(
    host: Host, name: str, has_it: str, asked: list[str]
) -> None:
    if has_it:
        host_lock.take(host, "prod", has_it)
    # There is something to take away, too.
    host_state.write_state(host, "prod", Stored(1, {"key": ""}).plain, "")
    before = files_of(host)
    with pytest.raises(LockedError, match="lost the lock of prod") as error:
        STEPS[name](host, ANNA, False)
    assert error.value.holder == has_it
    assert files_of(host) == before
    assert host.commands == []
    assert asked == []


@pytest.mark.parametrize("name", STEPS)
def test_what_changes_a_host_renews_the_lock(host: Host, name: str, asked: list[str]) -> None:
    before = host_lock.clock() - host_lock.LOCK_SILENCE - 1
    host_lock.take(host, "prod", ANNA, now=before)
    STEPS[name](host, ANNA, False)
    # It does get that far with the lock: else to be refused without it would say nothing.
    assert bool(asked) == (name.startswith(("_etcd", "_host_restore")) and not name.endswith("absent"))
    with pytest.raises(LockedError, match=f"{ANNA} is working on prod"):
        host_lock.take(host, "prod", BEN)


def test_who_lets_go_of_a_host_writes_the_state_before_and_lets_go_where_that_fails(host: Host) -> None:
    host_lock.take(host, "prod", ANNA)
    state_step("released")(host, ANNA, False)
    assert host_state.read_state(host, "prod")["digest"] == STATE["digest"]
    host_lock.take(host, "prod", BEN)
    # Something else is there than this run has seen.
    other = Stored(2, {"key": base64.b64encode(b"2").decode()}).plain
    with pytest.raises(HostError):
        on(host_state_module, host, BEN, False, state="released", content=json.dumps(other), expected="")
    host_lock.take(host, "prod", ANNA)
    # Whoever has lost it writes nothing, and lets go of nothing.
    with pytest.raises(LockedError):
        state_step("released")(host, BEN, False)
    with pytest.raises(LockedError, match=f"{ANNA} is working on prod"):
        host_lock.take(host, "prod", BEN)


@pytest.mark.parametrize("name", [*STEPS, "_host_state locked", "_host_state released"])
@pytest.mark.parametrize("has_it", [BEN, ""])
def test_a_check_takes_no_lock_asks_for_none_and_writes_nothing(host: Host, name: str, has_it: str) -> None:
    if has_it:
        host_lock.take(host, "prod", has_it)
    before = files_of(host)
    if name == "_host_state locked":
        looked_at = {"address": "127.0.0.1", "folders": [], "virtual_ip": ""}
        on(host_state_module, host, ANNA, True, state="locked", dead_holder="", **looked_at)
    else:
        {**STEPS, "_host_state released": state_step("released")}[name](host, has_it or ANNA, True)
    assert files_of(host) == before


def test_who_waits_for_units_renews_the_lock_and_ends_when_it_is_lost(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed, and what it has begun waits on: whoever comes next need not wait for that."""
    host_lock.take(host, "prod", ANNA)
    now, looks = [host_lock.clock()], []
    monkeypatch.setattr(host_lock, "clock", lambda: now[0])

    def unhealthy(_health: Object) -> str:
        looks.append(now[0])
        assert len(looks) < 10, "it waits on"
        now[0] += host_lock.LOCK_SILENCE / 2
        if len(looks) == 5:
            host_lock.take(host, "prod", BEN, dead=ANNA)
        return "not yet"

    monkeypatch.setattr(host_tree.host_tree, "reason_unhealthy", unhealthy)
    monkeypatch.setattr(host_tree.host_tree.time, "sleep", lambda _seconds: None)
    wanted = {**tree(url="http://127.0.0.1:1/readyz"), "held": []}
    with pytest.raises(LockedError, match=f"{BEN} has it"):
        host_tree._perform(
            host,
            {
                "name": "prod",
                "holder": ANNA,
                "tree": json.dumps(wanted),
                "state": "present",
                "restart": True,
                "wait_for": "all",
                "timeout": 3600,
            },
            False,
            [],
        )
    # Four looks later than the silence of a dead one, it was its own yet.
    assert len(looks) == 5


# -- on the controller -------------------------------------------------------------------------------------------------


class Asking:
    """An action on the first host of a run, with what it has modules do in the place of doing it."""

    def __init__(self, action: type[HostAction], runs: Runs, *, check: bool = False) -> None:
        self.asked: list[Object] = []
        self.answer: Object = {"changed": False, "changes": []}
        self.action: Any = action.__new__(action)
        self.action.karmada, self.action.variables = runs.step(), {"inventory_hostname": "cp1"}
        self.action._task = task("journal", check_mode=check)
        self.action._task.delegate_to = None
        self.action._execute_module = self._execute

    def _execute(self, *, module_name: str, module_args: Object, task_vars: Object) -> Object:
        del task_vars
        checks = self.action._task.check_mode
        self.asked.append({"module": module_name.rpartition(".")[2], "checks": checks, **module_args})
        return dict(self.answer)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "run")


@pytest.mark.parametrize("module", host_action.CHANGING_MODULES)
def test_actions_have_hosts_changed_in_the_name_of_their_run(runs: Runs, module: str) -> None:
    asking = Asking(journal.OnHost, runs)
    asking.action.on_host(module, state="present")
    (asked,) = asking.asked
    assert (asked["name"], asked["holder"]) == ("prod", "me@here")


def test_no_other_module_that_runs_on_hosts_changes_them() -> None:
    """One that is new belongs to CHANGING_MODULES, or never writes, or nothing but backups, which no lock is for."""
    reading = {"_host_log", "_host_reach", "_etcd_member"}
    on_hosts = {path.stem for path in (ROOT / "plugins/modules").glob("*.py") if "AnsibleModule(" in path.read_text()}
    on_hosts -= {"_backup_folder"}
    assert on_hosts == {*host_action.CHANGING_MODULES, "_host_state", *reading}
    called = {
        name
        for path in (ROOT / "plugins/action").glob("*.py")
        for name in re.findall(r'on_host\(\s*"([\w.]+)"', path.read_text())
    }
    assert called == on_hosts | {"ansible.builtin.stat"}


def test_a_lock_is_renewed_when_no_step_has_for_a_while(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50000.0]
    monkeypatch.setattr(host_lock, "clock", lambda: now[0])
    asking = Asking(journal.OnHost, runs)
    kept = [{"module": "_host_state", "checks": False, "name": "prod", "holder": "me@here", "state": "kept"}]

    def keep() -> list[Object]:
        asking.asked.clear()
        assert asking.action.perform({"state": "kept", "required": True}) == {"changed": False}
        return list(asking.asked)

    asking.action.on_host("_host_tree", state="present")
    now[0] += host_action.RENEW_SECONDS - 1
    assert keep() == []
    now[0] += 1
    assert keep() == kept
    assert keep() == []
    now[0] += host_action.RENEW_SECONDS
    asking.action._task.check_mode = True
    assert keep() == []
    asking.action._task.check_mode = False
    runs.see(**{HOSTS[0]["name"]: {"refusal": "no route to host"}})
    assert keep() == []
    runs.see(**{HOSTS[0]["name"]: {"refusal": ""}})
    asking.answer = {"failed": True, "msg": "this run has lost the lock"}
    found = asking.action.perform({"state": "kept", "required": True})
    assert (found["failed"], found["msg"]) == (True, "this run has lost the lock")
    assert host_action.RENEW_SECONDS < host_lock.LOCK_SILENCE / 4


def test_a_lock_is_renewed_for_long_work_however_lately_it_was(runs: Runs, host: Host) -> None:
    asking = Asking(journal.OnHost, runs)
    asking.action.on_host("_host_tree", state="present")
    asking.asked.clear()
    assert asking.action.perform({"state": "kept", "silence": 3000, "required": True}) == {"changed": False}
    (asked,) = asking.asked
    assert (asked["state"], asked["silence"]) == ("kept", 3000)
    # On the host that counts until the next step of the run.
    host_lock.take(host, "prod", ANNA)
    on(host_state_module, host, ANNA, False, state="kept", silence=3000)
    assert lock_of(host)["silence"] == 3000
    state_step("written")(host, ANNA, False)
    assert lock_of(host)["silence"] == host_lock.LOCK_SILENCE


def lock_of(host: Host) -> Object:
    found: Object = json.loads(host.path(f"{host_lock.LOCK_FOLDER}/prod.lock").read_text())
    return found


@pytest.mark.parametrize("lost", [False, True])
def test_sending_programs_renews_the_lock_between_them_and_ends_when_it_is_lost(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    now = [50000.0]
    monkeypatch.setattr(host_lock, "clock", lambda: now[0])
    lacking = {f"/usr/local/lib/karmada/v1/{name}": {"sha256": name, "file": f"/cache/{name}"} for name in "abcd"}
    runs.see(**{HOSTS[0]["name"]: {"lacking": lacking, "programs": {}}})
    asking = Asking(host_programs.ActionModule, runs)
    if lost:
        asking.answer = {"failed": True, "msg": "this run has lost the lock"}
    sent = []

    def send(file: Path) -> str:
        now[0] += host_action.RENEW_SECONDS / 2
        sent.append(file.name)
        return f"/tmp/{file.name}"

    asking.action._send = send
    runs.see(**{HOSTS[0]["name"]: {"renewed": now[0]}})
    found = asking.action.perform({"state": "present"})
    if lost:
        assert (found["msg"], sent) == ("this run has lost the lock", ["a", "b"])
        assert [each["module"] for each in asking.asked] == ["_host_state"]
    else:
        assert sent == ["a", "b", "c", "d"]
        assert [each["module"] for each in asking.asked] == ["_host_state", "_host_program_files"]
