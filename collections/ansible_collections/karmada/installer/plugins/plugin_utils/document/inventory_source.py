# SPDX-License-Identifier: Apache-2.0
"""Inventory source of this collection: the small file that names the document and the settings around it.

The inventory plugin loads it to make hosts. The action ``require_document`` loads it again if there are none, because
Ansible turns a plugin's failure into a warning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import private_file
from ..components.spec import Spec
from ..problems import Problem, ProblemsError, Reason
from ..yaml_document import UnreadableError, documents_of
from . import backups, crd, kept_verdicts, manifest, object_kind, restores

#: Names of the inventory plugin: of the collection, and of a checkout that is not installed as a collection.
PLUGIN_NAMES = ("karmada.installer.karmada", "karmada")
#: What a user writes when there is nothing yet.
EXAMPLE = """\
# site.karmada.yml
plugin: karmada.installer.karmada
manifest: prod.yaml"""

OPTIONS = (
    *("manifest", "kubeconfig", "context", "namespace", "name", "secrets", "config_maps", "artifacts"),
    *("kubeconfig_output", "report_output", "membership", "backups", "uid", "generation"),
    *("instances", "label_selector", "members_query"),
)
#: Value of ``instances``.
ALL = "all"
#: What is said of one document, and of several not.
_OF_ONE = ("manifest", "name", "uid", "generation", "kubeconfig_output", "report_output")
#: What of an object was decided upon by whoever started the run; another one is not carried out.
DECIDED = ("uid", "generation")
#: Options that are paths and belong to the connection.
PATHS = ("kubeconfig", "secrets", "config_maps", "artifacts", "kubeconfig_output", "report_output", "backups")
#: Where it comes from which members there are: what the document lists, or also what is registered.
SPEC, LIVE = "spec", "live"
#: Options of Ansible's own that the plugin takes beside its own.
CONSTRUCTED = (
    *("plugin", "strict", "compose", "groups", "keyed_groups", "use_extra_vars", "leading_separator"),
    *("cache", "cache_plugin", "cache_timeout", "cache_connection", "cache_prefix"),
)

_invalid = partial(Problem, reason=Reason.INVALID_INVENTORY_SOURCE)
_FILE_NAME = re.compile(r"(.+\.)?karmada\.ya?ml")
#: Line by which a file of another name says that it is meant for this plugin.
_MEANT = re.compile(rb"""^plugin[ \t]*:[ \t]*["']?(karmada\.installer\.)?karmada["']?[ \t]*(#.*)?\r?$""", re.MULTILINE)


#: EtcdBackups and EtcdRestores.
_Companions = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Source:
    """Content of a source. ``membership`` is SPEC or LIVE.

    ``connection`` is what the source says and no more, for ``references.Connection.of``: nothing of the environment,
    which may be another one when it is used, and no secret. Paths below the working directory are relative to it.
    ``backups`` and ``restores`` are the EtcdBackups and EtcdRestores beside a document in a file; those beside an
    object are looked for when they are needed. ``installed`` is what an object's status says.
    """

    deployment: dict[str, Any]
    connection: dict[str, str | None]
    membership: str = SPEC
    members_query: str | None = None
    installed: bool = False
    backups: tuple[dict[str, Any], ...] = ()
    restores: tuple[dict[str, Any], ...] = ()


def has_our_name(path: str) -> bool:
    """Return whether the inventory plugin reads files of this name."""
    return _FILE_NAME.fullmatch(Path(path).name) is not None


def is_meant(path: str) -> bool:
    """Return whether the inventory plugin has to answer for a file: by its name, or by a line of a YAML file.

    Cheap, as files of other plugins are looked at as well: bounded, and not parsed.
    """
    if has_our_name(path):
        return True
    try:
        with Path(path).open("rb") as file:
            return path.endswith((".yml", ".yaml")) and _MEANT.search(file.read(manifest.MAX_BYTES)) is not None
    except OSError:
        return False


def misnamed(path: str) -> list[Problem]:
    """Problem of a source whose name other plugins could take for theirs."""
    if has_our_name(path):
        return []
    what = "is not read by the inventory plugin because of its name"
    remedy = "Call it karmada.yml or something that ends in .karmada.yml."
    return [Problem(what, short(path), remedy, reason=Reason.DOCUMENT_NOT_LOADED)]


def is_ours(path: str) -> bool:
    """Return whether the file is meant for the inventory plugin, by its name or by its content."""
    return has_our_name(path) or str(_field(path, "plugin")) in PLUGIN_NAMES


def is_document(path: str) -> bool:
    """Return whether the file is a KarmadaDeployment itself."""
    return bool(_field(path, "kind") == manifest.KIND)


def load(path: str) -> Source:
    """Read the source and the document that it names. Raises ProblemsError with all problems."""
    return of_options(Path(path), read_options(path))


def of_options(file: Path, options: Mapping[str, str]) -> Source:
    """Document of a source whose options were read; they name one. Paths in the source are relative to it.

    Raises ProblemsError with all problems.
    """
    kubeconfig, context = absolute(file, options.get("kubeconfig")), options.get("context")
    problems = missing_paths(file, options)
    directory, deployment, installed = file.parent, None, False
    beside_it: _Companions = ([], [])
    try:
        with kept_verdicts.used():
            if "manifest" in options:
                document = Path(str(absolute(file, options["manifest"])))
                directory, (deployment, beside_it) = document.parent, _from_file(document)
            elif not problems:
                deployment, installed = _from_cluster(options, kubeconfig, context)
    except ProblemsError as error:
        problems += error.problems
    if deployment:
        problems += without_artifacts(file, options, deployment)
    if problems or deployment is None:
        raise ProblemsError(problems)
    beside = directory.absolute() / deployment["metadata"]["name"]
    return source_of(file, options, deployment, beside, beside_it, installed=installed)


def missing_paths(file: Path, options: Mapping[str, str]) -> list[Problem]:
    """Problems of paths in the source that lead nowhere."""
    return [
        *_missing(file, "kubeconfig", absolute(file, options.get("kubeconfig")), Path.is_file, "file"),
        *(
            problem
            for name in ("secrets", "config_maps", "artifacts")
            for problem in _missing(file, name, absolute(file, options.get(name)), Path.is_dir, "directory")
        ),
    ]


def without_artifacts(file: Path, options: Mapping[str, str], deployment: Mapping[str, Any]) -> list[Problem]:
    """Problem of a document that takes artifacts from a directory, if the source names none."""
    if Spec(deployment["spec"]).artifacts.source != "Directory" or "artifacts" in options:
        return []
    remedy = "Name the directory there: artifacts: ./artifacts"
    return [_invalid("spec.artifacts.source is Directory, but no directory is named", short(file), remedy)]


def source_of(
    file: Path,
    options: Mapping[str, str],
    deployment: dict[str, Any],
    beside: Path,
    beside_it: _Companions = ([], []),
    *,
    installed: bool = False,
) -> Source:
    """Source with a resolved document; ``beside`` is where files of a run are that have no place of their own."""
    paths = {
        # Backups are not looked for here: a share that is not mounted is no matter of an installation.
        **{name: absolute(file, options.get(name)) for name in PATHS},
        "beside": str(beside),
    }
    return Source(
        deployment=deployment,
        connection={
            **{name: None if found is None else short(found) for name, found in paths.items()},
            "context": options.get("context"),
            "object_uid": None if "manifest" in options else deployment["metadata"].get("uid"),
        },
        membership=options.get("membership", SPEC),
        members_query=options.get("members_query"),
        installed=installed,
        backups=tuple(beside_it[0]),
        restores=tuple(beside_it[1]),
    )


def leaves_to_environment(deployment: Mapping[str, Any], connection: Mapping[str, Any]) -> bool:
    """Return whether the environment has a part in which clusters are asked.

    It has if the source names no kubeconfig, and not all that the document names are in its own directory.
    """
    spec = Spec(deployment["spec"])
    by_secret = spec.host_cluster.secret or spec.mode == "Binary"
    return not connection.get("kubeconfig") and not (by_secret and connection.get("secrets"))


def asks_servers(path: str) -> bool:
    """Return whether a source asks for registered members or for all objects, even if it has errors elsewhere.

    Its failure must not be taken for an inventory without hosts.
    """
    return _field(path, "membership") == LIVE or _field(path, "instances") is not None


def read_options(path: str) -> dict[str, str]:
    """Options of the plugin in the source, validated; exactly one way to find documents is among them.

    With ``instances`` there may be several (``instances.load``), else there is one (``of_options``). Raises
    ProblemsError.
    """
    file = Path(path)
    found = _mapping(file)
    problems = []
    if found.get("plugin") not in PLUGIN_NAMES:
        named = crd.shown(found.get("plugin"))
        problems.append(_invalid(f"plugin is {named}", short(file), f"Write plugin: {PLUGIN_NAMES[0]}"))
    known = (*OPTIONS, *CONSTRUCTED)
    for name in found:
        if name not in known:
            near = crd.nearest(name, known)
            remedy = f"Did you mean {near}?" if near else f"There are: {', '.join(known)}."
            problems.append(_invalid(f"{name} is not an option", short(file), remedy))
    options = {}
    for name in OPTIONS:
        value = found.get(name)
        if isinstance(value, str) and value:
            options[name] = value
        elif value is not None:
            what = f"{name} must be a string, not {'an empty one' if value == '' else crd.kind_of(value)}"
            problems.append(_invalid(what, short(file), "Put it in quotes." if isinstance(value, int | float) else ""))
    if options.get("membership", SPEC) not in (SPEC, LIVE):
        what = f"membership is {crd.shown(options['membership'])}"
        problems.append(_invalid(what, short(file), f"Write {SPEC} or {LIVE}."))
    problems += _of_several(file, options)
    by_name = [name for name in ("namespace", "name", *DECIDED) if name in options]
    if "manifest" in options and by_name and "instances" not in options:
        what = f"names a file (manifest) and an object of a cluster ({', '.join(by_name)})"
        problems.append(_invalid(what, short(file), "Write one of the two."))
    elif not {"manifest", "instances"} & set(options) and not {"namespace", "name"} <= set(by_name):
        ways = f"manifest, or namespace and name of an object in a cluster, or instances: {ALL}"
        remedy = f"Write {ways}. For example:\n{EXAMPLE}"
        problems.append(_invalid("does not say where the document is", short(file), remedy))
    if problems:
        raise ProblemsError(problems)
    return options


def _of_several(file: Path, options: Mapping[str, str]) -> list[Problem]:
    if "instances" not in options:
        what = "label_selector is of no use without instances"
        remedy = f"It chooses among all objects: write instances: {ALL} as well, or leave it out."
        return [_invalid(what, short(file), remedy)] if "label_selector" in options else []
    if options["instances"] != ALL:
        return [_invalid(f"instances is {crd.shown(options['instances'])}", short(file), f"Write instances: {ALL}.")]
    of_one = [name for name in _OF_ONE if name in options]
    if not of_one:
        return []
    what = f"names all objects (instances), and what is said of one only ({', '.join(of_one)})"
    return [_invalid(what, short(file), "Write one of the two.")]


def _from_file(document: Path) -> tuple[dict[str, Any], _Companions]:
    """The document in a file, and the EtcdBackups and EtcdRestores beside it."""
    shown = short(document)
    try:
        # one byte more than is allowed, so that a file of any size is refused and not read
        with document.open("rb") as file:
            text = file.read(manifest.MAX_BYTES + 1)
    except OSError as error:
        remedy = f"Write a document there. For example:\n{manifest.EXAMPLE}"
        missing = isinstance(error, FileNotFoundError)
        raise ProblemsError(
            Problem(
                f"cannot be read: {_reason(error)}", shown, remedy if missing else "", reason=Reason.DOCUMENT_NOT_FOUND
            )
        ) from None
    documents = object_kind.readable(text, shown)
    deployment = manifest.resolve(manifest.one_of(documents, shown), source=shown)
    return deployment, (
        backups.beside(documents, deployment, shown),
        restores.beside(documents, deployment, shown),
    )


def _from_cluster(
    options: Mapping[str, str], kubeconfig: str | None, context: str | None
) -> tuple[dict[str, Any], bool]:
    """The document, and whether its object says that it is installed."""
    # pulls in the client of API servers, which a document from a file does not need
    from ..kube.cluster import Cluster  # noqa: PLC0415
    from ..kube.errors import ApiError  # noqa: PLC0415

    namespace, name = options["namespace"], options["name"]
    shown = f"{manifest.KIND} {namespace}/{name}"
    cluster = Cluster.from_kubeconfig(kubeconfig, context, name="host cluster")
    try:
        found = cluster.get(manifest.API_VERSION, manifest.KIND, name, namespace)
    except ApiError as error:
        raise ProblemsError(Problem(f"cannot be read: {error}", shown, reason=error.problem_reason)) from error
    finally:
        cluster.close()
    if found is None:
        remedy = f"Look for it: kubectl get karmadadeployments --namespace {namespace}"
        raise ProblemsError(Problem("is not there", shown, remedy, reason=Reason.DOCUMENT_NOT_FOUND))
    for option in DECIDED:
        if (wanted := options.get(option)) and str(now := found["metadata"].get(option)) != wanted:
            what = f"was changed since this run was decided upon: its {option} is {now}, not {wanted}"
            raise ProblemsError(Problem(what, shown, "Decide upon it as it is now.", reason=Reason.DOCUMENT_CHANGED))
    return manifest.resolve(found, source=shown), is_installed(found)


def is_installed(found: Mapping[str, Any]) -> bool:
    """Return whether an object says of its control plane that it is installed."""
    return bool((found.get("status") or {}).get("installed"))


def _missing(file: Path, option: str, path: str | None, is_there: Any, kind: str) -> list[Problem]:
    if path is None or is_there(Path(path)):
        return []
    return [_invalid(f"there is no {kind} {short(path)}", f"{short(file)}: {option}")]


def _mapping(file: Path) -> dict[str, Any]:
    example = f"For example:\n{EXAMPLE}"
    try:
        with file.open("rb") as opened:
            text = opened.read(manifest.MAX_BYTES + 1)
        documents = documents_of(text) if len(text) <= manifest.MAX_BYTES else []
    except OSError as error:
        raise ProblemsError(_invalid(f"cannot be read: {_reason(error)}", short(file), example)) from None
    except UnreadableError as error:
        raise ProblemsError(_invalid(error.what, error.place(short(file)), error.remedy)) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ProblemsError(_invalid("is not one YAML mapping of options", short(file), example))
    return documents[0]


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _field(path: str, name: str) -> Any:
    try:
        value = _mapping(Path(path)).get(name)
    except ProblemsError:
        return None
    return value if isinstance(value, str) else None


def absolute(file: Path, path: str | None) -> str | None:
    """Path of the source as an absolute one."""
    return None if path is None else os.path.normpath(file.parent.absolute() / private_file.expanded(path))


def short(path: str | Path) -> str:
    """Path as a user would write it in the working directory."""
    absolute = Path(path).absolute()
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
