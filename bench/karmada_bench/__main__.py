# SPDX-License-Identifier: Apache-2.0
"""Measure this collection beside karmadactl, and write bench/*.json and docs/reference/benchmarks.md.

    python -m karmada_bench run [--rounds N]   on a lab of its own, below KARMADA_BENCH (/var/lib/karmada-bench)
    python -m karmada_bench render             write again what is made of bench/rounds.json

Nothing is written unless every round came to its end.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import users_environment

from karmada_bench.clusters import KARMADA, ROOT, Clusters
from karmada_bench.command import BenchError, Ran, Runner, rest, stop_left_over
from karmada_bench.figures import Side, figures, results, table
from karmada_bench.hosts import HOSTS, INSTANCE, OursOnHosts
from karmada_bench.operators import KarmadasOperator, Operator, OurOperator
from karmada_bench.page import Record, page, rows
from karmada_bench.sides import Contender, Karmadactl, Ours

ROUNDS = ROOT / "bench/rounds.json"
RESULTS = ROOT / "bench/results.json"
PAGE = ROOT / "docs/reference/benchmarks.md"
#: Above this much work for each core at the begin, the figures say more about the machine than about the programs.
BUSY = 0.5
#: Members in the document of which the inventory is listed.
LONG_LIST = 5000


class Benchmark:
    """Runs the rounds and collects what they give."""

    def __init__(
        self,
        clusters: Clusters,
        ours: Ours,
        peer: Karmadactl,
        on_hosts: OursOnHosts,
        operators: tuple[OurOperator, KarmadasOperator],
    ) -> None:
        self.clusters, self.ours, self.peer, self.on_hosts = clusters, ours, peer, on_hosts
        self.operators = operators
        self.measurements: list[dict[str, Any]] = []
        self.facts: list[dict[str, Any]] = []
        self.tasks: list[dict[str, Any]] = []
        self.rests: list[bool] = []
        self._round = 0

    def warm_up(self) -> None:
        """An installation that is not counted: files are read and images are unpacked for the first time."""
        self.ours.begin()
        self.ours.install("warm-up-install")
        self.clusters.wait_until_complete(self.ours.control_plane)
        self.ours.uninstall("warm-up-uninstall")
        self.peer.begin()
        self.peer.help("warm-up-karmadactl")
        self.clusters.clean()
        self.on_hosts.begin_on(HOSTS)
        self.on_hosts.install("warm-up-hosts-install")
        self.on_hosts.uninstall("warm-up-hosts-uninstall")

    def round(self, number: int) -> None:
        """Both sides, and who begins changes."""
        self._round = number
        turns = [self._ours, self._peer]
        for turn in turns if number % 2 else reversed(turns):
            turn()
            self.clusters.clean()
        for operator in self.operators if number % 2 else reversed(self.operators):
            self._object(operator)
            self.clusters.clean()
        self._one_host()
        self._three_hosts()
        if number == 1:
            # Once: karmadactl takes minutes for as many, and what is simulated does not vary as clusters do.
            self._many_members()

    def _ours(self) -> None:
        ours = self.ours
        self._install(ours)
        self._again()
        self._join(ours)
        self._propagation(ours)
        self._uninstall(ours)
        self._rest()
        self._ran(ours, "list", ours.list_inventory(self._log(ours, "list")))
        self._long_list()
        self.clusters.clean()
        self._volume()

    def _long_list(self) -> None:
        """The members need not be there: the inventory shows what the document says of them."""
        ours, names = self.ours, [f"member-{each:04}" for each in range(LONG_LIST)]
        ours.write_document(members=names)
        done = ours.list_inventory(self._log(ours, "list-5000"))
        listed = set(json.loads(done.output)["_meta"]["hostvars"])
        if not listed.issuperset(names):
            raise BenchError(f"the inventory has {len(listed)} hosts for {LONG_LIST} members")
        self._ran(ours, "list_5000", done)

    def _peer(self) -> None:
        peer = self.peer
        self._install(peer)
        again = peer.install(self._log(peer, "again"))
        last = (again.output.strip().splitlines() or [""])[-1]
        self._fact(f"A second `karmadactl init` ends with code {again.code}: `{last}`")
        self._join(peer)
        self._propagation(peer)
        self._uninstall(peer)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _install(self, side: Contender) -> None:
        side.begin()
        self._rest()
        self._ran(side, "help", side.help(self._log(side, "help")))
        started = time.monotonic()
        done = side.install(self._log(side, "install"))
        missing = self.clusters.wait_until_complete(side.control_plane)
        complete = time.monotonic() - started
        self._ran(side, "install", done, complete if side is self.ours else done.seconds)
        self._ran(side, "install_complete", done, complete)
        self._measured(side, "memory", done.mebibytes)
        if side is self.ours:
            self._note_tasks("install", done)
        else:
            still = "; ".join(missing) or "nothing"
            self._fact(f"When `karmadactl init` returns, this is missing of what is checked: {still}.")
        say(f"  {side.side}: installed after {complete:.1f} s")

    def _again(self) -> None:
        ours = self.ours
        self._rest()
        marks, first = self.clusters.audit_marks(), self.clusters.writes_inside()
        if not first:
            raise BenchError("the audit log of the control plane has nothing of the first installation")
        done = ours.install(self._log(ours, "again"))
        self._ran(ours, "again", done)
        self._measured(ours, "again_changed", changed_tasks(done.output))
        writes = self.clusters.writes_since(marks) + self.clusters.writes_inside()[len(first) :]
        self._measured(ours, "again_writes", len(writes))
        say(f"  ours: installed again after {done.seconds:.1f} s")

    def _join(self, side: Contender) -> None:
        self._rest()
        started = time.monotonic()
        done = side.join(self._log(side, "join"))
        self.clusters.wait_until_joined(side.control_plane)
        seconds = time.monotonic() - started
        self._ran(side, "join", done, seconds)
        if side is self.ours:
            tasks = self._note_tasks("join", done)
            self._measured(side, "join_task", sum(each["seconds"] for each in tasks if _joins(each)))
        say(f"  {side.side}: joined after {seconds:.1f} s")

    def _propagation(self, side: Contender) -> None:
        self._rest()
        self._measured(side, "propagation", self.clusters.propagate(side.control_plane))
        self.clusters.withdraw(side.control_plane)

    def _uninstall(self, side: Contender) -> None:
        self._rest()
        started = time.monotonic()
        done = side.uninstall(self._log(side, "uninstall"))
        self.clusters.wait_until_gone()
        seconds = time.monotonic() - started
        self._ran(side, "uninstall", done, seconds)
        left, files = self.clusters.left(), side.files_left()
        self._measured(side, "left_objects", len(left))
        self._measured(side, "left_files", len(files))
        if side is self.ours:
            self._note_tasks("uninstall", done)
        else:
            remains = _listed(each[2:] for each in left)
            self._fact(f"`karmadactl unjoin` and `karmadactl deinit` leave in the clusters: {remains}.")
            secret = [each for each in files if each.endswith((".key", ".config"))]
            self._fact(f"Of the files that they leave where they ran, these let people in: {_listed(secret)}.")
        say(f"  {side.side}: uninstalled after {seconds:.1f} s; left: {len(left)} objects, {len(files)} files")

    def _volume(self) -> None:
        ours = self.ours
        ours.begin()
        ours.write_document(volume=True)
        self._rest()
        started = time.monotonic()
        done = ours.install(self._log(ours, "install-volume"))
        self.clusters.wait_until_complete(ours.control_plane)
        self._ran(ours, "install_volume", done, time.monotonic() - started)
        ours.uninstall(self._log(ours, "uninstall-volume"))

    # -- operators -------------------------------------------------------------------------------------------------

    def _object(self, operator: Operator) -> None:
        """From an object to a control plane, and back, by an operator that was up before."""
        operator.set_up(self._step(operator, "operator"))
        self._rest()
        started = time.monotonic()
        done = operator.create(self._step(operator, "object"))
        operator.fetch(self._step(operator, "object-kubeconfig"))
        self.clusters.wait_until_complete(operator.control_plane)
        complete = time.monotonic() - started
        # What kubectl spends here says nothing of an operator.
        seconds = complete if operator.side == "ours" else done.seconds
        self._keep(operator.side, "object", seconds)
        self._keep(operator.side, "object_complete", complete)
        if operator.side == "ours":
            self._keep("ours", "object_over_playbook", complete - self._measured_before("ours", "install"))
        self._rest()
        gone = operator.remove(self._step(operator, "object-gone"))
        self._keep(operator.side, "object_gone", gone.seconds)
        left = operator.left(self._step(operator, "object-left"))
        self._keep(operator.side, "object_left", len(left))
        operator.take_down(self._step(operator, "operator-gone"))
        say(f"  {operator.side}: object to Ready after {seconds:.1f} s, gone after {gone.seconds:.1f} s")

    def _step(self, operator: Operator, step: str) -> str:
        return f"round-{self._round}-{operator.side}-{step}"

    def _measured_before(self, side: Side, case: str) -> float:
        """Figure of this case that was measured in this round."""
        key = (self._round, side, case)
        found = [each for each in self.measurements if (each["round"], each["side"], each["case"]) == key]
        return float(found[-1]["value"])

    # -- plain hosts -----------------------------------------------------------------------------------------------

    def _one_host(self) -> None:
        hosts = self.on_hosts
        hosts.begin_on(HOSTS[:1])
        self._install_on_hosts("one_host")
        self._rest()
        self._ran(hosts, "one_host_uninstall", hosts.uninstall(self._log(hosts, "one_host-uninstall")))

    def _three_hosts(self) -> None:
        hosts = self.on_hosts
        hosts.begin_on(HOSTS)
        before = hosts.things()
        self._install_on_hosts("hosts")
        self._again_on_hosts()
        self._flag_on_hosts()
        self._power_cut()
        self._rest()
        done = hosts.uninstall(self._log(hosts, "hosts-uninstall"))
        self._ran(hosts, "hosts_uninstall", done)
        self._measured(hosts, "hosts_left", len(hosts.things() ^ before))

    def _install_on_hosts(self, case: str) -> None:
        hosts = self.on_hosts
        self._rest()
        started = time.monotonic()
        done = hosts.install(self._log(hosts, case))
        self.clusters.wait_until_complete(hosts.control_plane, hosts.units)
        seconds = time.monotonic() - started
        self._ran(hosts, case, done, seconds)
        self._note_tasks(f"install, {len(hosts.hosts)} plain hosts", done)
        say(f"  ours, on {len(hosts.hosts)} plain hosts: installed after {seconds:.1f} s")

    def _again_on_hosts(self) -> None:
        hosts = self.on_hosts
        started = hosts.started()
        self._rest()
        done = hosts.install(self._log(hosts, "hosts-again"))
        self._ran(hosts, "hosts_again", done)
        self._measured(hosts, "hosts_again_changed", changed_tasks(done.output))
        self._measured(hosts, "hosts_again_restarts", len(started.items() ^ hosts.started().items()))

    def _flag_on_hosts(self) -> None:
        hosts = self.on_hosts
        started = hosts.started()
        hosts.write_hosts_document(scheduler_verbosity=3)
        self._rest()
        done, unanswered = hosts.install_while_asking(self._log(hosts, "hosts-flag"))
        anew = {unit for unit, start in hosts.started().items() if started.get(unit) != start}
        schedulers = {unit for unit in anew if unit.endswith(f"karmada-{INSTANCE}-scheduler.service")}
        if len(schedulers) != len(hosts.hosts):
            raise BenchError(f"the flag has reached the scheduler of {len(schedulers)} of {len(hosts.hosts)} hosts")
        self._ran(hosts, "hosts_flag", done)
        self._measured(hosts, "hosts_flag_restarts", len(anew - schedulers))
        self._measured(hosts, "hosts_flag_unanswered", unanswered)

    def _power_cut(self) -> None:
        hosts = self.on_hosts
        self._rest()
        chosen, cost = hosts.cut_power(self._log(hosts, "hosts-power"))
        self._measured(hosts, "hosts_power_pause", cost["pause"])
        self._measured(hosts, "hosts_power_lost", len(cost["lost"]))
        self._measured(hosts, "hosts_power_missing", len(cost["missing"]))
        started = time.monotonic()
        self.clusters.lab("power", "on", chosen)
        self.clusters.wait_until_complete(hosts.control_plane, hosts.units)
        self._measured(hosts, "hosts_boot", time.monotonic() - started)

    # -- many members ----------------------------------------------------------------------------------------------

    def _many_members(self) -> None:
        """In a process of its own: what it simulates must not be in the way of what is measured here."""
        output, name = self.clusters.work / "many-members.json", f"round-{self._round}-many-members"
        self._rest()
        command = [sys.executable, "-m", "karmada_bench.many_members", "measure"]
        options = [f"--karmadactl={self.clusters.karmadactl}", f"--output={output}"]
        self.ours.runner.run(name, [*command, *options], timeout=1800)
        for side, cases in json.loads(output.read_text()).items():
            for case, found in cases.items():
                self._keep(side, case, **found)

    # -- what came of it -------------------------------------------------------------------------------------------

    def _log(self, side: Contender, step: str) -> str:
        return f"round-{self._round}-{side.side}-{step}"

    def _measured(self, side: Contender, case: str, value: float) -> None:
        self._keep(side.side, case, value)

    def _ran(self, side: Contender, case: str, done: Ran, seconds: float | None = None) -> None:
        """The time of a run, or until what it is for was proved, with the time of processors that the run has used."""
        self._keep(side.side, case, done.seconds if seconds is None else seconds, done.cpu_seconds)

    def _keep(self, side: Side, case: str, value: float, cpu_seconds: float | None = None) -> None:
        kept: dict[str, Any] = {"round": self._round, "side": side, "case": case, "value": round(value, 2)}
        if cpu_seconds is not None:
            kept["cpu_seconds"] = round(cpu_seconds, 2)
        self.measurements.append(kept)

    def _rest(self) -> None:
        self.rests.append(rest())

    def _fact(self, text: str) -> None:
        self.facts.append({"round": self._round, "text": text})

    def _note_tasks(self, run: str, done: Ran) -> list[dict[str, Any]]:
        tasks = self.ours.tasks()
        rest = round(done.seconds - sum(each["seconds"] for each in tasks), 3)
        tasks.append({"task": "(start of Ansible, inventory, end)", "seconds": rest})
        self.tasks += [{"round": self._round, "run": run, **each} for each in tasks]
        return tasks


def changed_tasks(output: str) -> int:
    """Count of tasks that changed something, by the recap of a playbook."""
    counts = [word.partition("=")[2] for word in output.split() if word.startswith("changed=")]
    if not counts:
        raise BenchError("the playbook has printed no recap")
    return sum(map(int, counts))


def _joins(task: dict[str, Any]) -> bool:
    return "Join the members" in task["task"]


def _listed(things: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in things) or "nothing"


def machine(clusters: Clusters) -> dict[str, str]:
    """Conditions of the figures: the programs compared, and all else that the figures depend on."""
    facts = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    model = next((value.strip() for name, value in facts.items() if name.strip() == "model name"), platform.machine())
    kibibytes = int(Path("/proc/meminfo").read_text().split()[1])
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    return {
        "Processor": f"{os.cpu_count()} cores, {model}",
        "Memory": f"{kibibytes / 2**20:.0f} GiB",
        "Load at the begin (1, 5 and 15 minutes)": ", ".join(f"{each:.1f}" for each in os.getloadavg()),
        "Kernel": platform.release(),
        "Karmada, and karmadactl": KARMADA,
        "kube-apiserver": clusters.image("/kube-apiserver:").rpartition(":")[2],
        "etcd": clusters.image("/etcd:").rpartition(":")[2],
        "This collection": f"commit {commit}",
        "ansible-core": version("ansible-core"),
        "Python": platform.python_version(),
    }


def measure(folder: Path, rounds: int) -> Record:
    """The whole of it; everything that it writes is in ``folder``."""
    began = datetime.now(UTC)
    work = folder / "work"
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(mode=0o700)
    clusters = Clusters(work, folder / "lab")
    runner = Runner(folder / "running.json", work / "logs", users_environment(os.environ, {}))
    benchmark = Benchmark(
        clusters,
        Ours(clusters, runner, work / "ours"),
        Karmadactl(clusters, runner, work / "peer"),
        OursOnHosts(clusters, runner, work / "ours-on-hosts"),
        (
            OurOperator(clusters, runner, work / "our-operator"),
            KarmadasOperator(clusters, runner, work / "karmadas-operator"),
        ),
    )
    load = os.getloadavg()[0]
    if load > BUSY * (os.cpu_count() or 1):
        say(f"This machine is busy (load {load:.1f}): the figures will be worse than they could be.")
    say("The lab, and an installation that is not counted")
    clusters.bring_up(HOSTS)
    where = machine(clusters)
    benchmark.warm_up()
    for number in range(1, rounds + 1):
        say(f"Round {number} of {rounds}")
        benchmark.round(number)
    clusters.lab("down")
    return {
        "began": began.strftime("%Y-%m-%d %H:%M UTC"),
        "rounds": rounds,
        "machine": {
            **where,
            "At rest before it was measured": f"{sum(benchmark.rests)} of {len(benchmark.rests)} times",
        },
        "measurements": benchmark.measurements,
        "facts": benchmark.facts,
        "tasks": benchmark.tasks,
    }


def files(record: Record) -> dict[Path, str]:
    """Files made of a record, by where they belong."""
    return {RESULTS: _json(results(record["measurements"])), PAGE: page(record)}


def _json(content: Any) -> str:
    return json.dumps(content, indent=1) + "\n"


def say(text: str) -> None:
    """A line for the person who waits."""
    print(text, flush=True)


def _run(rounds: int) -> None:
    folder = Path(os.environ.get("KARMADA_BENCH", "/var/lib/karmada-bench"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchError(f"another run uses {folder}; KARMADA_BENCH names another folder") from None
        if stop_left_over(folder / "running.json"):
            say("Stopped what an earlier run had left running.")
        try:
            record = measure(folder, rounds)
        except BenchError:
            say(f"The lab is still there (KARMADA_LAB_STATE={folder / 'lab'}), and logs in {folder / 'work/logs'}.")
            raise
    ROUNDS.write_text(_json(record))
    _render(record)


def _render(record: Record) -> None:
    for path, content in files(record).items():
        path.write_text(content, encoding="utf-8")
    say("\n".join(table(rows(figures(record["measurements"])))))


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--rounds", type=int, default=3)
    commands.add_parser("render")
    options = parser.parse_args()
    # So that what runs is killed and noted as over, as it is for the interrupt of a terminal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.command == "run":
            _run(options.rounds)
        else:
            _render(json.loads(ROUNDS.read_text()))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; nothing was written, and the next run begins with new clusters.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
