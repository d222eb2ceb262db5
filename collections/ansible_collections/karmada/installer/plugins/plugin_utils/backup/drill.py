# SPDX-License-Identifier: Apache-2.0
"""Drill: a control plane is served from a backup on the machine that Ansible runs on, and read through its API.

A restore on trial proves that etcd takes the data. A drill proves the rest of the way: kube-apiserver of the release
starts over it, reads every object, and decrypts every Secret with the key that lies in the same backup. It reaches
neither the control plane nor a member, so it may be done at any time, and it says how long each part of the way took.

Clusters are served by Karmada's aggregated API server, which a drill does not start; etcd counts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..components.table import KARMADA_APISERVER
from ..etcd.client import EtcdError
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..run.run import Run
from . import take, trial, verify, workplace
from .record import Record
from .targets import Target
from .verification import COUNTED

#: Kind of object, as records count it → apiVersion and kind with which kube-apiserver serves it.
SERVED: Mapping[str, tuple[str, str]] = {
    "clusterPropagationPolicies": ("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy"),
    "propagationPolicies": ("policy.karmada.io/v1alpha1", "PropagationPolicy"),
    "clusterResourceBindings": ("work.karmada.io/v1alpha2", "ClusterResourceBinding"),
    "resourceBindings": ("work.karmada.io/v1alpha2", "ResourceBinding"),
    "works": ("work.karmada.io/v1alpha1", "Work"),
    "namespaces": ("v1", "Namespace"),
    "secrets": ("v1", "Secret"),
}


@dataclass(frozen=True)
class Drilled:
    """Outcome of a drill. ``counts``: kind of object → number of those that were read.

    ``seconds``: part of the way → its duration: fetched (and decrypted), restored (etcd serves), served (kube-apiserver
    is ready), read (every object). Programs that had to be downloaded first are not counted.
    """

    name: str
    revision: int
    counts: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())


def drill(run: Run, target: Target, found: Record, keys: Sequence[Any]) -> Drilled:
    """Serve a backup and read it. Raises ProblemsError if it cannot be, or is not what its record says.

    ``keys`` are private keys of recipients, at least one.
    """
    where = verify.place(target, found)
    # Those that lack are downloaded here: what is timed is the way that a restore has to go.
    take.programs(run)
    program = take.program_paths(run, KARMADA_APISERVER)[KARMADA_APISERVER.name]
    seconds: dict[str, float] = {}
    try:
        with workplace.opened() as folder:
            with _timed(seconds, "fetched"):
                plain = verify.opened(run, target, found, keys, folder)
            server = take.startable(program, folder / "kube-apiserver")
            began = time.monotonic()
            data = trial.data_of(plain.snapshot, plain.programs, plain.folder, where)
            with trial.etcd(data, plain.programs, plain.folder, where) as etcd:
                seconds["restored"], began = time.monotonic() - began, time.monotonic()
                key = plain.state.encryption_key
                with trial.api_server(server, etcd.urls[0], plain.folder, where, encryption_key=key) as cluster:
                    seconds["served"] = time.monotonic() - began
                    with _timed(seconds, "read"):
                        counts = _read(cluster, lambda: etcd.count_below(COUNTED["clusters"]), where)
    except OSError as error:
        raise workplace.unusable(error) from None
    if wrong := [
        f"{counts[kind]} {kind} can be read, and its record says {number}"
        for kind, number in found.counts.items()
        if counts.get(kind, number) != number
    ]:
        raise verify.refused("; ".join(wrong), where)
    return Drilled(found.name, found.revision, counts, seconds)


def _read(cluster: Cluster, clusters: Callable[[], int], where: str) -> dict[str, int]:
    """Number of objects of each kind, all of which were read. Raises ProblemsError if one cannot be."""
    try:
        counts = {kind: cluster.count_read(*served) for kind, served in SERVED.items()}
        return {"clusters": clusters(), **counts}
    except (ApiError, EtcdError) as error:
        raise verify.refused(f"what it holds cannot be read: {error}", where) from None


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[part] = time.monotonic() - began
