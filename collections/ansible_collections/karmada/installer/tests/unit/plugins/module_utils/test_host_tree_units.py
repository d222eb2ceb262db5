# SPDX-License-Identifier: Apache-2.0
"""Units of a tree on a host: started, waited for, watched, reloaded, restarted only if allowed, and stopped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_system, host_tree
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.tests.unit.support.host_tree import FOLDER, UNIT, Host, said, tree
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port


class _Health(BaseHTTPRequestHandler):
    answers: list[int]

    def do_GET(self) -> None:
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"[-]etcd failed: reason withheld" if status != 200 else b"ok")

    def log_message(self, *_arguments: Any) -> None:
        """Quiet."""


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


def test_units_are_asked_at_the_same_time_how_they_are(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)

    def asked(health: dict[str, str]) -> str:
        both.wait()
        return f"{health['url']} hangs"

    monkeypatch.setattr(host_tree, "reason_unhealthy", asked)
    wanted = tree(url="http://127.0.0.1:1/readyz")
    host_tree.converge(host, wanted)
    (unit,) = wanted["units"]
    other = {"name": f"other-{UNIT}", "health": {"url": "http://127.0.0.1:2/readyz", "authority": ""}}
    host.loaded[other["name"]], host.running[other["name"]] = "", ""
    found = host_tree.observed(host, {**wanted, "watched": [other, {"name": "absent.service", "health": None}]})
    assert {name: each["reason"] for name, each in found.items()} == {
        unit["name"]: "http://127.0.0.1:1/readyz hangs",
        other["name"]: "http://127.0.0.1:2/readyz hangs",
    }


def test_waiting_for_units_to_run_asks_systemd_alone_and_fails_for_none(host: Host) -> None:
    wanted = tree(url="http://127.0.0.1:1/readyz")
    host_tree.converge(host, wanted)
    host.looks_in_transition = 4
    host_system.wait_until_running(host, [UNIT], timeout=60)
    assert host.looks_in_transition == -1, "it ends with the first look that finds it done"
    host.looks_in_transition = 10**6
    host_system.wait_until_running(host, [UNIT], timeout=0.3)
    looks = list[None]()
    # It has ended, and systemd starts it again.
    host_system.wait_until_running(host, [UNIT], 3600, lambda: host.restarts.update({UNIT: 1}) or looks.append(None))
    assert len(looks) == 1


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


CLIENT = "karmada-prod-apiserver.service"


def test_units_that_need_the_one_that_restarts_stop_before_it_and_start_after_it(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    host.loaded[CLIENT] = f'[Service]\nEnvironment="{host_system.HASH_VARIABLE}=zzz"\n'
    host.unit_file(CLIENT).write_text(host.loaded[CLIENT])
    host.running[CLIENT] = "zzz"
    changed = tree("bbb", config="b")
    changed["units"][0]["clients"] = [CLIENT]
    assert said(host_tree.converge(host, changed))[-2:] == [f"restart {UNIT}", f"restart {CLIENT}"]
    # Of jobs that are asked for in this order systemd stops the first one first.
    assert host.commands[-1] == f"systemctl restart --no-block -- {CLIENT} {UNIT}"
    assert host_tree.converge(host, changed) == []


def test_units_that_do_not_run_are_not_started_with_the_one_that_they_need(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    changed = tree("bbb", config="b")
    changed["units"][0]["clients"] = [CLIENT]
    assert said(host_tree.converge(host, changed))[-1] == f"restart {UNIT}"


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


# -- what must not run -----------------------------------------------------------------------------------------------


def test_a_unit_that_must_not_run_is_stopped_and_does_not_start_with_its_host(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    held = tree("bbb", config="b")
    held["units"][0]["stopped"] = True
    assert host_tree.observed(host, held)[UNIT]["reason"] == "it runs, and must not"
    told = [f"stop {UNIT}", f"change {FOLDER}/config", f"change /etc/systemd/system/{UNIT}"]
    assert said(host_tree.converge(host, held, check=True)) == told
    assert UNIT in host.running
    assert said(host_tree.converge(host, held)) == told
    assert (UNIT in host.running, UNIT in host.enabled) == (False, False)
    assert host_tree.converge(host, held) == []
    host_tree.wait_until_healthy(host, held, timeout=0)
    assert host_tree.outdated(host, held) == []
    assert host_tree.observed(host, held)[UNIT]["reason"] == ""
    released = said(host_tree.converge(host, tree("bbb", config="b")))
    assert released == [f"enable {UNIT}", f"start {UNIT}"]
    assert host.running[UNIT] == "bbb"


# -- what is to be there no more -------------------------------------------------------------------------------------


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
