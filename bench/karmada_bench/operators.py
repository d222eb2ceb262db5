# SPDX-License-Identifier: Apache-2.0
"""Two operators that are compared: ours and Karmada's own, each asked for a control plane by an object.

Both run in pods of the host cluster, in a namespace of their own, with all images loaded, and are up before anything is
measured. Their objects ask for the same: one replica of each component, etcd in its pod, the API server at a port of
the node.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import sys
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from karmada_bench.clusters import HOST, KARMADA, NAMESPACE, ROOT, Clusters
from karmada_bench.command import BenchError, Ran, Runner
from karmada_bench.figures import Side

#: Namespace of an operator, beside that of the control plane.
OPERATORS = "operators"
IMAGE = "docker.io/library/karmada-installer-operator"
RELEASE = "karmada-installer"
#: What Karmada's operator is in a cluster, as the scenario with other installers has it.
OF_OTHERS = ROOT / "molecule/other_installers"


class Operator(ABC):
    """An operator with one object. ``folder`` holds what it works with."""

    side: ClassVar[Side]
    #: The object, as kubectl names it.
    object: ClassVar[str]
    #: Definitions and rights of the whole cluster that ``take_down`` removes, as kubectl names them.
    of_cluster: ClassVar[tuple[str, ...]]

    def __init__(self, clusters: Clusters, runner: Runner, folder: Path) -> None:
        self.clusters, self.runner, self.folder = clusters, runner, folder

    @property
    def control_plane(self) -> Path:
        """The administrator's kubeconfig, once ``fetch`` has written it."""
        return self.folder / "control-plane.kubeconfig"

    def set_up(self, name: str) -> None:
        """Bring the operator up, and wait until it runs; ``name`` begins those of the logs."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True)
        for each in (OPERATORS, NAMESPACE):
            self.kubectl(f"{name}-namespace-{each}", "create", "namespace", each)
        self._set_up(name)
        (self.folder / "object.yaml").write_text(yaml.safe_dump(self._object()))

    def create(self, name: str) -> Ran:
        """Apply the object, and wait until it says that it is Ready."""
        apply = self._command("apply", f"--filename={self.folder / 'object.yaml'}")
        wait = self._command(*self._of_object("wait"), "--for=condition=Ready", "--timeout=600s")
        return self.runner.run(name, ["sh", "-ec", f"{shlex.join(apply)}\n{shlex.join(wait)}"])

    def fetch(self, name: str) -> None:
        """Write the administrator's kubeconfig, which is in the Secret that the status names."""
        found = json.loads(self.kubectl(name, *self._of_object("get"), "--output=json").output)
        secret = found["status"]["secretRef"]["name"]
        data = json.loads(
            self.kubectl(f"{name}-secret", "get", "secret", secret, f"--namespace={NAMESPACE}", "--output=json").output
        )["data"]
        if len(data) != 1:
            raise BenchError(f"Secret {secret} has {len(data)} keys; one is a kubeconfig")
        self.control_plane.touch(mode=0o600)
        self.control_plane.write_bytes(base64.b64decode(next(iter(data.values()))))

    def remove(self, name: str) -> Ran:
        """Delete the object, and wait until it is gone."""
        return self.kubectl(name, *self._of_object("delete"), "--timeout=600s")

    def left(self, name: str) -> list[str]:
        """Names of objects of the control plane that are left when its object is gone."""
        kinds = "deployments,statefulsets,services,secrets,configmaps,persistentvolumeclaims"
        done = self.kubectl(name, "get", kinds, f"--namespace={NAMESPACE}", "--output=name")
        return [each for each in done.output.split() if each != "configmap/kube-root-ca.crt"]

    def take_down(self, name: str) -> None:
        """Remove the operator, its definitions and both namespaces."""
        self._take_down(name)
        self.kubectl(f"{name}-definitions", "delete", "--ignore-not-found", "--timeout=180s", *self.of_cluster)
        namespaces = (f"namespace/{each}" for each in (OPERATORS, NAMESPACE))
        self.kubectl(f"{name}-namespaces", "delete", "--ignore-not-found", "--timeout=180s", *namespaces)

    def kubectl(self, name: str, *arguments: str) -> Ran:
        """Run it for the host cluster; ``name`` is that of the log."""
        return self.runner.run(name, self._command(*arguments))

    def _command(self, *arguments: str) -> list[str]:
        return [self.clusters.kubectl, f"--kubeconfig={self.clusters.kubeconfig(HOST)}", *arguments]

    def _of_object(self, verb: str) -> Iterable[str]:
        return verb, self.object, f"--namespace={NAMESPACE}"

    @abstractmethod
    def _object(self) -> dict[str, Any]: ...

    @abstractmethod
    def _set_up(self, name: str) -> None: ...

    @abstractmethod
    def _take_down(self, name: str) -> None: ...


class OurOperator(Operator):
    """The operator of this collection, from its chart."""

    side = "ours"
    object = "karmadadeployment/karmada"
    of_cluster = tuple(
        f"customresourcedefinition/{each}.installer.karmada.io"
        for each in ("karmadadeployments", "etcdbackups", "etcdrestores")
    )

    def _object(self) -> dict[str, Any]:
        return {
            "apiVersion": "installer.karmada.io/v1alpha1",
            "kind": "KarmadaDeployment",
            "metadata": {"name": "karmada", "namespace": NAMESPACE},
            "spec": {
                "version": KARMADA,
                "endpoint": {"type": "NodePort"},
                "components": {"etcd": {"local": {"replicas": 1, "volumeData": {"emptyDir": {}}}}},
            },
        }

    def _set_up(self, name: str) -> None:
        maker = ROOT / "molecule/operator_in_pods/image.py"
        command = [sys.executable, str(maker), f"--artifacts={self.clusters.artifacts}", f"{IMAGE}:0.1.0"]
        made = self.runner.run(f"{name}-image", command, settings=self.clusters.settings)
        archive = made.output.strip().splitlines()[-1]
        self.clusters.lab("exec", HOST, "--", "ctr", "--namespace", "k8s.io", "images", "import", archive)
        values = {
            "image": {"repository": IMAGE, "pullPolicy": "Never"},
            "namespaces": [NAMESPACE],
            "artifacts": "/opt/artifacts",
        }
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values))
        options = [f"--values={self.folder / 'values.yaml'}", "--wait", "--timeout=5m"]
        self._helm(f"{name}-chart", "install", RELEASE, str(ROOT / "operator/chart"), *options)

    def _take_down(self, name: str) -> None:
        self._helm(f"{name}-chart", "uninstall", RELEASE, "--wait")

    def _helm(self, name: str, *arguments: str) -> None:
        where = [f"--namespace={OPERATORS}", f"--kubeconfig={self.clusters.kubeconfig(HOST)}"]
        self.runner.run(name, [sys.executable, str(ROOT / "tools/helm.py"), *arguments, *where])


class KarmadasOperator(Operator):
    """Karmada's own operator of the same release, which makes a metrics adapter in any case."""

    side = "peer"
    object = "karmada.operator.karmada.io/demo"
    of_cluster = (
        "customresourcedefinition/karmadas.operator.karmada.io",
        "clusterrolebinding/karmada-operator",
    )

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((OF_OTHERS / "operators.yaml").read_text())
        return found

    def _set_up(self, name: str) -> None:
        for image in ("karmada-operator", "karmada-metrics-adapter"):
            self.clusters.lab("load", HOST, f"--images={image}:{KARMADA}")
        release = self.clusters.artifacts / "karmada" / KARMADA
        chart = release / "charts/karmada-operator/templates/crd-operator.karmada.io_karmadas.yaml"
        # Without the lines that are for Helm it is the definition itself.
        definition = [line for line in chart.read_text().splitlines() if "{{" not in line]
        (self.folder / "karmadas.yaml").write_text("\n".join(definition) + "\n")
        archive = self.folder / "crds.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(release / "crds", "crds")
        self.kubectl(f"{name}-kind", "create", f"--filename={self.folder / 'karmadas.yaml'}")
        self.kubectl(
            f"{name}-crds", "create", "configmap", "crds", f"--namespace={OPERATORS}", f"--from-file={archive}"
        )
        self.kubectl(f"{name}-operator", "create", f"--filename={OF_OTHERS / 'operator.yaml'}")
        self.kubectl(f"{name}-established", "wait", "--for=condition=Established", "--timeout=60s", self.of_cluster[0])
        for each in ("karmada-operator", "crds"):
            where = (f"--namespace={OPERATORS}", "--timeout=180s")
            self.kubectl(f"{name}-{each}-runs", "rollout", "status", f"deployment/{each}", *where)

    def _take_down(self, name: str) -> None:
        """Do nothing: the namespace takes it along."""
