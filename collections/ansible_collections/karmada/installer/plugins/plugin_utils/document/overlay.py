# SPDX-License-Identifier: Apache-2.0
"""Changes by the document to our objects of the host cluster for which it has no field. No I/O.

An overlay is a partial object: apiVersion, kind and metadata.name identify the object, the rest is merged into it.
Mappings are merged, ``null`` removes a field, lists are replaced. Lists that Kubernetes merges by a key (containers by
name, mounts by path and so on) are merged by it; an entry with ``$patch: delete`` is removed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..api_object import Object
from ..components.spec import Spec
from ..kube.merge_keys import merge_keys
from ..problems import Problem, Reason
from ..yaml_document import UnreadableError, documents_of
from .crd import nearest

WHERE = "spec.overlay.configMapRef"
_invalid = partial(Problem, reason=Reason.INVALID_OVERLAY)
DIRECTIVE = "$patch"
#: Labels and annotations by which the installer and its Services find what is ours.
_OUR_PREFIXES = ("app.kubernetes.io/", "installer.karmada.io/")


@dataclass(frozen=True)
class Overlay:
    """A partial object and its origin: ``ConfigMap extra, workloads.yaml, document 2``."""

    patch: Object
    where: str

    @property
    def target(self) -> tuple[str, str, str]:
        """Version, kind and name of the object that it changes."""
        return _identity(self.patch)

    def is_for(self, obj: Object) -> bool:
        """Return whether it changes this object of ours."""
        return self.target == _identity(obj)


def read(spec: Spec, config_maps: Mapping[str, Mapping[str, str]]) -> tuple[list[Overlay], list[Problem]]:
    """Overlays that the document names, and problems of texts that cannot be read as overlays."""
    name = spec.overlay
    if not name:
        return [], []
    if name not in config_maps:
        remedy = (
            "create it in the namespace of the document, or name a directory in the inventory source: "
            f"config_maps: ./config-maps, with files in {name}/"
        )
        return [], [Problem(f"there is no ConfigMap {name}", WHERE, remedy, reason=Reason.CONFIG_MAP_NOT_FOUND)]
    overlays: list[Overlay] = []
    problems: list[Problem] = []
    for key, text in sorted(config_maps[name].items()):
        where = f"{WHERE}: ConfigMap {name}, {key}"
        try:
            documents = [each for each in documents_of(text) if each is not None]
        except UnreadableError as error:
            problems.append(_invalid(error.what, error.place(where), error.remedy))
            continue
        for number, document in enumerate(documents, 1):
            place = f"{where}, document {number}" if len(documents) > 1 else where
            if problem := _not_an_object(document, place):
                problems.append(problem)
            else:
                overlays.append(Overlay(document, place))
    return overlays, problems


def _not_an_object(document: Any, where: str) -> Problem | None:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(document, dict) and all(
        isinstance(each, str) and each for each in (document.get("apiVersion"), document.get("kind"), name)
    ):
        return None
    return _invalid("does not say which object it is for", where, "write apiVersion, kind and metadata.name of it")


def laid_over(objects: Iterable[Object], overlays: Sequence[Overlay]) -> list[Object]:
    """Objects with the overlays merged in, in the order of the overlays. Changes no argument."""
    found = list(objects)
    for index, each in enumerate(found):
        for overlay in overlays:
            if overlay.is_for(each):
                found[index] = _merged_map(found[index], overlay.patch)
    return found


def find_problems(objects: Sequence[Object], overlays: Sequence[Overlay]) -> Iterator[Problem]:
    """Problems of overlays for unknown objects or protected fields. ``objects``: all objects that we apply."""
    ours = {_identity(each): each for each in objects}
    for overlay in overlays:
        target = ours.get(overlay.target)
        if target is None:
            yield _no_such_object(overlay, list(ours))
        elif malformed := list(_malformed(overlay.patch, overlay.where, "")):
            yield from malformed
        else:
            yield from _forbidden(overlay, target)


def _identity(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    return obj["apiVersion"], obj["kind"], obj["metadata"]["name"]


def _no_such_object(overlay: Overlay, ours: list[tuple[str, str, str]]) -> Problem:
    version, kind, name = overlay.target
    of_kind = sorted(other for each_version, each, other in ours if (each_version, each) == (version, kind))
    kinds = sorted({f"{each} ({each_version})" for each_version, each, _ in ours})
    if not of_kind:
        return _invalid(f"we make no {kind} ({version})", overlay.where, f"there are {', '.join(kinds)}")
    near = nearest(name, of_kind)
    listed = ", ".join([near, *(each for each in of_kind if each != near)] if near else of_kind)
    return _invalid(f"there is no {kind} {name}", overlay.where, f"there are {listed}")


def _forbidden(overlay: Overlay, target: Object) -> Iterator[Problem]:
    patch, where = overlay.patch, overlay.where
    metadata, namespace = patch["metadata"], target["metadata"]["namespace"]
    if metadata.get("namespace", namespace) != namespace:
        yield _invalid(
            f"is for namespace {metadata['namespace']}; the object is in {namespace}", where, "leave that out"
        )
    for field in metadata:
        if field not in ("name", "namespace", "labels", "annotations"):
            yield _invalid(f"sets metadata.{field}", where, "an overlay may set labels and annotations there")
    if "status" in patch:
        yield _invalid("sets status", where, "leave it out")
    before, after = _protected(target), _protected(_merged_map(target, patch))
    for path in sorted({*before, *after}):
        if before.get(path, _ABSENT) != after.get(path, _ABSENT):
            remedy = _PROTECTED.get(target["kind"], {}).get(path, "the installer tells its objects by it; leave it out")
            yield _invalid(f"changes {path}", where, remedy)


_ABSENT = object()
_SELECTOR = {"spec.selector": "it finds our pods, and cannot be changed"}
_WORKLOAD = {**_SELECTOR, "spec.replicas": "set replicas of the component in the document"}
_SECRET = "keys and certificates are the installer's"  # noqa: S105 - a sentence
_CONFIGURATION = "it follows from the document, and pods would not notice"
#: Kind → fields that an overlay must not change, and why, or what to do instead.
_PROTECTED: Mapping[str, Mapping[str, str]] = {
    "Deployment": _WORKLOAD,
    "StatefulSet": {
        **_WORKLOAD,
        "spec.updateStrategy": "the installer replaces members of etcd itself",
        "spec.volumeClaimTemplates": "set volumeData of etcd in the document",
    },
    "Service": _SELECTOR,
    "PodDisruptionBudget": _SELECTOR,
    "NetworkPolicy": {"spec.podSelector": "it finds our pods"},
    "Secret": dict.fromkeys(("data", "stringData", "type"), _SECRET),
    "ConfigMap": dict.fromkeys(("data", "binaryData"), _CONFIGURATION),
}


def _protected(obj: Object) -> dict[str, Any]:
    """Path → value of the fields that must not change."""
    template = _mapping(_at(obj, "spec.template")).get("metadata")
    found = {
        f"{place}.{field}.{name}": value
        for place, metadata in (("metadata", obj["metadata"]), ("spec.template.metadata", template))
        for field, prefixes in (("labels", _OUR_PREFIXES), ("annotations", _OUR_PREFIXES[1:]))
        for name, value in _mapping(_mapping(metadata).get(field)).items()
        if name.startswith(prefixes)
    }
    return found | {path: _at(obj, path) for path in _PROTECTED.get(obj["kind"], {})}


def _at(obj: Object, path: str) -> Any:
    found: Any = obj
    for key in path.split("."):
        found = _mapping(found).get(key, _ABSENT)
    return found


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _malformed(value: Any, where: str, path: str, *, entry: bool = False, merged: bool = True) -> Iterator[Problem]:
    """Problems of misplaced directives, and of entries without the key by which they are merged.

    ``entry``: the value is an entry of a list that is merged. ``merged``: it is not inside a list that is replaced.
    """
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _malformed(each, where, f"{path}[{index}]", merged=False)
    if not isinstance(value, dict):
        return
    for key, each in value.items():
        place = f"{path}.{key}" if path else key
        if key.startswith("$"):
            allowed = [*(["delete"] if entry else []), *(["replace"] if merged else [])]
            if key != DIRECTIVE or each not in allowed:
                remedy = (
                    f"{DIRECTIVE} may be {' or '.join(allowed)} here" if allowed else "this list is replaced as it is"
                )
                yield _invalid(f"has {place}: {each!r}", where, remedy)
        elif merged and isinstance(each, list) and (merge_key := _merge_key(key, each)):
            for index, one in enumerate(each):
                if not isinstance(one, dict) or merge_key not in one:
                    yield _invalid(f"has no {merge_key} in {place}[{index}]", where, "entries are merged by it: add it")
                else:
                    yield from _malformed(one, where, f"{place}[{index}]", entry=True)
        else:
            yield from _malformed(each, where, place, merged=merged)


def _merge_key(name: str, entries: list[Any]) -> str | None:
    """Key of a list that a strategic merge patch merges; None for all others, which are replaced as a whole."""
    keys = merge_keys(name, entries)
    return keys[0] if keys else None


def _merged_map(base: Object, patch: Object) -> Object:
    if patch.get(DIRECTIVE) == "replace":
        return copy.deepcopy({key: value for key, value in patch.items() if key != DIRECTIVE})
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged_map(_mapping(base.get(key)), value)
        elif isinstance(value, list) and (merge_key := _merge_key(key, value)):
            merged[key] = _merged_list(base.get(key) or [], value, merge_key)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _merged_list(base: list[Object], patch: list[Object], key: str) -> list[Object]:
    """Merged list: our entries in their order, then the new ones."""
    changes = {each.get(key): each for each in patch}
    kept = [
        _merged_map(each, changes.pop(each.get(key))) if each.get(key) in changes else each
        for each in base
        if changes.get(each.get(key), {}).get(DIRECTIVE) != "delete"
    ]
    return [*kept, *(_merged_map({}, each) for each in changes.values() if each.get(DIRECTIVE) != "delete")]
