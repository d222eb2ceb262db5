# SPDX-License-Identifier: Apache-2.0
"""Objects of AWX, applied by awx.awx itself to a stub of AWX's API."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awx_packages
import leaks
import pytest
import yaml
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT
from ansible_collections.karmada.installer.tests.contract.pasted_commands import block
from awx_api import AwxApi

EXAMPLE, GUIDE = CHECKOUT / "examples/awx", CHECKOUT / "docs/guides/awx.md"
#: Address of the project in settings and guide.
REPOSITORY = "https://git.example.com/platform/karmada-sites.git"
TOKEN = "t0ken-of-awx"
KUBECONFIG = "apiVersion: v1\nkind: Config\nusers: [{name: me, user: {token: s3cret-of-the-host-cluster}}]\n"
#: List of a file → module that makes its objects; what nodes are made of has one of its own.
MODULES = {
    "controller_credential_types": "credential_type",
    "controller_credentials": "credential",
    "controller_execution_environments": "execution_environment",
    "controller_projects": "project",
    "controller_inventories": "inventory",
    "controller_inventory_sources": "inventory_source",
    "controller_templates": "job_template",
    "controller_workflows": "workflow_job_template",
    "controller_schedules": "schedule",
}


@pytest.fixture(scope="module")
def collections() -> str:
    return os.pathsep.join((str(CHECKOUT / "collections"), str(awx_packages.folder())))


@pytest.fixture(scope="module")
def options(collections: str) -> dict[str, Any]:
    """Module of awx.awx → its options, as its documentation has them."""
    names = [f"awx.awx.{each}" for each in (*MODULES.values(), "workflow_job_template_node")]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-doc")), "--json", *names],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections},
        check=True,
        capture_output=True,
        text=True,
    )
    return {name.rpartition(".")[2]: each["doc"]["options"] for name, each in json.loads(done.stdout).items()}


#: Templates that are applied if not all are asked for: each takes a module of awx.awx some seconds, and these are what
#: workflow and schedule are made of, and one more with a survey.
APPLIED = ("preflight", "install", "members", "report", "drift", "uninstall")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Repository to copy, with all of its templates or with some."""
    copy = tmp_path / "project"
    shutil.copytree(EXAMPLE, copy)
    if os.environ.get("AWX_TEMPLATES") != "all":
        (copy / "controller/templates.yml").write_text(_only(copy, *APPLIED), encoding="utf-8")
    return copy


@pytest.fixture
def awx() -> Iterator[AwxApi]:
    playbooks = [f"playbooks/{path.name}" for path in (EXAMPLE / "playbooks").glob("*.yml")]
    with AwxApi(TOKEN, playbooks) as api:
        yield api


def applied(
    project: Path, collections: str, awx: AwxApi | None, *arguments: str, token: str = TOKEN
) -> subprocess.CompletedProcess[str]:
    there = {"CONTROLLER_HOST": awx.url, "CONTROLLER_OAUTH_TOKEN": token} if awx else {}
    return subprocess.run(
        [
            *(str(Path(sys.executable).with_name("ansible-playbook")), "karmada.installer.awx_objects", *arguments),
        ],
        cwd=project,
        env={**environment(project, collections), **there, "PWD": str(project)},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


def environment(home: Path, collections: str) -> dict[str, str]:
    """Environment of somebody with this home folder, in which Ansible has these collections and no other settings."""
    other = ("ANSIBLE_", "CONTROLLER_", "GIT_")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(other)},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "ANSIBLE_COLLECTIONS_PATH": collections,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
    }


def test_applied_twice_the_second_time_writes_nothing(project: Path, collections: str, awx: AwxApi) -> None:
    given = json.dumps({"karmada_awx_host_kubeconfig": KUBECONFIG})
    first = applied(project, collections, awx, "-e", given)
    assert first.returncode == 0, first.stdout + first.stderr
    made = len(awx.writes)
    second = applied(project, collections, awx)
    assert second.returncode == 0, second.stdout + second.stderr
    assert awx.writes[made:] == []
    assert "changed=0" in second.stdout
    for text in (first.stdout, first.stderr):
        assert list(leaks.leaks(text, {"kubeconfig": {"s3cret-of-the-host-cluster"}, "token": {TOKEN}})) == []

    types = awx.named("credential_types")
    assert types["Karmada host cluster"]["injectors"] == {
        "file": {"template": "{{ kubeconfig }}"},
        "env": {"K8S_AUTH_KUBECONFIG": "{{ tower.filename }}"},
    }
    assert types["Karmada control plane"]["injectors"]["env"] == {"KARMADA_KUBECONFIG": "{{ tower.filename }}"}
    assert awx.named("credentials")["Karmada host cluster"]["inputs"] == {"kubeconfig": KUBECONFIG}
    templates = awx.named("job_templates")
    written = yaml.safe_load((project / "controller/templates.yml").read_text(encoding="utf-8"))
    applied_of_them = [each["playbook"] for each in written["controller_templates"]]
    assert sorted(each["playbook"] for each in templates.values()) == sorted(applied_of_them)
    if os.environ.get("AWX_TEMPLATES") == "all":
        assert set(applied_of_them) == set(awx.playbooks)
    for each in templates.values():
        assert awx.linked("job_templates", each["id"], "credentials") == ["Karmada host cluster"]
    install = awx.surveys[templates["Karmada install"]["id"]]
    wanted = {each["playbook"]: each.get("survey_spec") for each in written["controller_templates"]}
    assert install == next(each["survey_spec"] for each in written["controller_templates"] if "install" in each["name"])
    assert wanted["playbooks/uninstall.yml"] == awx.surveys[templates["Karmada uninstall"]["id"]]
    assert templates["Karmada drift"]["id"] not in awx.surveys
    way = awx.named("workflow_job_template_nodes")
    links = {name: awx.linked("workflow_job_template_nodes", each["id"], "success_nodes") for name, each in way.items()}
    assert links == {
        "preflight": ["approval"],
        "approval": ["install"],
        "install": ["members"],
        "members": ["report"],
        "report": [],
    }
    # AWX takes a failure that is followed by something for handled; the second run would have taken such a link away.
    for each in way.values():
        assert awx.linked("workflow_job_template_nodes", each["id"], "failure_nodes") == []
    assert way["approval"]["unified_job_template"] in awx.objects["workflow_approval_templates"]
    (night,) = awx.named("schedules").values()
    assert night["unified_job_template"] == templates["Karmada drift"]["id"]


def test_what_somebody_has_changed_by_hand_is_brought_back_and_their_kubeconfig_stays(
    project: Path, collections: str, awx: AwxApi
) -> None:
    few_objects(project)
    assert applied(project, collections, awx).returncode == 0
    (credential,) = awx.named("credentials").values()
    assert "inputs" not in credential, "it is typed in AWX"
    credential["inputs"] = {"kubeconfig": "typed in AWX"}
    (template,) = awx.named("job_templates").values()
    template["allow_simultaneous"] = True
    awx.surveys[template["id"]]["spec"].pop()
    awx.writes.clear()
    check = applied(project, collections, awx, "--check")
    assert check.returncode == 0, check.stdout
    assert "changed=1" in check.stdout
    assert awx.writes == []
    done = applied(project, collections, awx)
    assert done.returncode == 0, done.stdout
    assert [method for method, path, _ in awx.writes if "credentials" in path] == []
    assert template["allow_simultaneous"] is False
    assert len(awx.writes) == 2
    assert awx.named("credentials")["Karmada host cluster"]["inputs"] == {"kubeconfig": "typed in AWX"}


def test_the_commands_of_the_guide_make_the_repository_and_the_objects(
    tmp_path: Path, collections: str, awx: AwxApi
) -> None:
    """As they stand, but that AWX has the address of the stub, and git the repository in a folder."""
    home, served, example = tmp_path / "home", tmp_path / "served.git", tmp_path / "checkout/examples/awx"
    shutil.copytree(EXAMPLE, example)
    few_objects(example)
    home.mkdir()
    subprocess.run(["git", "init", "--quiet", "--bare", str(served)], check=True)
    (home / ".gitconfig").write_text(
        f'[user]\nname = me\nemail = me@example.com\n[url "{served}"]\ninsteadOf = {REPOSITORY}\n', encoding="utf-8"
    )

    def pasted(word: str, folder: Path) -> str:
        commands = block(GUIDE, "shell", word)
        for theirs, ours in {"https://awx.example.com": awx.url, "TOKEN=…": f"TOKEN={TOKEN}"}.items():
            commands = commands.replace(theirs, ours)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env={**environment(home, collections), **credential},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    credential: dict[str, str] = {}
    pasted("git init", tmp_path / "checkout")
    project = awx.named("projects")["Karmada"]
    assert (project["scm_url"], project["scm_branch"]) == (REPOSITORY, "main")
    listed = ["git", "-C", str(served), "ls-tree", "-r", "--name-only", "main"]
    pushed = subprocess.run(listed, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert sorted(pushed) == sorted(str(each.relative_to(example)) for each in example.rglob("*") if each.is_file())
    awx.writes.clear()
    # In the same shell, which has what the first commands have exported.
    credential |= {"CONTROLLER_HOST": awx.url, "CONTROLLER_OAUTH_TOKEN": TOKEN}
    assert "changed=0" in pasted("awx_objects --check", tmp_path / "karmada-sites")
    assert awx.writes == []


def few_objects(project: Path) -> None:
    """Leave one template and what it needs: a second or more is taken by each."""
    (project / "controller/templates.yml").write_text(_only(project, "report"), encoding="utf-8")
    for name in ("workflows.yml", "schedules.yml"):
        (project / "controller" / name).unlink()


def _only(project: Path, *names: str) -> str:
    """Templates of these names, as the file has them."""
    found = yaml.safe_load((project / "controller/templates.yml").read_text(encoding="utf-8"))["controller_templates"]
    ends = tuple(f"}} {name}" for name in names)
    return yaml.safe_dump({"controller_templates": [each for each in found if each["name"].endswith(ends)]})


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (None, "there is no such folder with the objects of AWX"),
        ({}, "it has no objects of AWX"),
        ({"a.yml": "controller_roles: []\n"}, "controller_roles, which this playbook does not make"),
        ({"a.yml": "controller_templates: [{playbook: x}]\n"}, "controller_templates: each needs a name"),
        ({"a.yml": "controller_projects: [{name: a}, {name: a}]\n"}, "controller_projects: each needs a name"),
        (
            {"a.yml": "controller_projects: [{name: a, scm_brnch: b}]\n"},
            "controller_projects: scm_brnch is not handed on",
        ),
        (
            {"a.yml": "controller_workflows: [{name: a, simplified_workflow_nodes: [{sucess_nodes: []}]}]\n"},
            "controller_workflows: sucess_nodes is not handed on",
        ),
    ],
    ids=["no-folder", "nothing", "roles", "no-name", "twice", "field", "field-of-node"],
)
def test_files_that_cannot_be_applied_change_nothing(
    files: dict[str, str] | None, told: str, tmp_path: Path, collections: str, awx: AwxApi
) -> None:
    folder = tmp_path / "mine"
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    done = applied(tmp_path, collections, awx, "-e", f"karmada_awx_files={folder}")
    assert done.returncode == 2, done.stdout
    assert told in " ".join(done.stdout.split()), done.stdout
    assert awx.writes == []


def test_without_an_awx_nothing_is_tried(project: Path, collections: str) -> None:
    done = applied(project, collections, None)
    assert done.returncode == 2
    assert "It is not said which AWX is meant. Set CONTROLLER_HOST" in " ".join(done.stdout.split())


def test_a_token_that_is_not_taken_is_told(project: Path, collections: str, awx: AwxApi) -> None:
    done = applied(project, collections, awx, token="ended")
    assert done.returncode == 2
    assert "Invalid authentication credentials" in done.stdout
    assert awx.named("credential_types") == {}


@pytest.mark.parametrize("variable", sorted(MODULES))
def test_every_field_of_the_files_is_an_option_of_awx_awx(variable: str, options: dict[str, Any]) -> None:
    name = variable.removeprefix("controller_")
    objects = yaml.safe_load((EXAMPLE / f"controller/{name}.yml").read_text(encoding="utf-8"))[variable]
    known = options[MODULES[variable]]
    for each in objects:
        for node in each.pop("simplified_workflow_nodes", ()):
            assert set(node) <= set(options["workflow_job_template_node"])
        assert set(each) <= set(known)
        for key, value in each.items():
            if (choices := known[key].get("choices")) and "{{" not in str(value):
                assert value in choices


def test_the_playbook_hands_on_every_field_and_knows_each_option(options: dict[str, Any]) -> None:
    folder = CHECKOUT / "collections/ansible_collections/karmada/installer/playbooks/on_awx"
    tasks = yaml.safe_load((folder / "objects.yml").read_text(encoding="utf-8"))
    passed: dict[str, set[str]] = {}
    for task in tasks:
        (module,) = [key.removeprefix("awx.awx.") for key in task if key.startswith("awx.awx.")]
        assert set(task[f"awx.awx.{module}"]) <= set(options[module]), task["name"]
        passed.setdefault(module, set()).update(task[f"awx.awx.{module}"])
    for variable, module in MODULES.items():
        path = EXAMPLE / f"controller/{variable.removeprefix('controller_')}.yml"
        for each in yaml.safe_load(path.read_text(encoding="utf-8"))[variable]:
            for node in each.pop("simplified_workflow_nodes", ()):
                assert set(node) <= passed["workflow_job_template_node"]
            assert set(each) <= passed[module], each["name"]
