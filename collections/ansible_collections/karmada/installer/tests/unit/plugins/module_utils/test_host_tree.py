# SPDX-License-Identifier: Apache-2.0
"""What a host does with a tree: change the difference, restart what runs with something older, leave the rest alone."""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_system, host_tree
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import Tree
from ansible_collections.karmada.installer.plugins.modules import _host_tree as host_tree_module
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port

OWNER = "5f0c3f0e-54a1-4a53-b7de-4ffb0a7c7a51"
UNIT = "karmada-prod-scheduler.service"
USER = "karmada-prod-scheduler"
FOLDER = "/etc/karmada/prod/karmada-scheduler"


class Host(host_system.System):
    """A host with a systemd that does what it is told. Restarted units run with the hash that is in their file."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.users: dict[str, str] = {"root": ""}
        self.loaded: dict[str, str] = {}
        self.running: dict[str, str] = {}
        self.enabled: set[str] = set()
        self.commands: list[str] = []
        self.restarts: dict[str, int] = {}
        self.invocations: dict[str, str] = {}
        #: how many more looks find a unit that systemd has not done with
        self.looks_in_transition = 0
        (root / "etc/systemd/system").mkdir(parents=True)

    def user_ids(self, name: str) -> list[int] | None:
        return [os.getuid(), os.getgid()] if name in self.users else None

    def user_comment(self, name: str) -> str | None:
        return self.users.get(name)

    def started_with(self, process: int) -> str:
        return list(self.running.values())[process - 1]

    def unit_file(self, name: str) -> Path:
        return self.path(f"/etc/systemd/system/{name}")

    def command(self, *arguments: str) -> str:
        words = list(arguments)
        self.commands.append(" ".join(words))
        names = words[words.index("--") + 1 :] if "--" in words else []
        if words[0] == "useradd":
            self.users[words[-1]] = words[words.index("--comment") + 1]
        elif words[0] == "userdel":
            del self.users[words[-1]]
        elif words[0] == "journalctl":
            return "panic: no configuration\n"
        elif words[1] == "show":
            return "\n\n".join(self._shown(name) for name in names)
        elif words[1] == "daemon-reload":
            units = self.path("/etc/systemd/system").glob("*.service")
            self.loaded = {path.name: path.read_text() for path in units}
        elif words[1] == "enable":
            self.enabled.update(names)
        elif words[1] == "disable":
            self.enabled.difference_update(names)
            for name in names:
                self.running.pop(name, None)
        elif words[1] == "reload" and not set(names) <= self.running.keys():
            raise host_system.HostError("reload is not applicable")
        elif words[1] == "restart":
            for name in names:
                text = self.loaded[name]
                self.invocations[name] = f"{name}-{len(self.commands)}"
                self.running[name] = text.split(f"{host_system.HASH_VARIABLE}=")[1].split('"')[0]
        return ""

    def _job(self) -> str:
        self.looks_in_transition -= 1
        return "4711" if self.looks_in_transition >= 0 else ""

    def _shown(self, name: str) -> str:
        path = self.unit_file(name)
        outdated = name in self.loaded and path.exists() and path.read_text() != self.loaded[name]
        return "\n".join(
            (
                f"Id={name}",
                f"LoadState={'loaded' if name in self.loaded else 'not-found'}",
                f"ActiveState={'active' if name in self.running else 'inactive'}",
                "SubState=running",
                "Result=success",
                "ExecMainStatus=0",
                f"UnitFileState={'enabled' if name in self.enabled else 'disabled'}",
                f"NeedDaemonReload={'yes' if outdated else 'no'}",
                f"MainPID={list(self.running).index(name) + 1 if name in self.running else 0}",
                f"InvocationID={self.invocations.get(name, '')}",
                f"NRestarts={self.restarts.get(name, 0)}",
                f"Job={self._job()}",
            )
        )


def file(path: str, content: str, *, secret: bool = False, mode: int = 0o600) -> dict[str, Any]:
    encoded = base64.b64encode(content.encode()).decode()
    return {"path": path, "content": encoded, "user": "root", "mode": mode, "secret": secret}


NOTHING: dict[str, list[Any]] = {"units": [], "folders": [], "users": []}


def tree(digest: str = "aaa", url: str = "", **files: str) -> Tree:
    unit = f'[Unit]\nX-KarmadaOwner={OWNER}\n[Service]\nEnvironment="{host_system.HASH_VARIABLE}={digest}"\n'
    return {
        "owner": OWNER,
        "users": [{"name": USER, "home": "/nonexistent", "comment": f"Karmada prod {OWNER}"}],
        "directories": [
            *({"path": path, "user": "root", "mode": 0o755} for path in ("/etc/karmada", "/etc/karmada/prod")),
            {"path": FOLDER, "user": USER, "mode": 0o700},
        ],
        "files": [
            *(file(f"{FOLDER}/{name}", content, secret=name == "key") for name, content in files.items()),
            file(f"/etc/systemd/system/{UNIT}", unit, mode=0o644),
        ],
        "folders": [FOLDER],
        "data_folders": [],
        "units": [{"name": UNIT, "hash": digest, "health": {"url": url, "authority": ""} if url else None}],
        "absent": NOTHING,
    }


def said(changes: list[host_tree.Change]) -> list[str]:
    return [change.what for change in changes]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_an_empty_host_becomes_what_the_tree_says_and_a_second_time_nothing_happens(host: Host) -> None:
    first = said(host_tree.converge(host, tree(config="a")))
    assert first == [
        f"create user {USER}",
        "create directory /etc/karmada",
        "create directory /etc/karmada/prod",
        f"create directory {FOLDER}",
        f"create {FOLDER}/config",
        f"create /etc/systemd/system/{UNIT}",
        f"enable {UNIT}",
        f"start {UNIT}",
    ]
    assert host.path(f"{FOLDER}/config").read_text() == "a"
    assert host.path(FOLDER).stat().st_mode & 0o777 == 0o700
    host.commands.clear()
    assert host_tree.converge(host, tree(config="a")) == []
    assert [command.split()[1] for command in host.commands] == ["show"]


def test_check_mode_says_the_same_and_does_nothing(host: Host) -> None:
    told = said(host_tree.converge(host, tree(config="a"), check=True))
    assert not host.path("/etc/karmada").exists()
    assert host.commands == []
    done = said(host_tree.converge(host, tree(config="a")))
    assert [each for each in done if not each.startswith("enable")] == told
    assert said(host_tree.converge(host, tree("bbb", config="b"), check=True)) == [
        f"change {FOLDER}/config",
        f"change /etc/systemd/system/{UNIT}",
        f"restart {UNIT}",
    ]
    assert host.path(f"{FOLDER}/config").read_text() == "a"


def test_a_changed_file_restarts_the_unit_that_reads_it(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    assert said(host_tree.converge(host, tree("bbb", config="b"))) == [
        f"change {FOLDER}/config",
        f"change /etc/systemd/system/{UNIT}",
        f"restart {UNIT}",
    ]
    assert host.running[UNIT] == "bbb"


def test_what_was_started_just_now_is_not_old_although_its_process_is_systemd_s_for_a_moment(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    host.running[UNIT] = ""
    assert host_tree.outdated(host, tree("aaa", config="a")) == [UNIT]
    assert host_tree.outdated(host, tree("aaa", config="a"), started=[UNIT]) == []


def test_a_run_killed_between_writing_and_restarting_is_made_up_for(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    changed = tree("bbb", config="b")
    host_tree._files(host, changed, False)  # and then the power went
    assert said(host_tree.converge(host, changed)) == [f"restart {UNIT}"]
    assert host.running[UNIT] == "bbb"


def test_a_unit_that_was_stopped_or_disabled_by_hand_comes_back(host: Host) -> None:
    host_tree.converge(host, tree())
    host.running.clear()
    host.enabled.clear()
    assert said(host_tree.converge(host, tree())) == [f"enable {UNIT}", f"start {UNIT}"]


def test_what_the_tree_no_longer_names_goes_from_its_folders_and_from_nowhere_else(host: Host) -> None:
    host_tree.converge(host, tree(config="a", old="o"))
    elsewhere = host.path("/etc/karmada/prod/notes")
    elsewhere.write_text("mine")
    half = host.path(f"{FOLDER}/.config.x1y2")
    half.write_text("half a file of a run that was killed")
    assert sorted(said(host_tree.converge(host, tree(config="a")))) == [
        f"remove {FOLDER}/.config.x1y2",
        f"remove {FOLDER}/old",
    ]
    assert elsewhere.exists()


def test_data_is_never_surplus(host: Host) -> None:
    wanted = tree(config="a")
    wanted["directories"].append({"path": f"{FOLDER}/data", "user": "root", "mode": 0o700})
    wanted["folders"].append(f"{FOLDER}/data")
    wanted["data_folders"] = [f"{FOLDER}/data"]
    host_tree.converge(host, wanted)
    host.path(f"{FOLDER}/data/db").write_text("rows")
    wanted["folders"] = [f"{FOLDER}/data"]
    assert host_tree.converge(host, wanted) == []


def test_rights_that_were_loosened_are_mended(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    host.path(f"{FOLDER}/config").chmod(0o644)
    assert said(host_tree.converge(host, tree(config="a"))) == [f"set owner and mode of {FOLDER}/config"]
    assert host.path(f"{FOLDER}/config").stat().st_mode & 0o777 == 0o600


def test_a_secret_is_not_in_the_diff(host: Host) -> None:
    changes = host_tree.converge(host, tree(key="very secret", config="plain"))
    shown = " ".join(change.before + change.after for change in changes)
    assert "very secret" not in shown
    assert "plain" in shown


@pytest.mark.parametrize("check", [True, False])
def test_a_foreign_unit_or_user_of_the_same_name_is_refused_before_anything_is_changed(host: Host, check: bool) -> None:
    host.unit_file(UNIT).write_text("[Service]\nExecStart=/bin/somebody-elses\n")
    host.users[USER] = "somebody else"
    with pytest.raises(HostError, match=r"unit .* is not of this control plane; user .* is not of this control plane"):
        host_tree.converge(host, tree(config="a"), check=check)
    assert not host.path("/etc/karmada").exists()


def test_removing_takes_units_folders_and_users_of_the_owner_only(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    other = "karmada-other-scheduler.service"
    host.unit_file(other).write_text("[Unit]\nX-KarmadaOwner=somebody-else\n")
    wanted = tree(config="a")
    wanted["units"].append({"name": other, "hash": "", "health": None})
    assert said(host_tree.remove(host, wanted)) == [f"remove unit {UNIT}", f"remove {FOLDER}", f"remove user {USER}"]
    assert host.unit_file(other).exists()
    assert not host.unit_file(UNIT).exists()
    assert UNIT not in host.running
    assert USER not in host.users
    assert host_tree.remove(host, wanted) == []


def test_halves_of_units_of_a_host_that_lost_power_go_and_nothing_else_beside_them(host: Host) -> None:
    half, strange = (host.unit_file(f".{name}.a1b2c3") for name in (UNIT, "karmada-other-scheduler.service"))
    for step in (host_tree.converge, host_tree.remove):
        half.touch()
        strange.touch()
        assert f"remove /etc/systemd/system/.{UNIT}.a1b2c3" in said(step(host, tree()))
        assert not half.exists()
        assert strange.exists()


class _Health(BaseHTTPRequestHandler):
    answers: list[int]

    def do_GET(self) -> None:
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"[-]etcd failed: reason withheld" if status != 200 else b"ok")

    def log_message(self, *_arguments: Any) -> None:
        """Quiet."""


def test_a_full_disk_is_told_with_the_file_and_the_one_before_stays(host: Host, request: pytest.FixtureRequest) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    request.getfixturevalue("full_disk")
    with pytest.raises(HostError, match=f"{FOLDER}/config cannot be written: No space left on device"):
        host_tree.converge(host, tree("bbb", config="b"))
    assert [path.name for path in host.path(FOLDER).iterdir()] == ["config"]
    assert host.path(f"{FOLDER}/config").read_text() == "a"


@pytest.fixture
def health() -> Iterator[tuple[str, list[int]]]:
    answers = [200]
    handler = type("Handler", (_Health,), {"answers": answers})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/readyz", answers
    server.shutdown()
    server.server_close()


@pytest.fixture
def nobodys_port() -> Iterator[int]:
    with closed_port() as port:
        yield port


def test_waiting_ends_when_the_unit_answers(host: Host, health: tuple[str, list[int]]) -> None:
    url, answers = health
    wanted = tree(url=url)
    host_tree.converge(host, wanted)
    answers[:] = [500, 500, 200]
    host_tree.wait_until_healthy(host, wanted, timeout=60)
    assert answers == [200]


def test_the_answer_of_a_process_that_is_being_stopped_does_not_count(
    host: Host, health: tuple[str, list[int]]
) -> None:
    url, answers = health
    wanted = tree(url=url)
    host_tree.converge(host, wanted)
    host.looks_in_transition, answers[:] = 3, [200, 500]
    host_tree.wait_until_healthy(host, wanted, timeout=60)
    assert answers == [500], "it was asked once, when systemd had done with it"
    host.looks_in_transition = 100
    with pytest.raises(HostError, match="systemd is still stopping or starting it"):
        host_tree.wait_until_healthy(host, wanted, timeout=0.3)


def test_waiting_in_vain_says_which_unit_why_and_its_last_lines(host: Host, health: tuple[str, list[int]]) -> None:
    url, answers = health
    wanted = tree(url=url)
    host_tree.converge(host, wanted)
    answers[:] = [500]
    with pytest.raises(HostError) as error:
        host_tree.wait_until_healthy(host, wanted, timeout=0.3)
    for part in (UNIT, "active (running)", f"{url} answers 500", "etcd failed", "panic: no configuration"):
        assert part in str(error.value)


def test_a_unit_that_crashes_again_and_again_is_not_waited_for(host: Host, nobodys_port: int) -> None:
    wanted = tree(url=f"http://127.0.0.1:{nobodys_port}/readyz")
    host_tree.converge(host, wanted)

    class Crashing(Host):
        """Each look at it finds one more restart."""

    host.__class__ = Crashing
    shown = Host._shown

    def crashing(self: Host, name: str) -> str:
        self.restarts[name] = self.restarts.get(name, 0) + 3
        return shown(self, name)

    Crashing._shown = crashing  # type: ignore[method-assign]
    with pytest.raises(HostError, match="does not answer"):
        host_tree.wait_until_healthy(host, wanted, timeout=3600)


def test_without_restarts_what_runs_is_left_alone_and_named(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    changed = tree("bbb", config="b")
    assert host_tree.outdated(host, tree("aaa", config="a")) == []
    assert said(host_tree.converge(host, changed, restart=False)) == [
        f"change {FOLDER}/config",
        f"change /etc/systemd/system/{UNIT}",
    ]
    assert host.running[UNIT] == "aaa"
    assert host_tree.outdated(host, changed) == [UNIT]
    assert said(host_tree.converge(host, changed)) == [f"restart {UNIT}"]
    assert host_tree.outdated(host, changed) == []


def test_without_restarts_what_is_down_is_started_with_what_is_new(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    host.running.clear()
    changed = tree("bbb", config="b")
    assert host_tree.outdated(host, changed) == [], "what does not run has nothing old about it"
    assert said(host_tree.converge(host, changed, restart=False))[-1] == f"start {UNIT}"
    assert host.running[UNIT] == "bbb"


@pytest.mark.parametrize(
    ("status", "running", "reason"),
    [
        (200, True, ""),
        (500, True, "answers 500"),
        (200, False, "inactive (running), result success, last exit 0"),
    ],
)
def test_a_unit_is_observed_with_its_program_and_what_is_wrong_with_it(
    host: Host, health: tuple[str, list[int]], monkeypatch: pytest.MonkeyPatch, status: int, running: bool, reason: str
) -> None:
    url, answers = health
    answers[:] = [status]
    wanted = tree(url=url)
    host_tree.converge(host, wanted)
    if not running:
        host.running.clear()
    program = "/usr/local/lib/karmada/v1.18.2/karmada-scheduler"
    monkeypatch.setattr(host, "program_of", lambda process: program if process else "")
    found = host_tree.observed(host, wanted)[UNIT]
    assert found["program"] == (program if running else "")
    assert (reason in found["reason"]) if reason else found["reason"] == ""
    left_alone = {"units": [], "watched": [{key: wanted["units"][0][key] for key in ("name", "health")}]}
    assert host_tree.observed(host, left_alone) == {UNIT: found}


def test_a_unit_that_is_watched_and_not_there_is_not_told_of(host: Host) -> None:
    nobody = {"units": [], "watched": [{"name": "karmada-nobody.service", "health": None}]}
    assert host_tree.observed(host, nobody) == {}


def test_stopping_ends_what_runs_keeps_it_from_the_next_boot_and_leaves_all_else(host: Host) -> None:
    wanted = tree(config="a")
    host_tree.converge(host, wanted)
    other = "karmada-other-scheduler.service"
    host.unit_file(other).write_text("[Unit]\nX-KarmadaOwner=somebody-else\n")
    host.loaded[other], host.running[other] = "", "ccc"
    wanted["units"].append({"name": other, "hash": "", "health": None})
    assert said(host_tree.stop(host, wanted, check=True)) == [f"stop {UNIT}"]
    assert UNIT in host.running
    assert said(host_tree.stop(host, wanted)) == [f"stop {UNIT}"]
    assert host.running == {other: "ccc"}
    assert UNIT not in host.enabled
    assert host.unit_file(UNIT).exists()
    assert host.path(f"{FOLDER}/config").exists()
    assert host_tree.stop(host, wanted) == []


# -- what comes without a restart ------------------------------------------------------------------------------------


def verbs(host: Host) -> list[str]:
    """What systemd was asked to do with the unit, in short."""
    found = [command.split()[1] for command in host.commands if command.startswith("systemctl ")]
    host.commands.clear()
    return [verb for verb in found if verb in ("restart", "reload")]


def test_settings_that_a_reload_takes_restart_nothing_and_are_reloaded_once(host: Host) -> None:
    host_tree.converge(host, tree("unit-a", config="a"))
    assert verbs(host) == ["restart"]
    assert "reload " + UNIT in said(host_tree.converge(host, tree("unit-b", config="b"), check=True))
    assert verbs(host) == []
    assert "reload " + UNIT in said(host_tree.converge(host, tree("unit-b", config="b")))
    assert verbs(host) == ["reload"]
    assert host_tree.outdated(host, tree("unit-b", config="b")) == []
    assert host_tree.converge(host, tree("unit-b", config="b")) == []
    assert verbs(host) == []


def test_a_run_that_was_killed_before_the_reload_is_made_up_for(host: Host) -> None:
    host_tree.converge(host, tree("unit-a", config="a"))
    host_tree.converge(host, tree("unit-b", config="b"), restart=False)
    assert verbs(host) == ["restart"]
    assert host_tree.outdated(host, tree("unit-b", config="b")) == [UNIT]
    assert said(host_tree.converge(host, tree("unit-b", config="b"))) == ["reload " + UNIT]


def test_what_needs_a_restart_is_restarted_and_ends_what_was_noted_of_reloads(host: Host) -> None:
    host_tree.converge(host, tree("unit-a", config="a"))
    host_tree.converge(host, tree("unit-b", config="b"))
    verbs(host)
    host_tree.converge(host, tree("other-b", config="b"))
    assert verbs(host) == ["restart"]
    assert host_tree.converge(host, tree("other-b", config="b")) == []


def test_a_process_that_systemd_started_again_has_read_what_is_there(host: Host) -> None:
    host_tree.converge(host, tree("unit-a", config="a"))
    host_tree.converge(host, tree("unit-b", config="b"))
    verbs(host)
    host.command("systemctl", "restart", "--", UNIT)
    assert host_tree.outdated(host, tree("unit-b", config="b")) == []


def test_nothing_of_a_reload_is_left_with_a_unit_that_goes(host: Host) -> None:
    host_tree.converge(host, tree("unit-a", config="a"))
    host_tree.converge(host, tree("unit-b", config="b"))
    assert [path.name for path in host.path(host_system.RUN_FOLDER).iterdir()] == [f"{UNIT}.reloaded"]
    host_tree.remove(host, tree("unit-b"))
    assert list(host.path(host_system.RUN_FOLDER).iterdir()) == []


# -- what is to be there no more -------------------------------------------------------------------------------------


def test_a_role_that_a_host_loses_takes_units_users_and_files_along(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    nothing = {**tree(), **{part: [] for part in ("users", "directories", "files", "folders", "units")}}
    ended = {**nothing, "absent": {"units": [{"name": UNIT}], "folders": [FOLDER], "users": [{"name": USER}]}}
    expected = ["remove unit " + UNIT, "remove " + FOLDER, "remove user " + USER]
    assert said(host_tree.converge(host, ended, check=True)) == expected
    assert USER in host.users
    assert said(host_tree.converge(host, ended)) == expected
    assert (USER in host.users, host.path(FOLDER).exists(), host.unit_file(UNIT).exists()) == (False, False, False)
    assert host_tree.converge(host, ended) == []


def test_folders_go_with_those_that_hold_nothing_else(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    whole = {**tree(), "folders": [FOLDER, "/etc/karmada/prod"]}
    assert "remove /etc/karmada/prod" in said(host_tree.remove(host, whole))
    assert not host.path("/etc/karmada").exists()


def test_a_folder_that_went_before_holds_no_other_one(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    host_tree.remove(host, tree(config="a"))
    assert host.path("/etc/karmada").exists()
    whole = {**tree(), "folders": ["/etc/karmada/prod"]}
    assert host_tree.remove(host, whole, check=True) == []
    assert host.path("/etc/karmada").exists()
    assert host_tree.remove(host, whole) == []
    assert not host.path("/etc/karmada").exists()


def test_what_somebody_else_has_under_that_name_stays(host: Host) -> None:
    host.users[USER] = "of somebody else"
    ended = {**tree(), **{part: [] for part in ("users", "directories", "files", "folders", "units")}}
    assert host_tree.converge(host, {**ended, "absent": {"units": [], "folders": [], "users": [{"name": USER}]}}) == []
    assert USER in host.users


def test_a_port_that_is_open_is_health_enough_and_a_unit_that_is_not_awaited_keeps_nobody_waiting(
    host: Host, nobodys_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        host_tree.converge(host, tree(url=url))
        host_tree.wait_until_healthy(host, tree(url=url), timeout=0)
        assert host_tree.observed(host, tree(url=url))[UNIT]["reason"] == ""
    url = f"tcp://127.0.0.1:{nobodys_port}"
    with pytest.raises(host_system.HostError, match=f"{url} does not answer"):
        host_tree.wait_until_healthy(host, tree(url=url), timeout=0)
    left_alone = tree(url=url)
    left_alone["units"][0]["awaited"] = False
    host_tree.wait_until_healthy(host, left_alone, timeout=0)
    assert "does not answer" in host_tree.observed(host, left_alone)[UNIT]["reason"]


def test_a_diff_tells_of_what_has_no_lines_in_words() -> None:
    assert host_tree_module._diff(host_tree.Change("remove unit a.service")) == {"prepared": "remove unit a.service\n"}
    shown = host_tree_module._diff(host_tree.Change("change /etc/a", "1\n", "2\n"))
    assert (shown["before_header"], shown["before"], shown["after"]) == ("change /etc/a", "1\n", "2\n")
