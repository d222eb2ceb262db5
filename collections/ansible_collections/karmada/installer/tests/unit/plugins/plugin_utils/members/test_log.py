# SPDX-License-Identifier: Apache-2.0
"""Why a member is not Ready: the newest line about it, wherever karmada-controller-manager runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.karmada.installer.plugins.action.member_join import ActionModule as Join
from ansible_collections.karmada.installer.plugins.action.member_log import ActionModule as Log
from ansible_collections.karmada.installer.plugins.module_utils import host_log
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.members import log as member_log
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs, deployment, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

SAID = "karmada-controller-manager: Failed to do cluster health check for cluster: "
M1, M2 = ({"name": name, "mode": "Push", "secretRef": {"name": name}} for name in ("m1", "m2"))


def line(member: str, why: str, at: str = "12:00:00.000001", severity: str = "E") -> str:
    quoted = why.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"{severity}1122 {at}       1 cluster_status_controller.go:440] "
        f'"Failed to do cluster health check for cluster" err="{quoted}" cluster="{member}"'
    )


REFUSED = 'Get "https://192.0.2.7:6443/readyz?timeout=10s": dial tcp 192.0.2.7:6443: connect: connection refused'


def test_the_newest_error_about_a_member_is_told() -> None:
    lines = [
        line("m1", "of before", "11:59:59.000000"),
        line("m1", REFUSED),
        line("m1", "somebody else's", severity="I"),
        line("m12", "of another", "13:00:00.000000"),
        'I1122 14:00:00.000000       1 x.go:1] "Reconciling" cluster="m1"',
        'goroutine 1 [running]: cluster="m1"',
    ]
    assert member_log.newest_reason(lines, "m1") == SAID + REFUSED
    assert member_log.newest_reason(lines, "m2") == ""


def test_that_it_is_not_ready_is_no_reason_for_it() -> None:
    lines = [line("m1", REFUSED), line("m1", "cluster(m1) not ready", "13:00:00.000000")]
    assert member_log.newest_reason(lines, "m1") == SAID + REFUSED
    assert member_log.newest_reason(lines[1:], "m1") == ""


def test_of_several_processes_the_one_that_leads_now_counts() -> None:
    lines = [line("m1", "now", "12:00:05.000000"), line("m1", "before", "12:00:01.000000")]
    assert member_log.newest_reason(lines, "m1") == f"{SAID}now"
    both = [line("m1", "first"), line("m1", "second")]
    assert member_log.newest_reason(both, "m1") == f"{SAID}second"


def test_it_is_short_and_shows_no_secret() -> None:
    text = member_log.newest_reason([line("m1", f"Bearer abcdefghijklmnop {'x' * 900}")], "m1")
    assert "abcdefgh" not in text
    assert len(text) < member_log.LONGEST + 50
    assert text.endswith("…")


def test_what_cannot_be_read_stays_as_it_is() -> None:
    assert member_log.newest_reason([line("m1", "x").replace('err="x"', r'err="\x00"')], "m1") == SAID + r"\x00"
    bare = 'E1122 12:00:00.1       1 a.go:1] "Failed to build it" cluster="m1"'
    assert member_log.newest_reason([bare], "m1") == "karmada-controller-manager: Failed to build it"


class Host(FakeCluster):
    """A host cluster whose pods have these logs; one without may not be read."""

    def __init__(self, **logs: str) -> None:
        super().__init__("host cluster")
        self.asked: list[tuple[str, int | None]] = []
        self.logs_of = logs
        labels = fake_run(document(), FakeCluster("any")).instance.labels("karmada-controller-manager")
        for pod in [*logs, "mute"]:
            self.put(
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "karmada", "labels": labels}}
            )

    def logs(self, pod: str, namespace: str, container: str, tail: int, *, since_seconds: int) -> str:
        assert (namespace, container, tail) == ("karmada", "karmada-controller-manager", member_log.LINES)
        self.asked.append((pod, since_seconds))
        if pod not in self.logs_of:
            raise Forbidden(self.name, "GET", "/", 403, "Forbidden", "no")
        return self.logs_of[pod]


def test_in_pods_their_logs_are_read_once_for_all_members() -> None:
    host = Host(a=line("m1", REFUSED), b="nothing")
    run = fake_run(document(), host)
    assert member_log.reasons(run, ["m1", "m2"]) == {"m1": SAID + REFUSED}
    assert sorted(host.asked) == [(pod, member_log.SECONDS) for pod in ("a", "b", "mute")]
    assert member_log.reasons(run, []) == {}
    assert len(host.asked) == 3


def test_where_pods_cannot_be_listed_nothing_is_told() -> None:
    host = Host()
    host.dead = True
    assert member_log.reasons(fake_run(document(), host), ["m1"]) == {}


# -- in the step that joins ------------------------------------------------------------------------------------------


def joined(run: Any, stage: str, broken: Any = ()) -> dict[str, Any]:
    action: Any = Join.__new__(Join)
    arguments = {
        "stage": stage,
        "noted": False,
        "on_record": False,
        "timeout": 600,
        "broken": list(broken),
        "on_broken_member": "tell",
    }
    found: dict[str, Any] = action.perform(run, arguments)
    return found


@pytest.fixture
def m1_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(_cluster: Any, targets: Any, **_: Any) -> None:
        raise NotReady({ref: "it is not reachable" for ref in targets if ref.name == "m1"}, 600)

    monkeypatch.setattr(member_ready, "wait_until", waits)


def test_a_member_that_does_not_become_ready_is_told_of_with_the_reason(m1_is_not_ready: None) -> None:
    run = fake_run(document({"members": [M1, M2]}), Host(a=line("m1", REFUSED)), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")
    found = joined(run, "readiness")
    (broken,) = found["broken_members"]
    assert broken["name"] == "m1"
    assert broken["problem"].startswith("not ready after 600 s:")
    assert broken["problem"].endswith(f"\n{SAID}{REFUSED}")
    assert found["not_ready"] == ["m1"]
    del m1_is_not_ready


class Site:
    """A control plane on hosts, some of whose logs say this."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.document = Runs(folder / "run"), deployment(members=[M1, M2])
        self.runs.see_all(seen(Stored()))
        self.asked: list[dict[str, Any]] = []

    def look(self, host: dict[str, Any], answer: Any) -> None:
        action: Any = Log.__new__(Log)
        action.karmada = self.runs.step(self.document)
        action.variables = {"inventory_hostname": host["name"]}
        action._task = SimpleNamespace(check_mode=False, delegate_to=None)

        def on_host(module: str, **arguments: Any) -> Any:
            self.asked.append({"module": module, **arguments})
            if isinstance(answer, Exception):
                raise answer
            return {"lines": answer}

        action.on_host = on_host
        assert action.perform({"members": ["m1"]}) == {"changed": False}


def test_on_hosts_it_is_told_when_they_were_asked(tmp_path: Path, m1_is_not_ready: None) -> None:
    site = Site(tmp_path)
    run = site.runs.step(site.document)
    run.__dict__["control_plane"] = FakeCluster("control plane")
    first = joined(run, "readiness")
    assert first["not_ready"] == ["m1"]
    assert "karmada-controller-manager" not in first["broken_members"][0]["problem"]
    site.look(HOSTS[0], {'cluster="m1"': line("m1", "of before", "11:00:00.000000")})
    site.look(HOSTS[1], {'cluster="m1"': line("m1", REFUSED)})
    site.look(HOSTS[2], AssertionError("it has no controller manager"))
    assert [each["unit"] for each in site.asked] == ["karmada-prod-controller-manager.service"] * 2
    assert site.asked[0]["texts"] == ['cluster="m1"']
    assert site.asked[0]["ignored"] == ["cluster(m1) not ready"]
    found = joined(site.runs.step(site.document), "reasons", first["broken_members"])
    (broken,) = found["broken_members"]
    assert broken["problem"] == first["broken_members"][0]["problem"] + f"\n{SAID}{REFUSED}"
    del m1_is_not_ready


def test_a_host_that_does_not_answer_tells_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.look(HOSTS[0], AnsibleConnectionFailure("gone"))
    broken = {"name": "m1", "problem": "it is not ready", "next": "wait"}
    assert joined(site.runs.step(site.document), "reasons", [broken])["broken_members"] == [broken]


def test_the_journal_is_asked_for_the_newest_lines() -> None:
    class Journal:
        def command(self, *arguments: str) -> str:
            assert arguments[:5] == ("journalctl", "--unit", "u.service", "--since", "-180s")
            return 'first cluster="m1"\nsecond cluster="m1"\nthird cluster="m2"\n'

    def of_m1(*ignored: str) -> dict[str, str]:
        return host_log.newest_lines(system, "u.service", ['cluster="m1"', 'cluster="m9"'], 180, ignored)

    system: Any = Journal()
    assert of_m1() == {'cluster="m1"': 'second cluster="m1"'}
    assert of_m1("third", "second") == {'cluster="m1"': 'first cluster="m1"'}
