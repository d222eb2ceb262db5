# SPDX-License-Identifier: Apache-2.0
"""Snapshot of some clusters, as a file: to see what an uninstall left behind, and whether two installs came out alike.

    snapshot.py take FILE --cluster NAME=KUBECONFIG... [--structure [--rollouts-aside]]
    snapshot.py diff BEFORE AFTER
    snapshot.py settle BEFORE AFTER --cluster NAME=KUBECONFIG... [--structure [--rollouts-aside]] [--within SECONDS]
    snapshot.py keys FILE --cluster NAME=KUBECONFIG --namespace NAMESPACE
    snapshot.py kept BEFORE AFTER [--made-anew=SECRET/KEY]...

``take`` writes every object of every kind that can be listed, without what changes by itself; ``--structure`` also
takes out what differs between two installs of the same document, with ``--rollouts-aside`` also what a rollout leaves
behind: pods, their ReplicaSets and revisions. ``settle`` takes snapshots until one equals BEFORE,
because volumes are removed some time after their claims. ``keys`` and ``kept`` are about keys and certificates: what
was there BEFORE must be there AFTER, unchanged, but for those that have to be made anew. Values of Secrets are in no
file, only their hashes. Exit code 1: there are differences.
"""

from __future__ import annotations

import argparse
import base64
import copy
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Object = dict[str, Any]
#: cluster → name of the object → the object
Snapshot = dict[str, dict[str, Object]]

#: Kinds that come and go by themselves: news, addresses of pods, requests that their signer removes after an hour.
NOISE = frozenset({"Event", "Endpoints", "EndpointSlice", "ComponentStatus", "CertificateSigningRequest"})
#: Also not of the structure: one for each address.
NOISE_IN_STRUCTURE = frozenset({"IPAddress"})
#: What a rollout makes and leaves.
ROLLOUTS = frozenset({"Pod", "ReplicaSet", "ControllerRevision", "PodMetrics"})
_ROLLOUT_NUMBER = "deployment.kubernetes.io/revision"
#: The label of the Lease by which an API server says that it is there; it makes another one when it was away.
_IDENTITY = "apiserver.kubernetes.io/identity"
_VOLATILE = ("resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
_PARTS = {"run", "started", "finished"}  # of the journal: which process it was, and when
_KEYS = {"encryptionKey", "token"}
_BY_CHANCE = {"uid", "resourceVersion", "clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"}
_HASHES = re.compile(r"(hash|last-used)$")
_PATTERNS = [
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n?", re.DOTALL), "<pem>"),
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+"), "<pem>"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])"), "<uid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "<hash>"),
    (re.compile(r"\bkube-api-access-[a-z0-9]{5}\b"), "kube-api-access-<chance>"),
    (re.compile(r":3[0-2]\d{3}\b"), ":<node port>"),
]


#: How long what an earlier scenario deleted may take to be gone; a pod has 30 s to end.
SECONDS_TO_GO = 90.0


def exact(each: Object) -> Object:
    """An object as it was written: no status, no bookkeeping, no values of Secrets."""
    found = copy.deepcopy(each)
    found.pop("status", None)
    for name in _VOLATILE:
        found["metadata"].pop(name, None)
    if found["kind"] == "Lease":
        found.pop("spec", None)
        if _IDENTITY in (found["metadata"].get("labels") or {}):
            found["metadata"].pop("uid", None)
    if found["kind"] == "Secret":
        for part in ("data", "stringData"):
            found[part] = {key: hash_of(value) for key, value in (found.get(part) or {}).items()}
    return found


def structure(each: Object) -> Object:
    """An object without what is different in each install: keys, hashes, UIDs, names and addresses given by chance."""
    found = copy.deepcopy(each)
    if found["kind"] == "Secret":
        found["data"] = {key: _secret_part(key, value) for key, value in (found.get("data") or {}).items()}
        plain = found.pop("data")
        found = exact(found)
        found["data"] = plain
    else:
        found = exact(found)
    text = json.dumps(found)
    for chance in _names_by_chance(each):
        text = text.replace(*chance)
    result: Object = _without_chance(json.loads(text))
    return result


def _secret_part(key: str, value: str) -> Any:
    """Part of a Secret's value that can be compared: its shape where it is JSON."""
    if not key.endswith(".json"):
        return "<secret>"
    content = json.loads(base64.b64decode(value))
    if isinstance(content, dict):
        # etcd derives the ID of its cluster and those of the first members from a token, which is made up.
        etcd = content.get("etcd", {})
        etcd |= {"cluster": "<id>"} if etcd.get("cluster") else {}
        for member in etcd.get("members", []):
            member["id"] = "<id>" if member.get("id") else ""
    return (
        {name: part for name, part in content.items() if name not in _PARTS} if isinstance(content, dict) else content
    )


def _names_by_chance(each: Object) -> Iterator[tuple[str, str]]:
    """Parts of names that a controller of the cluster made up, and what stands for them."""
    metadata = each["metadata"]
    name, labels = metadata["name"], metadata.get("labels") or {}
    owners = {owner["kind"] for owner in metadata.get("ownerReferences") or []}
    if each["kind"] == "Pod" and owners & {"ReplicaSet", "DaemonSet", "Job"}:
        yield name, f"{name.rpartition('-')[0]}-<chance>"
    if each["kind"] == "Lease" and _IDENTITY in labels:
        yield name, "apiserver-<chance>"
        if labels.get("kubernetes.io/hostname"):
            yield labels["kubernetes.io/hostname"], "<pod>"
    for label in ("pod-template-hash", "controller.kubernetes.io/hash", "controller-revision-hash"):
        if labels.get(label):
            yield labels[label].rpartition("-")[2], "<hash>"


def _without_chance(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {_plain(name): _without_chance(part, name) for name, part in value.items()}
    if key in _BY_CHANCE or key in _KEYS or (_HASHES.search(key) and value):
        return f"<{key}>"
    if isinstance(value, list):
        return [_without_chance(part) for part in value]
    return _plain(value) if isinstance(value, str) else value


def _plain(text: str) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def hash_of(value: str) -> str:
    """A value that can be compared and not read."""
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"


def name_of(each: Object) -> str:
    """Kind, group, namespace and name."""
    group = each["apiVersion"].rpartition("/")[0]
    metadata = each["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{each['kind']}{'.' if group else ''}{group} {place}{metadata['name']}"


def collect(objects: list[Object], *, by_structure: bool, rollouts: bool = True) -> dict[str, Object]:
    """Name → object. Objects whose names become the same are numbered in an order that does not depend on chance."""
    noise = NOISE | NOISE_IN_STRUCTURE if by_structure else NOISE
    if not rollouts:
        noise |= ROLLOUTS
        for each in objects:
            (each["metadata"].get("annotations") or {}).pop(_ROLLOUT_NUMBER, None)
    found: dict[str, Object] = {}
    shown = [structure(each) if by_structure else exact(each) for each in objects if each["kind"] not in noise]
    for each in sorted(shown, key=lambda item: json.dumps(item, sort_keys=True)):
        name, number = name_of(each), 1
        while (numbered := name if number == 1 else f"{name} #{number}") in found:
            number += 1
        found[numbered] = each
    return found


def differences(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """One line for each object that came, went or changed; for a changed one what changed in it."""
    for cluster in sorted({*before, *after}):
        old, new = before.get(cluster, {}), after.get(cluster, {})
        for name in sorted({*old, *new}):
            if name not in new:
                yield f"- {cluster}: {name}"
            elif name not in old:
                yield f"+ {cluster}: {name}"
            else:
                yield from (f"~ {cluster}: {name}: {line}" for line in _changed(old[name], new[name], ""))


def _changed(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _changed(old.get(key), new.get(key), f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _changed(one, other, f"{where}[{index}]")
    elif old != new:
        yield f"{where.removeprefix('.')}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def secret_keys(secrets: list[Object]) -> dict[str, str]:
    """Secret and key → hash, of everything that has to outlive an interruption: keys, certificates, identities."""
    found = {}
    for each in secrets:
        name = each["metadata"]["name"]
        for key, value in (each.get("data") or {}).items():
            if key == "instance.json":
                content = json.loads(base64.b64decode(value))
                found[f"{name}/owner"] = hash_of(content["owner"])
                found[f"{name}/encryptionKey"] = hash_of(content["encryptionKey"])
                found[f"{name}/etcd.token"] = hash_of(content["etcd"]["token"])
            elif not key.endswith((".json", ".json.gz")):
                found[f"{name}/{key}"] = hash_of(value)
    return found


def lost(before: Mapping[str, str], after: Mapping[str, str], made_anew: Sequence[str] = ()) -> list[str]:
    """Keys and certificates that are gone or not the same any more, or the same although they had to be made anew."""
    changed = [
        f"{'changed' if name in after else 'gone'}: {name}"
        for name, value in sorted(before.items())
        if after.get(name) != value and not (name in made_anew and name in after)
    ]
    return changed + [f"not made anew: {name}" for name in made_anew if before.get(name) == after.get(name)]


def kubectl(kubeconfig: str, *arguments: str) -> str:
    """The answer to one command; ends the program with kubectl's own message when it fails."""
    # Another program's environment would choose another cluster; its cache of discovery may be of an earlier cluster.
    command = [os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={kubeconfig}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def objects_in(kubeconfig: str) -> list[Object]:
    """Every object that can be listed, of every kind there is now."""
    names = kubectl(kubeconfig, "api-resources", "--verbs=list", "--output=name", "--cached=false").split()
    wanted = [name for name in names if not name.startswith(("events", "endpoints", "componentstatuses"))]
    answer: dict[str, Any] = json.loads(
        kubectl(kubeconfig, "get", ",".join(wanted), "--all-namespaces", "--output=json", "--ignore-not-found") or "{}"
    )
    items: list[Object] = answer.get("items", [])
    return items


def take(clusters: Mapping[str, str], *, by_structure: bool, rollouts: bool = True) -> Snapshot:
    """A snapshot of all these clusters, each read at the same time as the others."""
    with ThreadPoolExecutor(max_workers=len(clusters)) as pool:
        found = pool.map(
            lambda kubeconfig: collect(objects_in(kubeconfig), by_structure=by_structure, rollouts=rollouts),
            clusters.values(),
        )
        return dict(zip(clusters, found, strict=True))


def going(clusters: Mapping[str, str]) -> list[str]:
    """Objects that are being deleted at this moment; a snapshot with it in would ask for its return."""
    return [
        f"{name}: {name_of(each)}"
        for name, kubeconfig in clusters.items()
        for each in objects_in(kubeconfig)
        if each["metadata"].get("deletionTimestamp")
    ]


def wait_until_gone(clusters: Mapping[str, str], within: float) -> None:
    """Wait until nothing is being deleted; ends the program when something still is after ``within`` seconds."""
    deadline = time.monotonic() + within
    while left := going(clusters):
        if time.monotonic() > deadline:
            raise SystemExit("still being deleted: " + ", ".join(left))
        time.sleep(2)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def _report(lines: list[str], same: str) -> int:
    print("\n".join(lines) if lines else same)
    return 1 if lines else 0


def settle(
    before: Snapshot,
    file: Path,
    clusters: Mapping[str, str],
    within: float,
    *,
    by_structure: bool,
    rollouts: bool = True,
) -> list[str]:
    """The differences that remain after at most ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        now = take(clusters, by_structure=by_structure, rollouts=rollouts)
        _write(file, now)
        remaining = list(differences(before, now))
        if not remaining or time.monotonic() > deadline:
            return remaining
        time.sleep(2)


def _cluster(text: str) -> tuple[str, str]:
    name, separator, kubeconfig = text.partition("=")
    if not separator or not Path(kubeconfig).is_file():
        raise argparse.ArgumentTypeError(f"{text} is not NAME=KUBECONFIG with a file that is there")
    return name, kubeconfig


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True)
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--cluster", action="append", type=_cluster, required=True, metavar="NAME=KUBECONFIG")
    for name, parents in (("take", [where]), ("keys", [where])):
        one = commands.add_parser(name, parents=parents)
        one.add_argument("file", type=Path)
        if name == "take":
            one.add_argument("--structure", action="store_true")
            one.add_argument("--rollouts-aside", action="store_true")
        if name == "keys":
            one.add_argument("--namespace", required=True)
    for name, parents in (("diff", []), ("settle", [where]), ("kept", [])):
        one = commands.add_parser(name, parents=parents)
        one.add_argument("before", type=Path)
        one.add_argument("after", type=Path)
        if name == "kept":
            one.add_argument("--made-anew", action="append", default=[], metavar="SECRET/KEY")
        if name == "settle":
            one.add_argument("--structure", action="store_true")
            one.add_argument("--rollouts-aside", action="store_true")
            one.add_argument("--within", type=float, default=60, metavar="SECONDS")
    return top


def main() -> int:
    """Run one command."""
    options = _parser().parse_args()
    if options.command == "take":
        wait_until_gone(dict(options.cluster), SECONDS_TO_GO)
        found = take(dict(options.cluster), by_structure=options.structure, rollouts=not options.rollouts_aside)
        _write(options.file, found)
        print(f"{sum(len(each) for each in found.values())} objects of {', '.join(found)} in {options.file}")
        return 0
    if options.command == "keys":
        [(_name, kubeconfig)] = options.cluster
        answer = kubectl(kubeconfig, "get", "secrets", "--namespace", options.namespace, "--output=json")
        keys = secret_keys(json.loads(answer)["items"])
        _write(options.file, keys)
        print(f"{len(keys)} keys and certificates noted in {options.file}")
        return 0
    before, after = _read(options.before), options.after
    if options.command == "settle":
        remaining = settle(
            before,
            after,
            dict(options.cluster),
            options.within,
            by_structure=options.structure,
            rollouts=not options.rollouts_aside,
        )
        return _report(remaining, "No difference.")
    if options.command == "kept":
        missing = lost(before, _read(after), options.made_anew)
        return _report(missing, f"All {len(before) - len(options.made_anew)} keys and certificates are the same.")
    return _report(list(differences(before, _read(after))), "No difference.")


if __name__ == "__main__":
    sys.exit(main())
