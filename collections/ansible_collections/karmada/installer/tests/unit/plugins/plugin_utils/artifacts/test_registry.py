# SPDX-License-Identifier: Apache-2.0
"""Images over the registry API: who we say we are and to whom, and what is done about answers that are not true."""

from __future__ import annotations

import hashlib
import io
import json
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Logins, Reference, Registry
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    INDEX,
    RegistryFiles,
    Request,
    Response,
    WebServer,
    authority,
    docker_config,
    program,
    tar,
)

LAYERS = {"amd64": [tar(("bin/tool", program()))], "arm64": [tar(("bin/tool", program("arm", 183)))]}


@pytest.fixture
def images() -> RegistryFiles:
    return RegistryFiles()


@pytest.fixture
def server(images: RegistryFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    for variable in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with WebServer(images) as running:
        images.token_url = f"{running.url}/token"
        yield running


def registry(logins: Logins | None = None) -> Registry:
    return Registry(Https(authority(), pause=lambda _: None), logins)


def reference(server: WebServer, name: str = "karmada/tool", tag: str = "v1") -> Reference:
    return Reference(server.host, name, tag)


def refused(server: WebServer, architecture: str = "amd64", logins: Logins | None = None, tag: str = "v1") -> str:
    with pytest.raises(ProblemsError) as error:
        registry(logins).manifest(reference(server, tag=tag), architecture)
    (problem,) = error.value.problems
    assert problem.where.startswith(server.host)
    assert problem.remedy
    return f"{problem.what}; {problem.remedy}"


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag"),
    [
        ("docker.io/karmada/karmada-scheduler:v1.18.2", "docker.io", "karmada/karmada-scheduler", "v1.18.2"),
        ("karmada/karmada-scheduler:v1.18.2", "docker.io", "karmada/karmada-scheduler", "v1.18.2"),
        ("busybox", "docker.io", "library/busybox", "latest"),
        ("mirror.example.com:5000/a/b/etcd:v3", "mirror.example.com:5000", "a/b/etcd", "v3"),
        ("mirror.example.com:5000/etcd", "mirror.example.com:5000", "etcd", "latest"),
        ("localhost/etcd:v3", "localhost", "etcd", "v3"),
    ],
)
def test_references_are_read_as_engines_read_them(text: str, host: str, repository: str, tag: str) -> None:
    assert Reference.parse(text) == Reference(host, repository, tag)


def test_a_digest_in_a_reference() -> None:
    digest = f"sha256:{'0' * 64}"
    found = Reference.parse(f"quay.io/coreos/etcd:v3@{digest}")
    assert found == Reference("quay.io", "coreos/etcd", "v3", digest)
    assert str(found) == f"quay.io/coreos/etcd:v3@{digest}"
    with pytest.raises(ValueError, match="not a reference"):
        Reference.parse("quay.io/coreos/etcd@sha256:short")


def test_docker_hub_is_somewhere_else() -> None:
    assert Reference.parse("karmada/x").api == "https://registry-1.docker.io/v2/karmada/x"


@pytest.mark.parametrize(
    ("place", "text", "matches"),
    [
        ("https://index.docker.io/v1/", "karmada/x", True),
        ("docker.io", "karmada/x", True),
        ("quay.io", "quay.io/coreos/etcd", True),
        ("https://quay.io/v2/", "quay.io/coreos/etcd", True),
        ("quay.io/coreos", "quay.io/coreos/etcd", True),
        ("quay.io/core", "quay.io/coreos/etcd", False),
        ("quay.io", "evil-quay.io/coreos/etcd", False),
        ("quay.io", "quay.io.example.com/coreos/etcd", False),
        ("*.example.com", "a.example.com/etcd", True),
        ("*.example.com", "a.b.example.com/etcd", False),
        ("mirror.example.com:5000", "mirror.example.com/etcd", False),
        ("mirror.example.com:5000", "mirror.example.com:5000/etcd", True),
    ],
)
def test_a_login_goes_to_its_own_registry_only(place: str, text: str, *, matches: bool) -> None:
    logins = Logins.read({"pull": docker_config({place: "user:secret"})})
    assert bool(logins.of(Reference.parse(text))) == matches


def test_the_most_exact_login_comes_first() -> None:
    logins = Logins.read(
        {"one": docker_config({"quay.io": "a:1"}), "two": docker_config({"quay.io/coreos": "b:2", "docker.io": "c:3"})}
    )
    assert [login.user for login in logins.of(Reference.parse("quay.io/coreos/etcd"))] == ["b", "a"]


def test_user_and_password_may_stand_apart() -> None:
    file = json.dumps({"auths": {"quay.io": {"username": "user", "password": "with:colon"}}}).encode()
    (login,) = Logins.read({"pull": file}).of(Reference.parse("quay.io/etcd"))
    assert (login.user, login.password) == ("user", "with:colon")
    assert "with:colon" not in repr(login)


def test_all_secrets_that_are_no_login_files_are_named_and_none_is_shown() -> None:
    bad = {
        "one": b"hunter2",
        "two": b'{"auths": {"quay.io": {"auth": "%%hunter2"}}}',
        "three": b'{"auths": ["hunter2"]}',
    }
    with pytest.raises(ProblemsError) as error:
        Logins.read({**bad, "good": docker_config({"quay.io": "a:b"})})
    assert [problem.where for problem in error.value.problems] == ["Secret one", "Secret two", "Secret three"]
    assert "hunter2" not in str(error.value)


# -- manifests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_manifest_of_the_architecture(server: WebServer, images: RegistryFiles, architecture: str) -> None:
    images.image("karmada/tool", "v1", LAYERS)
    found = registry().manifest(reference(server), architecture)
    (content,) = LAYERS[architecture]
    (layer,) = found.layers
    assert (layer.digest, layer.size) == (f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    into = io.BytesIO()
    registry().blob(reference(server), layer, into)
    assert into.getvalue() == content
    by_digest = Reference(server.host, "karmada/tool", "other", found.digest)
    assert registry().manifest(by_digest, architecture) == found


def test_an_image_that_is_for_one_architecture_only(server: WebServer, images: RegistryFiles) -> None:
    images.image("karmada/tool", "v1", {"amd64": LAYERS["amd64"]}, index=False)
    assert registry().manifest(reference(server), "amd64").layers
    assert "not for linux on arm64, only for amd64" in refused(server, "arm64")
    images.image("karmada/tool", "v1", {"arm64": LAYERS["arm64"]})
    assert "not for linux on amd64, only for arm64" in refused(server, "amd64")


def test_what_is_not_there(server: WebServer) -> None:
    assert "check registry, repository and tag" in refused(server)


@pytest.mark.parametrize("part", ["manifests", "blobs"])
def test_a_digest_is_compared_with_what_comes(server: WebServer, images: RegistryFiles, part: str) -> None:
    images.image("karmada/tool", "v1", LAYERS, index=part == "manifests")

    def change(request: Request, response: Response) -> Response:
        if part in request.path and "sha256:" in request.path:
            response.content = response.content.replace(b"linux", b"Linux") + b" "
        return response

    images.changed = change
    assert "when it was asked for sha256:" in refused(server)


def test_a_layer_is_compared_with_its_digest(server: WebServer, images: RegistryFiles) -> None:
    images.image("karmada/tool", "v1", LAYERS)
    manifest = registry().manifest(reference(server), "amd64")

    def change(_: Request, response: Response) -> Response:
        response.content = b"x" * len(response.content)
        return response

    images.changed = change
    with pytest.raises(ProblemsError, match="a layer has the checksum"):
        registry().blob(reference(server), manifest.layers[0], io.BytesIO())


@pytest.mark.parametrize(
    "content",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"manifests": [{}]}',
        b'{"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}, "digest": "../../other"}]}',
    ],
)
def test_answers_that_are_no_images(server: WebServer, images: RegistryFiles, content: bytes) -> None:
    images.changed = lambda *_: Response(content=content, headers={"Content-Type": INDEX})
    refused(server)
    assert not any("other" in path for path in server.asked)


def test_layers_of_kinds_that_are_not_known(server: WebServer, images: RegistryFiles) -> None:
    images.image("karmada/tool", "v1", LAYERS)
    images.changed = lambda _, response: Response(
        content=response.content.replace(b"layer.v1.tar+gzip", b"layer.v1.tar+zstd"), headers=response.headers
    )
    # the index is as it was, so the manifest no longer has its digest: ask for one without an index
    images.image("karmada/tool", "v1", {"amd64": LAYERS["amd64"]}, index=False)
    assert "layer.v1.tar+zstd, which is not known here" in refused(server)


# -- logins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [False, True], ids=["basic", "token"])
def test_a_registry_that_wants_a_login(server: WebServer, images: RegistryFiles, *, tokens: bool) -> None:
    images.image("karmada/tool", "v1", LAYERS)
    images.login, images.tokens = "user:secret", tokens
    assert "docker login" in refused(server)
    wrong = docker_config({server.host: "user:wrong"})
    right = docker_config({server.host: "user:secret"})
    assert "docker login" in refused(server, logins=Logins.read({"wrong": wrong}))
    both = registry(Logins.read({"wrong": wrong, "right": right}))
    server.requests.clear()
    manifest = both.manifest(reference(server), "amd64")
    refusals = len(server.requests)
    both.blob(reference(server), manifest.layers[0], io.BytesIO())
    assert len(server.requests) == refusals + 1, "what was accepted once is used again"


def test_who_has_no_home_has_no_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_user: int) -> Any:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert Logins.of_this_user({}).of(Reference.parse("registry.example.com/etcd")) == []


def test_logins_of_who_runs_this(tmp_path: Path) -> None:
    own = {"DOCKER_CONFIG": str(tmp_path)}
    image = Reference.parse("registry.example.com/etcd")
    assert Logins.of_this_user(own).of(image) == [], "there is no file"
    helped = {"credsStore": "desktop", "auths": {"registry.example.com": {}}}
    for content in ({}, {"credHelpers": {"registry.example.com": "ecr"}}, helped):
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert Logins.of_this_user(own).of(image) == [], "a helper's logins are not in the file"
    (tmp_path / "config.json").write_bytes(docker_config({"registry.example.com": "user:secret"}))
    assert [login.user for login in Logins.of_this_user(own).of(image)] == ["user"]


def test_logins_are_looked_for_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_bytes(docker_config({"registry.example.com": "user:secret"}))
    assert Logins.of_this_user({}).of(Reference.parse("registry.example.com/etcd"))


@pytest.mark.parametrize(
    "content", [b"auths", b"[]", b'{"auths": {"a": "user:secret"}}', b'{"auths": {"a": {"auth": "secret"}}}']
)
def test_a_login_file_that_is_none_is_told_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ProblemsError) as error:
        Logins.of_this_user({"DOCKER_CONFIG": str(tmp_path)})
    assert str(tmp_path / "config.json") in str(error.value)
    assert "secret" not in str(error.value)


def test_tokens_for_anyone(server: WebServer, images: RegistryFiles) -> None:
    images.image("karmada/tool", "v1", LAYERS)
    images.tokens = True
    assert registry().manifest(reference(server), "amd64").layers
    token = next(each for each in server.requests if each.path == "/token")
    assert token.query == {"service": "registry", "scope": "repository:karmada/tool:pull"}
    assert "Authorization" not in token.headers


def test_a_login_is_not_carried_to_a_place_that_is_not_https(server: WebServer, images: RegistryFiles) -> None:
    images.tokens, images.login = True, "user:secret"
    with WebServer(images, tls=False) as plain:
        images.token_url = f"{plain.url}/token"
        logins = Logins.read({"pull": docker_config({server.host: "user:secret"})})
        assert "not https" in refused(server, logins=logins)
        assert plain.asked == []


def test_a_registry_that_only_stumbles_is_asked_again(server: WebServer, images: RegistryFiles) -> None:
    images.image("karmada/tool", "v1", LAYERS)
    stumbles = [Response(502), Response(429)]
    images.changed = lambda _, response: stumbles.pop() if stumbles else response
    assert registry().manifest(reference(server), "amd64").layers


def test_an_authority_that_is_not_trusted(server: WebServer) -> None:
    with pytest.raises(ProblemsError, match="certificate verify failed"):
        Registry(Https()).manifest(reference(server), "amd64")
