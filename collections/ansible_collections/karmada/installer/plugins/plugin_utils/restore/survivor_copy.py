# SPDX-License-Identifier: Apache-2.0
"""Copy of the data of a member of etcd that has survived, as a snapshot of this machine.

A pod beside the member copies its database and serves the copy (``render.etcd_survivor``). It goes at the end; one that
a killed run has left is deleted by the next one, and ends by itself. From a plain host all its data comes here, its log
too, and is started here once, without all others (``--force-new-cluster``).
"""

from __future__ import annotations

import re
import shutil
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..api_object import Object
from ..backup import encryption, take, trial, workplace
from ..etcd.client import EndpointStatus, EtcdClient, EtcdError
from ..kube.errors import ApiError
from ..problems import Problem, ProblemsError, Reason
from ..redaction import shown
from ..render import cluster_layout, etcd_survivor
from ..run.run import Run
from . import pods

_LOOK_SECONDS = 0.5
#: Names of files in the data of a member.
_OF_DATA = re.compile(r"member/(snap/(db|[0-9a-f]{1,16}-[0-9a-f]{1,16}\.snap)|wal/[0-9a-f]{1,16}-[0-9a-f]{1,16}\.wal)")
#: Fields of a status that are handed on.
_TOLD = ("url", "version", "db_size", "cluster_id", "member_id", "index", "term", "revision")
#: Seconds that a member has run after which its database has all that it knows to be committed.
_SETTLED_SECONDS = 10.0


@dataclass(frozen=True)
class Copy:
    """A snapshot in a folder of this run, which goes with it; what was asked of it, and when it began.

    ``settled``: the member itself runs, so that its database has all that its log has.
    """

    path: Path
    status: EndpointStatus
    hash: Hash | None
    beginning: take.Beginning
    settled: bool

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form, which steps hand on."""
        told = {name: getattr(self.status, name) for name in _TOLD}
        of = {"hash": vars(self.hash)} if self.hash else {}
        return {"file": str(self.path), "beginning": self.beginning.plain, "status": told, **of}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Copy:
        """From its plain form."""
        found = Hash(**plain["hash"]) if plain.get("hash") else None
        beginning = take.Beginning.of(plain["beginning"])
        return cls(Path(plain["file"]), EndpointStatus(**plain["status"]), found, beginning, settled=True)

    def remove(self) -> None:
        """Delete it."""
        workplace.remove(self.path.parent)


def taken(run: Run, name: str, timeout: float) -> Copy:
    """Copy the database of a member in pods. Raises ProblemsError; nothing of the member was changed in any case."""
    beginning = take.Beginning.now(run.state)
    with workplace.handed_on() as folder, run.recording():
        pods.forget(run, etcd_survivor.NAME)
        live = run.host_cluster.get("v1", "Pod", name, run.namespace)
        _start(run, name, live)
        client = pods.client(run, etcd_survivor.pod_name(name), cluster_layout.etcd_pod(run.instance, name).client_url)
        run.say(f"member {name} answers no client; its database is copied beside it")
        try:
            status = _served(run, name, client, time.monotonic() + timeout)
            workplace.require_room(folder, status.db_size * take.COPIES)
            path = folder / take.PLAIN
            with open(path, "xb", opener=encryption.reader_only) as stream:
                client.snapshot(stream)
            found = take.hash_of(client, status.revision)
        except EtcdError as error:
            raise ProblemsError(_trouble(name, f"the copy of its database is not sent: {error}")) from None
        pods.forget(run, etcd_survivor.NAME)
    # Its cluster and its ID are those of the copy.
    of_member = replace(status, cluster_id="", member_id="", leader=False)
    return Copy(path, of_member, found, beginning, is_settled(live, datetime.now(UTC)))


def of_archive(run: Run, name: str, archive: Path, beginning: take.Beginning) -> Copy:
    """Copy of which an archive has all data, in the folder where that lies. Raises ProblemsError, and OSError."""
    folder = archive.parent
    size = archive.stat().st_size
    workplace.require_room(folder, size * (1 + take.COPIES))
    data, keys = folder / "survivor", folder / "keys"
    for each in (data, keys):
        each.mkdir(mode=0o700)
    extract(archive, data, f"member {name} of etcd")
    archive.unlink()
    run.say(f"starting the copy of what {name} has, without all others")
    tools, path = take.runnable(take.programs(run), folder), folder / take.PLAIN
    with trial.etcd(data, tools, keys, f"member {name} of etcd", force=name) as client:
        try:
            (status,) = client.status()
            with open(path, "xb", opener=encryption.reader_only) as stream:
                client.snapshot(stream)
            found = take.hash_of(client, status.revision)
        except EtcdError as error:
            raise ProblemsError(_trouble(name, f"the copy of its data does not answer: {error}")) from None
    shutil.rmtree(data)
    return Copy(path, replace(status, leader=False), found, beginning, settled=True)


def extract(archive: Path, data: Path, where: str) -> None:
    """Write the files of an archive that are data of a member of etcd, and no others. Raises ProblemsError, OSError."""
    try:
        with tarfile.open(archive, mode="r:") as stream:
            for each in stream:
                source = stream.extractfile(each) if each.isreg() and _OF_DATA.fullmatch(each.name) else None
                if source is None:
                    raise ValueError(f"{shown(each.name)} is no file of a member's data")
                path = data / each.name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with source, open(path, "xb", opener=encryption.reader_only) as sink:
                    shutil.copyfileobj(source, sink)
    except (tarfile.TarError, ValueError, FileExistsError) as error:
        what, remedy = f"what has come of its data cannot be used: {error}", "look after this host, and run it again"
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.RESTORE_IMPOSSIBLE)) from None


def is_settled(pod: Object | None, now: datetime) -> bool:
    """Return whether the container of a member has run for long enough."""
    for each in ((pod or {}).get("status") or {}).get("containerStatuses") or []:
        if started := ((each.get("state") or {}).get("running") or {}).get("startedAt"):
            return (now - datetime.fromisoformat(started)).total_seconds() >= _SETTLED_SECONDS
    return False


def _start(run: Run, name: str, live: Object | None) -> None:
    node = str(((live or {}).get("spec") or {}).get("nodeName") or "")
    pod = etcd_survivor.pod(run.instance, run.state.etcd, name, node)
    try:
        pods.make(run, [pod])
    except ApiError as error:
        raise ProblemsError(_trouble(name, f"the pod that copies its database is not admitted: {error}")) from None


def _served(run: Run, name: str, client: EtcdClient, deadline: float) -> EndpointStatus:
    """Status of the copy, once it is served."""
    while True:
        (status,) = client.status()
        if status.healthy:
            return status
        pod = run.host_cluster.get("v1", "Pod", etcd_survivor.pod_name(name), run.namespace)
        ended = pod is None or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        if ended or time.monotonic() > deadline:
            why = pods.why(run, etcd_survivor.pod_name(name), (etcd_survivor.COPIER, etcd_survivor.SERVER))
            raise ProblemsError(_trouble(name, why or status.message))
        time.sleep(_LOOK_SECONDS)


def _trouble(name: str, what: str) -> Problem:
    remedy = "name another member that has its data, or restore a backup"
    return Problem(what, f"member {name} of etcd", remedy, reason=Reason.RESTORE_IMPOSSIBLE)
