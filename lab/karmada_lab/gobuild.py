# SPDX-License-Identifier: Apache-2.0
"""Build a product's binaries from Go modules.

`go install module@version` refuses modules with `replace` directives, so each product gets a go.mod of ours that
requires it at one version and repeats its replacements. The module proxy and the checksum database are the ones the
go command is configured for (`go env GOPROXY GOSUMDB`); verification stays on.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from karmada_lab.errors import LabError
from karmada_lab.products import Product, staging_version
from karmada_lab.shell import run

_ENVIRONMENT = {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "GOWORK": "off"}


def module_directory(module: str, version: str) -> Path:
    """Folder with the module's source, downloaded when it is not in Go's cache."""
    return Path(_download(module, version)["Dir"])


def go_mod(product: Product, name: str = "karmada.lab/build") -> str:
    """The text of the go.mod that builds the product, as a module of this name.

    The language version and `godebug` lines are the product's own: they choose run-time behaviour.
    """
    lines = [f"module {name}", ""]
    language = "1.24"
    replaced: dict[str, str] = {}
    for module in product.modules:
        manifest = _read_go_mod(Path(_download(module, product.version)["GoMod"]))
        language = max(language, manifest.get("Go", language), key=_version_key)
        lines += [f"godebug {entry['Key']}={entry['Value']}" for entry in manifest.get("Godebug") or []]
        for entry in manifest.get("Replace") or []:
            target = _replacement(product, entry)
            if target:
                replaced[entry["Old"]["Path"]] = target
    lines.append(f"go {language}")
    lines += [f"require {module} {product.version}" for module in product.modules]
    lines += [f"require {module} {version}" for module, version in product.pins.items()]
    replaced |= {module: f"./{_folder_of_copy(module)}" for module in product.replaced}
    lines += [f"replace {old} => {new}" for old, new in sorted(replaced.items())]
    return "\n".join(dict.fromkeys(lines)) + "\n"


def build(product: Product, binaries: Sequence[str], work: Path, into: Path) -> None:
    """Build the named binaries into the folder `into`; each appears there only when it is whole.

    work: folder for the go.mod and for unfinished output. One go command builds all, so that both processors stay
    busy; a build that is cut off keeps its compiled packages in Go's cache and goes on from there.
    """
    work.mkdir(parents=True, exist_ok=True)
    into.mkdir(parents=True, exist_ok=True)
    _write_module(product, work)
    for abandoned in work.glob("unfinished-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    # A name of its own: the go command of a killed `lab` may still be running and must not write here.
    unfinished = work / f"unfinished-{os.getpid()}"
    unfinished.mkdir()
    packages = {name: product.packages[name] for name in binaries}
    # With several packages and a folder, go names each output after its package; with one, after -o.
    single = len(packages) == 1
    output = unfinished / next(iter(packages)) if single else unfinished
    command = [
        "nice", "-n", "10", "go", "build", *product.build_flags(),
        "-o", f"{output}" if single else f"{output}{os.sep}", *packages.values(),
    ]  # fmt: skip
    log = work / "build.log"
    log.unlink(missing_ok=True)
    run(command, cwd=work, env=_ENVIRONMENT, log=log, die_with_us=True)
    for name, package in packages.items():
        built = unfinished / name if single else _output_of(unfinished, package)
        built.chmod(0o755)
        built.rename(into / name)
    shutil.rmtree(unfinished)


def _write_module(product: Product, work: Path) -> None:
    """go.mod and, where the product has them, main.go and copies of modules.

    A go.sum that is there stays and keeps pinning content.

    A new go.sum begins as the product's own, which came with its verified module: what its publisher built with.
    """
    text = go_mod(product)
    marker = work / "go.mod.generated"
    if not (work / "go.mod").exists() or not marker.exists() or marker.read_text() != text:
        (work / "go.mod").write_text(text)
        marker.write_text(text)
    if not (work / "go.sum").exists():
        (work / "go.sum").write_text(publishers_sums(product))
    _copy_replaced(product, work)
    if product.main:
        (work / "main.go").write_text(product.main)


def _copy_replaced(product: Product, work: Path) -> None:
    """Copies of modules in which files of ours stand in the place of some, where ``go_mod`` looks for them."""
    for module, files in product.replaced.items():
        copy = work / _folder_of_copy(module)
        shutil.rmtree(copy, ignore_errors=True)
        # What the module cache holds is for reading only.
        source = module_directory(module, _required_version(product, module))
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        for name, text in files.items():
            if not (copy / name).is_file():
                raise LabError(f"{product.name} {product.version}: its module {module} has no file {name} to replace")
            (copy / name).write_text(text)


def _folder_of_copy(module: str) -> str:
    return f"copies/{module.replace('/', '_')}"


def _required_version(product: Product, module: str) -> str:
    manifests = (_read_go_mod(Path(_download(each, product.version)["GoMod"])) for each in product.modules)
    required = (entry for manifest in manifests for entry in manifest.get("Require") or [])
    return next(str(entry["Version"]) for entry in required if entry["Path"] == module)


def publishers_sums(product: Product) -> str:
    """A go.sum with what the publisher built with, out of the product's own modules."""
    sums = [module_directory(module, product.version) / "go.sum" for module in product.modules]
    lines = {line for path in sums if path.exists() for line in path.read_text().splitlines()}
    return "".join(f"{line}\n" for line in sorted(lines))


def _output_of(folder: Path, package: str) -> Path:
    """Name that `go build -o folder/` gives a package's program: its last path element, a version suffix left out."""
    elements = package.split("/")
    name = elements[-2] if elements[-1].startswith("v") and elements[-1][1:].isdigit() else elements[-1]
    return folder / name


def _replacement(product: Product, entry: dict[str, Any]) -> str:
    """Replace directive in our module for one of the product: '' where it can be left out.

    A local folder (`./staging/src/k8s.io/api`) means a module of the same repository: for Kubernetes the published
    staging module, elsewhere the version the product requires anyway.
    """
    new = entry["New"]
    if new.get("Version"):
        return f"{new['Path']} {new['Version']}"
    if product.name == "kubernetes":
        return f"{entry['Old']['Path']} {staging_version(product.version)}"
    return ""


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _read_go_mod(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(["go", "mod", "edit", "-json", path]).stdout)
    return answer


def _download(module: str, version: str, timeout: float | None = None) -> dict[str, Any]:
    done = run(["go", "mod", "download", "-json", f"{module}@{version}"], cwd=Path("/"), timeout=timeout, check=False)
    answer: dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in answer:
        reason = answer.get("Error") or done.stderr.strip()
        raise LabError(
            f"Go module {module} {version} cannot be had: {reason}\n"
            "    Check `go env GOPROXY GOSUMDB` and the network, or choose another version."
        )
    return answer
