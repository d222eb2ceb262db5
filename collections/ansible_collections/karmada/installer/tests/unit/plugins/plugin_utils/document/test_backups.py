# SPDX-License-Identifier: Apache-2.0
"""EtcdBackups beside a document: which are accepted, what they say, and where a problem is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups, crd, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import readable
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import Cron, Interval
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.documents import document

PROD = manifest.resolve(document())
ON_HOSTS = manifest.resolve(
    document(
        mode="Binary",
        endpoint={"type": "External", "host": "karmada.example.com"},
        hosts=[
            {"name": "etcd-1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]},
            {"name": "lb1", "address": "192.0.2.2", "roles": ["controlPlane"]},
        ],
    )
)


def named(name: str) -> corpus_files.CorpusFile:
    (found,) = [file for file in corpus_files.good(corpus_files.BACKUPS) if file.path.stem == name]
    return found


def changed(**fields: Any) -> dict[str, Any]:
    """The least backup with other fields; ``None`` takes one out."""
    found = yaml.safe_load(named("least").text)
    found["spec"] = {key: value for key, value in {**found["spec"], **fields}.items() if value is not None}
    return found


def problems_of(*documents: dict[str, Any], deployment: dict[str, Any] = PROD) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        backups.resolved(documents, deployment, "prod.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert len(corpus_files.good(corpus_files.BACKUPS)) >= 8
    assert len(corpus_files.bad(corpus_files.BACKUPS)) >= 35
    assert [str(file) for file in corpus_files.bad(corpus_files.BACKUPS) if not file.expected] == []


@pytest.mark.parametrize("file", corpus_files.good(corpus_files.BACKUPS), ids=str)
def test_good_backup_is_accepted(file: corpus_files.CorpusFile) -> None:
    (found,) = backups.beside(readable(file.text), ON_HOSTS if file.path.stem == "host" else PROD, file.path.name)
    assert "status" not in found
    assert found["metadata"]["namespace"] == "karmada-system"
    assert backups.Wanted.of(found).recipients


@pytest.mark.parametrize("file", corpus_files.bad(corpus_files.BACKUPS), ids=str)
def test_bad_backup_is_refused_at_the_right_place(file: corpus_files.CorpusFile) -> None:
    found = backups.BACKUP.validate(yaml.safe_load(file.text))
    assert {problem.where for problem in found} == {path for path, _ in file.expected}, [str(each) for each in found]
    for path, part in file.expected:
        assert any(part in str(problem) for problem in found if problem.where == path), [str(each) for each in found]
    assert "secret" not in " ".join(map(str, found)) or file.path.stem == "bucket_without_account"


def test_full_backup_has_every_field_of_the_spec() -> None:
    """Then every field is known to be accepted, and the contract test shows it to an API server."""
    given = set()
    for file in corpus_files.good(corpus_files.BACKUPS):
        given |= set(_given(yaml.safe_load(file.text)["spec"]))
    assert set(_fields(backups.BACKUP.schema["properties"]["spec"])) - given == set()


def _fields(schema: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for name, child in schema.get("properties", {}).items():
        found += [f"{path}.{name}", *_fields(child, f"{path}.{name}")]
    return found


def _given(value: Any, path: str = "") -> list[str]:
    if not isinstance(value, dict):
        return []
    return [each for name, item in value.items() for each in (f"{path}.{name}", *_given(item, f"{path}.{name}"))]


def test_what_is_not_said_is_each_hour_and_a_day_a_week_and_a_month_of_it() -> None:
    wanted = backups.Wanted.of(*backups.beside(readable(named("least").text), PROD))
    assert wanted.schedule == Interval(timedelta(hours=1))
    assert wanted.retention == backups.Retention(24, 7, 4)
    assert wanted.target == backups.Directory("")
    assert not wanted.suspended


def test_everything_that_is_said_is_read() -> None:
    wanted = backups.Wanted.of(*backups.beside(readable(named("full").text), PROD))
    assert wanted.name == "nightly"
    assert len(wanted.recipients) == 2
    assert wanted.schedule == Cron.of("30 2 * * 1-5")
    assert wanted.suspended
    assert wanted.target == backups.S3(
        "karmada-backups", "https://s3.example.com:9000", "eu-central-1", "site-a/karmada", "backup-store"
    )
    assert wanted.retention == backups.Retention(48, 14, 8)


def test_documents_of_other_kinds_in_the_file_are_not_backups() -> None:
    text = f"{yaml.safe_dump(document())}\n---\nkind: ConfigMap\n{named('least').text}"
    assert [each["metadata"]["name"] for each in backups.beside(readable(text), PROD)] == ["nightly"]
    assert manifest.parse(text)["kind"] == manifest.KIND


def test_problems_of_all_are_told_with_file_and_name() -> None:
    other = {**changed(interval="1m"), "metadata": {"name": "often"}}
    unnamed = {key: value for key, value in changed().items() if key != "metadata"}
    assert [each.partition(": ")[0] for each in problems_of(changed(recipients=None), other)] == ["prod.yaml"] * 2
    told = problems_of(changed(recipients=None), other, unnamed)
    assert [": ".join(each.split(": ")[1:3]) for each in told] == [
        "EtcdBackup nightly: spec.recipients",
        "EtcdBackup often: spec.interval",
        "EtcdBackup: metadata.name",
    ]


def test_a_backup_of_another_control_plane_is_refused_beside_a_document() -> None:
    (told,) = problems_of(changed(deploymentRef={"name": "stage"}))
    assert 'spec.deploymentRef.name: is "stage", but the document here is "prod"' in told
    assert "move it beside the document of stage" in told


def test_objects_of_other_control_planes_are_nothing_of_ours() -> None:
    objects = [{}, changed(deploymentRef={"name": "stage"}), {**changed(), "status": {"count": 2}}]
    assert [each["metadata"]["name"] for each in backups.of_objects(objects, PROD)] == ["nightly"]


def test_a_backup_of_another_namespace_is_refused() -> None:
    (told,) = problems_of({**changed(), "metadata": {"name": "nightly", "namespace": "elsewhere"}})
    assert 'metadata.namespace: is "elsewhere", but the document is in "karmada-system"' in told


def test_two_of_one_name_are_refused() -> None:
    (told,) = problems_of(changed(), changed())
    assert 'metadata.name: "nightly" is there twice' in told


def test_an_unknown_version_of_the_schema_is_refused() -> None:
    (told,) = problems_of({**changed(), "apiVersion": "installer.karmada.io/v9"})
    assert "installer.karmada.io/v1alpha1" in told


@pytest.mark.parametrize("schedule", ["0 2 31 2 *", "0 2 30-29 * *", "5-4 * * * *", "0 0 31 4,6,9,11 *"])
def test_a_schedule_that_never_comes_is_refused(schedule: str) -> None:
    (told,) = problems_of(changed(schedule=schedule))
    assert f'spec.schedule: "{schedule}" never comes' in told


def on_host(host: str, name: str = "nightly", path: str = "/srv/backups") -> dict[str, Any]:
    target = {"hostDirectory": {"host": host, "path": path}}
    return {**changed(target=target), "metadata": {"name": name}}


def test_a_directory_of_a_host_is_read() -> None:
    (found,) = backups.resolved([on_host("lb1")], ON_HOSTS)
    assert backups.Wanted.of(found).target == backups.HostDirectory("lb1", "/srv/backups", "")
    (found,) = backups.beside(readable(named("host").text), ON_HOSTS)
    assert backups.Wanted.of(found).target == backups.HostDirectory(
        "etcd-1", "/srv/backups_2/karmada.d", "site-a/karmada"
    )


def test_a_directory_of_a_host_needs_plain_hosts() -> None:
    (told,) = problems_of(on_host("etcd-1"))
    assert "nightly: spec.target.hostDirectory: has no meaning without plain hosts" in told
    assert "Write s3, persistentVolumeClaim, or directory" in told


def test_a_host_that_has_left_the_document_is_refused_as_a_place_of_backups() -> None:
    (told,) = problems_of(on_host("gone"), deployment=ON_HOSTS)
    assert 'spec.target.hostDirectory.host: "gone" is no host of the control plane' in told
    assert "Name one of etcd-1, lb1. If the host is to go, copy its backups to another first" in told


def test_all_backups_on_hosts_are_on_the_same_one() -> None:
    several = [on_host("lb1", "weekly"), on_host("etcd-1"), on_host("etcd-1", "hourly"), changed()]
    several[-1]["metadata"] = {"name": "here"}
    (told,) = problems_of(*several, deployment=ON_HOSTS)
    assert told.startswith("prod.yaml: EtcdBackup weekly: spec.target.hostDirectory.host: ")
    assert 'is "lb1", and that of EtcdBackup hourly is "etcd-1"' in told
    assert "Name the same host in all of them" in told
    with pytest.raises(ProblemsError, match="Name the same host"):
        backups.of_objects(several, ON_HOSTS)
    # Another path of the same host is another place.
    assert len(backups.resolved([on_host("lb1"), on_host("lb1", "weekly", "/srv/others"), several[-1]], ON_HOSTS)) == 3


def test_where_only_the_name_of_its_control_plane_is_known_a_host_is_not_judged() -> None:
    unknown = {"metadata": PROD["metadata"]}
    assert len(backups.resolved([on_host("gone")], unknown)) == 1


def test_every_field_of_the_status_has_a_description() -> None:
    assert crd.about(backups.BACKUP.schema, ("status", "newest"))
