# SPDX-License-Identifier: Apache-2.0
"""SSH reads key and host keys of Secrets from private files, which nobody else has and which end with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import private_folder, ssh_files, ssh_folder
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document

SSH = {"privateKeySecretRef": {"name": "key"}, "knownHostsSecretRef": {"name": "hosts"}}
SECRETS = {"key": {"ssh-privatekey": b"the key"}, "hosts": {"known_hosts": b"cp1 ssh-ed25519 AAAA\n"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(private_folder.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    return ssh_folder.of_this_run()


def fetched(objects: dict[str, dict[str, bytes]], settings: dict[str, Any] = SSH, **connection: str) -> list[str]:
    hosts = [{"name": "etcd1", "address": "192.0.2.1", "roles": ["etcd"]}]
    run: Any = fake_run(document({"hosts": hosts, "ssh": settings}), FakeCluster("host cluster"))
    run.connection = Connection(**connection)

    def secret(name: str, where: str) -> dict[str, bytes]:
        if name not in objects:
            raise ssh_files.ProblemsError(
                ssh_files.Problem(f"there is no Secret karmada/{name}", where, reason=Reason.SECRET_NOT_FOUND)
            )
        return objects[name]

    run.secret = secret
    return [file.name for file in ssh_files.fetch(run)]


def test_what_secrets_hold_is_in_files_for_their_owner_only(folder: Path) -> None:
    assert fetched(SECRETS) == ["ssh-privatekey", "known_hosts"]
    assert (folder / "ssh-privatekey").read_text() == "the key\n", "ssh wants the end of the last line"
    assert (folder / "known_hosts").read_text() == "cp1 ssh-ed25519 AAAA\n"
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert {each.stat().st_mode & 0o777 for each in (folder, folder.parent)} == {0o700}


def test_nothing_is_made_that_nobody_asked_for(folder: Path) -> None:
    assert fetched(SECRETS, {}) == []
    assert fetched(SECRETS, secrets="/a/directory") == []
    assert not folder.exists()


def test_every_secret_that_is_wrong_is_told_with_its_field_and_no_content() -> None:
    with pytest.raises(ProblemsError) as raised:
        fetched({"key": {"id_ed25519": b"the key"}})
    key, hosts = map(str, raised.value.problems)
    assert key.startswith(
        "spec.ssh.privateKeySecretRef: the Secret key has no text under the key ssh-privatekey. Put a "
    )
    assert hosts == "spec.ssh.knownHostsSecretRef: there is no Secret karmada/hosts"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_what_is_no_key_is_told_without_quoting_it(content: bytes) -> None:
    with pytest.raises(ProblemsError, match="no text under the key ssh-privatekey"):
        fetched({**SECRETS, "key": {"ssh-privatekey": content}})
