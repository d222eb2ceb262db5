# SPDX-License-Identifier: Apache-2.0
"""Watch an API server across a command that takes it back in time, as an informer does.

    watch_across.py --kubeconfig FILE --namespace NAME [--figures FILE --step TEXT] -- COMMAND...

Lists the ConfigMaps of a namespace, watches from there, and goes on from the last version that it has seen when the
connection breaks. It lists anew only where the server refuses that version (410), as client-go's reflector does. At the
end what it holds has to be what the server has. Exit code: that of the command, or 98 if it is not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from faulty_proxy import Upstream, upstream_of
from figures import keep_figure
from steady_client import BROKEN_PROMISE, Api, Record

#: Seconds without a word after which a watch is begun anew from where it was: an idle one is silent for a minute.
SILENCE = 5.0
#: Seconds that a watcher has at the end to hold what the server has.
CATCH_UP = 30.0
AGAIN = 0.1


class ExpiredError(Exception):
    """The server does not know the version from which somebody wants to watch."""


class Reflector:
    """Copy of what a server has, by its list and its watch. Moments are in seconds since the start."""

    def __init__(self, api: Api, path: str) -> None:
        self._api, self._path = api, path
        self._version = ""
        #: name → version of each object
        self.objects: dict[str, str] = {}
        #: when the server answered for the first time after it had not, when it refused a version, when it was listed
        self.back: list[float] = []
        self.expired: list[float] = []
        self.listed: list[float] = []
        self._was_away = False
        self._began = time.monotonic()

    def run(self, over: threading.Event) -> None:
        """Until it is over."""
        while not over.is_set():
            try:
                if not self._version:
                    self._list()
                self._follow(over)
            except ExpiredError:
                self.expired.append(self._now())
                self._version = ""
            except (OSError, http.client.HTTPException, ValueError) as error:
                # An idle watch that is begun anew is no server that was away.
                self._was_away |= not isinstance(error, TimeoutError)
                over.wait(AGAIN)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _answered(self) -> None:
        if self._was_away:
            self.back.append(self._now())
            self._was_away = False

    def _list(self) -> None:
        status, content = self._api.request("GET", self._path)
        if status != http.client.OK:
            raise ValueError(f"{status} {content.get('message', '')}")
        self._answered()
        self.objects = versions(content)
        self._version = content["metadata"]["resourceVersion"]
        self.listed.append(self._now())

    def _follow(self, over: threading.Event) -> None:
        connection = self._api.connect(SILENCE)
        try:
            connection.request("GET", f"{self._path}?watch=1&allowWatchBookmarks=true&resourceVersion={self._version}")
            answer = connection.getresponse()
            if answer.status == http.client.GONE:
                self._answered()
                raise ExpiredError
            if answer.status != http.client.OK:
                raise ValueError(f"{answer.status} {answer.read(300).decode(errors='replace')}")
            self._answered()
            while not over.is_set():
                if not (line := answer.readline()):
                    raise ConnectionError("the watch has ended")
                self._take(json.loads(line))
        finally:
            connection.close()

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "ERROR":
            if event["object"].get("code") == http.client.GONE:
                raise ExpiredError
            raise ValueError(json.dumps(event["object"])[:200])
        metadata = event["object"]["metadata"]
        self._version = metadata["resourceVersion"]
        if event["type"] == "DELETED":
            self.objects.pop(metadata["name"], None)
        elif event["type"] != "BOOKMARK":
            self.objects[metadata["name"]] = metadata["resourceVersion"]


def versions(listed: Mapping[str, Any]) -> dict[str, str]:
    """Name → version of each object of a list."""
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed["items"]}


def during(server: Upstream, path: str, command: Sequence[str]) -> tuple[int, Reflector, bool]:
    """Exit code of the command, what watched meanwhile, and whether it holds at the end what the server has."""
    reflector, over = Reflector(Api(server, Record()), path), threading.Event()
    watching = threading.Thread(target=reflector.run, args=[over])
    watching.start()
    try:
        while not reflector.listed:
            time.sleep(AGAIN)
        code = subprocess.run(command, check=False).returncode
        return code, reflector, _holds_all(Api(server, Record()), path, reflector)
    finally:
        over.set()
        watching.join()


def _holds_all(api: Api, path: str, reflector: Reflector) -> bool:
    deadline = time.monotonic() + CATCH_UP
    while time.monotonic() < deadline:
        # A server that is about to serve again refuses some still.
        with suppress(OSError, http.client.HTTPException):
            status, content = api.request("GET", path)
            if status == http.client.OK and versions(content) == dict(reflector.objects):
                return True
        time.sleep(AGAIN)
    return False


def figure_of(reflector: Reflector) -> str:
    """Figure in words: how long after the server was back its watcher had the list of now."""
    if not reflector.back:
        return "the API was never away"
    back = reflector.back[-1]
    anew = [each for each in reflector.listed if each >= back]
    if not anew:
        return "a watcher went on without a new list"
    refused = "was refused its version and " if reflector.expired else ""
    return f"a watcher {refused}had listed anew {anew[0] - back:.1f} s after the API was back"


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, type=Path)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--step", default="")
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args(arguments)
    server = upstream_of(yaml.safe_load(wanted.kubeconfig.read_text()))
    code, reflector, holds_all = during(server, f"/api/v1/namespaces/{wanted.namespace}/configmaps", wanted.command)
    figure = figure_of(reflector)
    print(figure)
    if wanted.figures:
        keep_figure(wanted.figures, wanted.step, figure)
    if not holds_all:
        print(f"broken: after {CATCH_UP:.0f} s the watcher does not hold what the server has")
        return BROKEN_PROMISE
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
