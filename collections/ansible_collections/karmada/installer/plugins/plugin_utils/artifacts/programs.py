# SPDX-License-Identifier: Apache-2.0
"""The programs of a release as files: found in the source that the document names, verified, kept in the cache.

Who can give what:

=========== ======================== =========================================== ======================
source      karmada                  kubernetes, etcd                            checked against
=========== ======================== =========================================== ======================
Image       its images               their images                                a digest, and all below it
URL         nothing is published     release downloads                           the lock file
URL, mirror what the site put there  what the site put there                     lock file, sha256sums
Directory   what the site put there  what the site put there                     lock file, sha256sums
GoModules   built here               built here                                  our go.sum
=========== ======================== =========================================== ======================

The digest of an image is known beforehand, or it is what its tag leads to and has led to before (``image_pins``).
``sha256sums`` is a file of the directory that the inventory source names: what ``sha256sum`` prints in that directory.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..components import image_pins
from ..components.image_pins import Held
from ..components.releases import Release
from ..components.types import Component, settings_of
from ..problems import Problem, ProblemsError, Reason
from . import crd_files, image_files, release_files
from . import source as artifact_source
from .go_modules import Build
from .https import FetchError, Https
from .program_cache import Kept, ProgramCache
from .registry import Logins, Manifest, Reference, Registry
from .release_files import ReleaseFile
from .source import Source

#: e_machine in the header of a program, by the name that Go and container images have for it.
MACHINES: Mapping[str, int] = {"amd64": 62, "arm64": 183}
#: Architecture as the kernel of a host names it → that name.
ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
#: Programs that are fetched and unpacked at the same moment: two fill a network, and each takes a processor.
PROGRAMS_AT_ONCE = 4

_ELF64_LITTLE = b"\x7fELF\x02\x01"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Program:
    """A verified file: of which version it is, and where it came from in words for a person.

    ``path`` is in the cache, ``sha256`` in hex, ``size`` in bytes. Where it came out of an image whose digest was not
    known beforehand, ``digest`` is what the tag of ``origin`` led to.
    """

    path: Path
    sha256: str
    size: int
    version: str
    origin: str
    digest: str = ""


@dataclass(frozen=True)
class Access:
    """How sources are reached: web servers, and who we are at registries."""

    https: Https
    logins: Logins


def programs(
    release: Release,
    architecture: str,
    components: Iterable[Component],
    spec: Mapping[str, Any],
    source: Source,
    cache: Path | None = None,
    access: Access | None = None,
    held: Held | None = None,
) -> dict[str, Program]:
    """The program of each component, by the component's name.

    ``architecture`` is ``amd64`` or ``arm64``; ``spec`` is the document's with all defaults. What is in the cache is
    verified again, the rest is fetched. ``held`` is what tags of images have to lead to. Raises ProblemsError with
    everything that cannot be had.
    """
    finder = _Finder(source, spec, access or _access(source), held or Held())
    kept = ProgramCache(cache or artifact_source.cache_directory() / "programs")
    wanted = finder.wanted(release, architecture, components)
    found = _each(wanted, lambda each: _bring(finder.locate(each), kept))
    return {each.component: program for each, program in zip(wanted, found, strict=True)}


def check(
    release: Release,
    architecture: str,
    components: Iterable[Component],
    spec: Mapping[str, Any],
    source: Source,
    cache: Path | None = None,
    access: Access | None = None,
    held: Held | None = None,
) -> list[Problem]:
    """What of it cannot be had, without fetching it: asks the source for whatever the cache does not have."""
    try:
        finder = _Finder(source, spec, access or _access(source), held or Held())
        kept = ProgramCache(cache or artifact_source.cache_directory() / "programs")
        _each(finder.wanted(release, architecture, components), lambda each: _ask(finder.locate(each), kept))
    except ProblemsError as error:
        return error.problems
    return []


def _access(source: Source) -> Access:
    """How this machine reaches a source: registries as who runs this is logged in to them."""
    return Access(Https(), Logins.of_this_user() if source.kind == "Image" else Logins())


@dataclass(frozen=True)
class _Wanted:
    """One program. ``project`` is the field of Release that is its version.

    ``reference`` is its image, with the digest if that is known beforehand.
    """

    component: str
    project: str
    version: str
    architecture: str
    path: str
    reference: str

    @property
    def program(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class _Located:
    """A program in its source. ``sha256`` is known where a checksum of the program itself is; ``source`` names what
    decides it where not. ``fetch`` writes it into an empty file, ``probe`` only asks for it; both raise ProblemsError.
    ``digest`` is what the tag of its image has led to.
    """

    wanted: _Wanted
    where: str
    source: Mapping[str, str]
    fetch: Callable[[BinaryIO, ProgramCache], None]
    sha256: str = ""
    probe: Callable[[], object] = lambda: None
    digest: str = ""


class _Finder:
    """Knows one source."""

    def __init__(self, source: Source, spec: Mapping[str, Any], access: Access, held: Held) -> None:
        self._source = source
        self._spec = spec
        self._https = access.https
        self._registry = Registry(access.https, access.logins)
        self._held = held
        self._digests: dict[str, str] = {}
        self._lock = artifact_source.read_lock()
        sums = source.directory / release_files.SUMS_FILE if source.directory else None
        self._sums = release_files.read_sums(sums) if sums and sums.is_file() else {}

    def wanted(self, release: Release, architecture: str, components: Iterable[Component]) -> list[_Wanted]:
        """What to look for. Raises ProblemsError if the source cannot have it at all."""
        if architecture not in MACHINES:
            what = f"there are no programs for the architecture {architecture}"
            raise ProblemsError(
                Problem(what, "", f"use hosts with one of {', '.join(MACHINES)}", reason=Reason.UNSUITABLE_HOST)
            )
        pins = image_pins.of_release(release, self._lock)
        found = [self._want(each, release, architecture, pins) for each in components]
        if self._source.kind == "URL" and not self._source.url:
            missing = [
                each for each in found if each.project not in release_files.PUBLISHERS and not self._prepared(each)
            ]
            if missing:
                what = f"no release downloads exist for {', '.join(each.program for each in missing)}"
                remedy = (
                    "set it to Image or GoModules, name a mirror that has them (spec.artifacts.url) or prepare them "
                    "in a directory"
                )
                raise ProblemsError(
                    Problem(what, "spec.artifacts.source", remedy, reason=Reason.INVALID_ARTIFACT_SOURCE)
                )
        return found

    def _want(self, component: Component, release: Release, architecture: str, pins: Mapping[str, str]) -> _Wanted:
        settings, image = settings_of(component, self._spec), component.image
        version: str = getattr(release, image.release)
        tag = str(settings.get("imageTag") or "").partition("@")[0]
        return _Wanted(
            component=component.name,
            project=image.release,
            version=tag or version if self._source.kind == "Image" else version,
            architecture=architecture,
            path=component.binary,
            reference=image_pins.pinned(image.reference(self._spec["images"], release, settings), pins),
        )

    def locate(self, wanted: _Wanted) -> _Located:
        """Where this program is, as far as that can be known without fetching it. Raises ProblemsError."""
        prepared = self._prepared(wanted)
        if prepared:
            return self._in_directory(wanted, *prepared)
        if self._source.kind == "Image":
            return self._in_image(wanted)
        if self._source.kind == "GoModules":
            return self._built(wanted)
        if self._source.kind == "Directory":
            first = release_files.candidates(wanted.project, wanted.version, wanted.architecture, wanted.program)[0]
            name = f"{wanted.project}/{wanted.version}/{first.path}"
            if self._source.directory is None:
                raise crd_files.no_directory()
            what = f"the directory holds no {wanted.program} {wanted.version} for {wanted.architecture}"
            raise ProblemsError(
                Problem(
                    what,
                    str(self._source.directory),
                    f"put {name} into it, and its checksum into {release_files.SUMS_FILE}",
                    reason=Reason.ARTIFACT_NOT_FOUND,
                )
            )
        return self._downloaded(wanted)

    # -- files, from a directory or over https -----------------------------------------------------------------------

    def _prepared(self, wanted: _Wanted) -> tuple[ReleaseFile, Path] | None:
        if self._source.directory is None:
            return None
        folder = self._source.directory / wanted.project / wanted.version
        for file in release_files.candidates(wanted.project, wanted.version, wanted.architecture, wanted.program):
            if (folder / file.path).is_file():
                return file, folder / file.path
        return None

    def _in_directory(self, wanted: _Wanted, file: ReleaseFile, path: Path) -> _Located:
        def fetch(into: BinaryIO) -> str:
            try:
                content = path.open("rb")
            except OSError as error:
                raise release_files.unreadable(path, error) from None
            with content:
                shutil.copyfileobj(content, into)
            return _hash(into)

        return self._file(wanted, file, str(path), fetch)

    def _downloaded(self, wanted: _Wanted) -> _Located:
        files = release_files.candidates(wanted.project, wanted.version, wanted.architecture, wanted.program)
        base = release_files.PUBLISHERS.get(wanted.project, "")
        if self._source.url:
            base = f"{self._source.url.rstrip('/')}/{wanted.project}"
            # A mirror may have either; it has what there is a checksum of.
            files = tuple(file for file in files if self._sum(wanted, file)) or files
        file = files[0]
        url = f"{base}/{wanted.version}/{file.path}"

        def fetch(into: BinaryIO) -> str:
            return self._https.save(url, into, image_files.MOST_PROGRAM_BYTES)

        return self._file(wanted, file, url, fetch, lambda: self._https.head(url))

    def _file(
        self,
        wanted: _Wanted,
        file: ReleaseFile,
        where: str,
        fetch: Callable[[BinaryIO], str],
        probe: Callable[[], object] = lambda: None,
    ) -> _Located:
        """A file that has to have a known checksum. ``fetch`` returns the hash of what it fetched."""
        expected = self._sum(wanted, file)
        if not expected:
            name = f"{wanted.project}/{wanted.version}/{file.path}"
            what = f"no checksum is recorded for {name}"
            raise ProblemsError(
                Problem(
                    what,
                    where,
                    f"add it to {release_files.SUMS_FILE} in the artifacts directory of the inventory source",
                    reason=Reason.CHECKSUM_MISSING,
                )
            )

        def verified(into: BinaryIO) -> None:
            try:
                found = fetch(into)
            except FetchError as error:
                raise _unreachable(wanted, where, error) from None
            if found != expected:
                what = f"{wanted.program} {wanted.version} has the checksum sha256:{found}, not sha256:{expected}"
                remedy = "it is damaged, changed or of another version; take it from the publisher again"
                raise ProblemsError(Problem(what, where, remedy, reason=Reason.CHECKSUM_MISMATCH))

        def member(into: BinaryIO, cache: ProgramCache) -> None:
            with cache.scratch() as packed, cache.scratch() as plain:
                verified(packed)
                image_files.decompress(packed, "gzip", plain)
                image_files.extract([plain], file.member, into)

        def ask() -> None:
            try:
                probe()
            except FetchError as error:
                raise _unreachable(wanted, where, error) from None

        if file.member:
            return _Located(wanted, where, {"archive": expected, "member": file.member}, member, probe=ask)
        return _Located(wanted, where, {}, lambda into, _: verified(into), sha256=expected, probe=ask)

    def _sum(self, wanted: _Wanted, file: ReleaseFile) -> str:
        """The recorded hash of a file, in hex; the publisher's counts more than the site's own."""
        locked = self._recorded(wanted.project, wanted.version, "files").get(file.path, "")
        return locked.removeprefix("sha256:") or self._sums.get(f"{wanted.project}/{wanted.version}/{file.path}", "")

    def _recorded(self, project: str, version: str, kind: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._lock.get(project, {}).get(version, {}).get(kind, {})
        return found

    # -- images ------------------------------------------------------------------------------------------------------

    def _in_image(self, wanted: _Wanted) -> _Located:
        try:
            reference = Reference.parse(wanted.reference)
        except ValueError as error:
            raise ProblemsError(
                Problem(str(error), "spec.images", "write it as registry/path/name:tag", reason=Reason.INVALID_IMAGE)
            ) from None
        led_to = "" if reference.digest else self._led_to(wanted.reference, reference)
        # A tag may move at any time: from here on it is this image.
        image = replace(reference, digest=reference.digest or led_to)
        source = {"image": image.digest, "for": wanted.architecture, "path": wanted.path}

        def manifest() -> Manifest:
            return self._registry.manifest(image, wanted.architecture)

        def fetch(into: BinaryIO, cache: ProgramCache) -> None:
            self._pull(image, manifest(), wanted.path, into, cache)

        return _Located(wanted, wanted.reference, source, fetch, probe=manifest, digest=led_to)

    def _led_to(self, name: str, reference: Reference) -> str:
        """The digest that a tag leads to, one for all that ask. Raises ProblemsError if it led elsewhere before."""
        digest = self._registry.digest(reference)
        # Two at the same moment may be told different things: what the first was told holds.
        digest = self._digests.setdefault(name, digest)
        refusal = self._held.refusal(name, digest)
        if refusal:
            raise ProblemsError(refusal)
        return digest

    def _pull(self, reference: Reference, manifest: Manifest, path: str, into: BinaryIO, cache: ProgramCache) -> None:
        with ExitStack() as scratch:
            layers = []
            left = image_files.MOST_BYTES
            for layer in manifest.layers:
                plain = scratch.enter_context(cache.scratch())
                with cache.scratch() as packed:
                    self._registry.blob(reference, layer, packed)
                    image_files.decompress(packed, layer.compression, plain, left)
                left -= plain.tell()
                layers.append(plain)
            image_files.extract(layers, path, into)

    # -- Go modules --------------------------------------------------------------------------------------------------

    def _built(self, wanted: _Wanted) -> _Located:
        build = Build(wanted.project, wanted.version, wanted.program, wanted.architecture, self._source.url)

        def fetch(into: BinaryIO, cache: ProgramCache) -> None:
            # One after the other: a single build keeps all processors busy, and the next finds most of it compiled.
            with cache.alone("build") as folder:
                built = folder / wanted.program
                build.run(built)
                with built.open("rb") as content:
                    shutil.copyfileobj(content, into)

        return _Located(wanted, f"Go module {wanted.project} {wanted.version}", build.source(), fetch)


def _ask(located: _Located, cache: ProgramCache) -> None:
    """Ask the source for what the cache does not have."""
    known = _known(located, cache)
    if not known or not cache.has(known):
        located.probe()


def _bring(located: _Located, cache: ProgramCache) -> Program:
    """The program out of the cache, or out of its source and into the cache."""
    known = _known(located, cache)
    kept = (cache.get(known) if known else None) or _fetch(located, cache)
    return Program(kept.path, kept.sha256, kept.size, located.wanted.version, located.where, located.digest)


def _fetch(located: _Located, cache: ProgramCache) -> Kept:
    with cache.scratch() as scratch:
        try:
            located.fetch(scratch, cache)
        except image_files.ImageError as error:
            remedy = "name an image or archive that has the program, such as the project's own"
            raise ProblemsError(Problem(str(error), located.where, remedy, reason=Reason.INVALID_IMAGE)) from None
        _check_machine(located, scratch)
        kept = cache.put(scratch)
    if located.sha256 and kept.sha256 != located.sha256:
        raise AssertionError(f"{kept.path} was verified as {located.sha256}")
    if located.source:
        cache.remember(located.source, kept.sha256)
    return kept


def _known(located: _Located, cache: ProgramCache) -> str:
    """The hash of the program, if anyone knows it yet."""
    return located.sha256 or cache.recall(located.source) or ""


def _check_machine(located: _Located, content: BinaryIO) -> None:
    """A program for another machine would only be noticed when its unit does not start."""
    content.seek(0)
    header = content.read(20)
    wanted = located.wanted
    if header.startswith(_ELF64_LITTLE) and int.from_bytes(header[18:20], "little") == MACHINES[wanted.architecture]:
        return
    what = f"{wanted.path} is not a program for linux on {wanted.architecture}"
    raise ProblemsError(
        Problem(what, located.where, "put the file for this architecture there", reason=Reason.INVALID_ARTIFACT)
    )


def _hash(stream: BinaryIO) -> str:
    stream.seek(0)
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _unreachable(wanted: _Wanted, where: str, error: FetchError) -> ProblemsError:
    remedy = (
        "make the address reachable (proxies are taken from the environment), set spec.artifacts.url to a mirror, or "
        "prepare a directory and name it in the inventory source: artifacts: ./artifacts"
    )
    return ProblemsError(
        Problem(
            f"{wanted.program} {wanted.version} cannot be fetched: {error}",
            where,
            remedy,
            reason=Reason.ARTIFACT_NOT_AVAILABLE,
        )
    )


def _each(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Do this for all items, several at once; raises one ProblemsError with the problems of all of them."""
    results, problems = [], []
    with ThreadPoolExecutor(max_workers=PROGRAMS_AT_ONCE) as pool:
        for running in [pool.submit(work, item) for item in items]:
            try:
                results.append(running.result())
            except ProblemsError as error:
                problems += error.problems
    if problems:
        raise ProblemsError(list(dict.fromkeys(problems)))
    return results
