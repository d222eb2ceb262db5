# SPDX-License-Identifier: Apache-2.0
"""Write to an API server and watch it all the time while a command runs, then tell whether anything was lost.

    steady_client.py --kubeconfig FILE [--rate 20] [--before 3] [--after 8] [--longest-pause SECONDS] [--no-failures]
                     [--etcd-log COMMAND] [--report FILE] [--figures FILE --step TEXT] -- COMMAND...

The writer begins a request at each tick, whatever became of the ones before: a ConfigMap is created, then changed. It
keeps connections as a usual client does, and asks nobody where the API server is. A request counts once it was
acknowledged. The watcher goes on from the last version that it has seen, when its connection ends or is silent.

At the end each acknowledged write has to be in what the API server lists, and each has to have come to the watcher. The
pause is the longest time in which no answer came to any request: a client that tries again waits no longer. With
--no-failures no request may fail, but for two that etcd itself cannot spare anybody: it drops what is proposed while
one member hands the lead over to another. With --etcd-log, a command that prints what the members have logged, two
writes that had the answer to that may fail, each of them only if a member took the lead over then.

Exit code: that of the command, or 98 when something was lost, missing, failed or too late.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import re
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from faulty_proxy import Upstream, upstream_of
from figures import keep_figure

BROKEN_PROMISE = 98
NAMESPACE = "steady-client"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
#: Seconds. A request that takes longer has failed; a watch that tells nothing for longer, while something is written
#: many times a second, is begun anew.
LONGEST_REQUEST, LONGEST_SILENCE = 10.0, 1.5
#: Attempts for a request that is refused with the word when to try again, as in client-go (``rest/request.go``).
ATTEMPTS = 10
#: Metric with the size of etcd's database, one for each endpoint that the API server knows.
DATABASE_SIZE = re.compile(rb"^apiserver_storage_size_bytes\{[^}]*\} (\S+)$", re.MULTILINE)
#: What a write is answered that etcd has dropped while the lead was handed over: by the member that led, or after seven
#: seconds by one that had passed the write on to it and hears of nothing. Only the member that leads now speaks of the
#: former leader, as others keep no time of an election (EtcdServer.parseProposeCtxErr, EtcdServer.run).
DROPPED = re.compile(
    r"raft proposal dropped|etcdserver: request timed out(, possibly due to previous leader failure)?$"
)
#: What a member logs that is asked to take the lead over. After the loss of a leader nobody asks.
TAKES_LEAD_OVER = re.compile(r"received MsgTimeoutNow from \w+ and starts an election")
#: Seconds within which etcd hands the lead over, or gives that up: the timeout of its elections.
LONGEST_HAND_OVER = 1.0
#: Failures that may be pardoned so in a run.
MOST_PARDONED = 2
#: How long it may take to delete what a run before has left: thousands of objects, one after the other.
LONGEST_CLEARING = 120.0
#: How long the watcher may be behind at the end.
CATCH_UP = 15.0


@dataclass(frozen=True)
class Write:
    """An acknowledged write: the key that it set in the object, and the version that the object got by it."""

    name: str
    key: str
    version: str


@dataclass(frozen=True)
class Failure:
    """A write that failed: when it began and ended, in seconds since the start, and what was said of it."""

    began: float
    ended: float
    reason: str

    def was_dropped_at(self, handed_over: Iterable[float]) -> bool:
        """Judgement that etcd dropped it while the lead was handed over, which happened at these times."""
        dropped = DROPPED.search(self.reason)
        return bool(dropped) and any(abs(at - self.began) <= LONGEST_HAND_OVER for at in handed_over)


@dataclass
class Record:
    """Record of what happened. Times are in seconds since the start."""

    began: float = field(default_factory=time.monotonic)
    acknowledged: list[Write] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    sent_again: int = 0
    #: name and version of each object that the watcher was told of
    events: list[tuple[str, str]] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)
    watches: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began


def lost(acknowledged: Iterable[Write], objects: Iterable[Mapping[str, Any]]) -> list[Write]:
    """Acknowledged writes that are not in what the API server has."""
    there = {each["metadata"]["name"]: each.get("data") or {} for each in objects}
    return [write for write in acknowledged if write.key not in there.get(write.name, {})]


def missing(acknowledged: Iterable[Write], events: Iterable[tuple[str, str]]) -> list[Write]:
    """Acknowledged writes that the watcher was not told of."""
    told = set(events)
    return [write for write in acknowledged if (write.name, write.version) not in told]


def longest_pause(times: Sequence[float]) -> tuple[float, float]:
    """The longest time between two neighbours, and when it began."""
    pairs = itertools.pairwise(sorted(times))
    return max(((second - first, first) for first, second in pairs), default=(0.0, 0.0))


class Api:
    """Requests over connections that are kept, the one used last first."""

    def __init__(self, server: Upstream, record: Record) -> None:
        self._server, self._record = server, record
        self._idle: list[http.client.HTTPSConnection] = []

    def connect(self, timeout: float) -> http.client.HTTPSConnection:
        """A new connection, not opened yet."""
        return http.client.HTTPSConnection(
            self._server.host, self._server.port, context=self._server.tls, timeout=timeout
        )

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Status and content of the answer. Raises OSError or HTTPException when there was none.

        A server that is told to stop refuses what comes over connections that were open, and says when to try again, as
        one with too much to do. Every client of Kubernetes does so.
        """
        for _ in range(ATTEMPTS):
            status, content, wait = self._answered(method, path, body)
            if wait is None:
                break
            with self._record.lock:
                self._record.sent_again += 1
            time.sleep(wait)
        return status, content

    def _answered(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any], float | None]:
        """Status and content of the answer, and the seconds after which to try again, if it says so."""
        kept = self._idle.pop() if self._idle else None
        try:
            return self._ask(kept or self.connect(LONGEST_REQUEST), method, path, body)
        except (ConnectionError, ssl.SSLEOFError, http.client.HTTPException):
            # A server may close a connection that is idle at any time, so every client sends once more what met that.
            self._idle.clear()
            if kept is None:
                raise
            with self._record.lock:
                self._record.sent_again += 1
            return self._ask(self.connect(LONGEST_REQUEST), method, path, body)
        except OSError:
            self._idle.clear()
            raise

    def clear(self) -> None:
        """Delete what a run before has left, whose objects have these names.

        An API server ends a request after a minute, and a busy one has not deleted thousands of objects by then: it is
        asked until a request comes to its end. Raises HTTPException if none does.
        """
        for attempts_left in reversed(range(ATTEMPTS)):
            connection = self.connect(LONGEST_CLEARING)
            try:
                connection.request("DELETE", CONFIG_MAPS, headers={"User-Agent": "steady-client"})
                answer = connection.getresponse()
                answer.read()
            except http.client.HTTPException:
                if not attempts_left:
                    raise
            else:
                if answer.status != http.HTTPStatus.GATEWAY_TIMEOUT:
                    return
            finally:
                connection.close()

    def database_size(self) -> int | None:
        """Bytes of etcd's database, of the largest member that the API server asks; None if it does not say."""
        connection = self.connect(LONGEST_REQUEST)
        try:
            connection.request("GET", "/metrics", headers={"User-Agent": "steady-client"})
            sizes = DATABASE_SIZE.findall(connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            # A figure is no promise.
            return None
        finally:
            connection.close()
        return max((int(float(each)) for each in sizes), default=None)

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any], float | None]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            connection.request(
                method, path, json.dumps(body) if body else None, {"Content-Type": kind, "User-Agent": "steady-client"}
            )
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        later = answer.headers.get("Retry-After", "")
        wait = float(later) if answer.status in (429, 503) and later.isdecimal() else None
        return answer.status, json.loads(content) if content.startswith(b"{") else {}, wait


class Writer:
    """Begins a request at each tick: creates an object, and changes one that was created."""

    def __init__(self, api: Api, record: Record, rate: float) -> None:
        self._api, self._record, self._rate = api, record, rate
        self._created: list[str] = []
        self._number = 0

    def run(self, over: threading.Event) -> None:
        """Until it is over, and the last answer is here."""
        requests = []
        start = time.monotonic()
        while not over.is_set():
            request = threading.Thread(target=self._write, args=[self._number])
            request.start()
            requests.append(request)
            self._number += 1
            over.wait(max(0.0, start + self._number / self._rate - time.monotonic()))
        for request in requests:
            request.join()

    def _write(self, number: int) -> None:
        # One that is to be changed is taken, so that nobody else changes it at the same time.
        with self._record.lock:
            name = self._created.pop(0) if number % 2 and self._created else ""
        began = self._record.now()
        key = "changed" if name else "created"
        try:
            if name:
                status, content = self._api.request("PATCH", f"{CONFIG_MAPS}/{name}", {"data": {key: str(number)}})
            else:
                name = f"w-{number}"
                wanted = {"metadata": {"name": name}, "data": {key: str(number)}}
                status, content = self._api.request("POST", CONFIG_MAPS, wanted)
                if status == 409:  # sent again, and it was carried out the first time
                    status, content = self._api.request("GET", f"{CONFIG_MAPS}/{name}")
            reason = "" if status in (200, 201) else f"{status} {content.get('message', '')[:150]}"
        except (OSError, http.client.HTTPException) as error:
            reason, content = f"{type(error).__name__} {error}", {}
        with self._record.lock:
            if reason:
                self._record.failures.append(Failure(round(began, 2), round(self._record.now(), 2), reason))
                return
            self._record.answers.append(self._record.now())
            self._record.acknowledged.append(Write(name, key, content["metadata"]["resourceVersion"]))
            if key == "created":
                self._created.append(name)


class Watcher:
    """Watches from a version on, and goes on from the last one that it has seen."""

    def __init__(self, api: Api, record: Record, version: str) -> None:
        self._api, self._record, self._version = api, record, version

    def run(self, over: threading.Event) -> None:
        """Until it is over."""
        while not over.is_set():
            with self._record.lock:
                self._record.watches.append(f"{self._record.now():.2f} s: from {self._version}")
            connection = self._api.connect(LONGEST_SILENCE)
            try:
                self._follow(connection, over)
            except (OSError, http.client.HTTPException, ValueError) as error:
                with self._record.lock:
                    self._record.watches.append(f"{self._record.now():.2f} s: {type(error).__name__} {error}"[:200])
                over.wait(0.1)
            finally:
                connection.close()

    def _follow(self, connection: http.client.HTTPSConnection, over: threading.Event) -> None:
        connection.request("GET", f"{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={self._version}")
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"{answer.status} {answer.read(300).decode(errors='replace')}")
        while not over.is_set():
            line = answer.readline()
            if not line:
                raise ConnectionError("the watch has ended")
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ValueError(json.dumps(event["object"])[:200])
            metadata = event["object"]["metadata"]
            self._version = metadata["resourceVersion"]
            if event["type"] != "BOOKMARK":
                with self._record.lock:
                    self._record.heard.append(self._record.now())
                    self._record.events.append((metadata["name"], metadata["resourceVersion"]))


def during(server: Upstream, command: Sequence[str], rate: float, before: float, after: float) -> dict[str, Any]:
    """Write and watch, from before the command until after it; returns what came of it."""
    record = Record()
    began_at = time.time()
    api = Api(server, record)
    # Karmada makes every namespace on each member, where it outlives the control plane.
    labels = {"namespace.karmada.io/skip-auto-propagation": "true"}
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    api.clear()
    _status, listed = api.request("GET", CONFIG_MAPS)
    writing_over, watching_over = threading.Event(), threading.Event()
    writer, watcher = Writer(api, record, rate), Watcher(api, record, listed["metadata"]["resourceVersion"])
    threads = [
        threading.Thread(target=each.run, args=[over])
        for each, over in ((writer, writing_over), (watcher, watching_over))
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(before)
        command_began = record.now()
        code = subprocess.run(command, check=False).returncode
        command_ended = record.now()
        time.sleep(after)
    finally:
        writing_over.set()
        ended = record.now()
        threads[0].join()
        deadline = time.monotonic() + CATCH_UP
        while missing(record.acknowledged, list(record.events)) and time.monotonic() < deadline:
            time.sleep(0.1)
        watching_over.set()
        threads[1].join()
    _status, listed = api.request("GET", CONFIG_MAPS)
    # To the end, should no answer have come any more.
    pause, at = longest_pause([*(each for each in record.answers if each < ended), ended])
    silence, silent_from = longest_pause(record.heard)
    return {
        "code": code,
        "began_at": began_at,
        "command": {"from": round(command_began, 2), "to": round(command_ended, 2)},
        "acknowledged": len(record.acknowledged),
        "failed": len(record.failures),
        "failures": [vars(failure) for failure in record.failures[:100]],
        "reasons": Counter(failure.reason[:60] for failure in record.failures),
        "sent_again": record.sent_again,
        "pause": round(pause, 2),
        "pause_from": round(at, 2),
        "silence": round(silence, 2),
        "silence_from": round(silent_from, 2),
        "watches": record.watches,
        "database": api.database_size(),
        "lost": [vars(write) for write in lost(record.acknowledged, listed["items"])],
        "missing": [vars(write) for write in missing(record.acknowledged, record.events)],
    }


def lead_taken_over(log: str, began_at: float) -> list[float]:
    """When a member took the lead over at the word of another one, in seconds since the start, by its log."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{") and TAKES_LEAD_OVER.search(line))
    return sorted(datetime.fromisoformat(line["ts"]).timestamp() - began_at for line in lines)


def broken(
    found: Mapping[str, Any], longest: float | None, *, no_failures: bool, lead_taken_over: Sequence[float] = ()
) -> list[str]:
    """Promises that did not hold."""
    told = []
    if not found["acknowledged"]:
        told.append("no write was acknowledged at all")
    if found["lost"]:
        told.append(f"{len(found['lost'])} acknowledged writes are lost")
    if found["missing"]:
        told.append(f"the watcher was not told of {len(found['missing'])} writes")
    if longest is not None and found["pause"] > longest:
        told.append(f"for {found['pause']} s no request was answered, and {longest} s are allowed")
    pardoned = sum(Failure(**failure).was_dropped_at(lead_taken_over) for failure in found["failures"])
    if no_failures and found["failed"] > min(pardoned, MOST_PARDONED):
        of_which = f", {pardoned} of them while a member took the lead over from another" if pardoned else ""
        told.append(f"{found['failed']} requests failed{of_which}")
    return told


def figure_of(found: Mapping[str, Any]) -> str:
    """Figure of what came of it, in words."""
    size = f", at {found['database'] / 10**6:.0f} MB" if found["database"] else ""
    return (
        f"{found['acknowledged']} writes, {found['failed']} failed, {len(found['lost'])} lost, longest pause "
        f"{found['pause']} s; the run {found['command']['to'] - found['command']['from']:.0f} s{size}"
    )


def main() -> int:
    """Write and watch, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=20, metavar="PER_SECOND")
    parser.add_argument("--before", type=float, default=3, metavar="SECONDS")
    parser.add_argument("--after", type=float, default=8, metavar="SECONDS")
    parser.add_argument("--longest-pause", type=float, metavar="SECONDS")
    parser.add_argument("--no-failures", action="store_true")
    parser.add_argument("--etcd-log", metavar="COMMAND", help="prints what etcd's members have logged")
    parser.add_argument("--report", type=Path, metavar="FILE", help="all that was seen, as JSON")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="figures of a scenario, to which one is added")
    parser.add_argument("--step", default="", metavar="TEXT", help="name of that figure")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    server = upstream_of(yaml.safe_load(options.kubeconfig.read_text()))
    found = during(server, options.command, options.rate, options.before, options.after)
    if options.report:
        options.report.write_text(json.dumps(found, indent=2) + "\n")
    if options.figures:
        keep_figure(options.figures, options.step, figure_of(found))
    print(
        f"acknowledged {found['acknowledged']}, lost {len(found['lost'])}, failed {found['failed']}, "
        f"sent again {found['sent_again']}; longest pause {found['pause']} s; "
        f"watcher: missing {len(found['missing'])}, longest silence {found['silence']} s"
    )
    for reason, count in sorted(found["reasons"].items()):
        print(f"  {count} x {reason}")
    taken_over = []
    if options.etcd_log and found["failed"]:
        log = subprocess.run(["sh", "-ec", options.etcd_log], check=True, stdout=subprocess.PIPE, text=True).stdout
        taken_over = lead_taken_over(log, found["began_at"])
        print("".join(f"a member took the lead over after {at:.2f} s\n" for at in taken_over), end="")
    told = broken(found, options.longest_pause, no_failures=options.no_failures, lead_taken_over=taken_over)
    print("".join(f"broken: {each}\n" for each in told), end="", flush=True)
    return BROKEN_PROMISE if told else int(found["code"])


if __name__ == "__main__":
    sys.exit(main())
