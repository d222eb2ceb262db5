# SPDX-License-Identifier: Apache-2.0
"""The report as people read it: in 80 columns, what is wrong first, the next command last."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import (
    BrokenMember,
    reason_and_next_step,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report import block, layout
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import (
    ComponentStatus,
    HostStatus,
)
from ansible_collections.karmada.installer.tests.unit.support import reports
from ansible_collections.karmada.installer.tests.unit.support.reports import MEMBER
from hypothesis import given
from hypothesis import strategies as st

WORKING = replace(
    reports.WORKING,
    components=[ComponentStatus("etcd", 1, 1), ComponentStatus("karmada-aggregated-apiserver", 2, 2)],
    certificates={"karmada-webhook": "2030-01-02T03:04:05+00:00"},
    etcd_endpoints=[EndpointStatus("https://prod-etcd-0:2379", healthy=True, version="3.6.16", db_size=20480)],
)
GUIDE = Path(__file__).parents[9] / "docs/guides/members.md"
ESTIMATOR = "karmada-scheduler-estimator"
NOTHING = replace(WORKING, components=[], members=[], api_ready=False, certificates={}, etcd_endpoints=[])
ABOUT = block.About(
    name="prod",
    release="v1.18.2",
    place="namespace karmada of the host cluster",
    seconds=34.2,
    address="https://192.0.2.1:32443",
    kubeconfig="prod.kubeconfig",
    report_file="prod.report.json",
    changes=["created Deployment karmada/prod-scheduler", "changed Secret karmada/prod-etcd"],
)


def test_what_is_not_installed_is_said_in_a_sentence() -> None:
    nowhere = replace(ABOUT, installed=False, kubeconfig="", changes=[])
    assert block.text(NOTHING, nowhere).splitlines() == [
        "Karmada control plane prod: not installed in namespace karmada of the host",
        "cluster",
        "report       prod.report.json",
    ]


def test_a_working_control_plane() -> None:
    assert block.text(WORKING, ABOUT).splitlines() == [
        "Karmada control plane prod: Completed",
        "",
        "address      https://192.0.2.1:32443",
        "versions     Karmada v1.18.2, Kubernetes API v1.35.4, etcd v3.6.16",
        "etcd         1 of 1 member ready, volumeClaim",
        "certificates karmada-webhook ends first, on 2030-01-02 03:04 UTC",
        "components   2 of 2 ready",
        "  etcd 1/1                          karmada-aggregated-apiserver 2/2",
        "members      1 of 1 ready",
        "  NAME  VERSION  MODE  AGE  STATE",
        "  m1    v1.35.4  Push  5h   Ready",
        "",
        "changed in 34 s:",
        "  created Deployment karmada/prod-scheduler",
        "  changed Secret karmada/prod-etcd",
        "report       prod.report.json",
        "kubeconfig   prod.kubeconfig",
        "next         kubectl --kubeconfig prod.kubeconfig get clusters",
    ]


def test_without_an_address_from_outside_the_way_there_comes_before_the_next_command() -> None:
    lines = block.text(WORKING, replace(ABOUT, tunnel="kubectl port-forward x")).splitlines()
    assert lines[-2:] == [
        "reach it by  kubectl port-forward x",
        "next         kubectl --kubeconfig prod.kubeconfig get clusters",
    ]


def test_what_is_wrong_comes_first_with_its_next_step() -> None:
    observed = replace(
        WORKING,
        components=[ComponentStatus("etcd", 3, 2)],
        members=[MEMBER, replace(MEMBER, name="m3", ready=False, reason="ClusterNotReachable")],
        wanted_members=["m1", "m2", "m3", "m4"],
        broken_members=[BrokenMember("m2", "no such Secret", "make it")],
        etcd_storage="emptyDir",
    )
    lines = block.text(observed, ABOUT).splitlines()
    assert lines[:9] == [
        "Karmada control plane prod: Waiting",
        "",
        "Needs attention:",
        "  - member m2: no such Secret",
        "    → make it",
        "  - etcd: 2 of 3 ready",
        "  - member m3: not ready (ClusterNotReachable)",
        "  - member m4: not registered",
        "  - warning: etcd keeps its data in the pod (emptyDir): it is lost with the pod.",
    ]
    assert lines.index("  m3    v1.35.4  Push  5h   ClusterNotReachable") < lines.index(
        "  m1    v1.35.4  Push  5h   Ready"
    )


def test_a_listed_member_that_is_missing_is_counted_and_named() -> None:
    absent = replace(WORKING, wanted_members=["m1", "m9"])
    for broken in ([], [BrokenMember("m9", "no such Secret", "make it")]):
        lines = block.text(replace(absent, broken_members=broken), ABOUT).splitlines()
        at = lines.index("members      1 of 2 ready")
        assert lines[at + 1 : at + 4] == [
            "  NAME  VERSION  MODE  AGE  STATE",
            "  m9    -        -     -    not registered",
            "  m1    v1.35.4  Push  5h   Ready",
        ]
    alone = block.text(replace(absent, members=[]), ABOUT)
    assert "members      0 of 2 ready" in alone
    many = replace(absent, wanted_members=[f"m{n}" for n in range(1, 31)])
    assert "members      1 of 30 ready" in block.text(many, ABOUT)
    assert "  … and 15 more, 14 of them not ready" in block.text(many, ABOUT)


def test_of_members_nothing_is_said_that_nobody_can_know() -> None:
    silent = replace(WORKING, api_ready=False, members=[])
    text = block.text(silent, ABOUT)
    assert "members      unknown: the API server does not answer" in text
    assert "not registered" not in text
    assert "members      none" in block.text(replace(WORKING, members=[], wanted_members=[]), ABOUT)


def test_a_check_tells_what_would_be_and_names_no_file() -> None:
    first = replace(ABOUT, check=True, installed=False, changes=[f"created Secret karmada/{n}" for n in range(21)])
    assert block.text(NOTHING, first).splitlines() == [
        "Check of Karmada control plane prod: nothing was changed",
        "would install  Karmada v1.18.2 in namespace karmada of the host cluster",
        "would create   21 Secret",
        "next         the same command without --check",
    ]
    later = block.text(WORKING, replace(ABOUT, check=True))
    assert "would create   Deployment karmada/prod-scheduler\nwould change   Secret karmada/prod-etcd\n" in later
    assert "members      1 of 1 ready" in later
    assert "would change   nothing" in block.text(WORKING, replace(ABOUT, check=True, changes=[]))
    stopped = ["started Unit karmada-prod-apiserver.service (cp1)", "began Restore prod"]
    assert "\nwould start    Unit karmada-prod-apiserver.service (cp1)\nwould change   Restore prod\n" in block.text(
        WORKING, replace(ABOUT, check=True, changes=stopped)
    ), "what is no change of a thing is told where there is nothing else"
    for text in (later, block.text(NOTHING, first)):
        assert "unknown" not in text
        assert ".kubeconfig" not in text
        assert ".report.json" not in text


@pytest.mark.parametrize("broken", [0, 1, 1000])
def test_a_thousand_members_fit_and_the_broken_ones_come_first(broken: int) -> None:
    members = [replace(MEMBER, name=f"m{n:04}", ready=n < 1000 - broken, reason="Lost") for n in range(1000)]
    problem = "the cluster does not answer at https://192.0.2.1:6443, and this is a long story about it " * 4
    told = [BrokenMember(each.name, problem, "mend it and run again") for each in members if not each.ready]
    estimators = [ComponentStatus(f"{ESTIMATOR}-{each.name}", 1, int(each.ready)) for each in members]
    observed = replace(
        WORKING,
        components=[*WORKING.components, *estimators],
        members=members,
        broken_members=told,
        wanted_members=[each.name for each in members],
    )
    about = replace(ABOUT, changes=[f"created Secret karmada/x{n}" for n in range(3000)])
    lines = block.text(observed, about).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert f"members      {1000 - broken} of 1000 ready" in lines
    assert f"components   {1002 - broken} of 1002 ready" in lines
    named = [line.split() for line in lines if ESTIMATOR in line and not line.startswith("  - ")]
    assert [words[-2:] for words in named] == [[ESTIMATOR, f"{1000 - broken}/1000"]]
    assert (f"  - {ESTIMATOR}-m0999: 0 of 1 ready" in lines) == (broken == 1)
    rows = [line.split()[-1] for line in lines if line.startswith("  m")]
    assert rows == sorted(rows, key=lambda state: state == "Ready")
    if broken == 1000:
        assert any("more, in the report file" in line for line in lines)


def test_on_plain_hosts_they_are_counted_and_the_leader_of_etcd_is_named() -> None:
    hosts = [HostStatus(f"node{number}", f"192.0.2.{number}", ("etcd",)) for number in range(1, 9)]
    endpoints = [
        EndpointStatus(f"https://192.0.2.{number}:2379", healthy=True, version="3.6.16", leader=number == 2)
        for number in (1, 2, 3)
    ]
    observed = replace(WORKING, hosts=hosts, etcd_endpoints=endpoints, etcd_desired=3, etcd_ready=3)
    observed = replace(observed, etcd_storage="/var/lib/karmada/prod/etcd")
    lines = block.text(observed, ABOUT).splitlines()
    at = lines.index("etcd         3 of 3 members ready, /var/lib/karmada/prod/etcd, node2 leads")
    assert lines[at + 1] == "hosts        8 of 8 ready"
    broken = replace(observed, hosts=[replace(each, trouble="etcd does not run") for each in hosts])
    lines = block.text(broken, ABOUT).splitlines()
    assert "hosts        0 of 8 ready; not node1, node2, node3, node4, node5 and 3 more" in lines
    # An address of version 6 stands in brackets in a URL.
    six = replace(hosts[0], address="2001:db8::1")
    leads = EndpointStatus("https://[2001:db8::1]:2379", healthy=True, leader=True)
    assert ", node1 leads" in block.text(replace(observed, hosts=[six], etcd_endpoints=[leads]), ABOUT)
    assert "leads" not in block.text(WORKING, ABOUT)


def test_a_wide_table_wraps_its_last_column() -> None:
    wide = replace(MEMBER, name="m" * 40, agent_hosts=["control-plane-1", "control-plane-2"], mode="Pull")
    lines = block.text(replace(WORKING, members=[wide, MEMBER]), ABOUT).splitlines()
    at = next(number for number, line in enumerate(lines) if "mmm" in line)
    assert [lines[at].split()[-3:], *(line.split() for line in lines[at + 1 : at + 3])] == [
        ["Ready,", "agent", "on"],
        ["control-plane-1,"],
        ["control-plane-2"],
    ]
    assert max(map(len, lines)) <= 80


@given(st.text(st.characters(blacklist_categories=["C", "Z"]) | st.just(" "), max_size=400), st.integers(0, 20))
def test_wrapped_text_keeps_its_words_and_its_width(text: str, indent: int) -> None:
    lines = layout.wrapped(text, " " * indent)
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= layout.WIDTH or len(line.split()) == 1 for line in lines)


def test_wrapped_text_keeps_lines_and_hangs_below_bullets() -> None:
    assert layout.wrapped("1 problem:\n  - a b\n    c", "> ", "  ", width=8) == [
        "> 1",
        "  problem:",
        "    - a",
        "      b",
        "      c",
    ]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (34.4, "34 s"), (119, "119 s"), (200, "3 min 20 s"), (7300, "2 h 1 min")],
)
def test_durations(seconds: float, told: str) -> None:
    assert layout.duration(seconds) == told


@pytest.mark.parametrize(
    "problem",
    [
        Problem(
            "cannot reach https://192.0.2.7:6443: connection refused",
            "spec.members[member2].secretRef",
            "check that this kubeconfig works from here: kubectl --kubeconfig … get nodes",
            reason=Reason.MEMBER_UNREACHABLE,
        ),
        Problem(
            "not ready after 120 s:\n"
            "  - Cluster member2: Ready is False (ClusterNotReachable: cluster is not reachable)\n"
            "karmada-controller-manager: Failed to do cluster health check for cluster: Get "
            '"https://192.0.2.7:6443/readyz?timeout=10s": dial tcp 192.0.2.7:6443: i/o timeout',
            reason=Reason.MEMBER_NOT_READY,
        ),
    ],
)
def test_the_guide_shows_a_broken_member_as_the_report_does(problem: Problem) -> None:
    broken = BrokenMember("member2", *reason_and_next_step("member2", ProblemsError([problem])))
    report = block.text(replace(WORKING, broken_members=[broken]), ABOUT)
    shown = re.findall(r"^```text\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert sum(each in report for each in shown) == 1, report
