# SPDX-License-Identifier: Apache-2.0
"""Leases of controllers: who is at work no more is told soon, and nobody who restarts or is followed by another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from karmada_operator.renewals import CONTROLLERS, Renewals, place_of

SCHEDULER, DESCHEDULER = "karmada-scheduler", "karmada-descheduler"
LATE = f"at work no more, by their Leases: {SCHEDULER}"
#: Seconds between two probes, and between a process that ends and the next one that leads.
GAPS = st.floats(0.5, 11.5)
HANDOVER = st.floats(0.1, 18.0)


class Plane:
    """A Lease and its holder, by a clock that the test sets; ``skew`` is by how much the holder's clock is ahead."""

    def __init__(self, several: frozenset[str] = frozenset(), skew: float = 0.0, name: str = SCHEDULER) -> None:
        self.now, self.skew, self.name = 1000.0, skew, name
        self.renewals = Renewals(lambda: self.now, several)
        self.spec = {"holderIdentity": "one", "renewTime": "first", "leaseDurationSeconds": 15}

    def renew(self, holder: str = "one") -> None:
        self.spec |= {"holderIdentity": holder, "renewTime": f"{self.now + self.skew:.6f}"}

    def judge(self) -> tuple[str, bool]:
        return self.renewals.judge({self.name: self.spec})

    def after(self, seconds: float) -> tuple[str, bool]:
        self.now += seconds
        return self.judge()


def working(several: frozenset[str] = frozenset(), skew: float = 0.0, name: str = SCHEDULER) -> Plane:
    """A plane whose leader was seen renewing."""
    found = Plane(several, skew, name)
    found.judge()
    found.now += 10
    found.renew()
    assert found.judge() == ("", False)
    return found


def test_the_lease_of_kubernetes_controllers_is_where_kubernetes_has_it() -> None:
    assert [place_of(each)[0] for each in CONTROLLERS] == ["kube-system", *["karmada-system"] * 3]


@pytest.mark.parametrize(
    ("seconds", "said"), [(5.9, ("", False)), (6.1, ("", True)), (9.9, ("", True)), (10.0, (LATE, False))]
)
def test_who_misses_renewals_is_looked_at_again_soon_and_then_told(seconds: float, said: tuple[str, bool]) -> None:
    assert working().after(seconds) == said


def test_a_longer_lease_has_more_time_and_a_shorter_one_no_less() -> None:
    for duration, limit in ((60, 40.0), (1, 10.0)):
        plane = working()
        plane.spec["leaseDurationSeconds"] = duration
        assert plane.after(limit - 0.1)[0] == ""
        assert plane.after(0.1)[0] == LATE


def test_who_works_again_is_told_no_more() -> None:
    plane = working()
    assert plane.after(12)[0] == LATE
    plane.renew("another")
    assert plane.judge() == ("", False)
    assert plane.renewals.suspicion == f"another process than before holds the Lease of {SCHEDULER} (1)"


def test_what_was_not_renewed_since_a_run_may_be_of_a_process_that_it_has_replaced() -> None:
    plane = Plane()
    plane.judge()
    assert plane.after(29.9) == ("", False)
    assert plane.after(0.1) == (LATE, False)


def test_the_lease_of_a_controller_that_the_document_names_no_more_is_nothing() -> None:
    plane = Plane(name=DESCHEDULER)
    plane.judge()
    assert plane.after(3600) == ("", False)
    assert working(name=DESCHEDULER).after(10)[0].endswith(DESCHEDULER)


def test_a_lease_that_is_not_there_is_no_trouble() -> None:
    plane = working()
    assert plane.renewals.judge({}) == ("", False)
    # Nor is it held to what was there before.
    assert plane.after(20) == ("", False)


def test_a_lease_that_was_given_back_is_left_for_another_one_to_take() -> None:
    plane = working()
    plane.spec = {"holderIdentity": "", "renewTime": "given back", "leaseDurationSeconds": 1}
    assert plane.after(1) == ("", False)
    assert plane.after(5) == ("", False)
    plane.now += 1
    plane.renew("another")
    assert plane.judge() == ("", False)
    assert plane.renewals.suspicion


def test_where_another_one_can_take_over_it_is_a_sign_first() -> None:
    plane = working(frozenset({SCHEDULER}))
    assert plane.after(9.9) == ("", True)
    assert plane.renewals.suspicion == ""
    assert plane.after(0.2)[0] == ""
    assert plane.renewals.suspicion == f"nobody renews the Lease of {SCHEDULER} (1)"
    assert plane.after(1)[0] == ""
    assert plane.renewals.suspicion.endswith("(1)")
    assert plane.after(19)[0] == LATE
    plane.renew("another")
    plane.judge()
    assert plane.renewals.suspicion == f"another process than before holds the Lease of {SCHEDULER} (2)"


@given(st.lists(GAPS, min_size=1, max_size=60), st.floats(-1e6, 1e6), st.booleans(), st.floats(0, 5))
def test_who_renews_is_never_told_whatever_its_clock_says(
    gaps: list[float], skew: float, several: bool, step: float
) -> None:
    """With up to 4 s between two renewals, and a clock that is set meanwhile."""
    plane = working(frozenset({SCHEDULER}) if several else frozenset(), skew)
    for number, gap in enumerate(gaps):
        renewed = plane.now + max(0.0, gap - 4)
        plane.skew += step * (-1) ** number
        plane.now, moment = renewed, plane.now + gap
        if gap >= 2.4:
            plane.renew()
        plane.now = moment
        assert plane.judge()[0] == ""
    assert plane.renewals.suspicion == ""


@given(st.lists(GAPS, min_size=1, max_size=20), st.lists(HANDOVER, min_size=1, max_size=5))
def test_another_one_that_takes_over_is_never_told_and_always_a_sign(gaps: list[float], handovers: list[float]) -> None:
    plane = working(frozenset({SCHEDULER}))
    for number, silence in enumerate(handovers):
        ends, at = plane.now + silence, 0
        while plane.now < ends:
            assert plane.after(gaps[at % len(gaps)])[0] == ""
            at += 1
        plane.renew(f"process {number}")
        assert plane.judge() == ("", False)
        assert plane.renewals.suspicion.startswith("another process")


@given(st.lists(GAPS, min_size=1, max_size=60), st.floats(0, 11.5))
def test_who_is_alone_and_stops_is_told_in_time(gaps: list[float], before: float) -> None:
    """Seen last ``before`` its end, with probes that come soon where there is a doubt."""
    plane = working()
    plane.now += before
    plane.renew()
    stopped, at = plane.now, 0
    late, soon = "", False
    while not late:
        gap = gaps[at % len(gaps)]
        late, soon = plane.after(min(gap, 2.2) if soon else gap)
        at += 1
    assert 10 <= plane.now - stopped <= 2 * 11.5 + 6
