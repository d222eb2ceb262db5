# SPDX-License-Identifier: Apache-2.0
"""New data of the members of etcd, made beside the old while etcd serves: the snapshot is sent to a pod of each.

A pod that has failed, or that a killed run has left unfinished, may have left half of its folder. So what is begun anew
gets the next generation, and the folder is put on record as one that nobody uses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..backup import verification, verify, workplace
from ..backup.record import SNAPSHOT
from ..components.state import RestoreState
from ..components.types import EtcdMember
from ..etcd import access, raft_snapshot
from ..etcd.client import EndpointStatus, EtcdClient, EtcdError
from ..problems import Problem, ProblemsError, Reason
from ..render import cluster_layout, etcd_restore, etcd_survivor
from ..run.run import Run
from . import pods
from .check import Chosen
from .under_way import restore_of

#: Certificate that members show one another.
PEER_CERTIFICATE = "etcd-peer-client"
#: Times that a file is sent from its begin, if the connection breaks.
ATTEMPTS = 3
_LOOK_SECONDS = 0.5
#: Containers that tell why there is no new data.
_CONTAINERS = (etcd_restore.RESTORER, etcd_restore.RECEIVER)


def new_data(run: Run, restore: RestoreState) -> etcd_restore.NewData:
    """Data that is made, as the pods are told."""
    members = [cluster_layout.etcd_pod(run.instance, name) for name in restore.members]
    return etcd_restore.NewData(restore.token, restore.generation, restore.bump, members)


def prepare(run: Run, chosen: Chosen, keys: Sequence[Any], timeout: float) -> None:
    """Make the data of every member, and put on record that it is there. Raises ProblemsError; etcd goes on then."""
    if _begun(run):
        _begin_anew(run)
    try:
        with workplace.opened() as folder:
            _made(run, decrypted(chosen, keys, folder).path, timeout)
    except OSError as error:
        raise workplace.unusable(error) from None
    with run.writing("note that the data of every member is prepared"):
        restore = restore_of(run)
        run.save(replace(run.state, restore=replace(restore, prepared=restore.members)))
    forget(run)


@dataclass(frozen=True)
class Decrypted:
    """A snapshot in plain, with its SHA-256."""

    path: Path
    digest: str


def decrypted(chosen: Chosen, keys: Sequence[Any], folder: Path) -> Decrypted:
    """The snapshot in plain, checked once more, in the folder of this step."""
    stored = chosen.record.files[SNAPSHOT]
    workplace.require_room(folder, stored.size + stored.plain_size)
    snapshot = verify.decrypted(chosen.target, chosen.record, SNAPSHOT, keys, folder, chosen.where)
    return Decrypted(snapshot, verification.check(snapshot, chosen.where))


def forget(run: Run) -> None:
    """Delete the pods; what they have made stays."""
    pods.delete(run, [*pods.named(run, etcd_restore.NAME), *pods.named(run, etcd_survivor.NAME)])


def _begun(run: Run) -> bool:
    """Return whether a pod of this restore is there, of which nobody knows how far it has come."""
    return bool(pods.named(run, etcd_restore.NAME))


def _begin_anew(run: Run) -> None:
    with run.writing("begin the new data of etcd anew"):
        restore = restore_of(run)
        half = f"gen-{restore.generation}"
        again = replace(restore, generation=restore.generation + 1, prepared=(), aside=(*restore.aside, half))
        run.save(replace(run.state, restore=again))
    run.go_on_with(run.state)
    forget(run)


def _made(run: Run, snapshot: Path, timeout: float) -> None:
    new = new_data(run, restore_of(run))
    nodes = pods.nodes(run)
    wanted = [
        etcd_restore.pod(run.instance, each, new, raft_snapshot.FILE, nodes.get(each.name, "")) for each in new.members
    ]
    with run.writing("make the new data of etcd beside the old"):
        pods.make(run, wanted)
    deadline = time.monotonic() + timeout
    with ThreadPoolExecutor(len(new.members)) as pool:
        for done in [pool.submit(_of_member, run, each, new, snapshot, deadline) for each in new.members]:
            done.result()


def _of_member(run: Run, member: EtcdMember, new: etcd_restore.NewData, snapshot: Path, deadline: float) -> None:
    name = etcd_restore.pod_name(member.name, new.generation)
    clients = [_client(run, name, member, port) for port in ("client", "peer")]
    status = _receiver(run, name, clients[0], deadline)
    run.say(f"etcd: sending {snapshot.stat().st_size >> 20} MiB to {name}")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with snapshot.open("rb") as file:
                clients[1].deliver(file, snapshot.stat().st_size, status)
            break
        except EtcdError as error:
            if attempt == ATTEMPTS:
                raise _trouble(name, f"the snapshot does not arrive: {error}") from None
            run.say(f"etcd: {name}: {error}; it is sent again")
    _wait_until_done(run, name, deadline)


def _client(run: Run, pod: str, member: EtcdMember, port: str) -> EtcdClient:
    """Client of the etcd in a pod that listens on loopback there, at one of its ports."""
    certificate = access.CLIENT_CERTIFICATE if port == "client" else PEER_CERTIFICATE
    url = member.client_url if port == "client" else member.peer_url
    return pods.client(run, pod, url, port, certificate)


def _receiver(run: Run, pod: str, client: EtcdClient, deadline: float) -> EndpointStatus:
    """Status of the etcd that receives, once it answers."""
    while True:
        (status,) = client.status()
        if status.healthy:
            return status
        if time.monotonic() > deadline or _phase(run, pod) == "Failed":
            raise _trouble(pod, pods.why(run, pod, _CONTAINERS) or status.message)
        time.sleep(_LOOK_SECONDS)


def _wait_until_done(run: Run, pod: str, deadline: float) -> None:
    while (phase := _phase(run, pod)) != "Succeeded":
        if phase == "Failed" or time.monotonic() > deadline:
            raise _trouble(pod, pods.why(run, pod, _CONTAINERS) or "it does not come to its end in time")
        time.sleep(_LOOK_SECONDS)


def _phase(run: Run, pod: str) -> str:
    live = run.host_cluster.get("v1", "Pod", pod, run.namespace)
    return str((live or {}).get("status", {}).get("phase", "")) if live else "Failed"


def _trouble(pod: str, what: str) -> ProblemsError:
    remedy = "mend that, and run it again: it makes the data anew"
    problem = Problem(what, f"pod {pod}", remedy, reason=Reason.NOT_READY_IN_TIME)
    return ProblemsError(problem, "nothing was stopped, and etcd serves as before")
