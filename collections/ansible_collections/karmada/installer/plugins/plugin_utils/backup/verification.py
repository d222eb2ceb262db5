# SPDX-License-Identifier: Apache-2.0
"""Proofs that a snapshot can be restored, each of which finds what the one before does not.

1. Its size and the checksum at its end (``module_utils/etcd_snapshot``).
2. ``etcdutl snapshot status`` reads it, and its revision is not older than that of the member before.
3. ``etcdutl snapshot restore`` makes a data folder of it, and an etcd of the same version serves that, on loopback,
   with keys and certificates of the moment.
4. Its content has the hash that a live member has at the same revision.

All of it happens on the machine that Ansible runs on and at low priority; members do nothing but send and hash.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ansible_collections.karmada.installer.plugins.module_utils import etcd_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from .. import run_process
from ..etcd.client import EtcdClient, EtcdError
from ..pki import x509
from ..problems import Problem, ProblemsError, Reason
from .encryption import reader_only
from .record import Level

#: Kind of object → prefix of its keys, for the counts of a record. Ours have etcd to themselves, so it is this prefix.
COUNTED: Mapping[str, bytes] = {
    "clusters": b"/registry/cluster.karmada.io/clusters/",
    "clusterPropagationPolicies": b"/registry/policy.karmada.io/clusterpropagationpolicies/",
    "propagationPolicies": b"/registry/policy.karmada.io/propagationpolicies/",
    "clusterResourceBindings": b"/registry/work.karmada.io/clusterresourcebindings/",
    "resourceBindings": b"/registry/work.karmada.io/resourcebindings/",
    "works": b"/registry/work.karmada.io/works/",
    "namespaces": b"/registry/namespaces/",
    "secrets": b"/registry/secrets/",
}
#: A restore copies the file once; an etcd of 8 GB is read within a minute.
PROGRAM_SECONDS = 600
START_SECONDS = 120.0
STOP_SECONDS = 30.0
_NICE = 10
#: Of what is restored on trial nobody else may read a file, whatever the umask of this session is.
_UMASK = 0o077
_SAID = 2000
_NAME = "trial"


@dataclass(frozen=True)
class Programs:
    """Paths of ``etcd`` and ``etcdutl``, of the minor of the etcd that made the snapshot."""

    etcd: Path
    etcdutl: Path


@dataclass(frozen=True)
class Content:
    """Content of a snapshot as an etcd that was restored from it serves it."""

    cluster_id: str
    revision: int
    total_keys: int
    hash: Hash
    counts: Mapping[str, int]
    clusters: tuple[str, ...]


def check(snapshot: Path, where: str) -> str:
    """First proof; returns the SHA-256 of the file in hex. Raises ProblemsError, and OSError if it cannot be read."""
    with snapshot.open("rb") as stream:
        try:
            return etcd_snapshot.check(stream)
        except etcd_snapshot.SnapshotError as error:
            raise _refused(str(error), where) from None


def status(snapshot: Path, programs: Programs, where: str, least_revision: int = 0) -> tuple[int, int]:
    """Second proof; returns revision and number of keys. Raises ProblemsError."""
    said = _run([programs.etcdutl, "snapshot", "status", snapshot, "--write-out=json"], where)
    try:
        found = json.loads(said)
        revision, keys = int(found["revision"]), int(found["totalKey"])
    except (ValueError, KeyError, TypeError):
        raise _refused("etcdutl tells nothing of it", where) from None
    if revision < least_revision or keys < 1:
        what = f"it has {keys} keys at revision {revision}, and the member had revision {least_revision} before"
        raise _refused(what, where)
    return revision, keys


def restored(snapshot: Path, programs: Programs, folder: Path, where: str) -> Content:
    """Third proof: content of the snapshot, served by an etcd that exists only meanwhile.

    ``folder`` is empty, for its owner only, and has room for the file once more; it is left with the data in it. Raises
    ProblemsError.
    """
    data = folder / "data"
    peer = "https://127.0.0.1:1"
    _run(
        [
            *(programs.etcdutl, "snapshot", "restore", snapshot, f"--data-dir={data}", f"--name={_NAME}"),
            *(f"--initial-cluster={_NAME}={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster-token={secrets.token_hex(16)}",
        ],
        where,
    )
    revision, keys = status(snapshot, programs, where)
    with serving(data, programs, folder, where) as client:
        try:
            found = client.status()[0]
            content = Content(
                cluster_id=found.cluster_id,
                revision=revision,
                total_keys=keys,
                hash=client.hash_at(revision),
                counts={kind: client.count_below(prefix) for kind, prefix in COUNTED.items()},
                clusters=tuple(sorted(client.names_below(COUNTED["clusters"]))),
            )
        except EtcdError as error:
            raise _refused(f"an etcd that was restored from it does not answer: {error}", where) from None
    return content


def compared(content: Content, live: Hash) -> Level:
    """Fourth proof: the level that a hash of a live member, taken right after the snapshot, gives.

    The hash proves nothing if the member has discarded old revisions since. Raises ValueError if the contents differ.
    """
    if live.revision != content.hash.revision or live.compacted != content.hash.compacted:
        return Level.COUNTS
    if live.value != content.hash.value:
        told = f"{live.value:08x} at the member and {content.hash.value:08x} in the snapshot"
        raise ValueError(f"at revision {live.revision} its content differs from that of a member: {told}")
    return Level.HASH


@contextmanager
def serving(data: Path, programs: Programs, folder: Path, where: str) -> Iterator[EtcdClient]:
    """etcd on loopback over a data folder, with an authority and keys of the moment; it ends with this process."""
    now = datetime.now(UTC)
    authority = x509.new_authority(x509.Authority("trial-ca", "trial-ca"), "ECDSA-P256", now, timedelta(days=1))
    # For a client as well: the JSON API of a member is one of that member.
    wanted = x509.Certificate("trial", "trial-ca", "trial", ip_addresses=("127.0.0.1",), server=True, client=True)
    pair = x509.issue(wanted, authority, "ECDSA-P256", now, timedelta(days=1))
    files = {"ca.crt": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
    for name, content in files.items():
        with open(folder / name, "xb", opener=reader_only) as stream:
            stream.write(content)
    client_url, peer_url = (f"https://127.0.0.1:{port}" for port in _free_ports(2))
    command = [str(programs.etcd), f"--name={_NAME}", f"--data-dir={data}"]
    command += [f"--listen-client-urls={client_url}", f"--advertise-client-urls={client_url}"]
    command += [f"--listen-peer-urls={peer_url}", "--client-cert-auth=true", "--peer-client-cert-auth=true"]
    command += ["--unsafe-no-fsync=true", "--logger=zap", "--log-level=warn"]
    for kind in ("", "peer-"):
        command += [f"--{kind}cert-file={folder}/tls.crt", f"--{kind}key-file={folder}/tls.key"]
        command += [f"--{kind}trusted-ca-file={folder}/ca.crt"]
    log = folder / "etcd.log"
    with open(log, "xb", opener=reader_only) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            umask=_UMASK,
            preexec_fn=_at_low_priority(),  # noqa: PLW1509 - the calls it makes are safe after fork
        )
    client = EtcdClient([client_url], files, where)
    try:
        _wait(process, client, log, where)
        yield client
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], client: EtcdClient, log: Path, where: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not client.status()[0].healthy:
        if process.poll() is not None or time.monotonic() > end:
            said = log.read_bytes()[-_SAID:].decode(errors="replace").strip()
            raise _refused(f"an etcd that was restored from it does not start: {said}", where)
        time.sleep(0.1)


def _run(command: Sequence[str | Path], where: str) -> str:
    """Output of a program that judges a snapshot. Raises ProblemsError if it fails."""
    words = [str(each) for each in command]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PROGRAM_SECONDS,
            env={},
            umask=_UMASK,
            preexec_fn=_at_low_priority(),
        )
    except subprocess.TimeoutExpired:
        raise _refused(f"etcdutl snapshot {words[2]} does not come to an end", where) from None
    if done.returncode:
        # A panic of Go tells its reason first and then where it was.
        lines = [line for line in done.stderr.splitlines() if line.startswith(("panic:", "Error:", "{"))]
        said = (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise _refused(f"etcdutl snapshot {words[2]} refuses it: {said[:_SAID]}", where)
    return done.stdout


def _at_low_priority() -> Callable[[], None]:
    end_with_us = run_process.ends_with_us()

    def before() -> None:
        end_with_us()
        with suppress(OSError):
            os.nice(_NICE)

    return before


def _free_ports(count: int) -> list[int]:
    listeners = [socket.socket() for _ in range(count)]
    try:
        for each in listeners:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in listeners]
    finally:
        for each in listeners:
            each.close()


def _refused(what: str, where: str) -> ProblemsError:
    remedy = "it is not kept as a backup; take another, and look after the disks that it was on"
    return ProblemsError(Problem(what, where, remedy, reason=Reason.INVALID_BACKUP))
