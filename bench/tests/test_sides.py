# SPDX-License-Identifier: Apache-2.0
"""Commands that each side is given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from karmada_bench.command import Ran
from karmada_bench.sides import Karmadactl, Ours


def test_karmadactl_lets_the_member_leave_before_it_removes_the_control_plane(tmp_path):
    commands = []

    def run(name, command, codes):
        commands.append(command)
        return Ran(2.0 if command[1] == "unjoin" else 5.0, 0, "", 10.0, 1.0)

    clusters = SimpleNamespace(karmadactl="karmadactl", kubeconfig=lambda name: Path(f"/clusters/{name}"))
    side = Karmadactl(clusters, SimpleNamespace(run=run), tmp_path)
    done = side.uninstall("uninstall")
    unjoin, deinit = commands
    # With the member's kubeconfig: without it, all that joining has put on the member would stay there.
    assert unjoin[:3] == ["karmadactl", "unjoin", "member1"]
    assert "--cluster-kubeconfig=/clusters/member1" in unjoin
    assert deinit[1] == "deinit"
    assert "--purge-namespace" in deinit
    assert (done.seconds, done.cpu_seconds) == (7.0, 2.0)


def test_our_runs_keep_what_python_compiles_as_those_of_users_do(tmp_path):
    given = {}

    def run(name, command, **more):
        given.update(more["settings"])
        return Ran(1.0, 0, "", 10.0, 1.0)

    runner = SimpleNamespace(run=run, environment={"PATH": "/bin", "PYTHONDONTWRITEBYTECODE": "1"})
    Ours(SimpleNamespace(), runner, tmp_path).uninstall("uninstall")
    assert given["PYTHONDONTWRITEBYTECODE"] == ""
