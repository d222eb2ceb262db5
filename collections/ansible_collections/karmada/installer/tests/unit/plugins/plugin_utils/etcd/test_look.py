# SPDX-License-Identifier: Apache-2.0
"""Members are asked for their health together, and once more where a change may have come between two answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash, Member, Members
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus, EtcdClient
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.health import assess
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.look import look

URLS = tuple(f"https://m{number}:2379" for number in range(3))


def members(count: int) -> Members:
    """List of so many members."""
    return Members("c", tuple(Member(f"a{n}", f"m{n}", (f"https://m{n}:2380",), (), False) for n in range(count)))


@dataclass
class Client:
    """Client whose first member lists what ``first`` says at the time."""

    first: Callable[[int], Members]
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def status(self) -> list[EndpointStatus]:
        """All are well."""
        return [
            EndpointStatus(url, healthy=True, leader=not number, member_id=f"a{number}", cluster_id="c", revision=5)
            for number, url in enumerate(URLS)
        ]

    def at(self, url: str) -> Client:
        """The same one, for one member."""
        return Client(self.first, url, self.asked)

    def members(self) -> Members:
        """List of this member."""
        self.asked.append(self.url)
        return self.first(self.asked.count(self.url)) if self.url == URLS[0] else members(3)

    def hash_at(self, revision: int) -> Hash:
        """Hash of a content that all have."""
        return Hash(revision, 7)


@pytest.mark.parametrize(
    ("first", "times", "reason"),
    [
        (lambda _time: members(3), 1, "AllHealthy"),
        (lambda time: members(2 if time == 1 else 3), 2, "AllHealthy"),
        (lambda _time: members(1), 2, "MembersDiffer"),
    ],
    ids=["equal", "a change between two answers", "one that goes on alone"],
)
def test_lists_that_differ_are_asked_for_once_more(first: Callable[[int], Members], times: int, reason: str) -> None:
    client = Client(first)
    seen = look(cast(EtcdClient, client), dict(zip(URLS, ("m0", "m1", "m2"), strict=True)), dict)
    assert assess(seen).reason == reason
    assert [client.asked.count(url) for url in URLS] == [times] * 3
