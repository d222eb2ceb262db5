# SPDX-License-Identifier: Apache-2.0
"""Examples of all pages are accepted by what they are for: engine, inventory plugin, playbooks, bash."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import (
    backups,
    inventory_source,
    manifest,
    restores,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import documentation, runs_on_hosts, samples
from collection_docs import sources, variables

REPOSITORY = documentation.REPOSITORY
PAGES = documentation.pages()
BLOCKS = [block for page in PAGES for block in documentation.blocks(page)]
SPEC_FIELDS = set(manifest.schema()["properties"]["spec"]["properties"])
HEAD = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}}
#: Content that an example cannot have, in the place of its dots.
REDACTED = {"SHA256:…": f"SHA256:{'A' * 43}"}
#: Fields without which a document of plain hosts is none; a fragment leaves out what it is not about.
ON_HOSTS: Mapping[str, Any] = {"mode": "Binary", "hosts": [{"name": "cp1", "address": "192.0.2.11"}]}


def by_page(*languages: str) -> Any:
    """Parameters: the blocks of each page in these languages."""
    found = {
        str(page.relative_to(REPOSITORY)): [each for each in BLOCKS if each.page == page and each.language in languages]
        for page in PAGES
    }
    return pytest.mark.parametrize("blocks", [pytest.param(each, id=name) for name, each in found.items() if each])


def documents(block: documentation.Block) -> list[Any]:
    """YAML documents of a block, with the dots of examples replaced."""
    text = block.text
    for short, full in REDACTED.items():
        text = text.replace(short, full)
    return list(yaml.safe_load_all(text))


def test_every_block_says_what_it_is() -> None:
    known = {"yaml", "shell", "text", "ini", "cel", "console", "dockerfile"}
    assert [f"{block}: {block.language}" for block in BLOCKS if block.language not in known] == []


@by_page("shell")
def test_commands_are_read_by_bash(blocks: list[documentation.Block]) -> None:
    for block in blocks:
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}: {done.stderr}"


def spec_of(document: Any) -> dict[str, Any] | None:
    """Spec of a KarmadaDeployment, whole or a fragment of one; None for anything else."""
    if not isinstance(document, Mapping):
        return None
    if document.get("kind") == manifest.KIND or set(document) == {"spec"}:
        return dict(document["spec"] or {})
    return dict(document) if document and set(document) <= SPEC_FIELDS else None


def verdicts(document: Mapping[str, Any]) -> list[str]:
    """Problems of a document; of a fragment as well, in the document that has the fewest beside it."""
    if document.get("kind") == manifest.KIND:
        return [str(each) for each in manifest.validate(document)]
    spec = spec_of(document) or {}
    tries = [spec] if "mode" in spec else [spec, {**ON_HOSTS, **spec}]
    found = [manifest.validate({**HEAD, "spec": each}) for each in tries]
    return [str(each) for each in min(found, key=len)]


@by_page("yaml")
def test_documents_and_their_fragments_are_valid(blocks: list[documentation.Block]) -> None:
    for block in blocks:
        for document in documents(block):
            if spec_of(document) is not None:
                assert verdicts(document) == [], str(block)


def test_documents_are_found() -> None:
    found = [each for block in BLOCKS if block.language == "yaml" for each in documents(block)]
    assert sum(spec_of(each) is not None for each in found) > 35


def test_the_complete_example_has_every_section() -> None:
    page = REPOSITORY / "docs/guides/example.md"
    shown = {name for block in documentation.blocks(page) for each in documents(block) for name in spec_of(each) or ()}
    assert SPEC_FIELDS - shown == set()


@by_page("yaml")
def test_inventory_sources_are_read_by_the_plugin(blocks: list[documentation.Block], tmp_path: Path) -> None:
    options = set(sources.documented()["inventory"]["karmada"]["doc"]["options"])
    for block in blocks:
        for number, document in enumerate(documents(block)):
            if not (isinstance(document, Mapping) and "plugin" in document):
                continue
            assert set(document) - options == set(), str(block)
            if "manifest" not in document:  # objects of a cluster, and there is none here
                assert {"name", "namespace"} <= set(document) or document.get("instances") == "all", str(block)
                continue
            folder = tmp_path / f"{block.line}-{number}"
            folder.mkdir()
            source = folder / "site.karmada.yml"
            here = {**document, "kubeconfig": "kubeconfig"} if "kubeconfig" in document else document
            (folder / "kubeconfig").touch()
            source.write_text(yaml.safe_dump(here), encoding="utf-8")
            (folder / str(document["manifest"])).write_text(yaml.safe_dump(samples.document({})), encoding="utf-8")
            for option in ("secrets", "config_maps", "artifacts"):
                if option in document:
                    (folder / str(document[option])).mkdir()
            try:
                assert inventory_source.load(str(source)).deployment["metadata"]["name"] == "prod"
            except ProblemsError as error:
                pytest.fail(f"{block}: {error}")


# -- everything else ---------------------------------------------------------------------------------------------------

#: Objects of Kubernetes and Karmada: what they are for, users know; their API servers judge the rest.
OBJECTS = {
    "Deployment": "apps/v1",
    "PropagationPolicy": "policy.karmada.io/v1alpha1",
    "ClusterTaintPolicy": "policy.karmada.io/v1alpha1",
}
CHART = REPOSITORY / "operator/chart"


def is_backup(document: Mapping[str, Any]) -> None:
    """Judge an EtcdBackup or EtcdRestore as the engine does; an object may have a decision, which no file has."""
    module = {backups.KIND: backups, restores.KIND: restores}[document["kind"]]
    # Of a control plane in pods, and of one on plain hosts where that has backups.
    on_hosts = "hostDirectory" in document["spec"].get("target", {})
    deployment = runs_on_hosts.deployment() if on_hosts else samples.document({})
    deployment["metadata"]["namespace"] = document["metadata"].get("namespace", "default")
    (found,) = module.resolved([document], deployment)
    assert found["spec"]["deploymentRef"]["name"] == "prod"


def is_object(document: Mapping[str, Any]) -> None:
    """Judge the kind of an object, and that it has a name."""
    assert OBJECTS[document["kind"]] == document["apiVersion"]
    assert document["metadata"]["name"]


def merged(defaults: Any, given: Any) -> Any:
    """Values with the defaults of a chart, as Helm merges them: maps key by key, all else as a whole."""
    if not (isinstance(defaults, Mapping) and isinstance(given, Mapping)):
        return given
    return {**defaults, **{key: merged(defaults.get(key), value) for key, value in given.items()}}


def is_values(document: Mapping[str, Any]) -> None:
    """Judge values of the operator's chart by its schema, as Helm does."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(merged(defaults, document), schema)


def is_part_of_a_source(document: Mapping[str, Any]) -> None:
    """Judge options of the inventory plugin."""
    assert set(document) <= set(sources.documented()["inventory"]["karmada"]["doc"]["options"])


def is_inventory(document: Mapping[str, Any]) -> None:
    """Judge an inventory of the user's own."""
    assert set(document["all"]) <= {"hosts", "vars", "children"}


def is_list_of_collections(document: Mapping[str, Any]) -> None:
    """Judge what ansible-galaxy installs."""
    assert all(each["name"] for each in document["collections"])


def judge(document: Any) -> Callable[[Any], None] | None:
    """Judge of a YAML document, by its form; None if nobody knows what it is."""
    if not isinstance(document, Mapping):
        return None
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    options = sources.documented()["inventory"]["karmada"]["doc"]["options"]
    forms: list[tuple[bool, Callable[[Any], None]]] = [
        (document.get("kind") in (backups.KIND, restores.KIND), is_backup),
        (document.get("kind") in OBJECTS, is_object),
        (set(document) == {"all"}, is_inventory),
        (set(document) == {"collections"}, is_list_of_collections),
        (bool(document) and set(document) <= set(values), is_values),
        (bool(document) and set(document) <= set(options), is_part_of_a_source),
    ]
    return next((each for fits, each in forms if fits), None)


@by_page("yaml")
def test_every_other_document_has_a_judge_and_is_accepted(blocks: list[documentation.Block]) -> None:
    for block in blocks:
        for document in documents(block):
            # Plays, documents and inventory sources are judged elsewhere here.
            if isinstance(document, list) or spec_of(document) is not None or "plugin" in document:
                continue
            judged_by = judge(document)
            assert judged_by is not None, f"{block}: nobody knows what this is"
            try:
                judged_by(document)
            except (ProblemsError, jsonschema.ValidationError) as error:
                pytest.fail(f"{block}: {error}")


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "EtcdBackup", "apiVersion": manifest.API_VERSION, "metadata": {"name": "b"}, "spec": {"schedul": ""}},
        {"image": {"repositori": "registry.example.com/operator"}},
        {"kind": "PropagationPolicy", "apiVersion": "policy.karmada.io/v1", "metadata": {"name": "a"}},
    ],
)
def test_an_example_that_is_wrong_is_found(document: Any) -> None:
    judged_by = judge(document)
    assert judged_by is not None
    with pytest.raises((ProblemsError, jsonschema.ValidationError, AssertionError)):
        judged_by(document)


def test_a_document_that_nobody_knows_has_no_judge() -> None:
    assert judge({"something": "else"}) is None


# -- playbooks ---------------------------------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[str]:
    """Each call of ansible-playbook on a page, in blocks and in the text, on one line."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for found in re.finditer(r"ansible-playbook (-i [^`\n]*)", text):
        yield found[1]


CALLS = [(page, call) for page in PAGES for call in commands(page)]


def test_calls_of_playbooks_are_there_and_take_what_they_are_given() -> None:
    assert len(CALLS) > 40
    wrong = []
    for page, call in CALLS:
        verbs = re.findall(r"karmada\.installer\.(\w+)", call)
        given = re.findall(r"""-e '?(?:{")?([a-z]+_[a-z_]+)""", call)
        tags = [tag for each in re.findall(r"--tags ([\w,]+)", call) for tag in each.split(",")]
        here = f"{page.relative_to(REPOSITORY)}: {call}"
        wrong += [f"{here}: no playbook {verb}" for verb in verbs if verb not in sources.verbs()]
        wrong += [f"{here}: no variable {name}" for name in given if name not in variables.known()]
        wrong += [f"{here}: no tag {tag}" for tag in tags for verb in verbs if tag not in variables.tags(verb)]
    assert wrong == []


def tasks_of(plays: Any) -> Iterator[Mapping[str, Any]]:
    """Tasks of plays and of lists of tasks, those in blocks included."""
    for each in plays:
        yield each
        for section in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from tasks_of(each.get(section) or ())


@by_page("yaml")
def test_plays_use_actions_and_roles_that_there_are(blocks: list[documentation.Block]) -> None:
    documented = sources.documented()
    for block in blocks:
        for document in documents(block):
            for task in tasks_of(document) if isinstance(document, list) else ():
                for key, value in task.items():
                    if key.startswith(f"{sources.NAME}."):
                        options = documented["module"][key.removeprefix(f"{sources.NAME}.")]["doc"].get("options", {})
                        assert set(value or {}) - set(options) == set(), str(block)
                for role in sources.roles_of(task):
                    tasks = str(next(task[key] for key in task if key.endswith("_role")).get("tasks_from", "main"))
                    assert (sources.COLLECTION / f"roles/{role}/tasks/{tasks}.yml").is_file(), str(block)
