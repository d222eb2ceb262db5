# SPDX-License-Identifier: Apache-2.0
"""What hosts say reaches people without the secrets of their journals; their files are left as they are."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.action import journal, member_log, reach_from_host
from ansible_collections.karmada.installer.plugins.plugin_utils import redaction
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_action
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Target
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock_asked import Asking
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.run.test_host_answer import ANSWERS, answer
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document

TOKEN = "abcdef.0123456789abcdef"
JOURNAL = (
    f"karmada-prod-scheduler.service is failed. Its last lines:\nAuthorization: Bearer {TOKEN}{TOKEN}\ntoken={TOKEN}"
)


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(journal.OnHost, Runs(tmp_path / "run"))


@pytest.mark.parametrize("module", host_action.CHANGING_MODULES)
def test_no_secret_of_a_journal_is_in_what_a_module_tells(asking: Asking, module: str) -> None:
    asking.answer = {
        "failed": True,
        "msg": JOURNAL,
        "changes": [f"remove /etc/karmada/{TOKEN}"],
        "diff": [{"before": f"token: {TOKEN}\n", "after": ""}],
    }
    found = asking.action.on_host(module, state="present")
    assert TOKEN not in str(found)
    assert redaction.REDACTED in found["msg"]
    assert found["msg"].startswith("karmada-prod-scheduler.service is failed. Its last lines:\n")


def test_no_secret_of_a_log_is_in_what_a_module_tells_of_units(asking: Asking) -> None:
    units = {"a.service": {"reason": f"it answers 500: password={TOKEN}\x1b[2J", "program": "/usr/bin/a"}}
    asking.answer = {"changed": False, "changes": [], "units": units}
    found = asking.action.on_host("_host_tree", state="present")["units"]["a.service"]
    assert found == {"program": "/usr/bin/a", "reason": f"it answers 500: password={redaction.REDACTED}"}
    asking.answer = {"changed": False, "lines": {"m1": f"m1 token={TOKEN}"}}
    assert TOKEN not in str(asking.action.on_host("_host_log", texts=["m1"]))


def test_an_answer_of_another_form_is_a_failure_that_names_the_host(asking: Asking) -> None:
    asking.answer = {"changed": False, "changes": [], "units": {"a": "b"}, "ansible_facts": {"karmada_host": {}}}
    found = asking.action.on_host("_host_tree", state="present")
    assert found.keys() == {"failed", "msg"}
    assert found["msg"].startswith("cp1: what it answered does not have the form")
    assert asking.action.seen.stopped == "the step"
    asking.answer = {"changed": False, "changes": [], "ansible_facts": {"karmada_host": {"name": "cp2"}}}
    assert asking.action.on_host("_host_tree", state="present") == {"changed": False, "changes": []}


@pytest.mark.parametrize("module", ANSWERS)
def test_whatever_a_host_lies_about_it_is_named_and_nothing_of_it_is_used(asking: Asking, module: str) -> None:
    """Every module that runs there, with what it is asked, and an answer in another form for each of its keys."""
    asked, honest = ANSWERS[module]
    for key in honest:
        asking.answer = {**honest, key: [{"x": "\x1b[2J"}]}
        found = asking.action.on_host(module, **asked)
        assert found.keys() == {"failed", "msg"}
        assert found["msg"].startswith("cp1: what it answered does not have the form that it should have: ")
        assert key in found["msg"]
        assert found["msg"].isprintable()


LIED = {"changed": False, "unreached": {"m2": {"fault": "refused", "detail": ""}}, "lines": {"m2": "x"}}


@pytest.mark.parametrize(
    ("action", "noted", "consequence"),
    [
        (reach_from_host.ActionModule, "unreached", "what it reaches is not known"),
        (member_log.ActionModule, "member_log", "members are told of without its log"),
    ],
    ids=["what it reaches", "what its log says"],
)
def test_a_host_whose_answer_a_run_can_do_without_is_named_all_the_same(
    action: type[HostAction], noted: str, consequence: str, tmp_path: Path
) -> None:
    runs = Runs(tmp_path / "run")
    runs.see_all(seen(Stored(4).after(remembered())))
    target = Target.of_url("m1", "https://192.0.2.9:6443")
    runs.see(cp1={"targets": [target.plain]})
    asking = Asking(action, runs)
    asking.answer = LIED
    result = asking.action.perform({"members": ["m1"]})
    assert result["changed"] is False
    assert getattr(runs.step().observed["cp1"], noted) == {}
    (told,) = asking.action.karmada.told
    assert told.severity is Severity.WARNING
    assert str(told).startswith("host cp1: it answered about m2, which it was not asked for; nothing of that is used, ")
    assert consequence in str(told)


ENTRIES = {"cp1": "192.0.2.1", "cp2": "192.0.2.2"}


@pytest.mark.parametrize(("delegated", "name"), [(None, "cp1"), ("cp2", "cp2")])
def test_no_variable_makes_a_host_another_one(asking: Asking, delegated: str | None, name: str) -> None:
    lie = {"karmada_host": {"name": "etcd1", "address": "192.0.2.66"}}
    asking.action.variables = {"inventory_hostname": "cp1", **lie, "hostvars": dict.fromkeys(ENTRIES, lie)}
    asking.action._task.delegate_to = delegated
    assert (asking.action.host_name, asking.action.host_entry.address) == (name, ENTRIES[name])


def test_a_step_on_a_host_of_nobody_is_refused(asking: Asking) -> None:
    asking.action.variables = {"inventory_hostname": "karmada_control", "karmada_host": {"name": "cp1"}}
    with pytest.raises(ProblemsError, match="karmada_control is no plain host"):
        asking.action._performed(asking.action.karmada, {"state": "released", "required": True})
    assert asking.asked == []


def test_any_module_that_fails_tells_no_secret(asking: Asking) -> None:
    asking.answer = {"failed": True, "module_stderr": JOURNAL}
    found, refusal = host_action.refusal_of(lambda: asking.action.on_host("_host_state", state="read"))
    assert TOKEN not in f"{found}{refusal}"
    assert "last lines" in refusal


def test_what_the_connection_says_tells_no_secret() -> None:
    def lost() -> Any:
        raise AnsibleConnectionFailure(JOURNAL)

    _found, refusal = host_action.refusal_of(lost)
    assert TOKEN not in refusal
    assert "last lines" in refusal


def test_a_host_that_is_lost_after_its_step_is_noted_as_lost(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_action: Any, _force: bool = False) -> None:
        raise AnsibleConnectionFailure(f"Connection timed out: token={TOKEN}")

    asking.action.on_host("_host_tree", state="present")
    monkeypatch.setattr(ActionBase, "cleanup", lost)
    with pytest.raises(AnsibleConnectionFailure):
        asking.action.cleanup()
    seen_then = asking.action.seen
    assert (seen_then.lost.step, seen_then.done) == (asking.action._task.name, asking.action._task.name)
    assert "Connection timed out" in seen_then.lost.reason
    assert TOKEN not in seen_then.lost.reason


def test_the_files_of_a_host_are_read_as_they_are(asking: Asking) -> None:
    key = base64.b64encode(b"-----BEGIN PRIVATE KEY-----\n").decode()
    asking.answer = {
        "changed": False,
        **answer(),
        "files": {"/etc/karmada/a": key},
        "stored": {"serial": 1, "files": {"ca.key": key}},
    }
    assert asking.action.on_host("_host_state", state="read", folders=[]) == asking.answer


def test_a_document_that_cannot_be_worked_on_is_a_message_and_no_traceback(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_arguments: Any) -> Any:
        raise ProblemsError(
            Problem("nothing can be made of \x1b[2J", "spec.hosts", "mend it", reason=Reason.INVALID_DOCUMENT)
        )

    action = asking.action
    monkeypatch.setattr(host_action.StepAction.__mro__[1], "run", lambda *_: {}, raising=True)
    action.validate_argument_spec = lambda **_: (None, {})
    action._make_run, action._task.diff = refused, False
    found = action.run(task_vars={})
    assert (found["failed"], found["changed"]) == (True, False)
    assert "spec.hosts" in found["msg"]
    assert "\x1b" not in found["msg"]
    (problem,) = found["problems"]
    assert (problem["severity"], problem["reason"], problem["where"]) == ("error", "InvalidDocument", "spec.hosts")
    assert "\x1b" not in problem["what"]


def test_what_was_told_is_in_the_result_as_data_behind_what_failed(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = fake_run(document(), FakeCluster("host cluster")), []
    run.say = said.append
    hint = Problem("it is worth knowing", reason=Reason.UNTESTED_VERSION, severity=Severity.HINT)
    failed = Unreachable("host cluster", "GET", "/", 0, "Unreachable", "no answer")

    def performed(run: Any, _arguments: Any) -> Any:
        run.tell(hint)
        run.tell(hint)
        raise failed

    action = asking.action
    monkeypatch.setattr(host_action.StepAction.__mro__[1], "run", lambda *_: {}, raising=True)
    action.validate_argument_spec = lambda **_: (None, {})
    action._make_run, action._performed, action._task.diff = lambda _: run, performed, False
    found = action.run(task_vars={"inventory_hostname": "cp1"})
    assert [each["reason"] for each in found["problems"]] == ["APIServerUnreachable", "UntestedVersion"]
    assert found["problems"][0]["where"] == "host cluster"
    assert said == ["hint: it is worth knowing"]
