#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record checksums of what the publishers of a release offer. Each is computed here, from their files.

`make lock` runs it, for Karmada releases that `releases.py` knows:

  lock_artifacts.py crds v1.18.2 [GoModules|URL]   the CRDs
  lock_artifacts.py files v1.18.2                  release downloads of Kubernetes and etcd
  lock_artifacts.py images v1.18.2                 digests of the images of all components
  lock_artifacts.py modules v1.18.2                go.mod and go.sum that programs are built with
  lock_artifacts.py all v1.18.2                    each of these
  lock_artifacts.py images all                     of every known release
  lock_artifacts.py all all                        everything (`make lock`)

What several releases have in common, such as one version of etcd, is asked for once. One that fails stops no other, and
the end names what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import go_modules, programs, release_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.crd_files import content_hash, fetch
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.image_files import MOST_PROGRAM_BYTES
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Reference, Registry
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import LOCK_FILE, Source, read_lock
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases, table
from ansible_collections.karmada.installer.plugins.plugin_utils.components.releases import Release
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Images, Settings, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from karmada_lab import gobuild
from karmada_lab.errors import LabError
from karmada_lab.products import Product

#: Where the publishers have the checksums of their own files.
_PUBLISHED_SUMS = {"kubernetes": "{url}.sha256", "etcd": "{base}/SHA256SUMS"}


#: What one run has recorded already: kind, project or image, version.
Done = set[tuple[str, str, str]]


def lock_crds(version: str, source: str = "GoModules") -> None:
    """The CRDs. A Go module is verified by nobody here but is the same for everyone."""
    files, where = fetch(version, Source(kind=source))
    found = content_hash(files)
    _record("karmada", version, {"crds": found})
    print(f"{version}: {len(files)} CRDs from {where}: {found}")


def lock_files(release: Release, https: Https, done: Done | None = None) -> None:
    """Release downloads; each is fetched, and compared with the checksum that its publisher has beside it."""
    done = set() if done is None else done
    for project in release_files.PUBLISHERS:
        version: str = getattr(release, project)
        if ("files", project, version) in done:
            continue
        names = {each.binary.rpartition("/")[2] for each in table.COMPONENTS if each.image.release == project}
        for architecture in programs.MACHINES:
            for name in sorted(names):
                path = release_files.candidates(project, version, architecture, name)[0].path
                found = _file(project, version, path, https)
                _record(project, version, {"files": {path: f"sha256:{found}"}})
                print(f"{project} {version} {path}: {found}")
        done.add(("files", project, version))


def _file(project: str, version: str, path: str, https: Https) -> str:
    base = f"{release_files.PUBLISHERS[project]}/{version}"
    url = f"{base}/{path}"
    with tempfile.TemporaryFile() as content:
        found = https.save(url, content, MOST_PROGRAM_BYTES)
    published = https.read(_PUBLISHED_SUMS[project].format(url=url, base=base), 1 << 20).content.decode().splitlines()
    # Either the sum alone, or lines of sum and name.
    lines = [line.split() for line in published]
    if [found] not in lines and [found, path] not in lines:
        what = f"it has the SHA-256 {found}, which is not what its publisher says"
        remedy = "nothing was recorded; something between here and the publisher changes files"
        raise ProblemsError(Problem(what, url, remedy, reason=Reason.CHECKSUM_MISMATCH))
    return found


def lock_images(release: Release, registry: Registry, images: Images, done: Done | None = None) -> None:
    """The digest that each tag leads to at its publisher, after a look whether it has all architectures."""
    done = set() if done is None else done
    for component in table.PROGRAMS:
        image = component.image
        version: str = getattr(release, image.release)
        if ("images", image.repository, version) in done:
            continue
        reference = Reference.parse(image.reference(images, release, Settings({})))
        digest = registry.digest(reference)
        for architecture in programs.MACHINES:
            # By digest, so that what answers is compared with it.
            registry.manifest(replace(reference, digest=digest), architecture)
        _record(image.release, version, {"images": {image.repository: digest}})
        print(f"{reference}: {digest}")
        done.add(("images", image.repository, version))


def lock_modules(release: Release, done: Done | None = None) -> None:
    """go.mod and go.sum of each project, which is what building all of its programs needs and no more."""
    done = set() if done is None else done
    for name, project in go_modules.PROJECTS.items():
        version: str = getattr(release, name)
        if ("modules", name, version) in done:
            continue
        target = go_modules.MODULES / name / version
        product = Product(name=name, version=version, packages=project.packages, modules=project.modules)
        with tempfile.TemporaryDirectory() as work:
            # The sums that the publisher built with came with a module that the go command checked with the checksum
            # database. With them it checks everything else, and asks the database for what they say nothing about.
            checked = _sums(product, Path(work), gobuild.publishers_sums(product), {})
            # What the first round brought into the module cache needs no second check, only to be among the checked.
            needed = _sums(product, Path(work), "", {"GOSUMDB": "off"})
            if unchecked := set(needed.splitlines()) - set(checked.splitlines()):
                what = f"nobody has checked {', '.join(sorted(unchecked))}"
                remedy = "let the go command ask a checksum database (`go env GOSUMDB`); nothing was recorded"
                raise ProblemsError(Problem(what, f"{name} {version}", remedy, reason=Reason.CHECKSUM_MISMATCH))
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(work) / "go.mod", target / "go.mod")
            (target / "go.sum").write_text(needed)
        print(f"{name} {version}: {len(needed.splitlines())} checksums in {target}")
        done.add(("modules", name, version))


def _sums(product: Product, work: Path, begin: str, settings: Mapping[str, str]) -> str:
    """The go.sum that resolving every program for every architecture makes of this one; go.mod is left in ``work``."""
    (work / "go.mod").write_text(gobuild.go_mod(product, "installer.karmada.io/build"))
    (work / "go.sum").write_text(begin)
    for architecture in programs.MACHINES:
        build = go_modules.Build(product.name, product.version, "", architecture)
        command = ["go", "list", "-mod=mod", "-deps", *product.packages.values()]
        environment = {**os.environ, **build.environment, **settings}
        subprocess.run(command, cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL)
    return (work / "go.sum").read_text()


def _published_images() -> Images:
    """The registries of a document that names none."""
    document = {
        "apiVersion": manifest.API_VERSION,
        "kind": manifest.KIND,
        "metadata": {"name": "any", "namespace": "any"},
        "spec": {},
    }
    return Spec(manifest.resolve(document)["spec"]).images


def _record(project: str, version: str, entry: Mapping[str, Any]) -> None:
    lock = read_lock(LOCK_FILE)
    recorded = lock.setdefault(project, {}).setdefault(version, {})
    for kind, value in entry.items():
        recorded[kind] = {**recorded.get(kind, {}), **value} if isinstance(value, Mapping) else value
    LOCK_FILE.write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n")


def _steps(source: str | None) -> dict[str, Callable[[str], None]]:
    """Kind of checksum → what records it for one version of Karmada, in the order in which all are recorded.

    source: where CRDs come from; the Go modules if None.
    """
    done: Done = set()
    return {
        "crds": lambda version: lock_crds(version, *([source] if source else [])),
        "modules": lambda version: lock_modules(releases.get(version), done),
        "images": lambda version: lock_images(releases.get(version), Registry(Https()), _published_images(), done),
        "files": lambda version: lock_files(releases.get(version), Https(), done),
    }


def main(what: str = "all", version: str = "all", source: str | None = None) -> None:
    """Record one kind of checksums, or each, for one release, or each known one."""
    steps = _steps(source)
    if what != "all" and what not in steps:
        sys.exit(__doc__)
    versions = [release.karmada for release in releases.RELEASES] if version == "all" else [version]
    failed: list[str] = []
    for kind in steps if what == "all" else [what]:
        for each in versions:
            try:
                steps[kind](each)
            except (ProblemsError, LabError, OSError, subprocess.CalledProcessError) as error:
                failed.append(f"{kind} {each}: {error}")
                print(failed[-1], file=sys.stderr)
    if failed:
        sys.exit("\n".join(["not recorded, all else is:", *failed]))


if __name__ == "__main__":
    main(*sys.argv[1:])
