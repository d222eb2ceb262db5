# SPDX-License-Identifier: Apache-2.0
"""Everything that an operator tells while a scenario goes on, so that it can be looked at for secrets.

    told.py keep FOLDER --kubectl KUBECTL --kubeconfig FILE --namespace NAMESPACE --kind KIND...
    told.py end FOLDER --expect NAME...

``keep`` writes each version of each object of these kinds, in all namespaces, and of each pod of NAMESPACE to
FOLDER/<kind>.told, and what containers of these pods log, from beginning to end, to FOLDER/<pod>-<restarts>.log.
It goes on as long as FOLDER.keeping is there. ``end`` takes that away, waits until all is written, and says how much
there is. Exit code 1: nothing was written to a file whose name begins with NAME.
"""

from __future__ import annotations

import argparse
import codecs
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from status_course import Object, documents

#: Seconds for which is waited until all is written.
PATIENCE = 60.0


class Keeper:
    """Keeps what is told until ``marker`` is gone."""

    def __init__(self, folder: Path, kubectl: Sequence[str], namespace: str) -> None:
        self._folder, self._kubectl, self._namespace = folder, kubectl, namespace
        self._marker = folder.with_name(f"{folder.name}.keeping")
        self._logged: dict[str, threading.Thread] = {}

    def all_of(self, kinds: Sequence[str]) -> None:
        """Keep versions of objects of these kinds, and what pods log, until it is over."""
        everywhere = ["--all-namespaces"]
        loops = [threading.Thread(target=self._watch, args=(each, everywhere, lambda _: None)) for each in kinds]
        loops.append(threading.Thread(target=self._watch, args=("pods", [f"--namespace={self._namespace}"], self._log)))
        for each in loops:
            each.start()
        for each in loops:
            each.join()
        for each in self._logged.values():
            each.join()

    def _watch(self, kind: str, where: list[str], heard: Callable[[Object], object]) -> None:
        words = [*self._kubectl, "get", kind, *where, "--watch", "--output-watch-events", "--output=json"]
        with (self._folder / f"{kind}.told").open("ab") as file:
            # One that ends is begun anew, and shows what is there.
            while self._marker.exists():
                rest, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
                with ExitStack() as stack:
                    output = self._begun(stack, words)
                    while chunk := output.read(1 << 20):
                        file.write(chunk)
                        file.flush()
                        events, rest = documents(rest + decoder.decode(chunk))
                        for each in events:
                            heard(each["object"])
                time.sleep(0.5)

    def _log(self, pod: Object) -> None:
        """Keep what this pod logs, if one of its containers was begun since it was seen before."""
        name = pod.get("metadata", {}).get("name", "")
        for each in (pod.get("status") or {}).get("containerStatuses") or ():
            # It has another id after each start, and none before the first one.
            if (started := each.get("containerID")) and started not in self._logged:
                follow = threading.Thread(target=self._follow, args=(name, each["name"], each["restartCount"]))
                self._logged[started] = follow
                follow.start()

    def _follow(self, pod: str, container: str, restarts: int) -> None:
        words = [*self._kubectl, f"--namespace={self._namespace}", "logs", "--follow", f"--container={container}", pod]
        with (self._folder / f"{pod}-{restarts}.log").open("ab") as file, ExitStack() as stack:
            output = self._begun(stack, words)
            while chunk := output.read(1 << 20):
                file.write(chunk)
                file.flush()

    def _begun(self, stack: ExitStack, words: list[str]) -> Any:
        """Output of a command that ends with the marker."""
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        threading.Thread(target=self._end, args=(process,), daemon=True).start()
        return process.stdout

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        while self._marker.exists() and process.poll() is None:
            time.sleep(0.2)
        # What was told just before is on its way.
        time.sleep(0.5)
        process.terminate()


def end(folder: Path, expected: Sequence[str]) -> int:
    """Have it end, and say what there is."""
    folder.with_name(f"{folder.name}.keeping").unlink(missing_ok=True)
    ended = folder.with_name(f"{folder.name}.ended")
    deadline = time.monotonic() + PATIENCE
    while not ended.exists():
        if time.monotonic() > deadline:
            print(f"it goes on {PATIENCE:.0f} s later, or was never begun")
            return 1
        time.sleep(0.1)
    sizes = {each.name: each.stat().st_size for each in sorted(folder.iterdir())}
    print("\n".join(f"{size // 1024} KiB {name}" for name, size in sizes.items()))
    missing = [each for each in expected if not any(name.startswith(each) and size for name, size in sizes.items())]
    print("".join(f"nothing was told in {each}\n" for each in missing), end="")
    return 1 if missing else 0


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("keep")
    one.add_argument("folder", type=Path)
    one.add_argument("--kubectl", required=True)
    one.add_argument("--kubeconfig", required=True)
    one.add_argument("--namespace", required=True)
    one.add_argument("--kind", action="append", required=True)
    one = commands.add_parser("end")
    one.add_argument("folder", type=Path)
    one.add_argument("--expect", action="append", default=[])
    options = parser.parse_args()
    if options.command == "end":
        return end(options.folder, options.expect)
    kubectl = [options.kubectl, f"--kubeconfig={options.kubeconfig}"]
    Keeper(options.folder, kubectl, options.namespace).all_of(options.kind)
    options.folder.with_name(f"{options.folder.name}.ended").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
