# SPDX-License-Identifier: Apache-2.0
"""A folder that is served, over connections that break, to who has no token, and at its end.

What both kinds of folders promise is in ``test_targets``. The server is a process of its own, as in a pod.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import io
import os
import re
import resource
import signal
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import backup_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import remote_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.encryption import Hashed
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import RECORD, SNAPSHOT
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import backup_claim
from ansible_collections.karmada.installer.tests.unit.support import served_folder
from ansible_collections.karmada.installer.tests.unit.support.moments import IN_VAIN_SECONDS, Clock, until
from ansible_collections.karmada.installer.tests.unit.support.served_folder import Served, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAME = "prod-20261125t120000z-1f3a9c"
#: Some pieces, and a last one that is not whole.
CONTENT = bytes(range(256)) * 2048 + b"end"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_folder, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        yield found


class Cut:
    """Connection that breaks after so many bytes in one direction."""

    def __init__(self, wire: socket.socket, send: float = float("inf"), receive: float = float("inf")) -> None:
        self._wire, self._send, self._receive = wire, send, receive

    def sendall(self, data: bytes) -> None:
        now = data[: int(min(len(data), self._send))]
        self._wire.sendall(now)
        self._send -= len(now)
        if len(now) < len(data):
            self._wire.close()
            raise ConnectionError("the way there is cut")

    def recv(self, size: int) -> bytes:
        found = self._wire.recv(int(min(size, self._receive))) if self._receive >= 1 else b""
        self._receive -= len(found)
        if not found:
            self._wire.close()
            raise ConnectionError("the way back is cut")
        return found

    def settimeout(self, seconds: float | None) -> None:
        self._wire.settimeout(seconds)

    def close(self) -> None:
        self._wire.close()


def cutting(served: Served, *cuts: dict[str, float]) -> tuple[Callable[[], Cut], list[int]]:
    """Dial connections of which the first ones are cut, and the number of those that were dialled."""
    left, dialled = list(cuts), []

    def dial() -> Cut:
        dialled.append(1)
        return Cut(served.dial(), **(left.pop(0) if left else {}))

    return dial, dialled


def put(folder: Any, content: bytes = CONTENT, file: str = SNAPSHOT) -> None:
    folder.put(NAME, file, io.BytesIO(content), len(content))


def got(folder: Any, file: str = SNAPSHOT) -> bytes:
    sink = io.BytesIO()
    folder.get(NAME, file, sink)
    return sink.getvalue()


def files(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "prod" / NAME).iterdir())


# -- connections that break --------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, len(CONTENT) + 200))
def test_what_is_stored_is_whole_wherever_the_way_there_breaks(served: Served, tmp_path: Path, cut: int) -> None:
    dial, _ = cutting(served, {"send": cut})
    folder = served.folder(dial)
    put(folder)
    folder.close()
    until(lambda: files(tmp_path) == [SNAPSHOT], "that the part of the attempt that broke is gone")
    assert (tmp_path / "prod" / NAME / SNAPSHOT).read_bytes() == CONTENT
    plain = served.folder()
    plain.remove(NAME, SNAPSHOT, True)
    plain.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, len(CONTENT) + 200), min_size=1, max_size=2))
def test_what_is_fetched_goes_on_at_the_byte(served: Served, cuts: list[int]) -> None:
    plain = served.folder()
    plain.remove(NAME, SNAPSHOT, True)
    put(plain)
    dial, _ = cutting(served, *({"receive": each} for each in cuts))
    folder = served.folder(dial)
    assert got(folder) == CONTENT
    folder.close()
    plain.close()


class Deaf(Cut):
    """Connection that breaks when all of a file was sent, and the answer would come."""

    def sendall(self, data: bytes) -> None:
        super().sendall(data)
        if data.endswith(b"end"):
            self._receive = 0


def test_a_file_that_is_whole_although_no_answer_came_is_stored_once(served: Served, tmp_path: Path) -> None:
    wires: list[Callable[..., Cut]] = [Deaf, Cut]
    folder = served.folder(lambda: wires.pop(0)(served.dial()))
    put(folder)
    assert got(folder) == CONTENT
    assert served.said == ["the way back is cut; it is tried again"]
    # The first attempt has no part any more a moment after the file has its name.
    until(lambda: files(tmp_path) == [SNAPSHOT], "that the part of the first attempt is gone")


def test_one_of_somebody_else_is_not_taken_for_it(served: Served, tmp_path: Path) -> None:
    """Whoever else writes there may be faster than the second attempt."""
    wires: list[Callable[..., Cut]] = [Cut, Cut]

    def dial() -> Cut:
        wire = wires.pop(0)
        if not wires:
            put(served.folder(), b"other")
        return wire(served.dial(), send=float("inf") if not wires else 1000)

    with pytest.raises(FileExistsError):
        put(served.folder(dial))
    until(lambda: files(tmp_path) == [SNAPSHOT], "that the part of the first attempt is gone")
    assert (tmp_path / "prod" / NAME / SNAPSHOT).read_bytes() == b"other"


def test_a_way_that_breaks_each_time_is_told(served: Served) -> None:
    dial, dialled = cutting(served, *[{"receive": 100}] * 10)
    put(served.folder())
    with pytest.raises(ProblemsError, match="it breaks: the way back is cut"):
        got(served.folder(dial))
    assert len(dialled) == remote_folder.ATTEMPTS


@pytest.mark.parametrize(
    "answer", [b"", b"hello\n", b"[]\n", b'{"done": true}\n{"done": "x"}\n', b'{"done": 1}\n[1]\n']
)
def test_what_is_no_answer_is_told(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(remote_folder.ATTEMPTS):
                connection, _peer = listener.accept()
                with connection:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(100):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        found = Served(None, listener.getsockname()[1])  # type: ignore[arg-type]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remote_folder, "GREET_SECONDS", -1.0)
            with pytest.raises(ProblemsError, match=r"it breaks: (what comes back is no|the connection has ended)"):
                found.folder().free()
        thread.join(IN_VAIN_SECONDS)


def test_a_server_that_is_silent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_folder, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(remote_folder, "GREET_SECONDS", -1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Served(None, listener.getsockname()[1])  # type: ignore[arg-type]
        with pytest.raises(ProblemsError, match="it breaks: timed out"):
            found.folder().check()


# -- what is wrong at the other end ------------------------------------------------------------------------------------


def test_an_error_comes_back_as_itself_and_the_connection_goes_on(served: Served) -> None:
    dial, dialled = cutting(served)
    folder = served.folder(dial)
    with pytest.raises(FileNotFoundError) as error:
        got(folder)
    assert error.value.errno == errno.ENOENT
    for name in ("../prod", "/etc", "", ".", "a/b"):
        with pytest.raises(OSError, match="is no name of a backup") as error:
            folder.get(name, "passwd", io.BytesIO())
        assert error.value.errno == errno.EINVAL
    put(folder)
    assert got(folder) == CONTENT
    assert len(dialled) == 1


def test_a_disk_that_takes_no_more_in_the_middle_is_told_when_all_was_sent(served: Served, tmp_path: Path) -> None:
    dial, dialled = cutting(served)
    folder = served.folder(dial)
    put(folder, b"small", "keys.age")
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (len(CONTENT) // 2, len(CONTENT)))
    with pytest.raises(OSError, match="File too large") as error:
        put(folder)
    assert error.value.errno == errno.EFBIG
    assert files(tmp_path) == ["keys.age"]
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (len(CONTENT), len(CONTENT)))
    put(folder)
    assert got(folder) == CONTENT
    assert len(dialled) == 1


def test_a_file_of_this_machine_that_has_changed_is_no_fault_of_the_other_end(served: Served, tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match="a file has changed on the disk"):
        served.folder().put(NAME, SNAPSHOT, io.BytesIO(b"short"), 100)
    until(lambda: files(tmp_path) == [], "that its part is gone")


# -- who asks ----------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_folder, "GREET_SECONDS", -1.0)
    put(served.folder())
    with pytest.raises(ProblemsError, match=r"refused: .*the token is another one"):
        served.folder(token="guessed").entries()
    with served.dial() as bare:
        bare.sendall(b'{"ask": "entries"}\n{"ask": "entries"}\n')
        assert b"done" not in b"".join(iter(lambda: bare.recv(1000), b""))
    assert served.token_is_nowhere()


def test_it_listens_on_loopback_only(served: Served) -> None:
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{served.process.pid}/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    (address,) = [each for each in listening if int(each.rpartition(":")[2], 16) == served.port]
    assert address.startswith("0100007F:")


# -- its course --------------------------------------------------------------------------------------------------------


def test_it_ends_when_nobody_is_connected_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server in a thread, by a clock of this test."""
    clock = Clock()
    monkeypatch.setattr(backup_folder, "time", clock)
    digest = hashlib.sha256(served_folder.TOKEN.encode()).hexdigest()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = backup_folder.Server(listener, backup_folder.Folder(str(tmp_path), "prod", RECORD), digest, 100.0)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        folder, other = (Served(None, listener.getsockname()[1]).folder() for _ in range(2))  # type: ignore[arg-type]
        put(folder)
        clock.now += 1000.0
        # Whoever is connected may ask on, and for the other one it has looked at the clock since then.
        put(other, file=RECORD)
        assert got(folder) == CONTENT
        assert thread.is_alive()
        folder.close()
        other.close()

        def is_over() -> bool:
            clock.now += 101.0
            return not thread.is_alive()

        until(is_over, "its end")


def test_it_ends_when_it_is_told_to(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(IN_VAIN_SECONDS) == 0


def test_a_part_that_a_killed_server_leaves_hinders_nobody_and_goes_with_its_backup(tmp_path: Path) -> None:
    class Killing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= len(CONTENT) // 2:
                until(lambda: (tmp_path / "prod" / NAME).exists() and files(tmp_path), "the part")
                first.process.kill()
                first.process.wait()
            return super().read(size)

    with serving(tmp_path) as first:
        dialled = iter([first])

        def dial() -> socket.socket:
            for each in dialled:
                return each.dial()
            raise served_folder.broken("no more servers")

        folder = first.folder(dial)
        with pytest.raises(ProblemsError, match="no more servers"):
            folder.put(NAME, SNAPSHOT, Killing(CONTENT), len(CONTENT))
    assert [each.endswith(backup_folder.PART) for each in files(tmp_path)] == [True]
    with serving(tmp_path) as second:
        folder = second.folder()
        put(folder)
        assert got(folder) == CONTENT
        folder.remove(NAME, RECORD, False)
        assert len(files(tmp_path)) == 2
        folder.remove(NAME, SNAPSHOT, True)
        assert not (tmp_path / "prod" / NAME).exists()


def memory(pid: int) -> int:
    """Most bytes that a process has had in memory."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found) << 10


def test_memory_does_not_grow_with_a_file(served: Served, tmp_path: Path) -> None:
    size = 96 << 20
    large = tmp_path / "large"
    with large.open("wb") as stream:
        os.truncate(stream.fileno(), size)
    folder, sink = served.folder(), Hashed()
    put(folder, b"small", "keys.age")
    before = memory(served.process.pid)
    tracemalloc.start()
    with large.open("rb") as stream:
        folder.put(NAME, SNAPSHOT, stream, size)
    folder.get(NAME, SNAPSHOT, sink)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sink.size == size
    assert most < 8 << 20
    assert memory(served.process.pid) - before < 8 << 20


# -- the text that a pod gets ------------------------------------------------------------------------------------------


def test_the_script_needs_an_old_python_and_its_standard_library_only() -> None:
    text = backup_claim.script()
    tree = ast.parse(text, feature_version=(3, 9))
    names = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert names <= sys.stdlib_module_names
    assert "$" not in text, "a kubelet replaces $(NAME) in a command"
    assert len(text.encode()) < 1 << 16, "one argument may have 128 KiB"
