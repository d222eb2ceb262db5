# SPDX-License-Identifier: Apache-2.0
"""A control plane in pods whose etcd runs on plain hosts: what an action on it has at hand.

There is one state, the Secret that every control plane in pods has, and the Lease beside it admits one writing run. The
hosts keep what they run and a lock of their own, which keeps out a run for another control plane of the same name.
"""

from __future__ import annotations

from dataclasses import replace

from .plain_hosts import RunWithHosts


class EtcdOnHostsRun(RunWithHosts):
    """One step of a run for a control plane in pods above an etcd on hosts, from where the run stands."""

    def begin(self) -> bool:
        """Take the lock and open the journal if there is anything to do on hosts; returns whether there is."""
        differs = any(each.get("differs") or each.get("lacking") for each in self.observed.values())
        due = differs or not self.state.etcd.bootstrapped
        if due and not self.check:
            # The state is on record before the first change of a host.
            with self.writing("etcd on hosts"):
                self.save(self.with_hosts(self.state))
        return due

    def etcd_bootstrapped(self) -> None:
        """Note that from now on no member of etcd may found a cluster again."""
        with self.writing("end the bootstrap of etcd"):
            self.save(replace(self.state, etcd=replace(self.state.etcd, bootstrapped=True)))
