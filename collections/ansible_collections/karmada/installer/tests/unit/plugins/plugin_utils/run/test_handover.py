# SPDX-License-Identifier: Apache-2.0
"""What steps of a run leave for each other: it adds up, and nobody else on this machine can read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.run import private_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import HostFacts, HostObservation


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Not there yet; whoever runs this has the most generous umask."""
    before = os.umask(0)
    yield tmp_path / "handover"
    os.umask(before)


def test_notes_of_a_host_add_up_and_a_later_one_wins(folder: Path) -> None:
    Handover(folder).note("cp1", facts=HostFacts(memory=1), differs=True)
    Handover(folder).note("cp1", differs=False, programs={"/a": "0"})
    Handover(folder).note("cp2", differs=True)
    assert Handover(folder).observed("cp1") == HostObservation(facts=HostFacts(memory=1), programs={"/a": "0"})
    assert Handover(folder).all_observed(iter(["cp2", "cp3"])) == {
        "cp2": HostObservation(differs=True),
        "cp3": HostObservation(),
    }


def test_there_is_no_state_until_one_is_chosen(folder: Path) -> None:
    assert Handover(folder).stored is None
    Handover(folder).stored = {"serial": 0, "files": {}}
    assert Handover(folder).stored == {"serial": 0, "files": {}}, "that there is none is a choice, too"
    Handover(folder).stored = {"serial": 1, "files": {"a": "YQ=="}}
    assert Handover(folder).stored == {"serial": 1, "files": {"a": "YQ=="}}


def test_what_one_control_plane_hands_on_no_other_goes_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both may have a host of the same name, in one ansible-playbook."""
    monkeypatch.setattr(private_folder, "of_this_run", lambda: tmp_path / "run")
    one = Handover.of("a/prod")
    one.stored = {"serial": 7, "files": {"karmada-ca.key": "a2V5"}}
    one.note("cp1", differs=True)
    for other in ("b/prod", "a/test"):
        assert Handover.of(other).stored is None
        assert Handover.of(other).observed("cp1") == HostObservation()
    assert Handover.of("a/prod").stored == one.stored
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "run").rglob("*"))


def test_a_host_may_be_named_like_the_state(folder: Path) -> None:
    Handover(folder).note("state", differs=True)
    assert Handover(folder).stored is None


def test_nobody_else_can_read_it(folder: Path) -> None:
    handover = Handover(folder)
    handover.note("cp1", files={"/etc/karmada/prod/tls.key": "a2V5"})
    handover.note("cp1", differs=True)
    handover.stored = {"serial": 1, "files": {"karmada-ca.key": "a2V5"}}
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {"host-cp1.json": 0o600, "state.json": 0o600}
