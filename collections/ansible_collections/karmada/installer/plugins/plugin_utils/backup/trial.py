# SPDX-License-Identifier: Apache-2.0
"""Programs that a run starts from a backup on the machine that Ansible runs on, and which end with it.

All of them work at low priority, in a folder that only its owner can read, and listen on loopback with an authority and
keys of the moment: whoever else uses that machine gets nothing from them.
"""

from __future__ import annotations

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

from .. import run_process
from ..etcd.client import EtcdClient
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.kubeconfig import from_parts
from ..pki import x509
from ..pki.files import encryption_configuration
from ..problems import Problem, ProblemsError, Reason
from .encryption import reader_only

#: A restore copies the file once; an etcd of 8 GB is read within a minute.
PROGRAM_SECONDS = 600
#: At low priority beside others that compute, an API server takes minutes.
START_SECONDS = 300.0
STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_RETRY_SECONDS = 5.0
_NICE = 10
#: Of what is restored on trial nobody else may read a file, whatever the umask of this session is.
_UMASK = 0o077
_SAID = 2000
_NAME = "trial"
_ALGORITHM: x509.KeyAlgorithm = "ECDSA-P256"
#: Options of a client's files → names of the files.
_KEYS: Mapping[str, str] = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}


@dataclass(frozen=True)
class Programs:
    """Paths of ``etcd`` and ``etcdutl``, of the minor of the etcd that made the snapshot."""

    etcd: Path
    etcdutl: Path


def run(command: Sequence[str | Path], where: str) -> str:
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
        raise refused(f"etcdutl snapshot {words[2]} does not come to an end", where) from None
    if done.returncode:
        # A panic of Go tells its reason first and then where it was.
        lines = [line for line in done.stderr.splitlines() if line.startswith(("panic:", "Error:", "{"))]
        said = (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise refused(f"etcdutl snapshot {words[2]} refuses it: {said[:_SAID]}", where)
    return done.stdout


def data_of(snapshot: Path, programs: Programs, folder: Path, where: str) -> Path:
    """Data folder below ``folder`` that ``etcdutl snapshot restore`` makes of a snapshot. Raises ProblemsError."""
    data = folder / "data"
    peer = "https://127.0.0.1:1"
    run(
        [
            *(programs.etcdutl, "snapshot", "restore", snapshot, f"--data-dir={data}", f"--name={_NAME}"),
            *(f"--initial-cluster={_NAME}={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster-token={secrets.token_hex(16)}",
        ],
        where,
    )
    return data


@contextmanager
def etcd(data: Path, programs: Programs, folder: Path, where: str, *, force: str = "") -> Iterator[EtcdClient]:
    """etcd over a data folder, with its keys in ``folder``. Raises ProblemsError if it does not start.

    ``force`` is the name of a member whose data it is a copy of: then it starts without all others.
    """
    files = _new_keys(folder)
    client_url, peer_url = (f"https://127.0.0.1:{port}" for port in _free_ports(2))
    command = [str(programs.etcd), f"--name={force or _NAME}", f"--data-dir={data}"]
    command += ["--force-new-cluster=true"] if force else []
    command += [f"--listen-client-urls={client_url}", f"--advertise-client-urls={client_url}"]
    command += [f"--listen-peer-urls={peer_url}", "--client-cert-auth=true", "--peer-client-cert-auth=true"]
    command += ["--unsafe-no-fsync=true", "--logger=zap", "--log-level=warn"]
    for kind in ("", "peer-"):
        command += [f"--{kind}cert-file={folder}/tls.crt", f"--{kind}key-file={folder}/tls.key"]
        command += [f"--{kind}trusted-ca-file={folder}/ca.crt"]
    client = EtcdClient([client_url], files, where)
    with _started(command, folder / "etcd.log", lambda: client.status()[0].healthy, "an etcd", where):
        yield client


@contextmanager
def api_server(
    program: Path, etcd_url: str, folder: Path, where: str, *, encryption_key: str = ""
) -> Iterator[Cluster]:
    """kube-apiserver over an etcd of ``etcd``, with the keys of that. Raises ProblemsError if it does not start.

    ``encryption_key`` is the key in the installer's state, with which Secrets are decrypted; empty if they are stored
    in plain. Nobody but the holder of the keys in ``folder`` is let in: this server does not know the key of
    tokens that the control plane has issued.
    """
    (port,) = _free_ports(1)
    command = [str(program), f"--etcd-servers={etcd_url}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]
    command += [f"--etcd-{kind}file={folder}/{name}" for kind, name in _KEYS.items()]
    command += [f"--secure-port={port}", f"--cert-dir={folder}", f"--client-ca-file={folder}/ca.crt"]
    command += [f"--tls-cert-file={folder}/tls.crt", f"--tls-private-key-file={folder}/tls.key"]
    for name, content in zip(("sa.key", "sa.pub"), x509.new_service_account_key(_ALGORITHM), strict=True):
        _write(folder / name, content)
    command += [f"--service-account-key-file={folder}/sa.pub", f"--service-account-signing-key-file={folder}/sa.key"]
    command += ["--service-account-issuer=https://trial.invalid", "--service-cluster-ip-range=10.96.0.0/12"]
    command += ["--authorization-mode=AlwaysAllow", "--anonymous-auth=false", "--profiling=false"]
    # Each read is one of etcd, and tells what is wrong with what it has read.
    command.append("--watch-cache=false")
    if encryption_key:
        _write(folder / "encryption.yaml", encryption_configuration(encryption_key).encode())
        command.append(f"--encryption-provider-config={folder}/encryption.yaml")
    ca, certificate, key = ((folder / name).read_text() for name in ("ca.crt", "tls.crt", "tls.key"))
    access = from_parts(f"https://127.0.0.1:{port}", ca_pem=ca, cert_pem=certificate, key_pem=key)
    access.direct = True
    # Nobody else uses it, so what it cannot do now it cannot do later.
    cluster = Cluster(access, "the trial", retry_seconds=_RETRY_SECONDS)
    try:
        with _started(command, folder / "kube-apiserver.log", lambda: _is_ready(cluster), "a kube-apiserver", where):
            yield cluster
    finally:
        cluster.close()


def refused(what: str, where: str) -> ProblemsError:
    """Error for what cannot be a backup."""
    remedy = "it is not kept as a backup; take another, and look after the disks that it was on"
    return ProblemsError(Problem(what, where, remedy, reason=Reason.INVALID_BACKUP))


def _is_ready(cluster: Cluster) -> bool:
    # Its caches never fill where a Secret cannot be decrypted, and then who reads one is to be told.
    try:
        return cluster.get_raw("/readyz?exclude=informer-sync", retry_seconds=0) == "ok"
    except ApiError:
        return False


def _new_keys(folder: Path) -> Mapping[str, bytes]:
    """Files ca.crt, tls.crt and tls.key, of a server on loopback and of its client, which are written, too."""
    now = datetime.now(UTC)
    authority = x509.new_authority(x509.Authority("trial-ca", "trial-ca"), _ALGORITHM, now, timedelta(days=1))
    # For a client as well: the JSON API of a member is one of that member.
    wanted = x509.Certificate("trial", "trial-ca", "trial", ip_addresses=("127.0.0.1",), server=True, client=True)
    pair = x509.issue(wanted, authority, _ALGORITHM, now, timedelta(days=1))
    files = {"ca.crt": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
    for name, content in files.items():
        _write(folder / name, content)
    return files


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb", opener=reader_only) as stream:
        stream.write(content)


@contextmanager
def _started(
    command: Sequence[str], log: Path, is_ready: Callable[[], bool], what: str, where: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Process that is ready, and is stopped afterwards. Raises ProblemsError with its last words."""
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
    try:
        end = time.monotonic() + START_SECONDS
        while not is_ready():
            code, late = process.poll(), time.monotonic() > end
            if code is not None or late:
                how = f"is not ready after {START_SECONDS:.0f} s" if code is None else f"ended by {_told(code)}"
                said = log.read_bytes()[-_SAID:].decode(errors="replace").strip()
                raise refused(f"{what} that was restored from it {how}: {said}", where)
            time.sleep(_LOOK_SECONDS)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


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
