# SPDX-License-Identifier: Apache-2.0
"""EtcdRestores beside a document: which are accepted, what they say, and where a problem is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source, manifest, restores
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import readable
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part, WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.documents import document

PROD = manifest.resolve(document())
#: Fields of an object that say what becomes of its quarantine.
DECIDES = {"decision", "release", "keep", "letGo"}
GOOD, BAD = corpus_files.good(corpus_files.RESTORES), corpus_files.bad(corpus_files.RESTORES)


def written(name: str = "full") -> dict[str, Any]:
    (found,) = [each for each in GOOD if each.path.stem == name]
    document: dict[str, Any] = yaml.safe_load(found.text)
    return document


@pytest.mark.parametrize("file", GOOD, ids=str)
def test_a_good_one_is_accepted(file: corpus_files.CorpusFile) -> None:
    written = readable(file.text)
    if DECIDES & written[0]["spec"].keys():
        # As an object only.
        with pytest.raises(ProblemsError, match="has no effect in a file"):
            restores.beside(written, PROD, file.path.name)
        (found,) = restores.of_objects(written, PROD)
    else:
        (found,) = restores.beside(written, PROD, file.path.name)
    assert found["metadata"]["namespace"] == "karmada-system"
    assert WantedRestore.of(found).series == "nightly"


@pytest.mark.parametrize("file", BAD, ids=str)
def test_a_bad_one_is_refused_at_the_right_place(file: corpus_files.CorpusFile) -> None:
    found = restores.RESTORE.validate(yaml.safe_load(file.text))
    assert {problem.where for problem in found} == {path for path, _ in file.expected}, [str(each) for each in found]
    for path, part in file.expected:
        assert any(part in str(problem) for problem in found if problem.where == path), [str(each) for each in found]


def test_what_it_says() -> None:
    assert WantedRestore.of(written()) == WantedRestore("back", "nightly", "prod-20261125t020000z-1f3a9c")
    assert WantedRestore.of(written("least")).backup == ""
    assert WantedRestore.of(written("confirmed")) == WantedRestore(
        "back",
        "nightly",
        "prod-20261125t020000z-1f3a9c",
        "prod-20261125t020000z-1f3a9c",
        "restore-key",
        ("member3",),
    )
    assert WantedRestore.of(written("survivor")) == WantedRestore(
        "back", "nightly", confirm="prod-etcd-0", secret="restore-key", survivor="prod-etcd-0"
    )
    assert WantedRestore.of(written()).place == "EtcdRestore back"


def test_it_has_to_be_of_this_control_plane_and_has_a_name_of_its_own() -> None:
    other = written()
    other["spec"]["deploymentRef"]["name"] = "other"
    with pytest.raises(ProblemsError) as caught:
        restores.resolved([other, written(), written()], PROD, "prod.yaml")
    assert [each.where for each in caught.value.problems] == [
        "prod.yaml: EtcdRestore back: spec.deploymentRef.name",
        "prod.yaml: EtcdRestore back: metadata.name",
        "prod.yaml: EtcdRestore back: metadata.name",
    ]


def test_a_decision_is_for_objects_only_because_in_a_file_it_would_be_there_before_the_quarantine() -> None:
    decided = written()
    decided["spec"]["decision"] = "Release"
    with pytest.raises(ProblemsError, match=r"EtcdRestore back: spec\.decision.*karmada\.installer\.release"):
        restores.beside([decided], PROD, "prod.yaml")
    (found,) = restores.of_objects([decided], PROD)
    assert WantedRestore.of(found).decision == restores.RELEASE


def test_parts_of_a_release_are_for_objects_only_and_the_file_says_what_there_is_instead() -> None:
    parted = written("parts")
    with pytest.raises(ProblemsError) as caught:
        restores.beside([parted], PROD, "prod.yaml")
    problems = {each.where: each.remedy for each in caught.value.problems}
    assert problems.keys() == {f"prod.yaml: EtcdRestore back: spec.{name}" for name in DECIDES}
    for field, variable in (
        ("release", "restore_release_parts"),
        ("keep", "restore_keep"),
        ("letGo", "restore_let_go"),
    ):
        where = f"prod.yaml: EtcdRestore back: spec.{field}"
        assert f"""karmada.installer.release -e '{{"{variable}": [...]}}'""" in problems[where]


def test_parts_are_the_same_however_they_are_written() -> None:
    asked = written("parts")["spec"]
    found = restores.parts_of(asked["release"])
    assert found == (
        Part((), ("bank",)),
        Part(("member1", "member3")),
        Part(("member2",), ("shop",)),
    )
    again = [*reversed(asked["release"]), {"clusters": ["member3", "member1"], "namespaces": []}]
    assert restores.parts_of(again) == found
    assert restores.works_of(asked["letGo"]) == ("member2/settings.v1-3c4d",)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ("member1", "is no list of parts"),
        (["member1"], "has something that is no part"),
        ([{}], "names neither clusters nor namespaces"),
        ([{"clusters": []}], "names neither clusters nor namespaces"),
        ([{"clusters": "member1"}], "has no list of names where a cluster is to stand"),
        ([{"cluster": ["member1"]}], "has a part with cluster"),
        ([{"clusters": ["{{ x }}"]}], "cannot be the name of a cluster"),
        ([{"clusters": ["m" * 49]}], "cannot be the name of a cluster"),
        ([{"clusters": ["member1\n"]}], "cannot be the name of a cluster"),
        ([{"clusters": ["*"]}], "cannot be the name of a cluster"),
        ([{"namespaces": ["a.b"]}], "cannot be the name of a namespace"),
        ([{"namespaces": [1]}], "cannot be the name of a namespace"),
    ],
)
def test_what_is_no_part_is_said(parts: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        restores.parts_of(parts)


@pytest.mark.parametrize("work", ["web", "/web", "member1/", "member1/a/b", "{{ x }}/web", "member1/web\n"])
def test_a_work_has_a_cluster_and_a_name(work: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a Work as CLUSTER/NAME"):
        restores.works_of([work])


def test_objects_of_other_control_planes_are_passed_over() -> None:
    other = written()
    other["spec"]["deploymentRef"]["name"] = "other"
    assert [each["spec"] for each in restores.of_objects([other, written()], PROD)] == [written()["spec"]]


def test_the_inventory_source_hands_on_those_in_the_same_file(tmp_path: Path) -> None:
    documents = [document(), written()]
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump_all(documents))
    source = tmp_path / "site.karmada.yml"
    source.write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    (found,) = inventory_source.load(str(source)).restores
    assert found["spec"] == written()["spec"]
    documents[1]["spec"]["backup"] = "../x"
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump_all(documents))
    with pytest.raises(ProblemsError, match=r"EtcdRestore back: spec\.backup"):
        inventory_source.load(str(source))
