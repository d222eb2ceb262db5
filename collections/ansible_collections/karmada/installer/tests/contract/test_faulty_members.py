# SPDX-License-Identifier: Apache-2.0
"""Members that answer what no API server should, one of each kind, among sound ones: each is its own problem only.

They are joined by a process of their own, whose memory is then known.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import CLUSTER_API
from ansible_collections.karmada.installer.tests.contract.test_bulk_join import check_joined
from ansible_collections.karmada.installer.tests.unit.support import faulty_answers
from ansible_collections.karmada.installer.tests.unit.support.bulk_join import ControlPlane
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import (
    FAULTY,
    NAMESPACES,
    WORDS,
    SimulatedMembers,
)

GOOD = [f"sound-{number}" for number in range(6)]
#: Nobody asks a member for a date, so one is sound with dates that do not exist.
IMPOSSIBLE_DATES = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "kube-system", "uid": f"id-of-{GOOD[0]}", "creationTimestamp": "2026-02-31T25:61:61+99:00"},
}
BAD = {f"faulty-{way}": way for way in FAULTY}
#: This one, as a process of its own knows it.
MODULE = "ansible_collections.karmada.installer.tests.contract.test_faulty_members"
#: What a process may take that meets all of them at once. The bomb alone is four times as much.
MOST_MIB = 300
#: In the place of what a member has for a whole answer. What trickles takes thirty times as long.
SECONDS = 4.0


def join_here(kubeconfig: str, secrets: str, namespace: str) -> None:
    """What the process of its own does: prints the result of the step, and the memory that it took."""
    member_join.OF_A_MEMBER = replace(member_join.OF_A_MEMBER, answer_seconds=SECONDS)
    with ControlPlane(Path(kubeconfig), Path(secrets), namespace) as control_plane:
        found = control_plane.join([*GOOD, *BAD])
        again = control_plane.join(GOOD)
    told = {"members": found["members"], "said": control_plane.said, "mib": most_mib(), "again": again["changed"]}
    sys.stdout.write(json.dumps(told))


def most_mib() -> int:
    """Most memory that this program has had, in MiB. What getrusage tells is also that of who started it."""
    (most,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:")]
    return int(most.split()[1]) // 1024


@pytest.fixture(scope="module")
def joined(api_server: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a join of all of them, and the names of what is on each."""
    folder = tmp_path_factory.mktemp("faulty")
    with SimulatedMembers(GOOD, BAD) as simulated:
        simulated.members[GOOD[0]].put(NAMESPACES, IMPOSSIBLE_DATES)
        simulated.write_secrets(folder / "secrets")
        call = f"import sys; from {MODULE} import join_here; join_here(*sys.argv[1:])"
        arguments = (str(api_server.kubeconfig), str(folder / "secrets"), f"bulk-{uuid.uuid4().hex[:8]}")
        done = subprocess.run(
            [sys.executable, "-c", call, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        asked = {name: [path for _method, path in member.requests] for name, member in simulated.members.items()}
        names = {name: member.names() for name, member in simulated.members.items()}
        return {**found, "names": names, "asked": asked}


def test_the_sound_ones_are_joined_and_ready(joined: dict[str, Any], api_server: Any) -> None:
    assert {each["name"] for each in joined["members"] if each["joined"]} == set(GOOD)
    with Cluster.from_kubeconfig(str(api_server.kubeconfig)) as cluster:
        for name in GOOD:
            check_joined(cluster, joined["names"][name], name)
        for name in BAD:
            assert cluster.get(CLUSTER_API, "Cluster", name) is None
    assert joined["again"] is False


@pytest.mark.parametrize("way", FAULTY)
def test_each_faulty_one_says_what_is_wrong_with_it(joined: dict[str, Any], way: str) -> None:
    (found,) = [each for each in joined["members"] if each["name"] == f"faulty-{way}"]
    assert WORDS[way] in found["problem"]
    assert found["next"]
    assert (found["problem"] + found["next"]).isprintable()


def test_they_take_no_more_memory_than_they_may(joined: dict[str, Any]) -> None:
    assert joined["mib"] < MOST_MIB
    assert all(line.isprintable() for line in joined["said"])


def pages(requests: list[str]) -> list[str]:
    """Of these requests, those for the second page of a list or a later one."""
    return [path for path in requests if "continue=" in path]


@pytest.mark.parametrize("way", FAULTY)
def test_none_is_asked_more_than_a_sound_one(joined: dict[str, Any], way: str) -> None:
    """What one costs the others is the time of these requests, each of which has its own."""
    asked, sound = joined["asked"][f"faulty-{way}"], joined["asked"]
    assert len(asked) - len(pages(asked)) <= min(len(sound[name]) for name in GOOD)
    # An endless list ends with the objects that one may have; one that goes in circles, when it is seen to.
    assert len(pages(asked)) <= member_join.OF_A_MEMBER.list_items // 500


@pytest.mark.parametrize("way", faulty_answers.FIRST_ANSWERS)
def test_nothing_is_asked_behind_the_first_answer_that_is_none(joined: dict[str, Any], way: str) -> None:
    """It may be asked the same again, for as long as a member has for its first answer."""
    asked = joined["asked"][f"faulty-{way}"]
    assert set(asked) == {"/api/v1/namespaces/kube-system"}
    assert len(asked) <= 1 + member_join.FIRST_ANSWER_SECONDS // SECONDS
