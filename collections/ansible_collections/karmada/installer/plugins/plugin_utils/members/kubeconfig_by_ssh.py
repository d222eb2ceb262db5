# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig of a member, read over SSH from one of its hosts. It is kept in memory only.

Its content is not trusted: it can refer to no file of this machine, and runs no program here.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, cast
from urllib.parse import urlsplit

from .. import run_process
from ..components.spec import MemberEntry
from ..kube import kubeconfig
from ..kube.kubeconfig_fields import MAX_BYTES
from ..problems import Problem, ProblemsError, Reason
from ..run import host_access, ssh, ssh_files
from ..run.facts import Facts

#: Time for the whole command, and for the connection.
SECONDS, CONNECT_SECONDS = 30.0, 10
#: Exit code of ssh itself, as opposed to those of the remote command.
_SSH_FAILED = 255
#: Bytes that are read of stderr.
_MAX_WORDS = 64 * 1024
_ALWAYS = (
    *("-oBatchMode=yes", f"-oConnectTimeout={CONNECT_SECONDS}", "-oControlMaster=no", "-oControlPath=none"),
    *("-oClearAllForwardings=yes", "-oForwardAgent=no", "-T"),
)
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True)
class Answer:
    """Result of ssh. ``code`` is None after a timeout."""

    code: int | None
    content: bytes
    words: str


def access(run: Facts, entry: MemberEntry, where: str) -> kubeconfig.Access:
    """Access that the kubeconfig on the host describes. ``where`` is the field that names the host.

    Raises ProblemsError in words that quote nothing of the file.
    """
    source = entry.kubeconfig_from or {}
    with ssh_files.of_settings(run, source, where) as (key, known_hosts):
        answer = _run(command(source, key, known_hosts))
    _refuse_failure(answer, source, where)
    file = file_of(entry)
    found = kubeconfig.from_host(answer.content, entry.context, where, file, source.get("server"))
    host = urlsplit(found.server).hostname or ""
    if "server" not in source and host.startswith(_LOOPBACK):
        raise ProblemsError(
            Problem(
                what=f"{file} leads to {found.server}, which means that host itself",
                where=where,
                remedy="write server: an address of its API server that this machine and the control plane reach",
                reason=Reason.INVALID_ADDRESS,
            )
        )
    return found


def file_of(entry: MemberEntry) -> str:
    """File and host of a member's kubeconfig, for people."""
    source = entry.kubeconfig_from or {}
    return f"{source['path']} on {source['address']}"


def command(source: Mapping[str, Any], key: str | None, known_hosts: str | None) -> list[str]:
    """Command that prints the file, safe from interpretation by a shell or by ssh.

    Raises ProblemsError if a field does not have the form that the schema demands.
    """
    identity = ["-i", key] if key else []
    user = ["-l", ssh.word(source, "user")] if "user" in source else []
    path = shlex.quote(source["path"])
    # As the login user if that may read it, else by sudo; root needs no sudo, and may not have it.
    read = f"if test -r {path} || test $(id -u) = 0; then exec cat {path}; fi; exec sudo -n cat {path}"
    return [
        "ssh",
        *_ALWAYS,
        *ssh.options_of(key, known_hosts, ssh.word(source, "hostKeyFingerprint")),
        *identity,
        *("-p", ssh.word(source, "port")),
        *user,
        "--",
        ssh.word(source, "address"),
        read,
    ]


def _run(command: Sequence[str]) -> Answer:
    """Run the command, and read no more than the maximum size of a kubeconfig.

    Its children (a proxy to the host) are in its process group and are killed with it: they would keep the pipes open.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        process = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=run_process.ends_with_us(),  # noqa: PLW1509 - one system call, resolved before
            **cast("Any", pipes),
        )
    except OSError as error:
        return Answer(_SSH_FAILED, b"", f"{command[0]} cannot be started here: {error.strerror}")
    with process, ThreadPoolExecutor(1) as reader:
        late = threading.Event()

        def stop() -> None:
            late.set()
            _kill_group(process.pid)

        timer = threading.Timer(SECONDS, stop)
        timer.start()
        try:
            words = reader.submit(cast(IO[bytes], process.stderr).read, _MAX_WORDS)
            content = cast(IO[bytes], process.stdout).read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                _kill_group(process.pid)
            code = process.wait()
            return Answer(None if late.is_set() else code, content, words.result().decode(errors="replace"))
        finally:
            timer.cancel()
            if process.poll() is None:
                _kill_group(process.pid)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _refuse_failure(answer: Answer, source: Mapping[str, Any], where: str) -> None:
    if answer.code == 0 or len(answer.content) > MAX_BYTES:
        return
    address, path = source["address"], source["path"]
    if answer.code is None:
        reason = Reason.HOST_UNREACHABLE
        what, remedy = f"it did not send {path} within {SECONDS:.0f} s", "see what it is busy with"
    elif answer.code != _SSH_FAILED and "No such file or directory" in answer.words:
        reason = Reason.KUBECONFIG_NOT_FOUND
        what, remedy = f"there is no file {path}", "write the path of the kubeconfig of an administrator there"
    elif answer.code != _SSH_FAILED and "Is a directory" in answer.words:
        reason = Reason.KUBECONFIG_NOT_FOUND
        what, remedy = f"{path} is a directory", "write the path of a file"
    else:
        told = host_access.problem(answer.words, host=address, address=address, user=source.get("user", ""))
        reason = told.reason
        # These problems name fields of plain hosts.
        what, remedy = told.what, re.sub(r"\bssh\.(?=user|port|privateKey)", "kubeconfigFrom.", told.remedy)
    raise ProblemsError(Problem(f"the kubeconfig cannot be read from {address}: {what}", where, remedy, reason=reason))
