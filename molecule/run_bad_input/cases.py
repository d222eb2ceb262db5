# SPDX-License-Identifier: Apache-2.0
"""Run every case of cases.yaml as a user would and look at how it is refused. Exit code 1: one is not as it should be.

    cases.py --site FOLDER --logs FOLDER --lab LAB --kubectl KUBECTL [--case NAME]...

The table says for each case what differs from the good document beside it, and which parts the message must have.
``@`` in a part stands for the folder of the case. A case ends with an exit code other than 0, in its time.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

HERE = Path(__file__).resolve().parent
#: A case that says nothing else has to end within this; the machine may be busy with other things.
WITHIN_SECONDS = 120
TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Unexpected Exception|MODULE FAILURE")


@dataclass(frozen=True)
class Place:
    """Material of the cases: a site folder with good Secrets, the programs, addresses at which nobody answers."""

    site: Path
    logs: Path
    lab: str
    kubectl: str
    servers: Mapping[str, str]


def laid_over(base: Any, difference: Any) -> Any:
    """Mappings are merged, null removes a field, anything else replaces what was there."""
    if not isinstance(base, dict) or not isinstance(difference, dict):
        return difference
    merged = {**base, **{key: laid_over(base.get(key), value) for key, value in difference.items()}}
    return {key: value for key, value in merged.items() if value is not None}


@contextmanager
def odd_servers(kubectl: str, member: Path) -> Iterator[dict[str, str]]:
    """Addresses for kubeconfigs: where connections are never made, as behind a firewall that drops; where nobody ever
    speaks; and a member without TLS, as someone has it who works with `kubectl proxy`.
    """
    with ExitStack() as stack:
        full, silent = (stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=size)) for size in (0, 100))
        # The kernel drops what does not fit into the queue of a listener.
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        proxy = stack.enter_context(
            subprocess.Popen(
                [kubectl, "proxy", f"--kubeconfig={member}", "--port=0"], stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(proxy.terminate)
        found = re.search(r"127\.0\.0\.1:\d+", proxy.stdout.readline() if proxy.stdout else "")
        if not found:
            raise SystemExit("kubectl proxy did not start")
        addresses = {name: f"https://127.0.0.1:{each.getsockname()[1]}" for name, each in
                     {"full": full, "silent": silent}.items()}  # fmt: skip
        yield {**addresses, "proxied": f"http://{found.group()}"}


def kubeconfig(place: Place, wanted: Mapping[str, str]) -> dict[str, Any]:
    """The kubeconfig of a cluster (``of``), spoilt as the other keys say."""
    good = _kubeconfig_of(place, wanted["of"])
    cluster, user = good["clusters"][0]["cluster"], good["users"][0]["user"]
    if "server" in wanted:
        cluster["server"] = place.servers[wanted["server"]]
    if "port" in wanted:
        cluster["server"] = f"https://{urlsplit(cluster['server']).hostname}:{wanted['port']}"
    if "ca_of" in wanted:
        other = _kubeconfig_of(place, wanted["ca_of"])["clusters"][0]["cluster"]
        cluster["certificate-authority-data"] = other["certificate-authority-data"]
    if "account" in wanted:
        namespace, account = wanted["account"].split("/")
        command = [place.kubectl, f"--kubeconfig={place.site}/secrets/{wanted['of']}/kubeconfig", "create", "token",
                   account, f"--namespace={namespace}", "--duration=1h"]  # fmt: skip
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        user.clear()
        user["token"] = done.stdout.strip()
    if "token" in wanted:
        user.clear()
        user["token"] = wanted["token"]
    return good


def _kubeconfig_of(place: Place, cluster: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place.site / "secrets" / cluster / "kubeconfig").read_text())
    return found


def write(folder: Path, case: Mapping[str, Any], secrets: Path) -> None:
    """The site folder of a case."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "secrets").symlink_to(secrets)
    document = case.get("document", {})
    if isinstance(document, Mapping):
        good = yaml.safe_load((HERE / "karmada.yaml").read_text())
        document = yaml.safe_dump(laid_over(good, copy.deepcopy(document)), sort_keys=False)
    if document is not None:
        (folder / "karmada.yaml").write_text(document.replace("@", str(folder)))
    source = {"plugin": "karmada.installer.karmada", "manifest": "karmada.yaml", "secrets": "./secrets"}
    source = laid_over(source, case.get("source", {}))
    (folder / "site.karmada.yml").write_text(yaml.safe_dump(source))
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text.replace("@", str(folder)))


def words_of(place: Place, case: Mapping[str, Any]) -> list[str]:
    """The command of a case."""
    if "lab" in case:
        return [word if word != "LAB" else place.lab for word in shlex.split(case["lab"])]
    inventory = case.get("inventory", ["site.karmada.yml"])
    sources = [word for source in inventory for word in ("-i", source)]
    verb = f"karmada.installer.{case.get('verb', 'install')}"
    return ["ansible-playbook", *sources, verb, *case.get("options", [])]


def run(place: Place, artifacts: str, name: str, case: Mapping[str, Any]) -> tuple[str, list[str]]:
    """One line about a case, and what is wrong with how it ended."""
    folder = place.site / "cases" / re.sub(r"[^a-z0-9]+", "-", name.lower())
    write(folder, {**case, "source": {"artifacts": artifacts, **case.get("source", {})}}, place.site / "secrets")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("K8S_", "KUBECONFIG"))}
    environment["KARMADA_LAB_STATE"] = str(folder / "lab")
    within = case.get("within", WITHIN_SECONDS)
    begin = time.monotonic()
    try:
        done = subprocess.run(
            words_of(place, case),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within,
            check=False,
        )
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, output = 0, (error.stdout or b"").decode() + f"\nnot ended after {within} s"
    seconds = time.monotonic() - begin
    place.logs.mkdir(parents=True, exist_ok=True)
    (place.logs / f"{folder.name}.log").write_text(output)
    # Wherever a line was folded for a screen, it still says the same.
    said = " ".join(output.split())
    expected = [" ".join(part.split()).replace("@", str(folder)) for part in case["says"]]
    wrong = ["ended with 0"] if code == 0 else []
    wrong += [f"does not say: {part}" for part in expected if part not in said]
    wrong += ["shows a traceback"] if TRACEBACK.search(output) else []
    wrong += [f"{made} exists" for made in case.get("never_makes", []) if (folder / made).exists()]
    return f"{'not as it should be' if wrong else 'ok'}  {seconds:4.1f} s  {name}", wrong


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("site", "logs"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("lab", "kubectl"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--case", action="append", default=[])
    return parser.parse_args()


def main() -> int:
    """Run the cases, a few at once because most of them wait for Python to start."""
    options = _options()
    table = yaml.safe_load((HERE / "cases.yaml").read_text())
    wanted = {name: case for name, case in table["cases"].items() if not options.case or name in options.case}
    artifacts = subprocess.run([options.lab, "artifacts", "dir"], check=True, stdout=subprocess.PIPE, text=True).stdout
    member = options.site / "secrets" / "member1" / "kubeconfig"
    with odd_servers(options.kubectl, member) as servers, ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        place = Place(options.site, options.logs, options.lab, options.kubectl, servers)
        for name, spoilt in table["kubeconfigs"].items():
            file = place.site / "secrets" / name / "kubeconfig"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(kubeconfig(place, spoilt)))
        results = list(pool.map(lambda each: run(place, artifacts.strip(), *each), wanted.items()))
    for line, wrong in results:
        print("\n    ".join([line, *wrong]))
    broken = sum(bool(wrong) for _line, wrong in results)
    print(f"{len(results)} cases, {broken} not as they should be; their output is in {options.logs}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
