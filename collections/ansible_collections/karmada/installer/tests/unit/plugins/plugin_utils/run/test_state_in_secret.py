# SPDX-License-Identifier: Apache-2.0
"""In pods the state is a Secret. Whoever may write that one decides nothing by it but that runs are refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from ansible_collections.karmada.installer.plugins.action import hosts_leaving, member_leave, preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import KIND as LEASE
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

FINGERPRINT = "SHA256:" + "A" * 43
#: What ends the word that an option of ssh is, if nobody looks at it.
BREAKS_OUT = f"{FINGERPRINT}\"' '-oProxyCommand=/bin/sh -c id' '-oSetEnv=A=\"x"
FROM = {"address": "192.0.2.9", "port": 22, "path": "/etc/x", "user": "me", "hostKeyFingerprint": FINGERPRINT}
MEMBER = {"mode": "Push", "context": None, "onLeave": "Retain", "kubeconfigFrom": FROM}
HOST = {"name": "gone", "address": "192.0.2.8", "roles": ["agent"], "port": 22, "hostKeyFingerprint": FINGERPRINT}


def member(**changes: Any) -> dict[str, Any]:
    return {"members": {"left": {**MEMBER, "kubeconfigFrom": {**FROM, **changes}}}}


CRAFTED: dict[str, tuple[dict[str, Any], str]] = {
    "fingerprint of a member": (
        member(hostKeyFingerprint=BREAKS_OUT),
        "members.left.kubeconfigFrom.hostKeyFingerprint",
    ),
    "path of a kubeconfig": (member(path="/etc/x; id"), "members.left.kubeconfigFrom.path"),
    "address of a member": (member(address="-oProxyCommand=id"), "members.left.kubeconfigFrom.address"),
    "user of a member": (member(user="-oProxyCommand=id"), "members.left.kubeconfigFrom.user"),
    "folder of a key": (
        member(privateKeySecretRef={"name": "../../root/.ssh"}),
        "members.left.kubeconfigFrom.privateKeySecretRef.name",
    ),
    "fingerprint of a host": (
        {"hosts": {"gone": {**HOST, "hostKeyFingerprint": BREAKS_OUT}}},
        "hosts.gone.hostKeyFingerprint",
    ),
}


@pytest.fixture(autouse=True)
def _no_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: Any, **_more: Any) -> NoReturn:
        pytest.fail(f"a program was started: {words}")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def stored(**fields: Any) -> tuple[Run, FakeCluster]:
    """A run in pods, and its host cluster, in which somebody has written a state with these fields."""
    cluster = host()
    run = fake_run(document({"endpoint": {"type": "ClusterIP"}}), cluster, stored=replace(state(), **fields))
    return run, cluster


def content(cluster: FakeCluster) -> str:
    """All objects of a cluster but the lock."""
    return json.dumps([each for each in cluster.objects.values() if each["kind"] != LEASE], sort_keys=True)


def confirm(run: Run) -> object:
    arguments = {"stage": "confirm", "confirm": "left", "abandon": [], "timeout": 1, "on_broken_member": "fail"}
    return member_leave._performed(run, arguments)


def write(run: Run) -> None:
    with run.writing("a step"):
        pytest.fail("it writes")


WAYS: dict[str, Callable[[Run], object]] = {
    "preflight": lambda run: preflight._refuse(findings.findings(run, [], "").all),
    "a member leaves": confirm,
    "a step writes": write,
    "the state": lambda run: run.state,
}


def test_what_a_run_writes_is_read_back() -> None:
    """Else every other test here would pass whatever is refused."""
    known = {"members": {"left": MEMBER}, "hosts": {"gone": HOST}}
    run, _ = stored(**known)
    assert (run.state.members, run.state.hosts) == (known["members"], known["hosts"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("crafted", CRAFTED)
@pytest.mark.usefixtures("unlocked")
def test_a_crafted_secret_is_refused_before_anything_of_it_is_used(crafted: str, way: str) -> None:
    fields, said = CRAFTED[crafted]
    run, cluster = stored(**fields)
    before = content(cluster)
    with pytest.raises(ProblemsError) as caught:
        WAYS[way](run)
    # Preflight tells all else as well.
    (problem,) = (each for each in caught.value.problems if each.reason is Reason.INVALID_STATE)
    assert problem.where == f"Secret {run.namespace}/prod-installer-state of the host cluster"
    assert said in problem.what
    assert content(cluster) == before


@pytest.mark.parametrize("crafted", CRAFTED)
@pytest.mark.usefixtures("unlocked")
def test_one_that_is_crafted_while_a_run_waits_for_the_lock_is_refused_as_well(
    crafted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is read again under the lock, and as strictly as the first time. Nobody has to wait for that lock."""
    released: list[bool] = []
    monkeypatch.setattr(NoLock, "release", lambda _: released.append(True))
    run, cluster = stored()
    assert run.stored_state
    fake_run(run.deployment, cluster, stored=replace(state(), **CRAFTED[crafted][0]))
    before = content(cluster)
    with pytest.raises(ProblemsError, match=CRAFTED[crafted][1].replace(".", r"\.")):
        write(run)
    assert content(cluster) == before
    assert NoLock.taken == 1
    assert released


@pytest.mark.parametrize("crafted", CRAFTED)
def test_no_host_of_it_is_reached(crafted: str) -> None:
    """The step before preflight, which alone says so, makes hosts of the inventory of what is recorded."""
    action: Any = hosts_leaving.ActionModule.__new__(hosts_leaving.ActionModule)
    action.variables = {}
    run, _ = stored(**CRAFTED[crafted][0])
    assert action.perform(run, {}) == {"changed": False, "hosts": []}


def test_a_host_that_is_sound_is() -> None:
    action: Any = hosts_leaving.ActionModule.__new__(hosts_leaving.ActionModule)
    action.variables = {}
    run, _ = stored(hosts={"gone": HOST})
    (found,) = action.perform(run, {})["hosts"]
    assert found["name"] == "gone"
