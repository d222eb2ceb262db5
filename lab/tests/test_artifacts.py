# SPDX-License-Identifier: Apache-2.0
"""Where binaries come from: generated go.mod files, and downloads that are refused unless their checksum is right."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import http.server
import io
import ipaddress
import tarfile
import threading
from pathlib import Path

import pytest
from karmada_lab import artifacts, gobuild, images, upstream
from karmada_lab.errors import LabError
from karmada_lab.products import Product, catalogue, product_of, staging_version
from karmada_lab.state import Lab

PRODUCTS = catalogue()


def test_versions_reach_the_linker():
    flags = PRODUCTS["kubernetes"].build_flags()[-1]
    assert "-X k8s.io/component-base/version.gitVersion=v1.35.4" in flags
    assert "-X k8s.io/component-base/version.gitMinor=35" in flags
    assert "-X github.com/karmada-io/karmada/pkg/version.gitVersion=v1.18.2" in PRODUCTS["karmada"].build_flags()[-1]


def test_what_was_built_with_other_tags_is_built_again(tmp_path, monkeypatch):
    lab = Lab(
        tmp_path / "state",
        tmp_path / "cache",
        "t",
        ipaddress.IPv4Network("10.9.0.0/16"),
        ipaddress.IPv6Network("fd09::/64"),
    )
    built = []

    def build(_product, names, _work, into):
        into.mkdir(parents=True, exist_ok=True)
        built.append(sorted(names))
        for name in names:
            (into / name).write_text("")

    monkeypatch.setattr(gobuild, "build", build)
    monkeypatch.setattr(artifacts, "extract_crds", lambda *_: None)
    monkeypatch.setattr(artifacts.shutil, "which", lambda _: "go")
    products = {"karmada": dataclasses.replace(PRODUCTS["karmada"], tags=())}
    artifacts.ensure(lab, products, ["karmadactl", "karmada-webhook"])
    products["karmada"] = PRODUCTS["karmada"]
    artifacts.ensure(lab, products, ["karmada-webhook"])
    assert not artifacts.path_of(lab, products, "karmadactl").exists()
    artifacts.ensure(lab, products, ["karmada-webhook", "karmadactl"])
    artifacts.ensure(lab, products, ["karmada-webhook", "karmadactl"])
    assert built == [["karmada-webhook", "karmadactl"], ["karmada-webhook"], ["karmadactl"]]


def test_go_mod_replaces_staging_modules_by_published_ones(monkeypatch, tmp_path):
    manifest = {
        "Go": "1.25.0",
        "Godebug": [{"Key": "default", "Value": "go1.25"}],
        "Replace": [
            {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
            {"Old": {"Path": "example.org/a"}, "New": {"Path": "example.org/b", "Version": "v1.2.3"}},
        ],
    }
    monkeypatch.setattr(gobuild, "_download", lambda *_: {"GoMod": str(tmp_path)})
    monkeypatch.setattr(gobuild, "_read_go_mod", lambda _: manifest)
    lines = gobuild.go_mod(PRODUCTS["kubernetes"]).splitlines()
    assert "replace k8s.io/api => k8s.io/api v0.35.4" in lines
    assert "replace example.org/a => example.org/b v1.2.3" in lines
    assert "require k8s.io/kubernetes v1.35.4" in lines
    assert "go 1.25.0" in lines
    assert "godebug default=go1.25" in lines


def test_a_file_of_ours_stands_in_a_copy_of_the_module_that_the_product_requires(monkeypatch, tmp_path):
    module = tmp_path / "module"
    (module / "providers").mkdir(parents=True)
    (module / "providers/all.go").write_text("all of them")
    (module / "go.mod").write_text("module example.org/a/v4")
    (module / "go.mod").chmod(0o444)
    (module / "providers").chmod(0o555)
    manifest = {"Require": [{"Path": "example.org/a/v4", "Version": "v4.1.0"}]}
    product = Product(
        "p", "v1.0.0", {}, ("example.org/p",), replaced={"example.org/a/v4": {"providers/all.go": "none"}}
    )
    asked = []

    def download(name, version):
        asked.append((name, version))
        return {"GoMod": str(tmp_path), "Dir": str(module)}

    monkeypatch.setattr(gobuild, "_download", download)
    monkeypatch.setattr(gobuild, "_read_go_mod", lambda _: manifest)
    (tmp_path / "work").mkdir()
    for _ in range(2):
        gobuild._write_module(product, tmp_path / "work")
    assert ("example.org/a/v4", "v4.1.0") in asked
    (replacement,) = [line for line in gobuild.go_mod(product).splitlines() if line.startswith("replace")]
    copy = tmp_path / "work" / replacement.removeprefix("replace example.org/a/v4 => ")
    assert (copy / "go.mod").read_text() == "module example.org/a/v4"
    assert (copy / "providers/all.go").read_text() == "none"
    assert (module / "providers/all.go").read_text() == "all of them"
    odd = dataclasses.replace(product, replaced={"example.org/a/v4": {"providers/some.go": ""}})
    with pytest.raises(LabError, match=r"has no file providers/some\.go to replace"):
        gobuild._write_module(odd, tmp_path / "work")


def test_staging_versions():
    assert staging_version("v1.34.3") == "v0.34.3"
    with pytest.raises(LabError):
        staging_version("1.34.3")


def test_names_of_binaries():
    assert artifacts.wanted(PRODUCTS, ["kubectl"]) == ["kubectl"]
    assert "karmada-search" in artifacts.wanted(PRODUCTS, ["karmada"])
    assert "karmada-search" not in artifacts.wanted(PRODUCTS, [])
    with pytest.raises(LabError, match=r"known: .*karmadactl"):
        product_of("kubctl", PRODUCTS)


def test_an_image_set_of_another_version_is_made_of_that_version(tmp_path):
    image = images.karmada_images("v1.17.1", ["karmada-webhook"])[0]
    products = artifacts.for_image(PRODUCTS, image)
    assert products["karmada"].version == "v1.17.1"
    assert products["kubernetes"] == PRODUCTS["kubernetes"]
    assert "gitVersion=v1.17.1" in products["karmada"].build_flags()[-1]


def test_what_has_no_release_is_built_even_from_upstream():
    assert artifacts.choose(PRODUCTS["karmada"], ["karmadactl"], "upstream")[0] == "go"


# Downloads, from a publisher of our own ------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A release site on loopback, with files of our own; the lock file is in a folder of the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("KARMADA_LAB_KUBERNETES_SITE", base + "/{name}")
    monkeypatch.setenv("KARMADA_LAB_ETCD_SITE", base + "/etcd-{version}-linux-amd64.tar.gz")
    monkeypatch.setenv("KARMADA_LAB_ETCD_SUMS", base + "/SHA256SUMS")
    monkeypatch.setattr(upstream, "LOCK_FILE", tmp_path / "lock.json")
    yield folder
    server.shutdown()
    server.server_close()


def publish(folder: Path) -> None:
    for name in PRODUCTS["kubernetes"].packages:
        content = f"#!{name}".encode()
        (folder / name).write_bytes(content)
        (folder / f"{name}.sha256").write_text(hashlib.sha256(content).hexdigest())
    version = PRODUCTS["etcd"].version
    archive = folder / f"etcd-{version}-linux-amd64.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in PRODUCTS["etcd"].packages:
            entry = tarfile.TarInfo(f"etcd-{version}-linux-amd64/{name}")
            entry.size = 4
            tar.addfile(entry, io.BytesIO(b"etcd"))
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")


def test_an_unlocked_release_is_refused_with_the_command_that_locks_it(site, tmp_path):
    publish(site)
    with pytest.raises(LabError, match=r"lab artifacts lock --kubernetes v1\.35\.4"):
        upstream.download(PRODUCTS["kubernetes"], ["kubectl"], tmp_path / "bin", tmp_path / "downloads")
    assert "no checksums are locked" in (upstream.unusable(PRODUCTS["kubernetes"], ["kubectl"]) or "")


def test_locked_releases_are_downloaded_checked_and_unpacked(site, tmp_path):
    publish(site)
    upstream.lock([PRODUCTS["kubernetes"], PRODUCTS["etcd"]])
    assert upstream.unusable(PRODUCTS["kubernetes"], ["kubectl"]) is None
    upstream.download(PRODUCTS["kubernetes"], ["kubectl"], tmp_path / "bin", tmp_path / "downloads")
    upstream.download(PRODUCTS["etcd"], ["etcd", "etcdctl"], tmp_path / "bin", tmp_path / "downloads")
    assert (tmp_path / "bin/kubectl").read_bytes() == b"#!kubectl"
    assert (tmp_path / "bin/etcdctl").read_bytes() == b"etcd"
    assert (tmp_path / "bin/etcd").stat().st_mode & 0o777 == 0o755


def test_a_changed_file_leaves_nothing(site, tmp_path):
    publish(site)
    upstream.lock([PRODUCTS["kubernetes"]])
    (site / "kubectl").write_bytes(b"something else")
    with pytest.raises(LabError, match="nothing was kept"):
        upstream.download(PRODUCTS["kubernetes"], ["kubectl"], tmp_path / "bin", tmp_path / "downloads")
    assert list((tmp_path / "bin").iterdir()) == []


def test_a_file_its_publisher_disowns_is_not_locked(site):
    publish(site)
    (site / "kubectl.sha256").write_text("0" * 64)
    with pytest.raises(LabError, match="not locked"):
        upstream.lock([PRODUCTS["kubernetes"]])


def test_a_silent_site_is_named_in_a_few_words(site):
    publish(site)
    upstream.lock([PRODUCTS["kubernetes"]])
    (site / "kubectl").unlink()
    assert "does not answer" in (upstream.unusable(PRODUCTS["kubernetes"], ["kubectl"]) or "")
