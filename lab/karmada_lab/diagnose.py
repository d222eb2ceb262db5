# SPDX-License-Identifier: Apache-2.0
"""Diagnosis after something went wrong, in a folder that may be shown to others: secrets are taken out."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from karmada_lab import cluster, lifecycle, machine
from karmada_lab.cluster import Settings
from karmada_lab.errors import LabError
from karmada_lab.shell import run, say
from karmada_lab.state import Lab, cluster_records, machine_records, write_text

_REDACTED = "REDACTED"

_NOT_DUMPED = {"events", "events.events.k8s.io", "nodes.metrics.k8s.io", "pods.metrics.k8s.io"}

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_BASE64_PRIVATE_KEY = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]*")
_TOKEN = re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+")
#: A value is a word: what else JSON has after a colon stays, so that it can be read as JSON.
_FIELD = re.compile(
    r'("?(?:client-key-data|token|password|certificate-key)"?\s*[:=]\s*"?)(?!(?:true|false|null)\b)[^"\s,{}\[\]]+',
    re.IGNORECASE,
)


def redact_text(text: str) -> str:
    """The text without private keys (PEM, also in base64), bearer tokens and values of fields that hold secrets."""
    text = _PRIVATE_KEY.sub(_REDACTED, text)
    text = _BASE64_PRIVATE_KEY.sub(_redact_base64, text)
    text = _TOKEN.sub(_REDACTED, text)
    return _FIELD.sub(rf"\g<1>{_REDACTED}", text)


def _redact_base64(found: re.Match[str]) -> str:
    # Certificates begin alike and are worth reading; "PRIVATE KEY" shows within the first characters.
    head = base64.b64decode(found.group()[:60] + "=" * (-len(found.group()[:60]) % 4), validate=False)
    return _REDACTED if b"PRIVATE" in head else found.group()


def redact_object(value: Any) -> Any:
    """A Kubernetes object or list with the data of Secrets taken out (keys stay) and texts redacted."""
    if isinstance(value, list):
        return [redact_object(item) for item in value]
    if isinstance(value, str):
        return redact_text(value)
    if not isinstance(value, dict):
        return value
    result = {key: redact_object(item) for key, item in value.items()}
    if value.get("kind") == "Secret":
        for key in ("data", "stringData"):
            if isinstance(value.get(key), dict):
                result[key] = dict.fromkeys(value[key], _REDACTED)
        annotations = result.get("metadata", {}).get("annotations", {})
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return result


def dump(lab: Lab, settings: Settings, folder: Path) -> None:
    """Write diagnostics of everything that is up into the folder. What cannot be had is noted, never fatal."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "status.json", json.dumps(lifecycle.status(lab), indent=2))
    _write(folder / "machine.txt", _local(["uname", "-a"], ["ip", "addr"], ["ip", "netns"], ["nft", "list", "ruleset"],
                                          ["free", "-m"], ["df", "-h"], ["uptime"]))  # fmt: skip
    for name, record in machine_records(lab).items():
        place = folder / "machines" / name
        console = machine.folder(lab, name) / "console.log"
        if console.exists():
            _write(place / "console.log", console.read_text(errors="replace"))
        for file, command in {
            "journal.txt": ["journalctl", "--no-pager", "-n", "5000"],
            "units.txt": ["systemctl", "--no-pager", "list-units", "--all"],
            "processes.txt": ["ps", "auxww"],
            "network.txt": ["sh", "-c", "ip addr; ip route; nft list ruleset"],
            "programs.txt": ["sh", "-c", "ls -l /usr/local/lib/karmada/*"],
        }.items():
            _write(place / file, machine.execute(record, command, check=False).stdout)
        # Each on its own: among all others, the few lines of one are lost in the audit log of an API server.
        ours = machine.execute(record, ["sh", "-c", "cd /etc/systemd/system && ls karmada-*.service"], check=False)
        for unit in ours.stdout.split():
            log = ["journalctl", "--no-pager", "-n", "2000", "-u", unit]
            _write(place / "units" / f"{unit}.log", machine.execute(record, log, check=False).stdout)
    for name, cluster_record in cluster_records(lab).items():
        if cluster_record.ready:
            try:
                _dump_cluster(lab, settings, name, folder / "clusters" / name)
            except LabError as error:
                _write(folder / "clusters" / name / "error.txt", str(error))
    say(f"ok  diagnostics in {folder}")


def _dump_cluster(lab: Lab, settings: Settings, name: str, folder: Path) -> None:
    def ask(*words: str) -> str:
        return cluster.kubectl(lab, settings, name, "--request-timeout=20s", *words, check=False)

    _write(folder / "version.txt", ask("version", "-o", "json"))
    _write(folder / "events.txt", ask("get", "events", "-A", "--sort-by=.lastTimestamp"))
    _write(folder / "pods.txt", ask("get", "pods", "-A", "-o", "wide"))
    # One question for everything: each start of kubectl costs processor time that the sick cluster may need.
    listable = [name for name in ask("api-resources", "--verbs=list", "-o", "name").split() if name not in _NOT_DUMPED]
    by_kind: dict[str, list[Any]] = {}
    for item in json.loads(ask("get", ",".join(listable), "-A", "-o", "json") or "{}").get("items", []):
        by_kind.setdefault(item["kind"], []).append(redact_object(item))
    for kind, items in by_kind.items():
        _write(folder / "objects" / f"{kind}.json", json.dumps(items, indent=1))
    pods = json.loads(ask("get", "pods", "-A", "-o", "json") or "{}")
    for pod in pods.get("items", []):
        namespace, pod_name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
            words = ["logs", "-n", namespace, pod_name, "-c", container["name"], "--tail=3000"]
            base = folder / "logs" / f"{namespace}_{pod_name}_{container['name']}"
            _write(base.with_name(base.name + ".log"), ask(*words))
            if any(state.get("restartCount") for state in pod["status"].get("containerStatuses", [])):
                _write(base.with_name(base.name + ".previous.log"), ask(*words, "--previous"))


def _local(*commands: list[str]) -> str:
    return "".join(f"# {' '.join(command)}\n{run(command, check=False).stdout}\n" for command in commands)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, redact_text(text))
