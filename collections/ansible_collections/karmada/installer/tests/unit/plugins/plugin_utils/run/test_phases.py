# SPDX-License-Identifier: Apache-2.0
"""Every step of every playbook has a phase, and a failed one returns it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import phases
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

COLLECTION = Path(__file__).parents[5]
OURS = "karmada.installer."
ACTIONS = {path.stem for path in (COLLECTION / "plugins/action").glob("[!_]*.py")}
ROLES = {path.name for path in (COLLECTION / "roles").iterdir()}


def tasks(found: Any) -> Iterator[dict[str, Any]]:
    for each in found or ():
        yield each
        for section in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks(each.get(section))


def steps() -> Iterator[tuple[str, str, str, str]]:
    """Action, role, path and state of each task that calls an action of ours."""
    for pattern in ("playbooks/**/*.yml", "roles/*/tasks/**/*.yml"):
        for path in sorted(COLLECTION.glob(pattern)):
            role = path.relative_to(COLLECTION).parts[1] if pattern.startswith("roles") else ""
            for found in tasks(yaml.safe_load(path.read_text())):
                for action in [each for each in found if each.removeprefix(OURS) in ACTIONS and each.startswith(OURS)]:
                    given = found[action] or {}
                    yield action, role, f"{path}:7", str(given.get("stage") or given.get("state") or "")


def test_every_task_of_every_playbook_has_a_phase_and_every_entry_is_about_something() -> None:
    found = list(steps())
    assert len(found) > 80
    assert {each[0].removeprefix(OURS) for each in found} == ACTIONS, "every action is a step of some playbook"
    for action, role, path, part in found:
        for operation in ("", "install", "members", "uninstall"):
            assert phases.of(action, role, path, operation, part) in phases.ORDER, (action, path)
        assert not role or phases.of("", role, path), path
    assert {each.partition(" ")[0] for each in phases.OF_ACTIONS} == ACTIONS
    assert {each.partition("/")[0] for each in phases.OF_ROLES} == ROLES
    for each in [*phases.OF_ROLES, *phases._ALSO_AFTER_FAILURES]:
        role, _, file = each.partition("/")
        assert (COLLECTION / "roles" / role / "tasks" / f"{file or 'main'}.yml").is_file() or not file


@pytest.mark.parametrize(
    ("role", "file", "operation", "phase"),
    [
        ("preflight", "main", "install", "Preflight"),
        ("karmada.installer.member_leave", "confirm", "install", "Preflight"),
        ("member_leave", "main", "install", "InstallCRD"),
        ("host_units", "begin", "install", "Installing"),
        ("control_plane", "in_pods/servers", "install", "Waiting"),
        ("member_join", "main", "members", "InstallCRD"),
        ("host_leave", "look", "uninstall", "Deleting"),
        ("preflight", "main", "uninstall", "Deleting"),
        ("report", "main", "install", ""),
        ("host_leave", "release", "install", ""),
        ("", "main", "install", ""),
        ("others.role", "main", "install", ""),
    ],
)
def test_the_phase_that_a_beginning_task_tells(role: str, file: str, operation: str, phase: str) -> None:
    assert phases.begun(role, f"/x/roles/{role}/tasks/{file}.yml:12", operation) == phase


class Failing(KarmadaAction):
    """Fails as the test says; ``answer`` is a result, or what is raised."""

    KEEPS_LOCK = False
    answer: Any = None
    seen: dict[str, Any]

    def perform(self, _run: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        self.seen.update(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer)


MEMBER = Problem("it does not answer", "member m1", reason=Reason.MEMBER_UNREACHABLE)


@pytest.mark.parametrize(
    ("answer", "reason", "component"),
    [
        (
            ProblemsError(
                [Problem("is 4", "spec.components.etcd.local.replicas", reason=Reason.INVALID_DOCUMENT), MEMBER]
            ),
            "InvalidDocument",
            "etcd",
        ),
        (
            NotReady({Ref("apps/v1", "Deployment", "prod-webhook", "karmada"): "no image"}, 60),
            "NotReadyInTime",
            "karmada-webhook",
        ),
        (ProblemsError([MEMBER]), "MemberUnreachable", ""),
        (
            {"failed": True, "broken_members": [{"name": "m1", "problems": [MEMBER.plain]}]},
            "MemberUnreachable",
            "",
        ),
        (
            {"failed": True, "units": {"karmada-prod-etcd.service": {"reason": "it is failed"}}},
            "RequestFailed",
            "etcd",
        ),
    ],
)
def test_what_failed_is_told_to_programs(answer: Any, reason: str, component: str) -> None:
    found = performed(answer)
    assert found["failed"]
    assert (found["phase"], found["reason"], found["component"]) == ("Waiting", reason, component)


def test_arguments_that_cannot_be_used_are_told_alike_and_success_tells_nothing() -> None:
    found = performed({"changed": False}, colour="green")
    assert (found["failed"], found["phase"], found["reason"]) == (True, "Waiting", "InvalidArgument")
    assert "colour" in found["msg"]
    assert not {"phase", "reason", "component"} & set(performed({"changed": False}))


def test_an_argument_that_was_left_empty_is_not_given() -> None:
    seen: dict[str, Any] = {}
    options = {"timeout": {"type": "int", "default": 5}, "names": {"type": "list", "elements": "str"}}
    assert performed({"changed": False}, options, seen, timeout="", names="a, b") == {"changed": False}
    assert (seen["timeout"], seen["names"]) == (5, ["a", "b"])


def performed(
    answer: Any, options: dict[str, Any] | None = None, seen: dict[str, Any] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Result of a step of the role control_plane."""
    step = Failing(
        task=task("workloads", "control_plane", "in_pods/servers", args=arguments),
        connection=SimpleNamespace(_shell=SimpleNamespace(tmpdir="/x")),
        play_context=None,
        loader=None,
        templar=None,
        shared_loader_obj=None,
    )
    step.answer = answer
    step.OPTIONS = options or {}
    step.seen = seen if seen is not None else {}
    step._make_run = lambda _arguments: fake_run(document(), FakeCluster("host"))
    found: dict[str, Any] = step.run(task_vars={"karmada_operation": "install"})
    return found


def test_tasks_outside_of_roles_have_the_phase_of_their_action() -> None:
    assert phases.of("karmada.installer.host_components") == "Installing"
    assert phases.of("karmada.installer.host_components", part="compared") == "Completed"
    assert phases.of("karmada.installer.require_document") == "Preflight"
    assert phases.of("ansible.builtin.debug") == ""
