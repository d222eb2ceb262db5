# SPDX-License-Identifier: Apache-2.0
"""The two that are compared, each with the same verbs, run as a user runs them."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from karmada_bench.clusters import HOST, KARMADA, MEMBER, NAMESPACE, ROOT, Clusters
from karmada_bench.command import Ran, Runner
from karmada_bench.figures import Side

COLLECTION = "karmada.installer"


class Contender(ABC):
    """Installs, joins and removes. ``folder`` holds what it works with; ``begin`` makes it anew."""

    side: ClassVar[Side]

    def __init__(self, clusters: Clusters, runner: Runner, folder: Path) -> None:
        self.clusters, self.runner, self.folder = clusters, runner, folder
        self._given: set[Path] = set()

    def begin(self) -> None:
        """A folder with what a user would have before the first command."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True)
        self._prepare()
        self._given = set(self._files())

    def files_left(self) -> list[str]:
        """Files that are in the folder and were not there before the first command."""
        return sorted(str(each.relative_to(self.folder)) for each in self._files() - self._given)

    def _files(self) -> set[Path]:
        return {each for each in self.folder.rglob("*") if each.is_file()}

    @property
    @abstractmethod
    def control_plane(self) -> Path:
        """The administrator's kubeconfig, once there is one."""

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def install(self, name: str) -> Ran:
        """Install; ``name`` is that of the log, as in all of these."""

    @abstractmethod
    def join(self, name: str) -> Ran:
        """Join the member; it may take until it is Ready, or not."""

    @abstractmethod
    def uninstall(self, name: str) -> Ran:
        """Let the member leave and remove the control plane; its namespace may be gone by then, or not."""

    @abstractmethod
    def help(self, name: str) -> Ran:
        """Ask the command what it understands."""


class Ours(Contender):
    """This collection, from the checkout."""

    side = "ours"

    @property
    def control_plane(self) -> Path:
        """See Contender."""
        return self.folder / "karmada.kubeconfig"

    @property
    def _times(self) -> Path:
        return self.folder.parent / "task-times.jsonl"

    def _prepare(self) -> None:
        for name in (HOST, MEMBER):
            secret = self.folder / "secrets" / name
            secret.mkdir(mode=0o700, parents=True)
            shutil.copy(self.clusters.kubeconfig(name), secret / "kubeconfig")
        source = {
            "plugin": f"{COLLECTION}.karmada",
            "manifest": "karmada.yaml",
            "secrets": "./secrets",
            "artifacts": str(self.clusters.artifacts),
        }
        self._write("site.karmada.yml", source)
        self.write_document()

    def write_document(self, *, members: Sequence[str] = (), volume: bool = False) -> None:
        """The document: with these members, with etcd on a volume claim or in its pod."""
        data = {"volumeClaim": {"size": "5Gi"}} if volume else {"emptyDir": {}}
        spec: dict[str, Any] = {
            "version": KARMADA,
            "hostCluster": {"secretRef": {"name": HOST}},
            "endpoint": {"type": "NodePort"},
            "components": {"etcd": {"local": {"replicas": 1, "volumeData": data}}},
        }
        if members:
            spec["members"] = [{"name": name, "secretRef": {"name": name}} for name in members]
        document = {
            "apiVersion": "installer.karmada.io/v1alpha1",
            "kind": "KarmadaDeployment",
            "metadata": {"name": "karmada", "namespace": NAMESPACE},
            "spec": spec,
        }
        self._write("karmada.yaml", document)

    def _write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content))

    def install(self, name: str) -> Ran:
        """See Contender."""
        return self._playbook(name, "install")

    def join(self, name: str) -> Ran:
        """The document lists one member more."""
        self.write_document(members=[MEMBER])
        return self._playbook(name, "members")

    def uninstall(self, name: str) -> Ran:
        """See Contender."""
        return self._playbook(name, "uninstall", "-e", "karmada_confirm=karmada")

    def help(self, name: str) -> Ran:
        """See Contender."""
        return self.runner.run(name, ["ansible-playbook", "--help"], settings=self._settings())

    def list_inventory(self, name: str) -> Ran:
        """Inventory that the document becomes."""
        command = ["ansible-inventory", "-i", str(self.folder / "site.karmada.yml"), "--list"]
        return self.runner.run(name, command, settings=self._settings())

    def tasks(self) -> list[dict[str, Any]]:
        """Durations of the tasks of the last playbook."""
        return [json.loads(line) for line in self._times.read_text().splitlines()]

    def _playbook(
        self, name: str, verb: str, *options: str, prefix: Sequence[str] = (), codes: Sequence[int] = (0,)
    ) -> Ran:
        """``prefix`` is a command that runs the playbook; ``codes`` are the exit codes that are right."""
        self._times.unlink(missing_ok=True)
        playbook = ["ansible-playbook", "-i", str(self.folder / "site.karmada.yml"), f"{COLLECTION}.{verb}", *options]
        return self.runner.run(name, [*prefix, *playbook], codes=codes, settings=self._settings())

    def _settings(self) -> dict[str, str]:
        return {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_HOME": str(self.folder.parent / "ansible"),
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "bench/plugins/callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "task_times",
            "BENCH_TASK_TIMES": str(self._times),
            # As for a user, whatever a developer's shell has: what Python has compiled once is kept.
            "PYTHONDONTWRITEBYTECODE": "",
            "PATH": f"{Path(sys.executable).parent}:{self.runner.environment['PATH']}",
        }


class Karmadactl(Contender):
    """Karmada's own command line, of the same release."""

    side = "peer"

    @property
    def data(self) -> Path:
        """Folder with its keys, certificates and kubeconfig."""
        return self.folder / "data"

    @property
    def control_plane(self) -> Path:
        """See Contender."""
        return self.data / "karmada-apiserver.config"

    @property
    def _host(self) -> list[str]:
        return [f"--kubeconfig={self.clusters.kubeconfig(HOST)}", f"--context={HOST}", f"--namespace={NAMESPACE}"]

    def _prepare(self) -> None:
        with tarfile.open(self.folder / "crds.tar.gz", "w:gz") as archive:
            archive.add(self.clusters.artifacts / "karmada" / KARMADA / "crds", "crds")

    def install(self, name: str) -> Ran:
        """See Contender."""
        apiserver = self.clusters.image("/kube-apiserver:")
        # Every component has one replica unless it is told otherwise; the images are those of its registries.
        return self._run(
            name,
            "init",
            *self._host,
            f"--crds={self.folder / 'crds.tar.gz'}",
            f"--etcd-image={self.clusters.image('/etcd:')}",
            "--etcd-storage-mode=emptyDir",
            f"--kube-image-tag={apiserver.rpartition(':')[2]}",
            f"--karmada-data={self.data}",
            f"--karmada-pki={self.data / 'pki'}",
            "--wait-component-ready-timeout=300",
            codes=None if name.endswith("again") else (0,),
        )

    def join(self, name: str) -> Ran:
        """See Contender."""
        return self._run(
            name,
            "join",
            MEMBER,
            f"--kubeconfig={self.control_plane}",
            f"--cluster-kubeconfig={self.clusters.kubeconfig(MEMBER)}",
            f"--cluster-context={MEMBER}",
        )

    def uninstall(self, name: str) -> Ran:
        """See Contender. The member leaves first, or what joining put there would stay."""
        left = self._run(
            f"{name}-unjoin",
            "unjoin",
            MEMBER,
            f"--kubeconfig={self.control_plane}",
            f"--cluster-kubeconfig={self.clusters.kubeconfig(MEMBER)}",
            f"--cluster-context={MEMBER}",
        )
        return left.then(self._run(name, "deinit", *self._host, "--purge-namespace", "--force"))

    def help(self, name: str) -> Ran:
        """See Contender."""
        return self._run(name, "--help")

    def _run(self, name: str, *arguments: str, codes: tuple[int, ...] | None = (0,)) -> Ran:
        return self.runner.run(name, [self.clusters.karmadactl, *arguments], codes=codes)
