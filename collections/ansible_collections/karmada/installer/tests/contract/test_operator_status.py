# SPDX-License-Identifier: Apache-2.0
"""Statuses that the operator writes, as an API server takes them and as ``kubectl get kmd`` shows them."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import crd, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.report import report
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, binary, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.reports import MEMBER, WORKING
from ansible_collections.karmada.installer.tests.unit.support.schema_judge import STRICT, judging
from hypothesis import given, settings
from hypothesis import strategies as st
from karmada_operator import kinds
from karmada_operator.executor import Ending, Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Operation, Order
from karmada_operator.probes import Member
from karmada_operator.status import Told, after, begun, composed
from karmada_operator.status_writer import FIELD_MANAGER

NAMESPACE = "karmada-system"
OBJECTS = f"/apis/{manifest.API_VERSION}/namespaces/{NAMESPACE}/karmadadeployments"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
#: Columns that everybody sees, and those of ``--output=wide``.
NARROW = ["Name", "Mode", "Phase", "Ready", "Karmada", "Kubernetes", "Members", "Age"]
WIDE = ["Message", "Last Run", "Expires"]
FIELDS = kinds.load()[manifest.KIND].status_fields
INSTALL = Order(Operation.INSTALL, "u", 1)
#: Names as long as the schema lets them be.
LONGEST, ESTIMATOR = "{:04d}" + "m" * 44, "karmada-scheduler-estimator-"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    of_any_namespace = OBJECTS.replace(NAMESPACE, "{}")
    with (
        running_api_server(tmp_path_factory.mktemp("operator-status")) as found,
        judging(found, manifest._SCHEMA_FILE, of_any_namespace),
    ):
        yield found


@pytest.fixture
def name(server: ApiServer) -> Iterator[str]:
    """Name of a new object; each is the only one of its namespace."""
    made = f"prod-{uuid.uuid4().hex[:6]}"
    head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": made}}
    code, answer = server.request("POST", f"{OBJECTS}?{STRICT}", {**head, "spec": {}})
    assert code == 201, answer
    yield made
    server.request("DELETE", f"{OBJECTS}/{made}")


def written(server: ApiServer, name: str, status: dict[str, Any]) -> dict[str, Any]:
    """Status that is there after the operator's own client has written this one. Raises ApiError if it is refused."""
    head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND}
    obj = {**head, "metadata": {"name": name, "namespace": NAMESPACE}, "status": status}
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="host cluster") as cluster:
        found: dict[str, Any] = cluster.apply_status(obj, field_manager=FIELD_MANAGER)["status"]
    return found


# -- columns -----------------------------------------------------------------------------------------------------------


def table(server: ApiServer, name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Cells of the object by column, and the priority of each column."""
    code, found = server.request("GET", f"{OBJECTS}/{name}", accept=TABLE)
    assert code == 200, found
    assert found["kind"] == "Table"
    columns = found["columnDefinitions"]
    (row,) = found["rows"]
    cells = dict(zip([each["name"] for each in columns], row["cells"], strict=True))
    return cells, {each["name"]: each["priority"] for each in columns}


def kubectl(server: ApiServer, *words: str) -> list[list[str]]:
    """Words of each line that kubectl prints, without the settings of whoever runs the test."""
    command = [binary("kubectl", "TEST_KUBECTL"), f"--kubeconfig={server.kubeconfig}", f"--namespace={NAMESPACE}"]
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(server.directory)}
    answer = subprocess.run([*command, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [line.split() for line in answer.stdout.splitlines()]


def run_of(ended: datetime) -> dict[str, str]:
    """Last run, as the operator tells it."""
    times = {"startTime": ended - timedelta(minutes=1), "completionTime": ended}
    told = {key: each.strftime("%Y-%m-%dT%H:%M:%SZ") for key, each in times.items()}
    return {"id": "prod-1", "playbook": "karmada.installer.install", **told}


def two_of_three(now: datetime) -> dict[str, Any]:
    """Status of a control plane of which one member is lost, 30 hours after its last run."""
    members = [replace(MEMBER, name=f"m{number}", ready=number != 2) for number in (1, 2, 3)]
    observed = replace(WORKING, now=now, generation=1, members=members, wanted_members=["m1", "m2", "m3"])
    observed = replace(
        observed,
        installed=True,
        certificates={"etcd-server": "2027-11-21T05:00:00Z", "apiserver": "2027-03-01T00:00:00Z"},
    )
    told = begun(Told(), INSTALL, Lane.CHANGES, "the document is new")
    run = run_of(now - timedelta(hours=30, minutes=5))
    told = after(told, INSTALL, Ending(Outcome.SUCCEEDED, report=report.status(observed)), run)
    return composed({}, told, now, FIELDS)


def test_the_columns_of_an_object_that_nobody_has_looked_at(server: ApiServer, name: str) -> None:
    cells, priorities = table(server, name)
    assert list(cells) == NARROW + WIDE
    assert [each for each in cells if priorities[each] == 0] == NARROW
    assert [each for each in cells if priorities[each] > 0] == WIDE
    assert (cells["Name"], cells["Mode"]) == (name, "Container")
    assert {each: text for each, text in cells.items() if text and each not in ("Name", "Mode", "Age")} == {}


def test_the_columns_of_a_control_plane_with_a_lost_member(server: ApiServer, name: str) -> None:
    status = two_of_three(datetime.now(UTC))
    assert written(server, name, status) == status
    cells, _ = table(server, name)
    age = cells.pop("Age")
    assert age.endswith(("s", "m"))
    assert cells == {
        "Name": name,
        "Mode": "Container",
        "Phase": "Waiting",
        "Ready": "False",
        "Karmada": "v1.18.2",
        "Kubernetes": "v1.35.4",
        "Members": "2/3",
        "Message": "not ready, or not as listed: m2",
        "Last Run": "30h",
        "Expires": "2027-03-01T00:00:00Z",
    }
    # What a user types, with the short name of the kind.
    head, row = kubectl(server, "get", "kmd", name)
    assert head == [each.upper() for each in NARROW]
    assert row[:-1] == [name, "Container", "Waiting", "False", "v1.18.2", "v1.35.4", "2/3"]
    head, row = kubectl(server, "get", "kmd", name, "--output=wide")
    assert head == [word for each in NARROW + WIDE for word in each.upper().split()]
    assert row[8:] == ["not", "ready,", "or", "not", "as", "listed:", "m2", "30h", "2027-03-01T00:00:00Z"]


# -- statuses that nobody thought of -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """Control plane of any size: how many members there are, and which of them are lost; estimators, certificates.

    ``since`` says whether the operator has listed members since its last run, which has ended with ``outcome``.
    """

    number: int
    lost: frozenset[int]
    estimators: int
    certificates: int
    storage: str
    installed: bool
    api_ready: bool
    outcome: Outcome
    words: str
    since: bool

    @property
    def names(self) -> list[str]:
        return [LONGEST.format(index) for index in range(self.number)]

    @property
    def names_of_lost(self) -> set[str]:
        return {LONGEST.format(index) for index in self.lost}

    def observed(self) -> report.Observation:
        """What a run finds there."""
        return replace(
            WORKING,
            now=datetime(2026, 11, 21, 5, tzinfo=UTC),
            generation=1,
            installed=self.installed,
            api_ready=self.api_ready,
            etcd_storage=self.storage,
            members=[
                replace(MEMBER, name=each, mode=("Push", "Pull")[index % 2], ready=index not in self.lost)
                for index, each in enumerate(self.names)
            ],
            wanted_members=self.names,
            components=[
                *WORKING.components,
                *(
                    report.ComponentStatus(ESTIMATOR + each, 1, int(index not in self.lost), "it is Pending")
                    for index, each in enumerate(self.names[: self.estimators])
                ),
            ],
            certificates={
                ESTIMATOR + LONGEST.format(index): f"{2027 + index % 3}-01-{1 + index % 28:02d}T00:00:00Z"
                for index in range(self.certificates)
            },
        )

    def status(self) -> dict[str, Any]:
        """Status that the operator writes after such a run."""
        observed = self.observed()
        told = begun(Told(), INSTALL, Lane.CHANGES, self.words[:1000])
        ending = Ending(self.outcome, self.words, "Task", "Waiting", report=report.status(observed))
        told = after(told, INSTALL, ending, run_of(observed.now))
        # Members are listed once there is a control plane that a run has reported.
        if self.since and told.report is not None:
            now = tuple(Member(each.name, each.ready, each.reason) for each in observed.members)
            told = replace(told, members=now, listed=frozenset(self.names))
        return composed({}, told, observed.now, FIELDS)


@st.composite
def sites(draw: st.DrawFn) -> Site:
    number = draw(st.one_of(st.integers(0, 8), st.integers(90, 1100), st.just(5000)))
    # So few that a message which names them all is not too long: see below.
    lost = frozenset(each for each in draw(st.sets(st.integers(0, 4999), max_size=60)) if each < number)
    return Site(
        number,
        lost,
        estimators=draw(st.sampled_from([0, min(number, 100), number])),
        certificates=draw(st.one_of(st.integers(0, 3), st.integers(60, 70), st.integers(100, 5000))),
        storage=draw(st.sampled_from(["volumeClaim", "hostPath", "emptyDir", "external", "directory"])),
        installed=draw(st.booleans()),
        api_ready=draw(st.booleans()),
        outcome=draw(st.sampled_from(list(Outcome))),
        # Without those that take two units of UTF-16: see below.
        words=draw(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=2000)),
        since=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(site=sites())
def test_the_schema_takes_every_status(site: Site) -> None:
    status = site.status()
    assert list(crd.structure_findings(status, manifest.schema()["properties"]["status"])) == []
    if "members" in status:
        # Who is lost has a place in it, however many there are.
        assert {each["name"] for each in status["members"] if not each["ready"]} == site.names_of_lost
        assert status["membersReady"] == f"{site.number - len(site.lost)}/{site.number}"


def not_empty(status: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in status.items() if each != []}


def test_a_real_api_server_takes_every_status(server: ApiServer, name: str) -> None:
    sizes: list[list[int]] = []

    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(site=sites())
    def judged(site: Site) -> None:
        status = site.status()
        # A list that was not empty before, and is now, is not there any more.
        assert not_empty(written(server, name, status)) == not_empty(status), "nothing of it was dropped"
        sizes.append([len(status.get(each, ())) for each in ("members", "components", "certificates")])

    judged()
    most = [max(each) for each in zip(*sizes, strict=True)]
    assert most == [report.MOST_MEMBERS, report.MOST_COMPONENTS, report.MOST_CERTIFICATES], "or it proves little"


def test_a_status_that_tells_of_5000_lost_members_is_taken() -> None:
    """The whole of a large site is away, as when its network is: that is to be told, too."""
    everything = frozenset(range(5000))
    site = Site(5000, everything, 0, 0, "volumeClaim", True, True, Outcome.SUCCEEDED, "", since=False)
    longest = manifest.schema()["properties"]["status"]["properties"]["conditions"]["items"]["properties"]["message"]
    lengths = {each["type"]: len(each["message"]) for each in site.status()["conditions"]}
    assert {kind: length for kind, length in lengths.items() if length > longest["maxLength"]} == {}


def test_a_message_with_characters_beyond_the_basic_plane_is_taken(server: ApiServer, name: str) -> None:
    """What a run prints may have any character in it, as may a name that somebody has given."""
    site = Site(0, frozenset(), 0, 0, "volumeClaim", True, True, Outcome.FAILED, "\U00010000", since=False)
    status = site.status()
    assert written(server, name, status) == status
