# SPDX-License-Identifier: Apache-2.0
"""Figures read from the answers of plain hosts."""

from __future__ import annotations

import pytest
from karmada_bench.command import BenchError
from karmada_bench.hosts import _option, failed_requests, holder, invocations

SSH_CONFIG = """\
Host cp1
  HostName 10.77.0.11
  User lab
  IdentityFile /lab/key
Host cp2
  HostName 10.77.0.12
  User lab
"""


def test_each_unit_has_the_identifier_of_its_start_in_whatever_order_systemd_shows_it():
    shown = "Id=karmada-prod-etcd.service\nInvocationID=aa\n\nInvocationID=bb\nId=karmada-prod-webhook.service\n"
    assert invocations(shown) == {"karmada-prod-etcd.service": "aa", "karmada-prod-webhook.service": "bb"}


def test_failed_requests_are_those_that_were_counted():
    assert failed_requests("PLAY RECAP\npoll: 71 answers, 2 failures\n12:00:01 timed out\n") == 2


@pytest.mark.parametrize("output", ["PLAY RECAP\n", "poll: 0 answers, 0 failures\n"])
def test_nothing_asked_is_no_proof(output):
    with pytest.raises(BenchError):
        failed_requests(output)


def test_options_of_a_host_are_read_from_its_part():
    assert _option(SSH_CONFIG, "HostName", of="cp2") == "10.77.0.12"
    assert _option(SSH_CONFIG, "IdentityFile") == "/lab/key"
    with pytest.raises(BenchError, match="no HostName for cp3"):
        _option(SSH_CONFIG, "HostName", of="cp3")


def test_the_host_with_the_virtual_ip_is_found_by_the_whole_address():
    shown = {"cp1": "eth0@if3 UP 10.77.0.20/16 10.77.0.200/32 \n", "cp2": "eth0@if4 UP 10.77.0.21/16 \n"}
    assert holder("10.77.0.200", shown) == "cp1"
    with pytest.raises(BenchError, match=r"10\.77\.0\.2 is held by no host"):
        holder("10.77.0.2", shown)
    with pytest.raises(BenchError, match="held by cp1, cp2"):
        holder("10.77.0.200", shown | {"cp2": shown["cp1"]})
