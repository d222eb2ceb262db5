# SPDX-License-Identifier: Apache-2.0
"""Joining many members, on simulated ones: what the two programs do is measured, and not what clusters do.

The control plane is a real kube-apiserver with etcd on loopback, with a type for Clusters and a loop that makes them
Ready. The members are served by this process. Ours is the step that joins, in a process of its own, from its start to
the last member that is Ready; karmadactl is called once for each member.

    python -m karmada_bench.many_members join CONFIGURATION   the step, in the process that is measured
    python -m karmada_bench.many_members measure --karmadactl FILE   all of it, as JSON: side → case → figure
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.tests.contract.conftest import running_api_server
from ansible_collections.karmada.installer.tests.unit.support.bulk_join import ControlPlane
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import BROKEN, SimulatedMembers

from karmada_bench.command import BenchError, spending

SOUND, REGISTERED = 95, 1000
#: Namespace, two accounts with a token each, role, binding, and the two types of services across clusters.
ON_A_MEMBER = 9
NAMESPACE = "karmada-system"
#: ``value``, and with a time ``cpu_seconds``.
Figure = dict[str, float]


@dataclass(frozen=True)
class Site:
    """One control plane and its members."""

    control_plane: ControlPlane
    members: SimulatedMembers
    folder: Path

    def join(self, names: Sequence[str]) -> tuple[Figure, dict[str, Any]]:
        """Time and memory of the step in a process of its own, and its answer."""
        configuration = self.folder / "join.json"
        settings = {"kubeconfig": self.control_plane.kubeconfig, "secrets": self.control_plane.secrets}
        configuration.write_text(json.dumps({"names": names, **{key: str(each) for key, each in settings.items()}}))
        command = [sys.executable, "-m", "karmada_bench.many_members", "join", str(configuration)]
        report = self.folder / "spent.json"
        done = subprocess.run(spending(report, command), stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"the step that joins ended with {done.returncode}")
        return _spent([report]), json.loads(done.stdout)


@contextmanager
def site(names: Sequence[str], broken: dict[str, str]) -> Iterator[Site]:
    """A new one, with a kubeconfig for each member."""
    with tempfile.TemporaryDirectory(prefix="karmada-bench-") as directory:
        folder = Path(directory)
        with (
            running_api_server(folder) as server,
            ControlPlane(server.kubeconfig, folder / "secrets", NAMESPACE) as control_plane,
            SimulatedMembers(names, broken) as members,
        ):
            members.write_secrets(control_plane.secrets)
            yield Site(control_plane, members, folder)


def ours(sound: int) -> dict[str, Figure]:
    """Some sound members and one that is broken in each way, and the same again."""
    names, broken = _names(sound), {f"broken-{way}": way for way in BROKEN}
    with site(names, broken) as made:
        first, result = made.join([*names, *broken])
        joined = {each["name"] for each in result["members"] if each["joined"]}
        told = [each for each in result["members"] if not each["joined"] and each["problem"]]
        left = sum(len(made.members.members[name].names()) for name in broken)
        left += len(made.control_plane.registered() - set(names))
        for name in names:
            if len(made.members.members[name].names()) != ON_A_MEMBER:
                raise BenchError(f"{name} has {made.members.members[name].names()}")
        again, second = made.join([*names, *broken])
        return {
            "many_members": first,
            "many_members_missing": _count(sound - len(joined)),
            "many_members_untold": _count(len(broken) - len(told)),
            "many_members_left": _count(left),
            "many_members_again": again,
            "many_members_again_changed": _count(sum(len(each["changes"]) for each in second["members"])),
        }


def karmadactl(program: str, sound: int) -> Figure:
    """One call for each of these members."""
    names = _names(sound)
    with site(names, {}) as made:
        reports = [made.folder / f"spent-{name}.json" for name in names]
        for name, report in zip(names, reports, strict=True):
            command = [
                *(program, "join", name, f"--kubeconfig={made.control_plane.kubeconfig}"),
                f"--cluster-kubeconfig={made.control_plane.secrets / name / 'kubeconfig'}",
            ]
            done = subprocess.run(spending(report, command), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BenchError(f"karmadactl join {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        if made.control_plane.registered() != set(names):
            raise BenchError("karmadactl has not registered all of them")
        return _spent(reports)


def registered(number: int) -> dict[str, Figure]:
    """So many that are joined, and then nothing to do."""
    names = _names(number)
    with site(names, {}) as made:
        first, result = made.join(names)
        missing = [each["problem"] for each in result["members"] if not each["joined"]]
        if missing:
            raise BenchError(f"{len(missing)} of {number} are not joined: {missing[0]}")
        again, second = made.join(names)
        return {
            "registered_join": first,
            "registered_again": again,
            "registered_again_changed": _count(sum(len(each["changes"]) for each in second["members"])),
        }


def _count(number: int) -> Figure:
    return {"value": number}


def _spent(reports: Sequence[Path]) -> Figure:
    """Sum of commands that ran one after the other."""
    found = [json.loads(report.read_text()) for report in reports]
    return {
        "value": sum(each["seconds"] for each in found),
        "cpu_seconds": sum(each["cpu_seconds"] for each in found),
    }


def _names(number: int) -> list[str]:
    return [f"member-{each:04}" for each in range(number)]


def _join(configuration: Path) -> None:
    wanted = json.loads(configuration.read_text())
    control_plane = ControlPlane(Path(wanted["kubeconfig"]), Path(wanted["secrets"]), NAMESPACE)
    result = control_plane.join(wanted["names"])
    print(json.dumps({"changed": result["changed"], "members": result["members"]}))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m karmada_bench.many_members")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("join").add_argument("configuration", type=Path)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("--members", type=int, default=SOUND)
    measuring.add_argument("--registered", type=int, default=REGISTERED)
    measuring.add_argument("--karmadactl", required=True)
    measuring.add_argument("--output", type=Path, default=Path("/dev/stdout"))
    arguments = parser.parse_args()
    if arguments.verb == "join":
        _join(arguments.configuration)
        return
    found: dict[str, Any] = {}
    if arguments.members:
        found["ours"] = ours(arguments.members)
        found["peer"] = {"many_members": karmadactl(arguments.karmadactl, arguments.members)}
    if arguments.registered:
        found["ours"] = {**found.get("ours", {}), **registered(arguments.registered)}
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
