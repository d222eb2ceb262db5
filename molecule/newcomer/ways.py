# SPDX-License-Identifier: Apache-2.0
"""Go the ways of ways.yaml one after the other, as a new user would, and look at all that is printed.

    ways.py --home FOLDER --clusters FOLDER --artifacts FOLDER --kubectl KUBECTL --logs FOLDER
        [--way NAME]... [--accept]

What a way printed is compared with printed/<way>.txt, in which times, ids, addresses and the like have names; --accept
writes these files anew. Nothing may be wider than 80 columns. Exit code 1: a way is not as it should be.

The user's home is /srv, in a mount namespace of each command: texts are folded by the length of the paths in them,
which must not depend on where the checkout is.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import printed
import yaml
from cases import laid_over  # of run_bad_input
from measure import users_environment

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
HOME = Path("/srv")
INSTALL = "ansible-playbook -i site.karmada.yml karmada.installer.install"
#: A way that has not ended by then hangs.
HANGS_SECONDS = 1800
#: How often a terminal is looked at.
LOOK_SECONDS = 0.3
#: What shows how far a run is, at the foot of a terminal.
BAR = re.compile(r"^\[#*\.*\]  ", re.MULTILINE)


@dataclass(frozen=True)
class Way:
    """Row of the table.

    ``document`` and ``source`` are laid over the good ones (a text replaces the document), ``first`` is a command that
    prepares the rest. ``typed`` is the command of the user, ``where`` a pipe or the size of a terminal, in which
    ``press`` is pressed as soon as the screen says ``press_at``. ``callback`` is the output that was chosen; only ours
    has a width. ``ends`` is the exit code, ``lines`` the greatest number of lines. ``faulty`` says what is wrong with
    what is printed today: the snapshot is what should be, and a way that prints it is told to lose that mark.
    ``varies`` has regular expressions and what takes their place, for what varies in this way alone.
    """

    name: str
    document: Any = None
    source: Mapping[str, Any] = field(default_factory=dict)
    first: str = ""
    typed: str = INSTALL
    where: str = "pipe"
    callback: str = "karmada.installer.report"
    press: str = ""
    press_at: str = ""
    ends: int = 0
    lines: int | None = None
    faulty: str = ""
    varies: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Snapshot of what it prints."""
        return HERE / "printed" / f"{self.name}.txt"


@dataclass
class Gone:
    """End of a way: all that was printed, and pictures of the terminal on the way there."""

    code: int | None
    text: str
    seconds: float = 0.0
    frames: list[str] = field(default_factory=list)


class User:
    """Somebody at a shell, with a home of their own and a folder for the site in it."""

    def __init__(self, home: Path, clusters: Path, artifacts: str, kubectl: str, site: str = "karmada") -> None:
        self.home, self.site = home, home / "sites" / site
        self._clusters, self._artifacts = clusters, artifacts
        self._socket = HOME / "tmux"
        self._environment = users_environment(os.environ, {}) | {
            "HOME": str(HOME),
            "XDG_CACHE_HOME": str(HOME / ".cache"),
            "LC_ALL": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:{Path(kubectl).parent}:{os.environ['PATH']}",
            "CHECKOUT": str(CHECKOUT),
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR", "TMUX", "PYTHONPATH"):
            self._environment.pop(name, None)

    def write(self, way: Way) -> None:
        """Write the document, the source and the secrets of a way; what the product has written stays."""
        good = yaml.safe_load((HERE / "karmada.yaml").read_text(encoding="utf-8"))
        document = way.document
        if not isinstance(document, str):
            document = yaml.safe_dump(laid_over(good, copy.deepcopy(document or {})), sort_keys=False)
        source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "secrets": "./secrets"}
        source = laid_over(source | {"artifacts": str(HOME / "artifacts")}, way.source)
        for folder in (self.site, self.home / "karmada", self.home / "artifacts"):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("prod.yaml", document), ("site.karmada.yml", yaml.safe_dump(source, sort_keys=False))):
            (self.site / name).write_text(text, encoding="utf-8")
        shutil.rmtree(self.site / "secrets", ignore_errors=True)
        for cluster, secret in (("host", "site-a"), ("member1", "member1"), ("member2", "other")):
            shutil.copytree(self._clusters / cluster, self.site / "secrets" / secret)
        shutil.copy(HERE / "hello.yaml", self.site)

    def go(self, way: Way) -> Gone:
        """Type what a way says, and wait for its end."""
        self.write(way)
        with self._prepared(way.first):
            self._environment |= {"ANSIBLE_STDOUT_CALLBACK": way.callback} if way.callback else {}
            begin = time.monotonic()
            gone = self._in_pipe(way.typed) if way.where == "pipe" else self._in_terminal(way)
            gone.seconds = time.monotonic() - begin
        return gone

    @contextmanager
    def _prepared(self, first: str) -> Iterator[None]:
        """Run a command that has to succeed; files that it makes in the site folder stay until the way has ended."""
        before = set(self.site.iterdir())
        done = self._in_pipe(f"set -e; {first}") if first else Gone(0, "")
        if done.code != 0:
            raise SystemExit(f"cannot prepare a way: {first}\n{done.text}")
        made = set(self.site.iterdir()) - before
        yield
        for path in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _here(self, *command: str) -> list[str]:
        """Command, run in the site folder of a home at ``HOME``."""
        mounts = 'mount --bind "$0" /srv && mount --bind "$1" /srv/karmada && mount --bind "$2" /srv/artifacts'
        script = f'{mounts} && shift 2 && cd /srv/karmada && exec "$@"'
        folders = [str(self.home), str(self.site), self._artifacts]
        return ["unshare", "--mount", "bash", "-c", script, *folders, *command]

    def _run(self, *command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._here(*command), env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip

    def _in_pipe(self, typed: str) -> Gone:
        try:
            done = self._run("bash", "-c", typed, seconds=HANGS_SECONDS)
        except subprocess.TimeoutExpired as error:
            return Gone(None, (error.stdout or b"").decode(errors="replace"))
        return Gone(done.returncode, done.stdout)

    def _tmux(self, *arguments: str) -> str:
        return self._run("tmux", "-u", "-S", str(self._socket), *arguments).stdout

    def leave_terminal(self) -> None:
        """End the terminal with all that runs in it, also one of a run that was killed."""
        self._tmux("kill-server")

    def _in_terminal(self, way: Way) -> Gone:
        """Type it in a terminal of its own; what is printed is what the terminal has kept, scrolled off or not."""
        columns, lines = way.where.split("x")
        code = self.home / "code"
        self.leave_terminal()
        code.unlink(missing_ok=True)
        (self.home / "tmux.conf").write_text("set -g status off\nset -g history-limit 50000\n", encoding="utf-8")
        # The shell outlives what is pressed, and keeps the screen until it has been read.
        script = f"trap : INT; bash -c {shlex.quote(way.typed)}; echo $? >/srv/ended; mv /srv/ended /srv/code; exec cat"
        self._tmux("-f", "/srv/tmux.conf", "new-session", "-d", "-x", columns, "-y", lines, "bash", "-c", script)
        try:
            frames = self._watch(code.exists, way)
            text = self._tmux("capture-pane", "-p", "-J", "-S", "-")
        finally:
            self.leave_terminal()
        return Gone(int(code.read_text()) if code.exists() else None, text.rstrip() + "\n", frames=frames)

    def _watch(self, ended: Callable[[], bool], way: Way) -> list[str]:
        """Pictures of the terminal until the command has ended; presses what is to be pressed."""
        frames: list[str] = []
        until, pressed = time.monotonic() + HANGS_SECONDS, not way.press
        while not ended() and time.monotonic() < until:
            frame = self._tmux("capture-pane", "-p", "-J")
            if frame not in frames[-1:]:
                frames.append(frame)
            if not pressed and way.press_at in frame:
                self._tmux("send-keys", way.press)
                pressed = True
            time.sleep(LOOK_SECONDS)
        return frames


def judged(way: Way, gone: Gone, *, accept: bool) -> tuple[str, list[str]]:
    """One line about a way, and what is wrong with it."""
    shown = printed.without_differences(gone.text)
    wrong: list[str] = []
    if way.lines is not None and (counted := printed.counted(gone.text)) > way.lines:
        wrong.append(f"printed {counted} lines, at most {way.lines} are right")
    notes: list[str] = []
    if way.callback.startswith("karmada."):
        wide, notes = printed.too_wide("\n".join([shown, *gone.frames]))
        wrong += [f"too wide: {line}" for line in dict.fromkeys(wide)]
    if any(len(BAR.findall(frame)) > 1 for frame in gone.frames):
        wrong.append("more than one bar on the screen at once")
    places = {str(CHECKOUT): "checkout folder", sys.prefix: "venv folder"}
    text = f"$ {way.typed.strip()}\n{printed.plain(shown, places)}"
    for pattern, name in way.varies.items():
        text = re.sub(pattern, name, text)
    if accept and not way.faulty:
        way.file.parent.mkdir(exist_ok=True)
        way.file.write_text(text, encoding="utf-8")
    expected = way.file.read_text(encoding="utf-8") if way.file.exists() else ""
    wrong += printed.differences(expected, text, way.name)
    state = "not as it should be" if wrong else "ok"
    if way.faulty:
        state, wrong = ("known fault", []) if wrong else (state, [f"is right now, and marked: {way.faulty}"])
        notes = [f"known fault: {way.faulty}"]
    if gone.code != way.ends:
        wrong.append(f"ended with {gone.code}, expected {way.ends}")
    line = (
        f"{state}  {gone.seconds:5.1f} s  {len(gone.text.splitlines()):4} lines  "
        f"{printed.widest(shown):3} columns  {way.where:6}  {way.name}"
    )
    return "\n    ".join([line, *dict.fromkeys(notes)]), wrong


def table() -> tuple[list[Way], list[Way]]:
    """Ways that change nothing, and those that build on each other, in their order."""
    parts = yaml.safe_load((HERE / "ways.yaml").read_text(encoding="utf-8"))
    before, life = (
        [Way(name=name.replace(" ", "-"), **row) for name, row in parts[part].items()] for part in ("before", "life")
    )
    return before, life


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("home", "clusters", "logs"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("artifacts", "kubectl"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--way", action="append", default=[], help="only these, in the order of the table")
    parser.add_argument("--accept", action="store_true", help="what is printed becomes what is expected")
    return parser.parse_args(arguments)


def main() -> int:
    """Go the ways; the first of the life that ends otherwise than it should is the last, for the others build on it."""
    options = _options(sys.argv[1:])
    before, life = ([way for way in ways if not options.way or way.name in options.way] for ways in table())
    options.logs.mkdir(parents=True, exist_ok=True)
    broken: list[str] = []

    def go(way: Way, site: str = "karmada") -> Gone:
        return User(options.home, options.clusters, options.artifacts, options.kubectl, site).go(way)

    def judge(way: Way, gone: Gone) -> None:
        pictures = "".join(f"\n{'-' * 80}\n{frame}" for frame in gone.frames)
        (options.logs / f"{way.name}.log").write_text(f"{gone.text}{pictures}", encoding="utf-8")
        line, wrong = judged(way, gone, accept=options.accept)
        print("\n    ".join([line, *wrong]), flush=True)
        broken.extend([way.name] if wrong else [])

    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        for way, gone in zip(before, pool.map(lambda way: go(way, way.name), before), strict=True):
            judge(way, gone)
    for number, way in enumerate(life, 1):
        gone = go(way)
        judge(way, gone)
        if gone.code != way.ends:
            print(f"{len(life) - number} ways were not gone: they build on it")
            break
    print(f"{len(before) + len(life)} ways; what each printed is in {options.logs}")
    print(f"{len(broken)} not as they should be: {', '.join(broken)}" if broken else "All are as they should be.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
