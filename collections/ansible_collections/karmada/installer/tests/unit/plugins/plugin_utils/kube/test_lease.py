# SPDX-License-Identifier: Apache-2.0
"""The lock: one at a time, taken over from the dead, noticed when lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import lease
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import Lock, LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.transport import DELIVERY_SECONDS
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import holder_identity, holder_is_dead
from ansible_collections.karmada.installer.tests.unit.support import moments
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.moments import Clock, until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

PREFIX = "apis/coordination.k8s.io/v1/leases"
ELSEWHERE = "other-host/other-boot/12/34"
#: Locks of the test that runs.
MADE: list[Lock] = []


def lock(cluster: Cluster, holder: str, seconds: int = 30) -> Lock:
    MADE.append(found := Lock(cluster, "ns", "prod-installer", holder, seconds))
    return found


@pytest.fixture(autouse=True)
def _nobody_waits_in_vain() -> Iterator[None]:
    """Have a lock count as lost, and the test fail, where nobody renews it and ``check`` would wait without an end."""
    over = threading.Event()

    def give_up() -> None:
        over.set()
        for each in MADE:
            each.lost.set()

    timer = threading.Timer(moments.IN_VAIN_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()
    MADE.clear()
    assert not over.is_set(), f"it waited for {moments.IN_VAIN_SECONDS:.0f} s for a lock that nobody renews"


def spec(cluster: Cluster) -> dict[str, Any]:
    found = cluster.get("coordination.k8s.io/v1", "Lease", "prod-installer", "ns")
    assert found
    return dict(found["spec"])


def dead_process() -> str:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    identity = holder_identity(process.pid)
    assert not holder_is_dead(identity)
    process.kill()
    process.wait()
    return identity


def test_a_second_run_is_refused_by_name_and_admitted_after_release(cluster: Cluster) -> None:
    first, second = lock(cluster, ELSEWHERE), lock(cluster, holder_identity())
    first.acquire()
    with pytest.raises(ProblemsError, match="another run is writing: process 12 on other-host"):
        second.acquire()
    first.release()
    assert spec(cluster)["holderIdentity"] == ""
    second.acquire()
    assert spec(cluster)["holderIdentity"] == holder_identity()
    assert spec(cluster)["leaseTransitions"] == 1
    first.release()
    assert spec(cluster)["holderIdentity"] == holder_identity()


def test_a_waiting_run_goes_on_when_the_lock_is_released(cluster: Cluster) -> None:
    first, second = lock(cluster, ELSEWHERE), lock(cluster, holder_identity())
    first.acquire()
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        first.release()

    second.acquire(60, hear)
    assert said == ["[0/60 s] waiting for process 12 on other-host: lock ns/prod-installer"]


def test_a_killed_process_of_this_machine_loses_it_at_once(cluster: Cluster) -> None:
    lock(cluster, dead_process()).acquire()
    lock(cluster, holder_identity()).acquire()  # without waiting


def test_identities_that_cannot_be_judged_count_as_alive() -> None:
    assert not holder_is_dead(ELSEWHERE)
    assert not holder_is_dead("somebody")
    assert not holder_is_dead(holder_identity())
    host, boot, pid, start = holder_identity().split("/")
    assert holder_is_dead(f"{host}/{boot}/{pid}/{int(start) + 1}"), "the pid was given to another process"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(lease, "time", found)
    return found


def test_a_holder_elsewhere_loses_it_only_after_it_stood_still(cluster: Cluster, clock: Clock) -> None:
    lock(cluster, ELSEWHERE).acquire()
    # Its clock is an hour behind ours: must not matter.
    held = cluster.get("coordination.k8s.io/v1", "Lease", "prod-installer", "ns")
    assert held
    held["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
    cluster.replace(held)
    lock(cluster, holder_identity()).acquire(60)
    assert 30 <= clock.now <= 30 + lease.POLL_SECONDS


def test_a_lock_that_fell_silent_is_taken_then_and_not_at_a_later_look(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "POLL_SECONDS", 7.0)
    lock(cluster, ELSEWHERE).acquire()
    lock(cluster, holder_identity()).acquire(60)
    assert 30 <= clock.now < 30.2


def test_nothing_is_written_that_could_arrive_when_somebody_else_holds_it(cluster: Cluster, clock: Clock) -> None:
    mine = lock(cluster, ELSEWHERE)
    mine.acquire()
    clock.now += 30 - DELIVERY_SECONDS - 0.1
    mine.check()
    clock.now += 0.1
    with pytest.raises(LockLost):
        mine.check()


class Suspended(Clock):
    """A machine that sleeps: one clock stands still meanwhile, the other does not."""

    CLOCK_BOOTTIME = 7
    slept = 0.0

    def clock_gettime(self, clock: int) -> float:
        assert clock == self.CLOCK_BOOTTIME
        return self.now + self.slept


def test_a_machine_that_slept_knows_that_it_may_have_lost_the_lock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Suspended()
    monkeypatch.setattr(lease, "time", clock)
    mine = lock(cluster, holder_identity())
    mine.acquire()
    clock.slept = 19
    mine.check()
    clock.slept = 21
    with pytest.raises(LockLost, match="could not be renewed in time"):
        mine.check()


def test_a_holder_that_renews_keeps_it(cluster: Cluster, clock: Clock) -> None:
    first = lock(cluster, ELSEWHERE)
    first.acquire()
    clock.meanwhile = first.renew
    with pytest.raises(ProblemsError, match="another run is writing"):
        lock(cluster, holder_identity()).acquire(300)
    assert clock.now >= 300


def test_it_is_renewed_while_the_work_lasts_and_released_after_it(cluster: Cluster) -> None:
    mine = lock(cluster, ELSEWHERE, 3)
    mine.acquire()
    taken = spec(cluster)["renewTime"]
    with mine.held():
        until(lambda: spec(cluster)["renewTime"] != taken, "a renewal")
        assert spec(cluster)["holderIdentity"] == ELSEWHERE
    assert spec(cluster)["holderIdentity"] == ""


@pytest.mark.parametrize(
    "dead",
    [f"{ELSEWHERE}/nightly-1", "nightly-1", f"nightly-0, {ELSEWHERE}/nightly-1", "nightly-1,nightly-0,"],
    ids=["holder", "run", "holder among several", "run among several"],
)
def test_it_is_taken_at_once_from_the_holder_that_is_called_dead(cluster: Cluster, dead: str) -> None:
    lock(cluster, f"{ELSEWHERE}/nightly-1").acquire()
    Lock(cluster, "ns", "prod-installer", holder_identity(), dead=dead).acquire()
    assert spec(cluster)["holderIdentity"] == holder_identity()


@pytest.mark.parametrize(
    "dead", ["", ",", "nightly", "nightly-2", "nightly-2,nightly-0", "nightly 1", "12", ELSEWHERE, "other-host"]
)
def test_calling_another_one_dead_changes_nothing(cluster: Cluster, dead: str) -> None:
    lock(cluster, f"{ELSEWHERE}/nightly-1").acquire()
    told = "run nightly-1, process 12 on other-host.*-e karmada_confirm_dead=other-host/other-boot/12/34/nightly-1$"
    with pytest.raises(ProblemsError, match=told):
        Lock(cluster, "ns", "prod-installer", holder_identity(), dead=dead).acquire()
    assert spec(cluster)["holderIdentity"] == f"{ELSEWHERE}/nightly-1"


def test_the_name_of_a_holder_is_one_word_of_the_command_that_is_told(cluster: Cluster) -> None:
    lock(cluster, "x; touch /tmp/mark").acquire()
    with pytest.raises(ProblemsError, match=r"-e 'karmada_confirm_dead=x; touch /tmp/mark'$"):
        lock(cluster, holder_identity()).acquire()


@pytest.mark.parametrize("dead", [",", ", ,", "nightly-1,", "x; touch /tmp/mark"])
def test_a_holder_without_an_id_is_named_in_full_only(cluster: Cluster, dead: str) -> None:
    lock(cluster, ELSEWHERE).acquire()
    with pytest.raises(ProblemsError, match="another run is writing"):
        Lock(cluster, "ns", "prod-installer", holder_identity(), dead=dead).acquire()
    assert spec(cluster)["holderIdentity"] == ELSEWHERE


def test_a_name_with_a_comma_is_one_that_can_be_repeated(cluster: Cluster) -> None:
    lock(cluster, "x, y").acquire()
    Lock(cluster, "ns", "prod-installer", holder_identity(), dead="x, y").acquire()
    assert spec(cluster)["holderIdentity"] == holder_identity()


def test_requests_carry_the_id_of_their_run(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KARMADA_RUN_ID", "nightly-1")
    with cluster_of(api.kubeconfig(), name="host cluster") as cluster:
        lock(cluster, ELSEWHERE).acquire()
    assert {each["User-Agent"] for each in api.headers} == {"karmada-installer (run nightly-1)"}


def test_of_two_takers_one_gets_it(cluster: Cluster) -> None:
    lock(cluster, dead_process()).acquire()
    locks = [lock(cluster, f"host{index}/b/1/1") for index in range(8)]
    got: list[Lock] = []

    def take(one: Lock) -> None:
        try:
            one.acquire()
        except ProblemsError:
            return
        got.append(one)

    threads = [threading.Thread(target=take, args=(one,)) for one in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert spec(cluster)["holderIdentity"] == got[0].holder


def test_work_is_told_when_somebody_took_the_lock(cluster: Cluster, api: StubApi) -> None:
    mine = lock(cluster, holder_identity(), 1)
    mine.acquire()
    lost_in_time = False

    def work() -> None:
        nonlocal lost_in_time
        with mine.held():
            lease = cluster.get("coordination.k8s.io/v1", "Lease", "prod-installer", "ns")
            assert lease
            # Past the server's answers to us: a renewal in the background must not come between.
            api.put(PREFIX, {**lease, "spec": {**lease["spec"], "holderIdentity": ELSEWHERE}})
            lost_in_time = mine.lost.wait(60)

    with pytest.raises(LockLost):
        work()
    assert lost_in_time
    assert spec(cluster)["holderIdentity"] == ELSEWHERE


def test_work_is_told_when_the_server_is_away_for_too_long(cluster: Cluster, api: StubApi) -> None:
    mine = lock(cluster, holder_identity(), 1)
    mine.acquire()
    api.faults.append(Fault("status", method="PUT", status=503, times=1000))

    def work() -> None:
        with mine.held():
            assert mine.lost.wait(60)
            mine.check()

    with pytest.raises(LockLost, match="could not be renewed in time"):
        work()


def test_work_goes_on_when_the_server_comes_back_and_nobody_took_the_lock(cluster: Cluster, api: StubApi) -> None:
    mine = lock(cluster, holder_identity(), 3)
    mine.acquire()
    api.faults.append(Fault("status", method="PUT", status=503, times=1000))
    with mine.held():
        time.sleep(3)
        start = time.monotonic()
        assert lease._clock() >= mine._expires
        threading.Timer(0.6, api.faults.clear).start()
        mine.check()
        assert time.monotonic() - start > 0.3, "nothing may be written while it is not certain whose the lock is"
        assert not mine.lost.is_set()


def test_work_ends_when_somebody_took_the_lock_while_the_server_was_away_for_us(cluster: Cluster, api: StubApi) -> None:
    mine = lock(cluster, ELSEWHERE, 3)
    mine.acquire()
    api.faults.append(Fault("status", method="PUT", status=503, times=1000))

    def work() -> None:
        with mine.held():
            time.sleep(3)
            lease = cluster.get("coordination.k8s.io/v1", "Lease", "prod-installer", "ns")
            assert lease
            # Past the server's answers to us: a renewal in the background must not come between.
            api.put(PREFIX, {**lease, "spec": {**lease["spec"], "holderIdentity": "other/b/1/1"}})
            api.faults.clear()
            mine.check()

    with pytest.raises(LockLost, match="somebody else took it"):
        work()


def without_credential(monkeypatch: pytest.MonkeyPatch, error: Exception, times: float) -> threading.Event:
    """Have so many renewals from now on end in an error before a request is made; set when the first has."""
    real, left, failed = Cluster.replace, [times], threading.Event()

    def replace(self: Cluster, *args: Any, **options: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            failed.set()
            raise error
        return real(self, *args, **options)

    monkeypatch.setattr(Cluster, "replace", replace)
    return failed


NO_CREDENTIAL = ProblemsError(
    Problem("the exec plugin failed with code 1", "users[0]", reason=Reason.CREDENTIALS_UNAVAILABLE)
)


def test_a_program_that_gives_no_credential_once_loses_no_lock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lock(cluster, holder_identity(), 3)
    mine.acquire()
    before, failed = spec(cluster)["renewTime"], without_credential(monkeypatch, NO_CREDENTIAL, 1)
    with mine.held():
        assert failed.wait(60)
        until(lambda: spec(cluster)["renewTime"] != before, "a renewal")
        mine.check()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [NO_CREDENTIAL, RuntimeError("a defect")], ids=["credential", "defect"])
def test_work_is_told_when_the_lock_cannot_be_renewed_for_whatever_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    mine = lock(cluster, holder_identity(), 1)
    mine.acquire()
    without_credential(monkeypatch, error, float("inf"))

    def work() -> None:
        with mine.held():
            assert mine.lost.wait(60), "nobody renews it, and nobody says so"
            mine.check()

    with pytest.raises(LockLost, match="could not be renewed in time"):
        work()


def test_conflicts_without_end_are_told(cluster: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    lock(cluster, dead_process()).acquire()
    monkeypatch.setattr(lease, "CROSSINGS", 3)
    api.faults.append(Fault("status", method="PUT", status=409, times=1000))
    with pytest.raises(ProblemsError, match="each of 3 attempts to write it met the write of somebody else"):
        lock(cluster, holder_identity()).acquire()


def test_a_retired_lock_is_not_missed(cluster: Cluster) -> None:
    mine = lock(cluster, holder_identity(), 1)
    mine.acquire()
    with mine.held(release=False):
        mine.retire()
        cluster.delete("coordination.k8s.io/v1", "Lease", "prod-installer", "ns")
        time.sleep(1.5)
        mine.renew()
        mine.check()


def test_a_lock_that_is_retired_while_it_is_renewed_has_no_end(cluster: Cluster, api: StubApi, clock: Clock) -> None:
    mine = lock(cluster, holder_identity())
    mine.acquire()
    retiring = threading.Thread(target=mine.retire)

    def retire(method: str, _path: str) -> None:
        if method == "PUT":
            retiring.start()
            # It waits for the renewal. One that did not would be done by then.
            retiring.join(0.5)

    api.on_request = retire
    mine.renew()
    retiring.join()
    clock.now += 3600
    mine.check()


def test_a_renewal_that_was_written_unheard_is_still_ours(cluster: Cluster, api: StubApi) -> None:
    mine = lock(cluster, holder_identity())
    mine.acquire()
    api.faults.append(Fault("reset-after", method="PUT"))
    mine.renew()
    mine.check()
    assert not mine.lost.is_set()


def test_identity_is_of_the_process_that_was_named() -> None:
    assert holder_identity().split("/")[2] == str(os.getpid())
    assert holder_identity(os.getppid()).split("/")[2] == str(os.getppid())
