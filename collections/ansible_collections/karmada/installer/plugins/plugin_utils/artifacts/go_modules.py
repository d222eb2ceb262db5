# SPDX-License-Identifier: Apache-2.0
"""Programs built from Go modules on the machine that Ansible runs on.

For each version there is a module of ours, ``schemas/modules/<project>/<version>/``, whose go.mod requires the project
and whose go.sum has the checksum of every module in the build. The go command may change neither, so only pinned
sources are built, whichever proxy serves them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .. import run_process
from ..problems import Problem, ProblemsError, Reason

#: Seconds between two looks at whether a build is to end.
_LOOK_SECONDS = 1.0
MODULES = Path(__file__).parents[3] / "schemas" / "modules"


@dataclass(frozen=True)
class GoProject:
    """Build settings of a project's programs.

    ``modules`` are required at the project's version; ``packages``: program → package of its main function;
    ``version_variables``: linker variable → text, in which ``{version}``, ``{major}`` and ``{minor}`` are replaced;
    ``tags`` are build constraints that the publisher sets.
    """

    modules: tuple[str, ...]
    packages: Mapping[str, str]
    version_variables: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


def build_flags(version: str, variables: Mapping[str, str], tags: Sequence[str]) -> list[str]:
    """Arguments of ``go build`` that affect the binary."""
    chosen = ["-tags", ",".join(tags)] if tags else []
    return ["-trimpath", "-buildvcs=false", *chosen, "-ldflags", linker_flags(version, variables)]


def linker_flags(version: str, variables: Mapping[str, str]) -> str:
    """Value of -ldflags: no symbol table, and version strings like those of a release."""
    major, minor = version.lstrip("v").split(".")[:2]
    words = ["-s", "-w"]
    for variable, text in variables.items():
        words += ["-X", f"{variable}={text.format(version=version, major=major, minor=minor)}"]
    return " ".join(words)


def _kubernetes_version(package: str) -> dict[str, str]:
    return {
        f"{package}.gitVersion": "{version}",
        f"{package}.gitMajor": "{major}",
        f"{package}.gitMinor": "{minor}",
        f"{package}.gitTreeState": "clean",
    }


_KARMADA = "github.com/karmada-io/karmada"

#: Field of Release with the version → project.
PROJECTS: Mapping[str, GoProject] = {
    "karmada": GoProject(
        modules=(_KARMADA,),
        packages={
            "karmada-agent": f"{_KARMADA}/cmd/agent",
            "karmada-aggregated-apiserver": f"{_KARMADA}/cmd/aggregated-apiserver",
            "karmada-controller-manager": f"{_KARMADA}/cmd/controller-manager",
            "karmada-descheduler": f"{_KARMADA}/cmd/descheduler",
            "karmada-metrics-adapter": f"{_KARMADA}/cmd/metrics-adapter",
            "karmada-scheduler": f"{_KARMADA}/cmd/scheduler",
            "karmada-scheduler-estimator": f"{_KARMADA}/cmd/scheduler-estimator",
            "karmada-search": f"{_KARMADA}/cmd/karmada-search",
            "karmada-webhook": f"{_KARMADA}/cmd/webhook",
        },
        version_variables={
            f"{_KARMADA}/pkg/version.gitVersion": "{version}",
            f"{_KARMADA}/pkg/version.gitTreeState": "clean",
        },
        # hack/build.sh of v1.17 and newer sets it. Without it a scheduler panics when it calls an estimator: since
        # Kubernetes 1.35 its types are not protocol buffer messages by default. Older modules ignore the tag.
        tags=("kubernetes_protomessage_one_more_release",),
    ),
    "kubernetes": GoProject(
        modules=("k8s.io/kubernetes",),
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager")},
        version_variables={
            **_kubernetes_version("k8s.io/component-base/version"),
            **_kubernetes_version("k8s.io/client-go/pkg/version"),
        },
    ),
    "etcd": GoProject(
        modules=("go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdutl/v3"),
        packages={"etcd": "go.etcd.io/etcd/server/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3"},
    ),
}


@dataclass(frozen=True)
class Build:
    """Build of one program, with all inputs that affect the binary."""

    project: str
    version: str
    program: str
    architecture: str
    proxy: str | None = None

    @property
    def module(self) -> Path:
        """Folder with go.mod and go.sum."""
        return MODULES / self.project / self.version

    @property
    def command(self) -> list[str]:
        """The go command, without its output path."""
        project = PROJECTS[self.project]
        flags = build_flags(self.version, project.version_variables, project.tags)
        return ["go", "build", "-mod=readonly", *flags]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the go command. It must use the installed toolchain and fetch no other."""
        told = {"GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        told |= {"GOOS": "linux", "GOARCH": self.architecture}
        return told | ({"GOPROXY": self.proxy} if self.proxy else {})

    def source(self) -> dict[str, str]:
        """Description of all inputs, the key of the cache. Raises ProblemsError if the program cannot be built here."""
        problem = self._problem()
        if problem:
            raise ProblemsError(problem)
        sums = {name: hashlib.sha256((self.module / name).read_bytes()).hexdigest() for name in ("go.mod", "go.sum")}
        package = PROJECTS[self.project].packages[self.program]
        return {
            "go": _go_version(),
            "package": package,
            "for": self.architecture,
            "with": " ".join(self.command),
            **sums,
        }

    def _problem(self) -> Problem | None:
        where = "spec.artifacts.source"
        if self.program not in PROJECTS[self.project].packages or not (self.module / "go.sum").is_file():
            what = f"it is not recorded how {self.program} {self.version} is built from Go modules"
            return Problem(what, where, "take it from another source", reason=Reason.INVALID_ARTIFACT_SOURCE)
        needed = re.search(r"^go (\S+)$", (self.module / "go.mod").read_text(), re.MULTILINE)
        found = _go_version()
        if not found or (needed and _numbers(found) < _numbers(needed[1])):
            what = f"the machine that Ansible runs on has {found or 'no go command'}"
            remedy = f"install Go {needed[1] if needed else ''} or newer there, or choose another source"
            return Problem(
                f"{what}, and {self.project} {self.version} is built with Go",
                where,
                remedy,
                reason=Reason.MISSING_PROGRAM,
            )
        return None

    def run(self, into: Path, stopped: Callable[[], bool] = lambda: False) -> None:
        """Build the program into this file; takes minutes the first time. Raises ProblemsError if go fails.

        The go command is killed soon after ``stopped`` returns True.
        """
        with tempfile.TemporaryDirectory(dir=into.parent) as work:
            for name in ("go.mod", "go.sum"):
                shutil.copyfile(self.module / name, Path(work) / name)
            command = [*self.command, "-o", str(into), PROJECTS[self.project].packages[self.program]]
            code, errors = _run(command, Path(work), self.environment, stopped)
        if code:
            said = "\n".join(errors.strip().splitlines()[-5:])
            remedy = "check the network and `go env GOPROXY`, or choose another source"
            raise ProblemsError(
                Problem(
                    f"{self.program} {self.version} cannot be built: {said}",
                    "spec.artifacts.source",
                    remedy,
                    reason=Reason.ARTIFACT_NOT_AVAILABLE,
                )
            )


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], stopped: Callable[[], bool]
) -> tuple[int, str]:
    """Exit code and error output of a program in a folder; it is killed soon after ``stopped`` returns True."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=run_process.ends_with_us(),  # noqa: PLW1509 - one system call, resolved before
    ) as running:
        while True:
            if stopped():
                running.kill()
            try:
                _none, errors = running.communicate(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return running.returncode, errors


@cache
def _go_version() -> str:
    """Version of the go command, such as ``go1.26.1``; empty without one."""
    if not shutil.which("go"):
        return ""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    answer = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment)
    return answer.stdout.strip()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))
