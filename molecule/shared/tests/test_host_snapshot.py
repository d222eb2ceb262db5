# SPDX-License-Identifier: Apache-2.0
"""Whatever is left on a plain host is noticed, and what changes by itself is not."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import host_snapshot
import pytest

UNIT_FILES = "systemctl list-unit-files"
BIND = "net.ipv4.ip_nonlocal_bind"
UNITS = "systemctl list-units --all"
LINKS = [
    {"ifname": "eth0", "flags": ["UP", "LOWER_UP"], "addr_info": [
        {"local": "192.0.2.10", "prefixlen": 24, "scope": "global"},
    ]},
]  # fmt: skip
ANSWERS = {
    "ip -json address show": json.dumps(LINKS),
    "ip -4 route show table all": "default via 192.0.2.1 dev eth0\n",
    "ip -6 route show table all": "fe80::/64 dev eth0 proto kernel metric 256 expires 100sec\n",
    "ip -4 rule show": "0:\tfrom all lookup local\n",
    "ip -6 rule show": "",
    "ss -Hlntu": "tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\n",
    "nft --stateless list ruleset": "",
    UNIT_FILES: "ssh.service enabled enabled\nhaproxy.service disabled enabled\n",
    UNITS: "ssh.service loaded active running OpenBSD\n",
    "dpkg-query --show": "bash:amd64 5.2 ii \n",
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host whose files are in ``tmp_path``, and whose programs answer what is in the dictionary."""
    answers = dict(ANSWERS)

    def output(*command: str) -> list[str]:
        return next(text for start, text in answers.items() if " ".join(command).startswith(start)).splitlines()

    monkeypatch.setattr(host_snapshot, "_output", output)
    monkeypatch.setattr(host_snapshot.shutil, "which", lambda _name: "/usr/sbin/nft")
    monkeypatch.setattr(host_snapshot, "_lines_of", lambda _path: ["1 2 0:1 / / rw - ext4 /dev/sda1 rw"])
    monkeypatch.setattr(host_snapshot, "sysctls", lambda _top: {f"sysctl {BIND}": "0"})
    monkeypatch.setattr(host_snapshot, "processes", lambda: {"sshd", "dbus-daemon"})
    for folder in ("etc", "etc/ssh", "home/lab", "opt", "run", "usr/local/bin", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\n")
    (tmp_path / "etc/ssh/config").symlink_to("/etc/passwd")
    return answers


def _more(answers: dict[str, str], command: str, line: str) -> None:
    answers[command] += line + "\n"


def _changed(answers: dict[str, str], command: str, was: str, now: str) -> None:
    assert was in answers[command]
    answers[command] = answers[command].replace(was, now)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "file": (lambda root: (root / "etc/karmada").write_text("x"), r"\+ file /etc/karmada: -rw"),
    "folder": (lambda root: (root / "var/lib/karmada").mkdir(), r"\+ file /var/lib/karmada: d"),
    "program": (lambda root: (root / "usr/local/bin/etcd").touch(), r"\+ file /usr/local/bin/etcd: "),
    "hidden file at home": (lambda root: (root / "home/lab/.kube").mkdir(), r"\+ file /home/lab/.kube: "),
    "what a killed run of Ansible left": (
        lambda root: (root / "home/lab/.ansible/tmp/ansible-tmp-1").mkdir(parents=True),
        r"\+ file /home/lab/.ansible/tmp/ansible-tmp-1: d",
    ),
    "socket": (lambda root: _bind(root / "run/x.sock"), r"\+ file /run/x.sock: s"),
    "unit of this boot": (
        lambda root: (root / "run/systemd/transient/x.service.d").mkdir(parents=True),
        r"\+ file /run/systemd/transient/x.service.d: d",
    ),
    "removed": (lambda root: (root / "etc/passwd").unlink(), r"- file /etc/passwd"),
    "content of the same length": (
        lambda root: (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/dash\n"), r"~ file /etc/passwd: .+ -> ",
    ),
    "mode": (lambda root: (root / "etc/passwd").chmod(0o666), r"~ file /etc/passwd: -rw-.+ -> -rw-rw-rw-"),
    "mode of a folder": (lambda root: (root / "etc/ssh").chmod(0o777), r"~ file /etc/ssh: "),
    "link": (
        lambda root: (root / "etc/ssh/config").unlink() or (root / "etc/ssh/config").symlink_to("/x"),
        r"~ file /etc/ssh/config: -> /etc/passwd .+ -> -> /x ",
    ),
}  # fmt: skip
ANSWERED = {
    "address": ("ip -json address show", '"192.0.2.10"', '"192.0.2.200"', r"\+ address 192.0.2.200/24: eth0 global"),
    "link": ("ip -json address show", '"eth0"', '"vrrp1"', r"\+ link vrrp1: UP"),
    "route": (
        "ip -4 route show table all", "via 192.0.2.1", "via 192.0.2.9", r"\+ route default via 192.0.2.9 dev eth0: ",
    ),
    "rule": ("ip -4 rule show", "lookup local", "lookup 99", r"\+ rule -4 0:.from all lookup 99: "),
    "socket": ("ss -Hlntu", ":22 ", ":5443 ", r"\+ socket tcp 0.0.0.0:5443: listens"),
    "enabled": (
        UNIT_FILES, "haproxy.service disabled", "haproxy.service enabled",
        r"~ unit file haproxy.service: disabled -> enabled",
    ),
    "stopped": (
        UNITS, "ssh.service loaded active running",
        "ssh.service loaded inactive dead", r"- unit ssh.service",
    ),
    "failed": (
        UNITS, "ssh.service loaded active running",
        "ssh.service loaded failed failed", r"~ unit ssh.service: loaded active running -> loaded failed failed",
    ),
    "package of another version": ("dpkg-query --show", "5.2", "5.3", r"~ package bash:amd64: 5.2 ii *-> 5.3 ii"),
}  # fmt: skip
ADDED = {
    "nft --stateless list ruleset": ("table inet karmada {\n}", r"~ packet filter: 0 lines \S+ -> 2 lines"),
    UNIT_FILES: (
        "karmada-prod-etcd.service enabled enabled", r"\+ unit file karmada-prod-etcd.service: enabled",
    ),
    UNITS: (
        "karmada-prod-etcd.service not-found failed failed x", r"\+ unit karmada-prod-etcd.service: not-found failed ",
    ),
    "dpkg-query --show": ("keepalived:amd64 2.2 rc ", r"\+ package keepalived:amd64: 2.2 rc"),
}  # fmt: skip


def _bind(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


def _noticed(before: host_snapshot.Snapshot, root: Path, pattern: str) -> None:
    found = list(host_snapshot.differences(before, host_snapshot.take(root)))
    assert [line for line in found if re.match(pattern, line)], found


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_left_or_changed_is_noticed(tmp_path: Path, host: dict[str, str], kind: str) -> None:
    before = host_snapshot.take(tmp_path)
    assert host
    leave, pattern = FILES[kind]
    leave(tmp_path)
    _noticed(before, tmp_path, pattern)


@pytest.mark.parametrize("kind", ANSWERED)
def test_what_a_program_says_otherwise_is_noticed(tmp_path: Path, host: dict[str, str], kind: str) -> None:
    before = host_snapshot.take(tmp_path)
    command, was, now, pattern = ANSWERED[kind]
    _changed(host, command, was, now)
    _noticed(before, tmp_path, pattern)


@pytest.mark.parametrize("command", ADDED)
def test_what_a_program_says_beside_that_is_noticed(tmp_path: Path, host: dict[str, str], command: str) -> None:
    before = host_snapshot.take(tmp_path)
    line, pattern = ADDED[command]
    _more(host, command, line)
    _noticed(before, tmp_path, pattern)


@pytest.mark.parametrize(
    ("name", "value", "pattern"),
    [
        ("sysctls", lambda _top: {f"sysctl {BIND}": "1"}, rf"~ sysctl {BIND}: 0 -> 1"),
        ("processes", lambda: {"sshd", "dbus-daemon", "keepalived"}, r"\+ process keepalived: runs"),
        ("_lines_of", lambda _path: ["1 2 0:1 / /var/lib/x rw - tmpfs t rw"], r"\+ mount /var/lib/x: tmpfs"),
    ],
)
def test_settings_processes_and_mounts_are_noticed(
    tmp_path: Path, host: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: object, pattern: str
) -> None:
    before = host_snapshot.take(tmp_path)
    assert host
    monkeypatch.setattr(host_snapshot, name, value)
    _noticed(before, tmp_path, pattern)


def test_what_changes_by_itself_is_no_difference(tmp_path: Path, host: dict[str, str]) -> None:
    (tmp_path / "var/log").mkdir()
    before = host_snapshot.take(tmp_path)
    _changed(host, "ip -6 route show table all", "expires 100sec", "expires 99sec")
    _more(host, UNITS, "session-3.scope loaded active running x")
    _more(host, UNITS, "systemd-halt.service loaded inactive dead x")
    (tmp_path / "home/lab/.ansible/tmp").mkdir(parents=True)
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    os.utime(tmp_path / "etc/passwd", (1, 1))
    assert list(host_snapshot.differences(before, host_snapshot.take(tmp_path))) == []


def test_a_scenario_says_what_it_has_changed_itself_and_nothing_more() -> None:
    before, after = {"file /etc/a": "1"}, {"file /etc/a": "2", "file /etc/ab": "1"}
    assert list(host_snapshot.differences(before, after, ["file /etc/a"])) == ["+ file /etc/ab: 1"]


COULD_BE_LEFT = """
file /etc/systemd/system/karmada-prod-etcd.service
file /etc/sysctl.d/karmada.conf
file /home/lab/.ansible/tmp/ansible-tmp-1/x.py
file /root/.kube
file /run/karmada-installer/prod.lock
file /run/lock/karmada
file /run/systemd/system/x.service
file /run/systemd/transient/x.service
file /tmp/karmada
file /tmp/namespace-karmada
file /usr/local/lib/karmada
file /var/lib/karmada-installer/prod
file /var/log/karmada
file /var/spool/cron/root
mount /var/lib/karmada
process keepalived
process python3
sysctl net.ipv4.conf.all.arp_ignore
sysctl net.ipv4.ip_nonlocal_bind
unit karmada-prod-etcd.service
"""


@pytest.mark.parametrize("name", COULD_BE_LEFT.strip().splitlines())
def test_nothing_that_a_control_plane_could_leave_is_left_out(name: str) -> None:
    assert host_snapshot.without_volatile({name: "x"}) == {name: "x"}


def test_every_exception_has_a_reason() -> None:
    for pattern, reason in host_snapshot.VOLATILE.items():
        assert re.compile(pattern)
        assert len(reason) > 3


def test_sysctls_are_read_and_those_that_nobody_may_read_are_not(tmp_path: Path) -> None:
    (tmp_path / "net/ipv4").mkdir(parents=True)
    (tmp_path / "net/ipv4/ip_forward").write_text("1\n")
    (tmp_path / "net/ipv4/flush").write_text("")
    (tmp_path / "net/ipv4/flush").chmod(0o200)
    assert host_snapshot.sysctls(tmp_path) == {"sysctl net.ipv4.ip_forward": "1"}


def test_processes_are_seen_but_not_the_one_that_looks() -> None:
    name = Path("/proc/self/comm")
    before = name.read_text()
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        name.write_text("who looks")
        found = host_snapshot.processes()
    finally:
        name.write_text(before)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert "sleep" in found
    assert "who looks" not in found


def test_somebody_who_accepts_or_refuses_has_the_address() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert "refuses" in host_snapshot.who_has("127.0.0.1", port)
        server.listen()
        assert "accepts" in host_snapshot.who_has("127.0.0.1", port)


@pytest.mark.parametrize("error", [OSError(errno.EHOSTUNREACH, "no route"), TimeoutError()])
def test_an_address_that_nobody_answers_for_is_nobodys(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    class Client(socket.socket):
        def connect(self, _address: object) -> None:
            raise error

    monkeypatch.setattr(host_snapshot.socket, "socket", Client)
    assert host_snapshot.who_has("192.0.2.200") == ""


def test_who_cannot_ask_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client(socket.socket):
        def connect(self, _address: object) -> None:
            raise OSError(errno.ENETUNREACH, "no network")

    monkeypatch.setattr(host_snapshot.socket, "socket", Client)
    with pytest.raises(OSError, match="no network"):
        host_snapshot.who_has("192.0.2.200")


def test_the_commands_end_as_they_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (("a", {"file /etc/a": "1"}), ("b", {})):
        (tmp_path / name).write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["x", "diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert host_snapshot.main() == 1
    assert capsys.readouterr().out == "- file /etc/a\n"
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--but", "file /etc/a"])
    assert host_snapshot.main() == 0
