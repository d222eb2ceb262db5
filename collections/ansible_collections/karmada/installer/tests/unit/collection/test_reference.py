# SPDX-License-Identifier: Apache-2.0
"""The pages that are made from the program are those that it makes now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import account_rights
from collection_docs import manifest, plugins, sources, variables
from karmada_operator.metrics import Metrics

REPOSITORY = Path(__file__).parents[7]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", REPOSITORY / "tools/generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_files_are_up_to_date(generator: ModuleType) -> None:
    stale = [
        path.name
        for path, content in generator.files().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != content
    ]
    assert stale == [], "run `make reference`"


def test_every_field_has_a_row_and_every_reference_a_section(generator: ModuleType) -> None:
    page = generator.files()[generator.REFERENCE / "manifest.md"]
    headings = re.findall(r"^## `(.+)`$", page, flags=re.MULTILINE)
    assert len(headings) == len(set(headings))
    targets = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert targets <= {manifest.anchor(each) for each in headings}

    def names(schema: dict) -> set[str]:
        found: set[str] = set()
        for name, field in schema.get("properties", {}).items():
            found |= {name} | names(field) | names(field.get("items", {}))
        return found

    definition = yaml.safe_load(generator.SCHEMA_FILE.read_text(encoding="utf-8"))
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    wanted = names(root["properties"]["spec"]) | names(root["properties"]["status"])
    assert {name for name in wanted if f"| `{name}` |" not in page} == set()


def test_a_section_that_fields_share_is_named_after_all_of_them(generator: ModuleType) -> None:
    page = generator.files()[generator.REFERENCE / "manifest.md"]
    rows = re.findall(r"^\| `(\w+)` .*Fields: \[`([^`]+)`\]", page, flags=re.MULTILINE)
    assert len(rows) > 40
    astray = {name: section for name, section in rows if name not in re.split(r"\W+", section.rpartition(".")[2])}
    assert astray == {}


def test_rules_are_folded_away_and_their_messages_are_not(generator: ModuleType) -> None:
    page = generator.files()[generator.REFERENCE / "manifest.md"]
    folded = re.findall(r"<details.*?</details>", page, flags=re.DOTALL)
    open_text = re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert folded
    assert "```cel" not in open_text
    for rule in re.findall(r"^// (.+)$", "\n".join(folded), flags=re.MULTILINE):
        assert rule.rpartition("` ")[2][:20].strip("` ") in open_text.replace("`", "")


def test_variables_of_every_role_that_a_playbook_runs_are_told_or_called_inner() -> None:
    page = variables.page()
    roles = {role for verb in sources.verbs() for use in sources.uses(verb) for role in sources.roles_of(use.content)}
    assert {"preflight", "pki", "control_plane", "member_leave", "report", "uninstall"} <= roles
    for name, option in ((name, option) for role in roles for name, option in sources.role_options(role).items()):
        behind = re.search(r"\bkarmada_\w+(?= \|)", str(option.get("default", "")))
        assert f"`{name}`" in page or (behind and f"`{behind[0]}`" in page), name


def test_variables_that_pages_and_messages_name_are_told() -> None:
    named = set()
    for path in (*REPOSITORY.glob("docs/**/*.md"), *sources.COLLECTION.glob("plugins/**/*.py")):
        named |= set(re.findall(r"-e '?(?:{\")?([a-z]+_[a-z_]+)", path.read_text(encoding="utf-8")))
    assert {"karmada_confirm", "member_leave_abandon"} <= named
    assert named - variables.known() == set()


@pytest.mark.parametrize(
    ("verb", "tags"), [("members", ["estimators", "join", "leave"]), ("install", []), ("preflight", [])]
)
def test_tags_are_those_that_choose_something(verb: str, tags: list[str]) -> None:
    assert variables.tags(verb) == tags


def test_plugins_that_are_for_users_are_told_in_full() -> None:
    page = plugins.plugins_page()
    assert set(re.findall(r"^## Action `(\w+)`$", page, flags=re.MULTILINE)) == {
        *("break_glass", "member_scheduling", "preflight", "report"),
    }
    assert "## Inventory source `karmada`" in page
    assert "| `certificates` | issue the keys and certificates of a control plane |" in page


def test_the_account_of_the_role_may_know_the_host_cluster_again(generator: ModuleType) -> None:
    objects = list(yaml.safe_load_all(generator.files()[generator.REFERENCE / "host-rights.yaml"]))
    everywhere = next(each for each in objects if each["kind"] == "ClusterRole")["rules"]
    rule = {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}
    assert rule in everywhere
    assert [each for each in everywhere if "namespaces" in each["resources"]] == [rule], "and read no other namespace"


def test_the_role_grants_what_preflight_asks_for_in_the_namespace(generator: ModuleType) -> None:
    objects = list(yaml.safe_load_all(generator.files()[generator.REFERENCE / "host-rights.yaml"]))
    role = next(each for each in objects if each["kind"] == "Role")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    always = {(group, resource, verb) for group, resource, verbs in account_rights.HOST_RIGHTS for verb in verbs}
    assert granted == {
        *always,
        ("", "namespaces", "get"),
        *(("networking.k8s.io", "ingresses", verb) for verb in (*account_rights.READ, *account_rights.WRITE)),
        *(("route.openshift.io", "routes", verb) for verb in (*account_rights.READ, *account_rights.WRITE)),
        *(("route.openshift.io", "routes/custom-host", verb) for verb in ("create", "update")),
    }


def test_every_figure_of_the_operator_is_on_its_page(generator: ModuleType) -> None:
    page = generator.files()[generator.REFERENCE / "metrics.md"]
    rows = re.findall(
        r"^\| `(\w+)` \| (counter|gauge|histogram) \| (none|`.*`) \| \S.*\.( .*)? \|$", page, re.MULTILINE
    )
    shown = {each.name + ("_total" if each.type == "counter" else "") for each in Metrics().registry.collect()}
    assert {row[0] for row in rows} == shown


def test_alerts_of_the_guide_ask_for_figures_that_there_are(generator: ModuleType) -> None:
    guide = (REPOSITORY / "docs/guides/operator.md").read_text(encoding="utf-8")
    named = set(re.findall(r"karmada_(?:operator|instance|backup)_\w+", guide)) - {"karmada_operator_"}
    labels = {labels for _, labels in re.findall(r"(karmada_\w+)\{(\w+)", guide)}
    page = generator.files()[generator.REFERENCE / "metrics.md"]
    assert len(named) > 5
    assert {each for each in named if f"| `{each}` |" not in page} == set()
    assert labels == {"ready", "lane"}
