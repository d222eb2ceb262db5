# SPDX-License-Identifier: Apache-2.0
"""API servers on hosts with members of etcd: which member each uses, and when it is restarted for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import UnitStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    HostsOfEtcd,
    Installed,
    hosts,
    installed_in,
    names,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import without_pauses


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    without_pauses(monkeypatch)
    return installed_in(tmp_path)


def test_api_servers_use_the_members_on_their_hosts_one_after_the_other(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each while the next member comes: it is waited for before another one restarts, and at the end."""
    decide, turns = members_on_hosts.decide, list[members_on_hosts.Turn]()

    def deciding(run: Run, *more: Any) -> members_on_hosts.Turn:
        for number in range(1, 6):
            # That of cp4 was not seen to answer: it comes only now.
            status = UnitStatus("/bin/kube-apiserver", "it does not answer" if number == 4 else "")
            run.handover.note(f"cp{number}", units={"karmada-prod-apiserver.service": status})
        turns.append(decide(run, *more))
        return turns[-1]

    monkeypatch.setattr(members_on_hosts, "decide", deciding)
    world = installed(1)
    world.bring_to(hosts(names(1, 2, 3, 4, 5)))
    following = [(each.step, each.follows, each.before) for each in turns if each.follows or each.before]
    assert following == [
        ("promoted", "cp2", ""),
        ("promoted", "cp3", "cp2"),
        ("promoted", "cp5", "cp3"),
        ("", "", "cp5"),
    ]
    turns.clear()
    world.bring_to([*hosts(names(1, 2, 3, 4, 5)), {"name": "etcd6", "address": "192.0.2.6", "roles": ["etcd"]}][1:])
    assert [(each.follows, each.before) for each in turns if each.follows or each.before] == [], "it is no API server's"


def test_an_api_server_that_users_reach_at_its_host_follows_later(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, asked = HostsOfEtcd.spec, list[bool]()

    def at_a_host(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**spec(entries), "endpoint": {"type": "External", "host": "192.0.2.2"}}

    for said in (spec, at_a_host):
        monkeypatch.setattr(HostsOfEtcd, "spec", staticmethod(said))
        run = installed(1).run(hosts(names(1, 2, 3)))
        run.handover.note("cp2", units={"karmada-prod-apiserver.service": UnitStatus("/bin/kube-apiserver", "")})
        turn = members_on_hosts.Turn("promoted", "cp1", "cp2", "a")
        asked.append(bool(members_on_hosts._with_clients(run, turn).follows))
    assert asked == [True, False]


def test_an_api_server_uses_the_others_while_the_member_of_its_host_is_none(installed: Installed) -> None:
    world = installed(3)
    run = world.run(hosts(names(1, 2, 3)))
    host = component_hosts.all_hosts(run.spec)[1]

    def connects_to() -> list[str]:
        where = units.layout(run.instance, host, KARMADA_APISERVER, "")
        return [each.name for each in where.etcd_members if not each.leaving]

    assert connects_to() == ["cp2"]
    etcd = run.state.etcd
    record = etcd.member("cp2")
    assert record is not None
    run.save(replace(run.state, etcd=etcd.with_member(replace(record, leaving=True))))
    run.go_on_with(run.state)
    assert connects_to() == ["cp1", "cp3"]


def test_an_api_server_stops_with_its_member_only_where_it_uses_no_other(installed: Installed) -> None:
    world = installed(1)

    def clients(host: str) -> list[str]:
        run = world.run(hosts(names(1), names(2)))
        return [name for unit in run.on_host(host).tree([ETCD.name])["units"] for name in unit.get("clients", ())]

    assert clients("cp1") == ["karmada-prod-apiserver.service"]
    assert clients("cp2") == []
