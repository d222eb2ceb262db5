# SPDX-License-Identifier: Apache-2.0
"""What the callback shows of a run: by ansible-playbook in a pipe and on a terminal, and by hand where time passes."""

from __future__ import annotations

import json
import os
import pickle
import pty
import re
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.utils.display import Display
from ansible_collections.karmada.installer.plugins.callback import report as callback
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.progress import Progress
from ansible_collections.karmada.installer.plugins.plugin_utils.run import said
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import Kind, Said
from ansible_collections.karmada.installer.plugins.plugin_utils.run.visible_steps import (
    PLUMBING,
    READING,
    STEPS,
    is_plumbing,
)
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

COLLECTION = Path(__file__).parents[4]
LONG = "Deployment karmada/prod-scheduler: 0 of 1 replicas are available; pod prod-scheduler-x: ContainerCreating"
#: A step that says what it is told to, and gives the result that it is told to.
SPEAK = """
from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.plugin_utils.run import said

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        for each in self._task.args.get("say", []):
            said.say(each)
        if "report" in self._task.args:
            said.say_report(self._task.args["report"])
        return {"changed": False, **self._task.args.get("result", {})}
"""
PROBLEM = "1 problem; nothing was changed:\n  - prod.yaml: spec.modee: is not a field. Did you mean mode?"
#: Name → arguments of ``speak``, or the rest of the task.
STEPS_OF_PLAY: dict[str, dict[str, Any]] = {
    "Issue keys": {"result": {"changed": True, "changes": ["created Secret a/b", "created Secret a/c"]}},
    "Start the API server": {"say": [f"waiting for {LONG}", "warning: it is slow", f"hint: {LONG} {LONG} {LONG}"]},
    "Say it again": {"say": ["warning: it is slow", f"hint: {LONG} {LONG[:60]}"]},
    "Never done": {},
    "A title that is longer than a line of a terminal has columns, which happens to the best": {},
    "Show a value": {},
    "A loop": {"result": {"failed": True, "msg": "{{ item }} is wrong"}},
    "Show the report": {"report": ["Karmada control plane prod: Completed", "next         kubectl get"]},
    "Break": {"result": {"failed": True, "msg": PROBLEM, "exception": "Traceback (most recent call last)"}},
}
MORE: dict[str, dict[str, Any]] = {
    "Never done": {"when": False},
    "Show a value": {"ansible.builtin.debug": {"msg": "the value is 5"}},
    "A loop": {"loop": ["x", "y"], "ignore_errors": True},
}


def tasks() -> list[dict[str, Any]]:
    found = [{"name": name, "speak": given, **MORE.get(name, {})} for name, given in STEPS_OF_PLAY.items()]
    for each in found:
        if "ansible.builtin.debug" in each:
            del each["speak"]
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "action_plugins").mkdir()
    (folder / "action_plugins" / "speak.py").write_text(SPEAK)
    play = {"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": tasks()}
    (folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    return folder


def run(site: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return ansible_commands.run(
        "ansible-playbook", "-i", "localhost,", "play.yml", *more, directory=site,
        **{"ANSIBLE_STDOUT_CALLBACK": "karmada.installer.report", **environment},
    )  # fmt: skip


def test_a_run_in_a_pipe(site: Path) -> None:
    done = run(site)
    assert done.returncode == 2
    assert done.stderr == ""
    timeless = re.sub(r"\b\d+(?:\.\d)? s\b", "T", done.stdout)
    assert re.sub(r" +T", " T", timeless).splitlines() == [
        "changed T  Issue keys: 2 created",
        "ok T  Start the API server",
        "  warning: it is slow",
        "  hint: Deployment karmada/prod-scheduler: 0 of 1 replicas are available; pod",
        "  prod-scheduler-x: ContainerCreating Deployment karmada/prod-scheduler: 0 of …",
        "ok T  Say it again",
        "  hint: Deployment karmada/prod-scheduler: 0 of 1 replicas are available; pod",
        "  prod-scheduler-x: ContainerCreating Deployment karmada/prod-scheduler: 0 of 1",
        "  replicas are avail",
        "ok T  A title that is longer than a line of a terminal has columns,",
        "                 which happens to the best",
        "ok T  Show a value",
        "  the value is 5",
        "ignored T  A loop",
        "  x is wrong",
        "  y is wrong",
        "ok T  Show the report",
        "failed T  Break",
        "  1 problem; nothing was changed:",
        "    - prod.yaml: spec.modee: is not a field. Did you mean mode?",
        "failed after T",
        "",
        "Karmada control plane prod: Completed",
        "next         kubectl get",
    ]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_plain_callbacks_show_the_same_texts(site: Path) -> None:
    """Also this one, where more is asked for: nothing is hidden."""
    for done in (run(site, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default"), run(site, "-v")):
        assert f"\n    waiting for {LONG}\n" in done.stdout
        assert "\n    warning: it is slow\n" in done.stdout
        assert "\nKarmada control plane prod: Completed\nnext         kubectl get\n" in done.stdout
        assert "TASK [Never done]" in done.stdout
        assert "PLAY RECAP" in done.stdout


def test_on_a_terminal_what_runs_is_shown_in_place(site: Path) -> None:
    ours, theirs = pty.openpty()
    command = "import sys; sys.argv[0] = 'ansible-playbook'; from ansible.cli.playbook import main; main()"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    process = subprocess.Popen(
        [sys.executable, "-c", command, "-i", "localhost,", "play.yml"],
        cwd=site, stdin=theirs, stdout=theirs, stderr=theirs,
        env={
            **kept, "TERM": "xterm", "COLUMNS": "80", "LINES": "24",
            "ANSIBLE_CONFIG": str(site / "empty.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_COLLECTIONS_PATH": str(ansible_commands.CHECKOUT / "collections"),
            "ANSIBLE_HOME": str(site / ".ansible"), "ANSIBLE_STDOUT_CALLBACK": "karmada.installer.report",
        },
    )  # fmt: skip
    os.close(theirs)
    said: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, said))
    reader.start()
    assert process.wait(timeout=900) == 2
    reader.join()
    text = b"".join(said).decode().replace("\r\n", "\n")
    assert re.search(r"\r\x1b\[K\[\.{20}\]  Issue keys", text)
    assert re.search(r"\r\x1b\[K\[#+\.+\]  [\d.]+ s  waiting for Deployment karmada/prod-sched", text)
    # What stays on the screen: of each line, what was written after it was last cleared.
    screen = [line.rpartition("\x1b[K")[2] for line in text.split("\n")]
    assert not any("waiting for" in line for line in screen)
    assert [line for line in screen if line][-1] == "next         kubectl get"
    frames = [frame for line in text.split("\n") for frame in line.split("\r\x1b[K")]
    assert max(map(len, frames)) <= 80


def test_below_ansible_runner_nothing_is_shown_in_place(site: Path, tmp_path: Path) -> None:
    """It gives the run a terminal, keeps what is written there, and says the same by events."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    (tmp_path / "inventory").write_text("localhost ansible_connection=local\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "ansible_runner", "run", tmp_path, "--ident", "one", "--project-dir", site,
            "--playbook", "play.yml", "--inventory", tmp_path / "inventory",
        ],
        capture_output=True, text=True, check=False, timeout=900,
        env={
            **kept, "TERM": "xterm", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(ansible_commands.CHECKOUT / "collections"),
            "ANSIBLE_HOME": str(site / ".ansible"), "ANSIBLE_STDOUT_CALLBACK": "karmada.installer.report",
        },
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    events = [json.loads(path.read_text()) for path in (tmp_path / "artifacts/one/job_events").glob("*.json")]
    assert "changed" in done.stdout
    assert "Issue keys: 2 created" in done.stdout
    assert any("Issue keys: 2 created" in each["stdout"] for each in events)
    assert not any("[K" in text or "[...." in text for text in (done.stdout, *(each["stdout"] for each in events)))


def _read(terminal: int, into: list[bytes]) -> None:
    while True:
        try:
            found = os.read(terminal, 65536)
        except OSError:
            return
        if not found:
            return
        into.append(found)


def test_ansible_doc_renders_it(tmp_path: Path) -> None:
    name = "karmada.installer.report"
    done = ansible_commands.run("ansible-doc", "--json", "-t", "callback", name, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)[name]
    assert found["doc"]["type"] == "stdout"
    assert "stdout_callback = karmada.installer.report" in found["examples"]
    # Those of Ansible's default, which it is where more is asked for.
    assert {"display_skipped_hosts", "result_format", "show_task_path_on_failure"} <= set(found["doc"]["options"])


# -- by hand -----------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(callback.time, "monotonic", lambda: self.now)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines that reach Ansible's display."""
    found: list[str] = []
    monkeypatch.setattr(Display, "display", lambda _self, msg, *_given, **_more: found.append(msg))
    monkeypatch.setattr(Display(), "verbosity", 0)
    # The callback puts its own there.
    monkeypatch.setitem(Display().__dict__, "display", None)
    del Display().__dict__["display"]
    return found


def task(name: str, action: str = "karmada.installer.workloads", **arguments: Any) -> Any:
    return SimpleNamespace(
        name=name,
        action=action,
        resolved_action=action,
        args=arguments,
        get_path=lambda: "",
        _uuid=name,
        check_mode=False,
    )


def result(of: Any, host: str = "karmada_control", **found: Any) -> Any:
    return SimpleNamespace(task=of, host=SimpleNamespace(get_name=lambda: host), result=found)


def test_where_lines_stay_a_wait_has_one_every_eight_seconds_however_often_it_tells(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ours, step = Clock(monkeypatch), callback.CallbackModule(), task("Start the API server")
    ours.v2_playbook_on_task_start(step, is_conditional=False)
    for _second in range(35):
        clock.now += 1
        Display().display(Said.by_step("waiting for pods"))
        Display().display(Said.by_step(f"[{clock.now - 1000:.0f}/300 s] 0/1 ready"))
    assert [" ".join(line.split()) for line in shown] == [
        f"... {took} s waiting for pods" for took in ("8.0", 16, 24, 32)
    ]


@pytest.mark.parametrize(("changes_until", "apart"), [(0, (20, 20)), (3, (15, 25)), (9, (8, 28)), (60, (8, 28))])
def test_where_lines_stay_no_wait_is_silent_for_longer_than_thirty_seconds(
    changes_until: int, apart: tuple[int, int], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lines of a real wait, which changes for a while and then stands still."""
    clock, ours = Clock(monkeypatch), callback.CallbackModule()
    ours.v2_playbook_on_task_start(task("Start the API server"), is_conditional=False)
    progress = Progress(lambda line: Display().display(Said.by_step(line)), clock.now, 300.0)
    when: list[int] = []
    for second in range(301):
        before = len(shown)
        progress.tell(f"{min(second, changes_until)} of 99 pods are ready", clock.now)
        when += [second] if len(shown) > before else []
        clock.now += 1
    assert when[0] <= callback.SILENT_SECONDS
    gaps = [after - before for before, after in pairwise(when)]
    assert apart[0] <= min(gaps)
    assert max(gaps) <= apart[1] <= callback.SILENT_SECONDS


def test_a_wait_that_tells_its_time_itself_has_it_once(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ours = Clock(monkeypatch), callback.CallbackModule()
    ours.v2_playbook_on_task_start(task("Start the API server"), is_conditional=False)
    clock.now += 40
    Display().display(Said.by_step("[40/300 s] 0/1 ready; pod x: ContainerCreating"))
    assert [" ".join(line.split()) for line in shown] == ["... [40/300 s] 0/1 ready; pod x: ContainerCreating"]


def test_at_the_foot_of_a_terminal_only_steps_are_named(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    ours = callback.CallbackModule()
    monkeypatch.setattr(ours, "_terminal", True)
    steps = [task("Close the journal", "karmada.installer.journal", state="closed"), task("Start the API server")]
    ours.v2_playbook_on_play_start(SimpleNamespace(tasks=steps))
    for each in steps:
        ours.v2_playbook_on_task_start(each, is_conditional=False)
    assert [line.rpartition("]  ")[2] for line in shown] == ["Start the API server"]


def test_members_that_are_broken_are_told_by_the_report_alone(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    ours, last = callback.CallbackModule(), task("Fail if anything is not as the document says", "ansible.builtin.fail")
    last._role = SimpleNamespace(get_name=lambda: "karmada.installer.report")
    ours.v2_playbook_on_task_start(task("Look", "karmada.installer.report"), is_conditional=False)
    said.say_report(["Karmada control plane prod: Waiting", "  - member m1: it does not answer"])
    ours.v2_playbook_on_task_start(last, is_conditional=False)
    ours.v2_runner_on_failed(
        result(last, msg="1 of the members is not as the document says:\n  - m1: it does not answer")
    )
    ours.v2_playbook_on_stats(SimpleNamespace(processed={"karmada_control": 1}))
    assert shown == [
        "failed    0.0 s  Fail if anything is not as the document says",
        "  1 of the members is not as the document says",
        "failed after 0.0 s",
        "",
        "Karmada control plane prod: Waiting\n  - member m1: it does not answer",
    ]


@pytest.mark.parametrize(
    ("processed", "changed", "check", "told"),
    [
        ({}, False, False, "nothing was done: no host matched"),
        ({"x": 1}, False, False, "done in 0.0 s: nothing was changed"),
        ({"x": 1}, True, False, "done in 0.0 s: 1 step changed something"),
        ({"x": 1}, True, True, "done in 0.0 s: 1 step would change something"),
    ],
)
def test_a_run_without_a_report_tells_how_it_ended(
    processed: Any, changed: bool, check: bool, told: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    ours, step = callback.CallbackModule(), task("Stop")
    step.check_mode = check
    if processed:
        ours.v2_playbook_on_task_start(step, is_conditional=False)
        ours.v2_runner_on_ok(result(step, changed=changed))
    ours.v2_playbook_on_stats(SimpleNamespace(processed=processed))
    assert shown[-1] == told


def test_hosts_are_named_where_something_was_done(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    ours, step = callback.CallbackModule(), task("Start etcd")
    ours.v2_playbook_on_task_start(step, is_conditional=False)
    for host, changed in (("karmada_control", False), ("cp1", True), ("cp2", True), ("cp3", False)):
        ours.v2_runner_on_ok(result(step, host, changed=changed, changes=["create /etc/a", "restart etcd.service"]))
    ours.v2_playbook_on_task_start(task("Next"), is_conditional=False)
    assert shown == ["changed   0.0 s  Start etcd: 2 created, 2 restarted (on cp1, cp2)"]


@pytest.mark.parametrize(
    ("failures", "changed", "told"),
    [
        ({"cp1": "the disk is full"}, (), ["  the disk is full"]),
        ({"cp1": "the disk is full", "cp2": "the disk is full"}, (), ["  the disk is full"]),
        ({"cp1": "the disk is full"}, ("cp2",), ["  cp1: the disk is full"]),
        ({"cp1": "the disk is full", "cp2": "it is away"}, (), ["  cp1: the disk is full", "  cp2: it is away"]),
    ],
)
def test_a_failure_names_its_hosts_where_the_line_of_the_step_names_others_too(
    failures: Any, changed: Any, told: Any, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    ours, step = callback.CallbackModule(), task("Start etcd")
    ours.v2_playbook_on_task_start(step, is_conditional=False)
    for host in changed:
        ours.v2_runner_on_ok(result(step, host, changed=True, changes=["restart etcd.service"]))
    for host, text in failures.items():
        ours.v2_runner_on_failed(result(step, host, msg=text))
    ours.v2_playbook_on_task_start(task("Next"), is_conditional=False)
    assert "cp1" in shown[0]
    assert shown[1:] == told


def test_a_step_that_finds_nothing_to_do_and_plumbing_take_no_line(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    ours = callback.CallbackModule()
    for number, (action, changed) in enumerate(
        [("workloads", False), ("journal", True), ("preflight", False), ("certificates", True)]
    ):
        step = task(f"Step {number}", f"karmada.installer.{action}")
        ours.v2_playbook_on_task_start(step, is_conditional=False)
        ours.v2_runner_on_ok(result(step, changed=changed))
    ours._finish()
    assert [line.rpartition("  ")[2] for line in shown] == ["Step 2", "Step 3"]


def test_plumbing_that_fails_is_shown(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    ours, step = callback.CallbackModule(), task("Close the journal", "karmada.installer.journal")
    ours.v2_playbook_on_task_start(step, is_conditional=False)
    ours.v2_runner_on_failed(result(step, msg="the lock is lost"))
    ours._finish()
    assert shown == ["failed    0.0 s  Close the journal", "  the lock is lost"]


def test_every_action_is_a_step_or_plumbing() -> None:
    actions = {path.stem for path in (COLLECTION / "plugins/action").glob("[!_]*.py")}
    whole = {each for each in PLUMBING if " " not in each}
    assert whole | STEPS == actions
    assert whole & STEPS == set()
    assert {each.partition(" ")[0] for each in PLUMBING - whole} <= STEPS
    assert READING <= STEPS


@pytest.mark.parametrize(
    ("action", "arguments", "path", "hidden"),
    [
        ("karmada.installer.journal", {"state": "closed"}, "", True),
        ("karmada.installer.member_leave", {"stage": "confirm"}, "", True),
        ("karmada.installer.member_leave", {"stage": "leave"}, "", False),
        ("karmada.installer.workloads", {}, "", False),
        (
            "ansible.builtin.set_stats",
            {},
            "/x/ansible_collections/karmada/installer/roles/report/tasks/main.yml:9",
            True,
        ),
        ("ansible.builtin.set_stats", {}, "/home/me/play.yml:9", False),
        (
            "ansible.builtin.command",
            {},
            "/x/ansible_collections/karmada/installer/roles/report/tasks/main.yml:9",
            False,
        ),
    ],
)
def test_plumbing_is_told_by_action_and_stage(action: str, arguments: Any, path: str, hidden: bool) -> None:
    assert is_plumbing(action, arguments, path) == hidden


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("waiting for pods", Kind.PROGRESS),
        ("[ 40/300 s] waiting for pods", Kind.PROGRESS),
        ("[0/60 s] waiting for another run: lock ns/prod-installer", Kind.PROGRESS),
        ("0 of 1 ready; waiting for pods: there are none", Kind.PROGRESS),
        ("warning: the pod is waiting for a node", Kind.NOTE),
        ("issued karmada-webhook: it is missing", Kind.NOTE),
    ],
)
def test_lines_of_steps_keep_their_kind_from_process_to_process(line: str, kind: Kind) -> None:
    there = pickle.loads(pickle.dumps(Said.by_step(line)))  # noqa: S301 - our own
    assert (there, there.kind, there.words) == (f"    {line}", kind, line)


def test_what_others_say_does_not_reach_the_terminal_as_a_command(shown: list[str]) -> None:
    assert "\x1b" not in Said.by_step("pod says \x1b[2Jhello")
    said.say_report(["member \x1b[2Jm1"])
    assert "\x1b" not in shown[0]
