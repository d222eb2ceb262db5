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
)
#: What of an object was decided upon by whoever started the run; another one is not carried out.
DECIDED = ("uid", "generation")
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
    object are looked for when they are needed.
    """

    deployment: dict[str, Any]
    connection: dict[str, str | None]
    membership: str = SPEC
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
    """Read the source and the document that it names. Raises ProblemsError with all problems.

    Paths in the source are relative to it.
    """
    file = Path(path)
    options = _options(file)
    kubeconfig, context = _absolute(file, options.get("kubeconfig")), options.get("context")
    secrets, artifacts = _absolute(file, options.get("secrets")), _absolute(file, options.get("artifacts"))
    config_maps = _absolute(file, options.get("config_maps"))
    problems = [
        *_missing(file, "kubeconfig", kubeconfig, Path.is_file, "file"),
        *_missing(file, "secrets", secrets, Path.is_dir, "directory"),
        *_missing(file, "config_maps", config_maps, Path.is_dir, "directory"),
        *_missing(file, "artifacts", artifacts, Path.is_dir, "directory"),
    ]
    directory, deployment = file.parent, None
    beside_it: _Companions = ([], [])
    try:
        with kept_verdicts.used():
            if "manifest" in options:
                document = Path(str(_absolute(file, options["manifest"])))
                directory, (deployment, beside_it) = document.parent, _from_file(document)
            elif not problems:
                deployment = _from_cluster(options, kubeconfig, context)
    except ProblemsError as error:
        problems += error.problems
    if deployment and Spec(deployment["spec"]).artifacts.source == "Directory" and artifacts is None:
        remedy = "Name the directory there: artifacts: ./artifacts"
        problems.append(_invalid("spec.artifacts.source is Directory, but no directory is named", short(file), remedy))
    if problems or deployment is None:
        raise ProblemsError(problems)
    paths = {
        "kubeconfig": kubeconfig,
        "secrets": secrets,
        "config_maps": config_maps,
        "artifacts": artifacts,
        "kubeconfig_output": _absolute(file, options.get("kubeconfig_output")),
        "report_output": _absolute(file, options.get("report_output")),
        # Not looked for here: a share that is not mounted is no matter of an installation.
        "backups": _absolute(file, options.get("backups")),
        "beside": str(directory.absolute() / deployment["metadata"]["name"]),
    }
    return Source(
        deployment=deployment,
        connection={
            **{name: None if found is None else short(found) for name, found in paths.items()},
            "context": context,
            "object_uid": None if "manifest" in options else deployment["metadata"].get("uid"),
        },
        membership=options.get("membership", SPEC),
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


def asks_for_live_members(path: str) -> bool:
    """Return whether a source asks for registered members, even if it has errors elsewhere."""
    return bool(_field(path, "membership") == LIVE)


def _options(file: Path) -> dict[str, str]:
    """Options of the plugin in the source, validated; exactly one way to find the document is among them."""
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
    by_name = [name for name in ("namespace", "name", *DECIDED) if name in options]
    if "manifest" in options and by_name:
        what = f"names a file (manifest) and an object of a cluster ({', '.join(by_name)})"
        problems.append(_invalid(what, short(file), "Write one of the two."))
    elif "manifest" not in options and not {"namespace", "name"} <= set(by_name):
        remedy = f"Write manifest, or namespace and name of an object in a cluster. For example:\n{EXAMPLE}"
        problems.append(_invalid("does not say where the document is", short(file), remedy))
    if problems:
        raise ProblemsError(problems)
    return options


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


def _from_cluster(options: Mapping[str, str], kubeconfig: str | None, context: str | None) -> dict[str, Any]:
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
    return manifest.resolve(found, source=shown)


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


def _absolute(file: Path, path: str | None) -> str | None:
    return None if path is None else os.path.normpath(file.parent.absolute() / private_file.expanded(path))


def short(path: str | Path) -> str:
    """Path as a user would write it in the working directory."""
    absolute = Path(path).absolute()
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
