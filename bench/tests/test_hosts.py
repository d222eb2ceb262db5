# SPDX-License-Identifier: Apache-2.0
"""What is read from the answers of plain hosts."""

from __future__ import annotations

import pytest
from karmada_bench.command import BenchError
from karmada_bench.hosts import _option, failed_requests, invocations

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
