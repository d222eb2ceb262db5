# SPDX-License-Identifier: Apache-2.0
"""What is told of members of etcd by their own answers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import NOT_FOUND, UNAVAILABLE
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import (
    Cause,
    EndpointStatus,
    EtcdClient,
    EtcdError,
)


def status(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> EndpointStatus:
    monkeypatch.setattr(EtcdClient, "_post", lambda *_arguments: answer)
    # Without the files of a client certificate, which only a connection needs.
    return EtcdClient._status_of(EtcdClient.__new__(EtcdClient), "https://etcd0:2379")


@pytest.mark.parametrize(
    ("header", "leader", "leads", "healthy"),
    [
        ({"member_id": "10276657743932975437"}, "10276657743932975437", True, True),
        ({"member_id": "10276657743932975437"}, "9372538179322589801", False, True),
        ({"member_id": "10276657743932975437"}, None, False, False),
        # It may be any server that answers.
        ({"member_id": "0"}, "0", False, False),
        ({}, "9372538179322589801", False, True),
    ],
)
def test_the_member_leads_that_names_itself_as_the_leader(
    header: dict[str, str], leader: str | None, leads: bool, healthy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = status({"header": header, **({"leader": leader} if leader else {})}, monkeypatch)
    assert (found.leader, found.healthy) == (leads, healthy)


UNHEALTHY = EtcdError(Cause.WRONG, "it answers: unhealthy cluster", UNAVAILABLE)
REFUSED = EtcdError(Cause.WRONG, "connection refused")
NO_WAY = EtcdError(Cause.UNREACHED, "no route to host")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ((UNHEALTHY, REFUSED), UNHEALTHY),
        ((REFUSED, UNHEALTHY, NO_WAY), UNHEALTHY),
        ((NO_WAY, REFUSED), REFUSED),
        ((REFUSED, NO_WAY), REFUSED),
        # The first has carried it out, and its answer was lost.
        ((UNHEALTHY, EtcdError(Cause.WRONG, "it answers: member not found", NOT_FOUND)), None),
    ],
)
def test_of_errors_of_several_members_the_word_of_etcd_is_told(
    errors: tuple[EtcdError, ...], told: EtcdError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(errors)

    def post(*_arguments: Any) -> dict[str, Any]:
        raise next(left)

    monkeypatch.setattr(EtcdClient, "_post", post)
    client = EtcdClient.__new__(EtcdClient)
    client.urls = tuple(f"https://etcd{number}:2379" for number in range(len(errors)))
    with pytest.raises(EtcdError) as raised:
        client.promote("a")
    assert raised.value is (told or errors[-1])


NOSPACE, CORRUPT = "memberID:10276657743932975437 alarm:NOSPACE ", "memberID:9372538179322589801 alarm:CORRUPT "


@pytest.mark.parametrize(
    ("leader", "errors", "only_full"),
    [
        ("1", [NOSPACE], True),
        ("1", [NOSPACE, NOSPACE], True),
        ("1", [], False),
        ("1", [NOSPACE, CORRUPT], False),
        ("1", [NOSPACE, "etcdserver: no leader"], False),
        ("0", [NOSPACE], False),
    ],
)
def test_a_lack_of_space_is_told_from_what_else_is_wrong(
    leader: str, errors: list[str], only_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = status({"header": {"member_id": "1"}, "leader": leader, "errors": errors}, monkeypatch)
    assert found.only_full is only_full
    assert found.works is (only_full or not errors)
    assert found.full_members == (("8e9e05c52164694d",) if NOSPACE in errors else ())
    assert found.healthy is (leader != "0" and not errors)
