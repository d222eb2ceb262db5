# SPDX-License-Identifier: Apache-2.0
"""Objects of AWX that are made from playbooks and argument specifications."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.run import not_given
from ansible_collections.karmada.installer.tests.unit.support import playbook_runs
from collection_docs import sources, surveys, variables

REPOSITORY = Path(__file__).parents[7]
#: Type of a question → type of its answers, as AWX has them.
ANSWERS = {"text": str, "textarea": str, "password": str, "integer": int, "float": float, "multiplechoice": str}
#: Kinds of links from a node of a workflow to those that follow it.
_LINKS = ("success_nodes", "failure_nodes", "always_nodes")
#: Steps that read the form of the report are told of it by every playbook.
VERBS = sorted(path.stem for path in (REPOSITORY / "examples/awx/playbooks").glob("*.yml"))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_awx", REPOSITORY / "tools/generate_awx.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def objects(generator: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in generator.files().values():
        found |= yaml.safe_load(text)
    return found


def test_committed_files_are_up_to_date(generator: ModuleType) -> None:
    wanted = generator.files()
    stale = [
        path.name
        for path, content in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != content
    ]
    assert stale == [], "run `make awx`"
    assert set(generator.FOLDER.iterdir()) == set(wanted)


def test_every_playbook_of_the_example_has_a_template_that_runs_alone(objects: dict[str, Any]) -> None:
    templates = objects["controller_templates"]
    assert {each["playbook"] for each in templates} == {f"playbooks/{verb}.yml" for verb in VERBS}
    assert len({each["name"] for each in templates}) == len(templates) == len(VERBS) + 1
    for each in templates:
        assert (each["allow_simultaneous"], each["job_slice_count"], each["verbosity"]) == (False, 1, 0), each["name"]


@pytest.mark.parametrize("verb", VERBS)
def test_awx_takes_the_survey(verb: str) -> None:
    """The rules of AWX for a survey (``JobTemplateSurveySpec``) and for its answers (``SurveyJobTemplateMixin``)."""
    survey = surveys.survey(verb)
    assert survey["spec"], verb
    assert {type(survey["name"]), type(survey["description"])} == {str}
    asked = [each["variable"] for each in survey["spec"]]
    names = [each["question_name"] for each in survey["spec"]]
    assert len(asked) == len(set(asked)) == len(set(names))
    assert set(asked) <= variables.known()
    for each in survey["spec"]:
        assert {"question_name", "question_description", "variable", "type", "required"} <= each.keys()
        assert type(each["required"]) is bool
        assert each["question_description"].endswith("."), each
        assert not re.search(r"\]\(|`|-e ", each["question_description"]), each
        if "default" in each:
            assert type(each["default"]) is ANSWERS[each["type"]], each
            assert each["default"] in each.get("choices", [each["default"]])
            assert each["default"] != "", "AWX would hand it on as an answer"
            assert each["type"] != "integer" or each["default"] >= each["min"]
        assert ("choices" in each) == (each["type"] == "multiplechoice")


def test_a_survey_says_what_a_role_says() -> None:
    asked = {each["variable"]: each for each in surveys.survey("install")["spec"]}
    timeout = sources.role_options("member_join")["member_join_timeout"]
    assert (asked["member_join_timeout"]["type"], asked["member_join_timeout"]["default"]) == (
        "integer",
        timeout["default"],
    )
    assert asked["karmada_preflight_pull_images"] | {"question_description": ""} == {
        "question_name": "Preflight pull images",
        "question_description": "",
        "variable": "karmada_preflight_pull_images",
        "type": "multiplechoice",
        "required": False,
        "choices": ["true", "false"],
        "default": "false",
    }
    assert "default" not in asked["control_plane_timeout"], "it depends on where the control plane runs"
    assert "etcd_replace" in asked
    assert "preflight_etcd_replace" not in asked, "it is the same"
    assert not {"karmada_scheduling", "karmada_on_broken_member", "karmada_operation"} & set(asked), "plays set these"


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ({"type": "str", "choices": ["a", "b"], "default": "a"}, {"choices": ["a", "b"], "default": "a"}),
        ({"type": "float", "default": 0.5}, {"type": "float", "default": 0.5}),
        ({"type": "int", "default": 0, "required": True}, {"type": "integer", "required": True}),
        ({"type": "str", "default": ""}, {"type": "text"}),
    ],
    ids=["choices", "float", "int", "empty"],
)
def test_a_question_follows_from_the_option(option: dict[str, Any], more: dict[str, Any]) -> None:
    found = surveys.question("karmada_it", option)
    assert found == {**found, **more}
    assert ("default" in found) == ("default" in more)


def test_who_has_to_be_named_is_required() -> None:
    required = {(verb, each["variable"]) for verb in VERBS for each in surveys.survey(verb)["spec"] if each["required"]}
    members = {(verb, "karmada_members") for verb in ("cordon", "drain", "uncordon")}
    assert required == {*members, ("uninstall", "karmada_confirm")}


def test_nothing_that_a_workflow_or_a_schedule_starts_waits_for_an_answer(objects: dict[str, Any]) -> None:
    templates = {each["name"]: each for each in objects["controller_templates"]}
    nodes = objects["controller_workflows"][0]["simplified_workflow_nodes"]
    started = [each["unified_job_template"] for each in nodes if "unified_job_template" in each]
    started += [each["unified_job_template"] for each in objects["controller_schedules"]]
    assert [each.rpartition(" ")[2] for each in started] == ["preflight", "install", "members", "report", "drift"]
    for name in started:
        assert not any(each["required"] for each in templates[name].get("survey_spec", {}).get("spec", ()))
    known = {each["identifier"] for each in nodes}
    for each in nodes:
        assert {name for kind in _LINKS for name in each.get(kind, ())} <= known
    before = {each["identifier"] for each in nodes if "install" in each.get("success_nodes", ())}
    assert before == {"approval"}


@pytest.mark.parametrize("failed", ["preflight", "approval", "install", "members", "report"])
def test_a_workflow_with_a_job_that_failed_has_failed(failed: str, objects: dict[str, Any]) -> None:
    nodes = {each["identifier"]: each for each in objects["controller_workflows"][0]["simplified_workflow_nodes"]}
    assert set(nodes) == {"preflight", "approval", "install", "members", "report"}
    assert _has_failed(nodes, failed)
    assert not _has_failed(nodes, "")


def _has_failed(nodes: dict[str, dict[str, Any]], failed: str) -> bool:
    """Whether AWX calls a workflow failed in which this node, if it starts, fails and all others succeed.

    AWX's rule (``WorkflowDAG.has_workflow_failed``): a node that failed counts only if nothing follows its failure.
    """
    led_to = {name for each in nodes.values() for kind in _LINKS for name in each.get(kind, ())}
    waiting, bad = [name for name in nodes if name not in led_to], False
    while waiting:
        node = nodes[name := waiting.pop()]
        handled = [*node.get("failure_nodes", ()), *node.get("always_nodes", ())]
        bad = bad or (name == failed and not handled)
        waiting += handled if name == failed else [*node.get("success_nodes", ()), *node.get("always_nodes", ())]
    return bad


def test_what_has_no_survey_is_told_which_of_several_control_planes_it_is_about(objects: dict[str, Any]) -> None:
    """A workflow hands its variables on to the nodes whose surveys ask for them, as AWX's are accepted."""
    chosen = {"karmada_instance": "{{ karmada_awx_instance | default('') }}"}
    templates = {each["name"]: each for each in objects["controller_templates"]}
    unasked = [each for each in templates.values() if not each["survey_enabled"]]
    assert [each["name"].rpartition(" ")[2] for each in unasked] == ["drift"]
    (workflow,) = objects["controller_workflows"]
    assert unasked[0]["extra_vars"] == {**chosen, "karmada_fail_on_drift": True}
    assert workflow["extra_vars"] == chosen
    found = workflow["simplified_workflow_nodes"]
    nodes = [each["unified_job_template"] for each in found if "unified_job_template" in each]
    for name in nodes:
        assert chosen.keys() <= {each["variable"] for each in templates[name]["survey_spec"]["spec"]}, name
    assert objects["karmada_awx_instance"] == "", "one document has one control plane"


def test_jobs_that_open_backups_get_the_key_that_no_survey_asks_for(objects: dict[str, Any]) -> None:
    (key,) = (each for each in objects["controller_credential_types"] if each["name"] == "Karmada backup key")
    given = set(key["injectors"]["extra_vars"])
    assert given == {name for name in surveys.NOT_ASKED if name.endswith("_identity")}
    opening = {
        each["playbook"].removeprefix("playbooks/").removesuffix(".yml")
        for each in objects["controller_templates"]
        if "karmada_awx_backup_keys" in each["credentials"]
    }
    assert opening == {verb for verb in VERBS if surveys.offered(verb) & given}
    assert opening == {"backup_drill", "backup_verify", "hand_over", "restore"}
    assert objects["karmada_awx_backup_keys"] == [], "there is none before somebody has typed it"


def test_what_is_not_asked_is_a_variable_of_a_playbook() -> None:
    offered = {name for verb in sources.verbs() for name in surveys.offered(verb)}
    assert set(surveys.NOT_ASKED) <= offered
    assert not set(surveys.NOT_ASKED) & {name for verb in VERBS for name in surveys.taken(verb)}


def test_only_settings_are_left_to_the_user(objects: dict[str, Any]) -> None:
    text = json.dumps({name: each for name, each in objects.items() if name.startswith("controller_")})
    used = set(re.findall(r"\bkarmada_awx_\w+", text))
    settings = {name for name in objects if name.startswith("karmada_awx_")}
    assert used - settings == {"karmada_awx_host_kubeconfig"}
    assert settings - used == set()


def test_no_injector_is_a_template_of_ansible(objects: dict[str, Any]) -> None:
    for each in objects["controller_credential_types"]:
        text = json.dumps(each)
        assert "{{" not in text
        told = {**each["injectors"].get("env", {}), **each["injectors"].get("extra_vars", {})}
        assert set(told.values()) == {"{  { tower.filename }}"}
        assert text.count("{  {") == 1 + len(told)
        fields = {field["id"] for field in each["inputs"]["fields"]}
        assert re.findall(r"{  { (\w+) }}", each["injectors"]["file"]["template"]) == sorted(fields)


@pytest.mark.parametrize("verb", ["install", "drain", "uninstall", "preflight"])
def test_what_a_survey_leaves_empty_is_not_given(verb: str, tmp_path: Path) -> None:
    """Each step gets what it gets without the variables; the base of all actions leaves out what is empty."""
    empty = {each["variable"]: "" for each in surveys.survey(verb)["spec"]}
    assert len(empty) > 2
    results = {**playbook_runs.RESULTS, "uninstall": {"changed": False, "installed": True}}
    steps = []
    for name, options in (("with", ["-e", json.dumps(empty)]), ("without", [])):
        (tmp_path / name).mkdir()
        done, found = playbook_runs.run(verb, tmp_path / name, results, *options)
        steps.append([{key: each for key, each in step.items() if key != "msg"} for step in map(_effective, found)])
        assert "is undefined" not in done.stdout
    assert len(steps[1]) > 1
    assert steps[0] == steps[1]


def _effective(step: dict[str, Any]) -> dict[str, Any]:
    """Step with the arguments that count: those that are given, else their defaults."""
    action = importlib.import_module(
        f"ansible_collections.karmada.installer.plugins.action.{step['step']}"
    ).ActionModule
    options = {**getattr(action, "COMMON", {}), **action.OPTIONS}
    given = not_given.left_out(step, options)
    defaults = {name: option["default"] for name, option in options.items() if "default" in option}
    found = {**defaults, **given}
    return {key: each for key, each in found.items() if each not in (None, "", [], "[]")}
