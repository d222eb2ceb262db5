# SPDX-License-Identifier: Apache-2.0
"""Binaries, CRDs and charts in the cache: which are missing, and getting them from one of two sources.

`go` builds from Go modules. `upstream` downloads release files and checks them against sums in a lock file. Karmada
publishes no binaries of its components, and the lab's own small parts have no release: these are built in both cases.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from karmada_lab import gobuild, upstream
from karmada_lab.errors import LabError
from karmada_lab.images import Image
from karmada_lab.products import Product, product_of
from karmada_lab.shell import say, step
from karmada_lab.state import Lab, exclusive

SOURCES = ("auto", "upstream", "go")


def folder(lab: Lab, product: Product) -> Path:
    """Folder of one version of a product."""
    return lab.artifacts / product.name / product.version


def path_of(lab: Lab, products: Mapping[str, Product], binary: str) -> Path:
    """Path of the binary, which may not be there yet."""
    return folder(lab, product_of(binary, products)) / "bin" / binary


def present(lab: Lab, products: Mapping[str, Product], binary: str) -> Path:
    """Path of a binary that is in the cache. Raises LabError naming the command that gets it when it is not."""
    path = path_of(lab, products, binary)
    if not path.exists():
        raise LabError(f"{binary} is not in the cache ({path}); get it with `lab artifacts --only {binary}`")
    return path


def source(products: Mapping[str, Product], binary: str) -> Path:
    """Folder with the module that the binary is built from, and with what its publisher has put beside the program."""
    product = product_of(binary, products)
    return gobuild.module_directory(product.modules[0], product.version)


def wanted(products: Mapping[str, Product], only: Iterable[str]) -> list[str]:
    """Names of binaries: all default ones, or the given names, each a binary or a whole product."""
    names = list(only)
    if not names:
        return [binary for product in products.values() for binary in product.default_binaries]
    result: list[str] = []
    for name in names:
        if name in products:
            result += products[name].packages
        else:
            product_of(name, products)
            result.append(name)
    return result


def ensure(lab: Lab, products: Mapping[str, Product], binaries: Iterable[str], source: str = "auto") -> None:
    """Bring every named binary into the cache, and with karmada its CRDs and charts. What is there stays as it is."""
    missing: dict[str, list[str]] = {}
    for binary in dict.fromkeys(binaries):
        product = product_of(binary, products)
        if not path_of(lab, products, binary).exists() or _built_otherwise(lab, product):
            missing.setdefault(product.name, []).append(binary)
    want_crds = "karmada" in {product_of(binary, products).name for binary in binaries}
    crds_missing = want_crds and not (folder(lab, products["karmada"]) / "crds").exists()
    if not missing and not crds_missing:
        return
    with exclusive(lab.cache / "artifacts.lock", "another build of binaries"):
        for name, names in missing.items():
            _get(lab, products[name], names, source)
        if crds_missing:
            extract_crds(lab, products["karmada"])


def for_image(products: Mapping[str, Product], image: Image) -> dict[str, Product]:
    """The products with the version that the image wants of its own."""
    own = {product_of(name, products).name for name in image.from_artifacts}
    return {
        name: replace(product, version=image.version) if image.version and name in own else product
        for name, product in products.items()
    }


def ensure_images(lab: Lab, products: Mapping[str, Product], images: Iterable[Image], source: str = "auto") -> None:
    """Bring every binary that the images need into the cache, each in its image's version."""
    for (_, version), group in _by_version(products, images).items():
        names = [name for image in group for name in image.from_artifacts]
        chosen = for_image(products, group[0]) if version else products
        ensure(lab, chosen, names, source)


def _by_version(products: Mapping[str, Product], images: Iterable[Image]) -> dict[tuple[str, str], list[Image]]:
    """Images by product and version, so that one build makes all binaries of a product that are missing."""
    groups: dict[tuple[str, str], list[Image]] = {}
    for image in images:
        for name in image.from_artifacts[:1]:
            groups.setdefault((product_of(name, products).name, image.version), []).append(image)
    return groups


def _built_otherwise(lab: Lab, product: Product) -> bool:
    """Return whether what the cache has of this version was built with other tags, as by an earlier commit."""
    note = _note_of_tags(lab, product)
    return (note.read_text() if note.exists() else "") != ",".join(product.tags)


def _note_of_tags(lab: Lab, product: Product) -> Path:
    return folder(lab, product) / "built-with-tags"


def _get(lab: Lab, product: Product, names: list[str], source: str) -> None:
    into = folder(lab, product) / "bin"
    if _built_otherwise(lab, product):
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        _note_of_tags(lab, product).write_text(",".join(product.tags))
    names = [name for name in names if not (into / name).exists()]
    if not names:
        return
    chosen, why = choose(product, names, source)
    if chosen == "upstream":
        with step(f"download {product.name} {product.version}: {', '.join(names)} ({why})"):
            upstream.download(product, names, into, lab.cache / "downloads")
        return
    if shutil.which("go") is None:
        raise LabError(
            f"{product.name} {product.version} must be built ({why}), and the go command is not installed.\n"
            "    Install Go 1.21 or newer and put it in PATH."
        )
    work = lab.cache / "build" / f"{product.name}-{product.version}"
    with step(f"build {product.name} {product.version}: {', '.join(names)} ({why}; log: {work / 'build.log'})"):
        gobuild.build(product, names, work, into)


def choose(product: Product, names: list[str], source: str) -> tuple[str, str]:
    """Choose where to get these binaries from; returns that, and why in a few words."""
    if not upstream.publishes(product, names):
        return "go", "its publisher releases no such binaries"
    if source in ("go", "upstream"):
        return source, "as asked for"
    reason = upstream.unusable(product, names)
    if reason is None:
        return "upstream", "the release site answers and checksums are locked"
    return "go", reason


def extract_crds(lab: Lab, karmada: Product) -> None:
    """CRDs and charts out of the Karmada module into the artifacts folder, each at once."""
    source = gobuild.module_directory(karmada.modules[0], karmada.version)
    target = folder(lab, karmada)
    target.mkdir(parents=True, exist_ok=True)
    for inside, name in (("charts/karmada/_crds", "crds"), ("charts", "charts")):
        if (target / name).exists() or not (source / inside).exists():
            continue
        unfinished = target / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source / inside, unfinished, copy_function=shutil.copyfile)
        for path in unfinished.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        unfinished.chmod(0o755)
        unfinished.rename(target / name)
        say(f"ok  {target / name}")


def metallb_manifest(metallb: Product) -> Path:
    """MetalLB's own manifest for layer 2 and BGP without FRR, out of its module."""
    return gobuild.module_directory(metallb.modules[0], metallb.version) / "config/manifests/metallb-native.yaml"
