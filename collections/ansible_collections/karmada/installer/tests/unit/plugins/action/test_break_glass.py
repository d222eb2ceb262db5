# SPDX-License-Identifier: Apache-2.0
"""Credentials for an emergency: by name, for hours at most, in one file and nowhere else."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.action import break_glass
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

HOST = {"endpoint": {"type": "NodePort", "host": "karmada.example.com", "port": 32443}}


def a_run(*, check: bool = False, installed: bool = True, spec: dict[str, Any] | None = None) -> Run:
    run = fake_run(document(HOST if spec is None else spec), FakeCluster("host"), check=check)
    run.store.state = state() if installed else None
    return run


def perform(run: Run, path: Path | str, **options: str) -> dict[str, Any]:
    action = object.__new__(break_glass.ActionModule)
    given = {"confirm": "prod", "path": str(path), "validity": "1h", **options}
    found: dict[str, Any] = action.perform(run, given)
    return found


def certificate_in(path: Path) -> bytes:
    user = yaml.safe_load(path.read_text())["users"][0]["user"]
    return base64.b64decode(user["client-certificate-data"])


def test_it_is_a_private_file_with_a_certificate_for_hours_and_nothing_is_changed_elsewhere(tmp_path: Path) -> None:
    run, path = a_run(), tmp_path / "file"
    found = perform(run, path, validity="2h")
    assert path.stat().st_mode & 0o777 == 0o600
    told = x509.describe(certificate_in(path), run.state.authorities["karmada-ca"].certificate)
    assert told["subject"] == "CN=system:karmada:break-glass, O=system:masters"
    assert told["issuer_fingerprint"]
    assert x509.expiry(certificate_in(path)) - run.now <= timedelta(hours=2)
    assert found["expires"] == x509.expiry(certificate_in(path)).isoformat()
    assert (found["changed"], found["path"]) == (True, str(path))
    assert run.host_cluster.log == []  # type: ignore[attr-defined]
    assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == "https://karmada.example.com:32443"
    assert not [key for key in found if "key" in key]


def test_each_time_it_is_another_one(tmp_path: Path) -> None:
    run, path = a_run(), tmp_path / "file"
    perform(run, path)
    first = certificate_in(path)
    assert perform(run, path)["changed"]
    assert certificate_in(path) != first


def test_without_an_address_it_is_for_port_forward(tmp_path: Path) -> None:
    perform(a_run(spec={"endpoint": {"type": "ClusterIP"}}), tmp_path / "file")
    server = yaml.safe_load((tmp_path / "file").read_text())["clusters"][0]["cluster"]["server"]
    assert server == "https://localhost:5443"


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    assert perform(a_run(check=True), tmp_path / "file")["changed"] is True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"confirm": ""}, "karmada_confirm=prod"),
        ({"confirm": "other"}, "karmada_confirm=prod"),
        ({"validity": "9h"}, "between 5m and 8h"),
        ({"validity": "1m"}, "between 5m and 8h"),
        ({"validity": "a year"}, "between 5m and 8h"),
        ({"path": ""}, "no absolute path"),
        ({"path": "file"}, "no absolute path"),
        ({"path": "/"}, "a folder"),
    ],
)
def test_what_is_not_said_plainly_is_refused(options: dict[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=told):
        perform(a_run(), **{"path": tmp_path / "file", **options})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_of_several_it_is_named_with_its_namespace(tmp_path: Path) -> None:
    """Two of them may have the same name."""
    run = a_run()
    run.one_of_several = True
    full = run.full_name("prod")
    with pytest.raises(ProblemsError, match=f"karmada_confirm={full}"):
        perform(run, tmp_path / "file", confirm="prod")
    with pytest.raises(ProblemsError, match="karmada_confirm"):
        perform(run, tmp_path / "file", confirm="elsewhere/prod")
    assert list(tmp_path.iterdir()) == []
    for path, of_several in (("one", True), ("two", False)):
        run.one_of_several = of_several
        assert perform(run, tmp_path / path, confirm=full)["changed"]


def test_the_administrators_own_file_is_left_alone(tmp_path: Path) -> None:
    """The next run on hosts would take what is in it for the administrator's certificate."""
    run = a_run()
    run.connection = Connection(kubeconfig_output=str(tmp_path / "file"))
    with pytest.raises(ProblemsError, match="administrator's own"):
        perform(run, tmp_path / "file")


def test_without_a_control_plane_there_is_nothing_to_get_into(tmp_path: Path) -> None:
    """And no new authority is made for it."""
    with pytest.raises(ProblemsError, match="no state"):
        perform(a_run(installed=False), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
