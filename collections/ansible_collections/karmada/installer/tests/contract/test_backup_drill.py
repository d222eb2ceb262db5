# SPDX-License-Identifier: Apache-2.0
"""A drill with real programs: what a backup holds is served and read, Secrets with the key that lies beside them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pyrage
import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import drill, take, trial, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Purpose, Record
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import DirectoryTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Directory, Retention, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import access
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EtcdClient
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until

KEY = pyrage.x25519.Identity.generate()
NIGHTLY = Wanted("nightly", (str(KEY.to_public()),), schedule_of("", ""), False, Directory(""), Retention(24, 7, 4))
PAGE, WORKS = 50, 103  # so these are more than two pages
CANARY = "canary-of-a-secret-0b71"
ENCRYPTION_KEY = base64.b64encode(b"drill".ljust(32, b"-")).decode()


def fill(found: Cluster) -> None:
    """Create a Secret and Works, more than two pages of them."""
    found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-es-m1"}})
    metadata = {"name": "s", "namespace": "karmada-es-m1"}
    found.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": CANARY}})
    crds = crd_files.crds(releases.newest().karmada, Source("GoModules"))
    found.apply(next(each for each in crds if each["metadata"]["name"] == "works.work.karmada.io"))
    until(lambda: found.resource("work.karmada.io/v1alpha1", "Work"), "the CRD of Works")
    work = {"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "spec": {"workload": {"manifests": []}}}

    def create(number: int) -> bool:
        found.create({**work, "metadata": {"name": f"w{number}", "namespace": "karmada-es-m1"}})
        return True

    def first() -> bool:
        try:
            return create(0)
        except ApiError:
            # Discovery knows a kind a moment before it is served.
            return False

    until(first, "the first Work")
    for number in range(1, WORKS):
        create(number)


@pytest.fixture(scope="module")
def api_server() -> Path:
    return Path(conftest.binary("kube-apiserver", "TEST_KUBE_APISERVER"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, api_server: Path) -> Iterator[EtcdClient]:
    """etcd, filled by a kube-apiserver that encrypts Secrets."""
    folder, tools = tmp_path_factory.mktemp("source"), programs(VERSIONS[0])
    with trial.etcd(folder / "data", tools, folder, "here") as etcd:
        with trial.api_server(api_server, etcd.urls[0], folder, "here", encryption_key=ENCRYPTION_KEY) as found:
            fill(found)
        yield etcd


@pytest.fixture
def run(source: EtcdClient, api_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cluster, "PAGE", PAGE)
    monkeypatch.setattr(access, "connect", lambda _run: source)
    monkeypatch.setattr(take, "programs", lambda _run: programs(VERSIONS[0]))
    monkeypatch.setattr(take, "program_paths", lambda _run, each: {each.name: api_server})
    stored = samples.state(
        etcd=EtcdState(token="t", storage="volumeClaim", bootstrapped=True, members=(EtcdMemberState("prod-etcd-0"),)),
        encryption_key=ENCRYPTION_KEY,
    )
    found = fake_run(samples.document({}), FakeCluster("host cluster"), stored=stored)
    yield found
    found.close()


@pytest.fixture
def target(tmp_path: Path) -> DirectoryTarget:
    (tmp_path / "backups").mkdir()
    return DirectoryTarget("prod", tmp_path / "backups", "")


def taken(run: Run, target: DirectoryTarget) -> Record:
    target.check()
    return take.backup(run, NIGHTLY, target, Purpose.REQUESTED).record


def test_every_object_of_a_backup_is_read_and_nothing_stays(run: Run, target: DirectoryTarget) -> None:
    made = taken(run, target)
    assert (made.counts["works"], made.counts["secrets"]) == (WORKS, 1)
    found = drill.drill(run, target, made, [KEY])
    assert found.counts == dict(made.counts)
    assert found.revision == made.revision
    assert list(found.seconds) == ["fetched", "restored", "served", "read"]
    assert all(each > 0 for each in found.seconds.values())
    assert list(workplace.folder().iterdir()) == []


def test_secrets_that_the_key_beside_them_does_not_open_are_found(run: Run, target: DirectoryTarget) -> None:
    """etcd serves them, and so a restore on trial has no objection."""
    with run.recording():
        run.save(replace(run.state, encryption_key=base64.b64encode(b"another".ljust(32, b"-")).decode()))
    made = taken(run, target)
    with pytest.raises(ProblemsError, match="what it holds cannot be read") as caught:
        drill.drill(run, target, made, [KEY])
    assert caught.value.problems[0].reason is Reason.INVALID_BACKUP
    assert CANARY not in str(caught.value)
    assert list(workplace.folder().iterdir()) == []


def test_other_numbers_than_those_of_the_record_are_found(run: Run, target: DirectoryTarget) -> None:
    made = taken(run, target)
    other = replace(made, counts={**made.counts, "works": WORKS + 1})
    with pytest.raises(ProblemsError, match=f"{WORKS} works can be read, and its record says {WORKS + 1}"):
        drill.drill(run, target, other, [KEY])


def test_an_api_server_that_does_not_start_is_told_with_its_words(
    run: Run, target: DirectoryTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'flag is not known' >&2\nexit 2\n")
    monkeypatch.setattr(take, "program_paths", lambda _run, each: {each.name: broken})
    with pytest.raises(
        ProblemsError, match="a kube-apiserver that was restored from it ended by exit code 2: flag is not"
    ):
        drill.drill(run, target, taken(run, target), [KEY])
    assert list(workplace.folder().iterdir()) == []


def test_nobody_without_the_keys_of_the_moment_is_let_in(api_server: Path, tmp_path: Path) -> None:
    tools = programs(VERSIONS[0])
    with (
        trial.etcd(tmp_path / "data", tools, tmp_path, "here") as etcd,
        trial.api_server(api_server, etcd.urls[0], tmp_path, "here") as found,
    ):
        ca = (tmp_path / "ca.crt").read_text()
        for token in (None, "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmVk"):
            nobody = Cluster(from_parts(found.access.server, ca_pem=ca, token=token))
            with pytest.raises(ApiError) as caught:
                nobody.get_raw("/api/v1/secrets", retry_seconds=0)
            assert caught.value.status == HTTPStatus.UNAUTHORIZED
            nobody.close()
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir() if path.is_file()} == {0}
