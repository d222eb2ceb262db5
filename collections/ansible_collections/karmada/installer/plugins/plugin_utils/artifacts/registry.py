# SPDX-License-Identifier: Apache-2.0
"""Container images without a container engine: the registry API (version 2), from a reference to verified layers.

A tag is resolved once; everything after that is fetched by digest and verified against it.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import json
import os
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from .. import private_file
from ..encoding import base64_text
from ..problems import Problem, ProblemsError, Reason
from .https import OTHER_SOURCES, Answer, FetchError, Https, StatusError

T = TypeVar("T")

_INDEXES = frozenset(
    {"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"}
)
_MANIFESTS = frozenset(
    {"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"}
)
_ACCEPT = {"Accept": ", ".join(sorted(_INDEXES | _MANIFESTS))}
#: Media type of a layer → its compression.
_LAYERS: Mapping[str, str] = {
    "application/vnd.oci.image.layer.v1.tar": "",
    "application/vnd.oci.image.layer.v1.tar+gzip": "gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "gzip",
}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE = re.compile(r'([a-zA-Z]+)="([^"]*)"')

MOST_MANIFEST_BYTES = 4 << 20
MOST_LAYERS = 127
MOST_IMAGE_BYTES = 2 << 30

DOCKER_HUB = "docker.io"
#: Names of Docker Hub: in references, in login files, and of its API.
_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True)
class Reference:
    """An image reference. ``digest`` takes precedence over ``tag`` if both are given."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse a reference by the rules of container engines; raises ValueError if it is invalid."""
        rest, _, digest = text.partition("@")
        name, colon, tag = rest.rpartition(":")
        if not colon or "/" in tag:
            name, tag = rest, ""
        host, slash, repository = name.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host, repository = DOCKER_HUB, name if slash else f"library/{name}"
        if not repository or (digest and not _DIGEST.fullmatch(digest)):
            raise ValueError(f"{text!r} is not a reference of an image")
        return cls(host, repository, tag or ("" if digest else "latest"), digest)

    def __str__(self) -> str:
        tag, digest = self.tag and f":{self.tag}", self.digest and f"@{self.digest}"
        return f"{self.host}/{self.repository}{tag}{digest}"

    @property
    def api(self) -> str:
        """Base URL of the API for this repository."""
        host = "registry-1.docker.io" if self.host in _HUB_NAMES else self.host
        return f"https://{host}/v2/{urllib.parse.quote(self.repository)}"


@dataclass(frozen=True, repr=False)
class Login:
    """User and password (or token) for a registry."""

    user: str
    password: str

    @property
    def basic(self) -> str:
        """Value of the header Authorization."""
        return "Basic " + base64_text(f"{self.user}:{self.password}".encode())


class Logins:
    """Logins for registries, or for parts of one, as pull secrets hold them."""

    def __init__(self, entries: Sequence[tuple[str, Login]] = ()) -> None:
        self._entries = entries

    @classmethod
    def read(cls, secrets: Mapping[str, bytes]) -> Logins:
        """Read login files (``.dockerconfigjson``): name of the Secret, for messages, → content of the file.

        Raises ProblemsError naming each Secret with invalid content.
        """
        entries: list[tuple[str, Login]] = []
        problems = []
        for name, content in secrets.items():
            try:
                entries += _logins(json.loads(content))
            except (ValueError, TypeError, AttributeError, KeyError, binascii.Error):
                # The parser's message could quote the file.
                remedy = "make it with: kubectl create secret docker-registry ..."
                problems.append(
                    Problem(
                        "it holds no login file of Docker's form",
                        f"Secret {name}",
                        remedy,
                        reason=Reason.INVALID_SECRET,
                    )
                )
        if problems:
            raise ProblemsError(problems)
        return cls(entries)

    @classmethod
    def of_this_user(cls, environment: Mapping[str, str] | None = None) -> Logins:
        """Logins of the current user, as ``docker login`` writes them; empty without such a file.

        Logins that a credential helper keeps are not in that file. Raises ProblemsError if it cannot be read.
        """
        environment = os.environ if environment is None else environment
        file = Path(environment.get("DOCKER_CONFIG") or private_file.expanded("~/.docker")) / "config.json"
        try:
            auths = json.loads(file.read_bytes()).get("auths") or {}
            kept = {place: entry for place, entry in auths.items() if entry.get("auth") or entry.get("username")}
            return cls(_logins({"auths": kept}))
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        except OSError as error:
            raise ProblemsError(
                Problem(
                    f"it cannot be read: {error.strerror}",
                    str(file),
                    "make it readable for whoever runs Ansible",
                    reason=Reason.LOCAL_FILE_UNUSABLE,
                )
            ) from None
        except (ValueError, TypeError, AttributeError, KeyError, binascii.Error):
            remedy = "remove it and log in again, or name the folder of another one in DOCKER_CONFIG"
            raise ProblemsError(
                Problem("it holds no login file of Docker's form", str(file), remedy, reason=Reason.LOCAL_FILE_UNUSABLE)
            ) from None

    def of(self, reference: Reference) -> list[Login]:
        """Logins that apply to this image, the most specific first, as the kubelet orders them."""
        found = [(len(place), login) for place, login in self._entries if _covers(place, reference)]
        return [login for _, login in sorted(found, key=lambda each: -each[0])]


def _logins(file: Mapping[str, Any]) -> list[tuple[str, Login]]:
    entries = []
    for place, entry in file["auths"].items():
        if entry.get("auth"):
            user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        else:
            user, password = entry["username"], entry["password"]
        entries.append((str(place), Login(str(user), str(password))))
    return entries


def _covers(place: str, reference: Reference) -> bool:
    """Return whether a login's entry covers this image: ``https://host/v1/``, ``host``, ``host/path``, ``*.host``."""
    bare = re.sub(r"/v[12]/?$", "", place.removeprefix("https://").removeprefix("http://")).rstrip("/")
    host, _, path = bare.partition("/")
    if host in _HUB_NAMES:
        same = reference.host in _HUB_NAMES
    else:
        wanted, given = host.split("."), reference.host.split(".")
        same = len(wanted) == len(given) and all(map(fnmatch.fnmatchcase, given, wanted))
    return same and (not path or f"{reference.repository}/".startswith(f"{path}/"))


@dataclass(frozen=True)
class Layer:
    """One layer of an image. ``compression`` is ``gzip`` or empty; ``size`` is in bytes, as transferred."""

    digest: str
    size: int
    compression: str


@dataclass(frozen=True)
class Manifest:
    """Image for one architecture: its own digest, and the layers from the lowest up."""

    digest: str
    layers: tuple[Layer, ...]


class Registry:
    """Client of registries. One object serves a whole run, because it keeps the tokens that it gets. Thread-safe."""

    def __init__(self, https: Https, logins: Logins | None = None) -> None:
        self._https = https
        self._logins = logins or Logins()
        self._authorizations: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def digest(self, reference: Reference) -> str:
        """Digest of the index or manifest to which the reference points now. Raises ProblemsError.

        Uses a HEAD request, which public registries do not count as a pull.
        """
        name = reference.digest or reference.tag
        url = f"{reference.api}/manifests/{name}"
        try:
            headers = self._authorized(reference, lambda more: self._https.head(url, {**_ACCEPT, **more}))
            found = headers.get("Docker-Content-Digest", "")
            return found if _DIGEST.fullmatch(found) else self._document(reference, name)[0]
        except FetchError as error:
            raise _problem(reference, error) from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _nonsense(reference, error) from None

    def manifest(self, reference: Reference, architecture: str) -> Manifest:
        """Manifest of this reference for linux on this architecture (``amd64``, ``arm64``). Raises ProblemsError."""
        try:
            digest, found = self._document(reference, reference.digest or reference.tag)
            if found["mediaType"] in _INDEXES:
                digest = _for_architecture(found, architecture)
                _, found = self._document(reference, digest)
            else:
                self._check_architecture(reference, found, architecture)
            return Manifest(digest, _layers(found))
        except FetchError as error:
            raise _problem(reference, error) from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _nonsense(reference, error) from None

    def blob(self, reference: Reference, layer: Layer, into: BinaryIO) -> None:
        """Fetch a layer, as transferred, into an empty file. Raises ProblemsError if its digest differs."""
        url = f"{reference.api}/blobs/{layer.digest}"
        try:
            found = self._authorized(reference, lambda headers: self._https.save(url, into, layer.size, headers))
        except FetchError as error:
            raise _problem(reference, error) from None
        if f"sha256:{found}" != layer.digest:
            what = f"a layer has the checksum sha256:{found}, not {layer.digest}"
            raise ProblemsError(
                Problem(
                    what,
                    str(reference),
                    "the registry or a proxy before it damages files",
                    reason=Reason.CHECKSUM_MISMATCH,
                )
            )

    def _document(self, reference: Reference, name: str) -> tuple[str, dict[str, Any]]:
        url = f"{reference.api}/manifests/{name}"

        def ask(headers: Mapping[str, str]) -> Answer:
            return self._https.read(url, MOST_MANIFEST_BYTES, {**_ACCEPT, **headers})

        answer = self._authorized(reference, ask)
        return _read(answer.content, name if ":" in name else "", answer.headers.get_content_type())

    def _check_architecture(self, reference: Reference, manifest: Mapping[str, Any], architecture: str) -> None:
        """Raise if a manifest outside an index is for another architecture, which its configuration names."""
        digest = _digest(manifest["config"])
        url = f"{reference.api}/blobs/{digest}"
        answer = self._authorized(reference, lambda headers: self._https.read(url, MOST_MANIFEST_BYTES, headers))
        _, configuration = _read(answer.content, digest, "")
        found = configuration["architecture"]
        if found != architecture:
            raise _OtherArchitectureError(architecture, [str(found)])

    def _authorized(self, reference: Reference, ask: Callable[[Mapping[str, str]], T]) -> T:
        """Result of ``ask`` with the authorization that worked before; after a challenge, authenticate and retry."""
        place = (reference.host, reference.repository)
        with self._lock:
            known = self._authorizations.get(place)
        try:
            return ask({"Authorization": known} if known else {})
        except StatusError as error:
            if error.status != 401:
                raise
            refused = error
        challenge = refused.headers.get("WWW-Authenticate", "")
        logins: list[Login | None] = [*self._logins.of(reference)]
        for login in logins or [None]:
            try:
                authorization = self._authorization(challenge, login, reference)
                if authorization is None:
                    break
                answer = ask({"Authorization": authorization})
            except StatusError as error:
                if error.status not in (401, 403):
                    raise
                refused = error
                continue
            with self._lock:
                self._authorizations[place] = authorization
            return answer
        raise refused

    def _authorization(self, challenge: str, login: Login | None, reference: Reference) -> str | None:
        """Header that answers the challenge: the login itself, or a token, which its issuer gives for a login or to
        anyone. None if there is no login to present. Raises FetchError.
        """
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() != "bearer":
            return login.basic if login and scheme.lower() == "basic" else None
        asked = {name.lower(): value for name, value in _CHALLENGE.findall(rest)}
        if urllib.parse.urlsplit(asked.get("realm", "")).scheme != "https":
            raise FetchError("the registry sends us to a place for tokens that is not https")
        query = {"scope": f"repository:{reference.repository}:pull"}
        if "service" in asked:
            query["service"] = asked["service"]
        separator = "&" if "?" in asked["realm"] else "?"
        url = f"{asked['realm']}{separator}{urllib.parse.urlencode(query)}"
        answer = self._https.read(url, MOST_MANIFEST_BYTES, {"Authorization": login.basic} if login else {})
        found = json.loads(answer.content)
        return f"Bearer {found.get('token') or found['access_token']}"


class _OtherArchitectureError(FetchError):
    def __init__(self, wanted: str, found: Iterable[str]) -> None:
        super().__init__(f"it is not for linux on {wanted}, only for {', '.join(sorted(set(found))) or 'others'}")


def _read(content: bytes, expected: str, content_type: str) -> tuple[str, dict[str, Any]]:
    """Digest and content of a JSON document. Raises FetchError if it is not the one that was requested."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if expected and digest != expected:
        raise FetchError(f"the registry answered with {digest} when it was asked for {expected}")
    document: dict[str, Any] = json.loads(content)
    # The media type is in the document itself, or, with old ones, only in the response.
    document.setdefault("mediaType", content_type)
    return digest, document


def _for_architecture(index: Mapping[str, Any], architecture: str) -> str:
    found = []
    for each in index["manifests"]:
        platform = each.get("platform") or {}
        if platform.get("os") != "linux":
            continue
        if platform.get("architecture") == architecture:
            return _digest(each)
        found.append(str(platform.get("architecture")))
    raise _OtherArchitectureError(architecture, found)


def _layers(manifest: Mapping[str, Any]) -> tuple[Layer, ...]:
    if manifest["mediaType"] not in _MANIFESTS:
        raise FetchError(f"the image is of the kind {manifest['mediaType']}, which is not known here")
    layers = []
    for each in manifest["layers"]:
        if each["mediaType"] not in _LAYERS:
            raise FetchError(f"the image has a layer of the kind {each['mediaType']}, which is not known here")
        layers.append(Layer(_digest(each), int(each["size"]), _LAYERS[each["mediaType"]]))
    if len(layers) > MOST_LAYERS or sum(layer.size for layer in layers) > MOST_IMAGE_BYTES:
        raise FetchError(f"the image has more than {MOST_LAYERS} layers or {MOST_IMAGE_BYTES >> 20} MiB")
    return tuple(layers)


def _digest(descriptor: Mapping[str, Any]) -> str:
    """Digest in a descriptor, validated because it becomes part of a URL. Raises FetchError if it is none."""
    digest = str(descriptor["digest"])
    if not _DIGEST.fullmatch(digest):
        raise FetchError(f"the registry names {digest!r} where a SHA-256 digest belongs")
    return digest


def _nonsense(reference: Reference, error: Exception) -> ProblemsError:
    what = f"the registry's answer is not an image: {error}"
    remedy = "look at the image with another tool; the registry or a proxy before it may be at fault"
    return ProblemsError(Problem(what, str(reference), remedy, reason=Reason.INVALID_IMAGE))


def _problem(reference: Reference, error: FetchError) -> ProblemsError:
    status = error.status if isinstance(error, StatusError) else 0
    if status in (401, 403):
        remedy = (
            "log in to this registry where Ansible runs (docker login writes ~/.docker/config.json; what a credential "
            "helper keeps is not read), or check that the login is still good"
        )
    elif status == 404:
        remedy = "check registry, repository and tag (spec.images, imageRepository, imageTag), or put the image there"
    elif isinstance(error, _OtherArchitectureError):
        remedy = "put an image for this architecture into the registry, or name another one (imageRepository, imageTag)"
    elif status:
        remedy = "try again later, or name a mirror in spec.images"
    else:
        # In the same words for all images of the registry, so that it is told once.
        what = f"the registry does not answer, and none of its images can be had: {error}"
        remedy = (
            "make it reachable (proxies are taken from the environment), name a mirror in spec.images, or take the "
            f"programs from elsewhere: {OTHER_SOURCES}"
        )
        return ProblemsError(Problem(what, reference.host, remedy, reason=Reason.IMAGE_NOT_AVAILABLE))
    return ProblemsError(
        Problem(f"the image cannot be had: {error}", str(reference), remedy, reason=Reason.IMAGE_NOT_AVAILABLE)
    )
