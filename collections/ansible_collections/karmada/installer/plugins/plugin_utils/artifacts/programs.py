# SPDX-License-Identifier: Apache-2.0
"""Programs of a release as files: located in the source of the document, verified, kept in the cache.

Content of each source:

=========== ======================== =========================================== ======================
source      karmada                  kubernetes, etcd                            checked against
=========== ======================== =========================================== ======================
Image       its images               their images                                a digest, and all below it
URL         nothing is published     release downloads                           the lock file
URL, mirror what the site put there  what the site put there                     lock file, sha256sums
Directory   what the site put there  what the site put there                     lock file, sha256sums
GoModules   built here               built here                                  our go.sum
=========== ======================== =========================================== ======================

The digest of an image is recorded, or is the one to which its tag points now and pointed before (``image_pins``).
``sha256sums`` in the directory of the inventory source has the output of ``sha256sum`` in that directory.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

from ..components import image_pins
from ..components.image_pins import Held
from ..components.releases import Release
from ..components.spec import Spec
from ..components.types import Component, settings_of
from ..problems import Problem, ProblemsError, Reason
from . import crd_files, image_files, release_files
from . import source as artifact_source
from .go_modules import Build
from .https import OTHER_SOURCES, FetchError, Https
from .program_cache import Kept, ProgramCache
from .registry import Logins, Manifest, Reference, Registry
from .release_files import ReleaseFile
from .source import Source

#: Architecture as Go and container images name it → e_machine in an ELF header.
MACHINES: Mapping[str, int] = {"amd64": 62, "arm64": 183}
#: Architecture as the kernel of a host names it → as Go and container images do.
ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
#: Programs that are fetched and unpacked concurrently: two saturate a network, and each needs a processor.
PROGRAMS_AT_ONCE = 4

_ELF64_LITTLE = b"\x7fELF\x02\x01"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Program:
    """A verified program file: its version, and its origin in words for a person.

    ``path`` is in the cache, ``sha256`` in hex, ``size`` in bytes. ``digest`` is the one to which the tag of ``origin``
    pointed, if the program comes from an image without a recorded digest.
    """

    path: Path
    sha256: str
    size: int
    version: str
    origin: str
    digest: str = ""


@dataclass(frozen=True)
class Access:
    """Access to sources: HTTP client, and logins at registries. Fetches end soon after ``stopped`` returns True."""

    https: Https
    logins: Logins
    stopped: Callable[[], bool] = lambda: False

    def until(self, stopped: Callable[[], bool]) -> Access:
        """Return the same access with another ``stopped``."""
        return Access(self.https.until(stopped), self.logins, stopped)


def programs(
    release: Release,
    architecture: str,
    components: Iterable[Component],
    spec: Spec,
    source: Source,
    cache: Path | None = None,
    access: Access | None = None,
    held: Held | None = None,
) -> dict[str, Program]:
    """Program of each component, by the component's name.

    ``architecture`` is ``amd64`` or ``arm64``; ``spec`` is the document's with all defaults. Cached programs are
    verified again, others are fetched. ``held`` has the digests to which tags of images must point. Raises
    ProblemsError with all programs that are not available.
    """
    finder = _Finder(source, spec, access or access_to(source), held or Held())
    kept = ProgramCache(cache or artifact_source.cache_directory() / "programs")
    wanted = finder.wanted(release, architecture, components)
    found = _each(wanted, lambda each: _bring(finder.locate(each), kept))
    return {each.component: program for each, program in zip(wanted, found, strict=True)}


def check(
    release: Release,
    architecture: str,
    components: Iterable[Component],
    spec: Spec,
    source: Source,
    cache: Path | None = None,
    access: Access | None = None,
    held: Held | None = None,
) -> list[Problem]:
    """Problems of programs that are not available, without fetching: asks the source for those not in the cache."""
    try:
        finder = _Finder(source, spec, access or access_to(source), held or Held())
        kept = ProgramCache(cache or artifact_source.cache_directory() / "programs")
        _each(finder.wanted(release, architecture, components), lambda each: _ask(finder.locate(each), kept))
    except ProblemsError as error:
        return error.problems
    return []


def access_to(source: Source) -> Access:
    """Access to a source from this machine; at registries with the logins of the current user."""
    return Access(Https(), Logins.of_this_user() if source.kind == "Image" else Logins())


@dataclass(frozen=True)
class _Wanted:
    """One program. ``project`` is the field of Release with its version.

    ``reference`` is its image, with the recorded digest if there is one.
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
    """A program in its source. ``sha256`` is set if the program itself has a known checksum; otherwise ``source``
    identifies its content. ``fetch`` writes it into an empty file, ``probe`` only asks for it; both raise
    ProblemsError. ``digest`` is the one of its image's tag.
    """

    wanted: _Wanted
    where: str
    source: Mapping[str, str]
    fetch: Callable[[BinaryIO, ProgramCache], None]
    sha256: str = ""
    probe: Callable[[], object] = lambda: None
    digest: str = ""


class _Finder:
    """Locator of programs in one source."""

    def __init__(self, source: Source, spec: Spec, access: Access, held: Held) -> None:
        self._source = source
        self._spec = spec
        self._https = access.https
        self._registry = Registry(access.https, access.logins)
        self._held = held
        self._stopped = access.stopped
        self._digests: dict[str, str] = {}
        self._lock = artifact_source.read_lock()
        sums = source.directory / release_files.SUMS_FILE if source.directory else None
        self._sums = release_files.read_sums(sums) if sums and sums.is_file() else {}

    def wanted(self, release: Release, architecture: str, components: Iterable[Component]) -> list[_Wanted]:
        """Programs to look for. Raises ProblemsError if the source cannot have one of them at all."""
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
        tag = settings.image_tag.partition("@")[0]
        return _Wanted(
            component=component.name,
            project=image.release,
            version=tag or version if self._source.kind == "Image" else version,
            architecture=architecture,
            path=component.binary,
            reference=image_pins.pinned(image.reference(self._spec.images, release, settings), pins),
        )

    def locate(self, wanted: _Wanted) -> _Located:
        """Location of this program, determined without fetching it. Raises ProblemsError if it has none."""
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
            # A mirror may have either form; the one with a known checksum is expected.
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
        """Location of a file with a known checksum. ``fetch`` returns the hash of what it fetched."""
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
        """Recorded hash of a file, in hex; the lock file takes precedence over the site's own sums."""
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
        # A tag may move at any time: from here on the digest is used.
        image = replace(reference, digest=reference.digest or led_to)
        source = {"image": image.digest, "for": wanted.architecture, "path": wanted.path}

        def manifest() -> Manifest:
            return self._registry.manifest(image, wanted.architecture)

        def fetch(into: BinaryIO, cache: ProgramCache) -> None:
            self._pull(image, manifest(), wanted.path, into, cache)

        return _Located(wanted, wanted.reference, source, fetch, probe=manifest, digest=led_to)

    def _led_to(self, name: str, reference: Reference) -> str:
        """Digest to which a tag points, one for a whole run. Raises ProblemsError if it pointed elsewhere before."""
        digest = self._registry.digest(reference)
        # Concurrent requests may get different digests: the first is used.
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
            # One at a time: a single build uses all processors, and leaves most packages compiled for the next one.
            with cache.alone("build", self._stopped) as folder:
                built = folder / wanted.program
                build.run(built, self._stopped)
                with built.open("rb") as content:
                    shutil.copyfileobj(content, into)

        return _Located(wanted, f"Go module {wanted.project} {wanted.version}", build.source(), fetch)


def _ask(located: _Located, cache: ProgramCache) -> None:
    """Probe the source if the program is not in the cache."""
    known = _known(located, cache)
    if not known or not cache.has(known):
        located.probe()


def _bring(located: _Located, cache: ProgramCache) -> Program:
    """Program from the cache, or fetched into it from its source."""
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
    """Hash of the program; empty if it is not known yet."""
    return located.sha256 or cache.recall(located.source) or ""


def _check_machine(located: _Located, content: BinaryIO) -> None:
    """Raise ProblemsError for a program of another architecture, before it fails when its unit starts."""
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
        "make the address reachable (proxies are taken from the environment), or take it from elsewhere: "
        f"{OTHER_SOURCES}"
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
    """Results of ``work`` on all items, several at once; raises one ProblemsError with the problems of all of them."""
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
