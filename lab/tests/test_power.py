# SPDX-License-Identifier: Apache-2.0
"""A host that was switched off is no leftover, and only hosts can be switched off."""

from __future__ import annotations

from pathlib import Path

import pytest
from karmada_lab import lifecycle, power
from karmada_lab.errors import LabError
from karmada_lab.lifecycle import Wanted
from karmada_lab.state import Lab, MachineRecord, machine_records, save


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("KARMADA_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KARMADA_LAB_CACHE", str(tmp_path / "cache"))
    lab = Lab.from_environment()
    save(lab, MachineRecord("cp1", 0, "10.60.0.10", "host", ready=True))
    save(lab, MachineRecord("node", 1, "10.60.0.11", "node", cluster="host", ready=True))
    save(lab, MachineRecord("half", 2, "10.60.0.12", "host"))
    return lab


@pytest.mark.parametrize("name", ["node", "half", "nobody"])
def test_what_is_no_finished_host_has_no_switch(lab, name):
    for action in (power.off, power.shutdown, power.on):
        with pytest.raises(LabError, match=f"{name}: no plain host"):
            action(lab, ["cp1", name])


def test_a_host_that_is_off_waits_to_be_switched_on(lab):
    assert "cp1" in [each.name for each in lifecycle.leftovers(lab)]  # it is not running
    host = machine_records(lab)["cp1"]
    host.off = True
    save(lab, host)
    assert "cp1" not in [each.name for each in lifecycle.leftovers(lab)]
    with pytest.raises(LabError, match="cp1 is switched off: `lab power on cp1`"):
        lifecycle.check_wanted(lab, Wanted(hosts={"cp1": "ipv4"}))
    power.off(lab, ["cp1"])
    power.shutdown(lab, ["cp1"])
