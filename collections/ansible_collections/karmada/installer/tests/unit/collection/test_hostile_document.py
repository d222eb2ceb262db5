# SPDX-License-Identifier: Apache-2.0
"""Text in any field of a document that would be a template, a command or a line of a unit: refused, or taken as text.

What is said of it commands no terminal.

Every field has rows with values (``document_fields``, ``test_host_field_effects``); here hostile text stands in the
place of each text and of each key in them.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, PROGRAMS
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.collection import test_host_field_effects as host_fields
from ansible_collections.karmada.installer.tests.unit.support import document_fields as fields
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs
from ansible_collections.karmada.installer.tests.unit.support.samples import document

Object = dict[str, Any]

DIRECTIVE = "ExecStartPre=+/bin/touch /root/mark"
HOSTILE = (
    f"\x1b]0;owned\x07\x9b2J\u202ea\r\n{DIRECTIVE}\r{DIRECTIVE}\r\n[Service]\n$(id) `id` ${{HOME}} %n '; id; ' "
    "\"; id; \" {{ lookup('pipe', 'id') }} -o ProxyCommand=id ../../x"
)
#: path → a value of the field, and what it needs around it
ROWS: dict[str, tuple[Any, Object]] = {
    **{path: (row[1], fields.AROUND.get(path, {})) for path, row in fields.ROWS.items()},
    **{path: (row[1], host_fields.AROUND) for path, row in host_fields.ROWS.items()},
}
_OF_A_COMPONENT = r"spec\.components\.(etcd\.local|\w+)\."
#: Fields that take any text. An API server judges what becomes part of an object; the others are words of programs, and
#: names of contexts in kubeconfigs.
TAKES_ANY = re.compile(
    _OF_A_COMPONENT
    + r"(extraArgs|extraEnv\[\]\.(value|valueFrom)|annotations|nodeSelector|tolerations\[\]\.key|affinity"
    r"|topologySpreadConstraints|extraVolumes|extraVolumeMounts|securityContext)"
    r"|spec\.endpoint\.(serviceAnnotations|ingress\.annotations|route\.annotations)"
    r"|spec\.networkPolicies\.metricsFrom\[\]\.(namespaceSelector|podSelector)"
    r"|spec\.(hostCluster|members\[\])\.context"
)


def hostile(value: Any) -> Iterator[Any]:
    """The value with hostile text in the place of one text or one key in it, for each of them."""
    if isinstance(value, str):
        yield HOSTILE
    elif isinstance(value, dict):
        for key, each in value.items():
            others = {other: of for other, of in value.items() if other != key}
            yield {**others, HOSTILE: each}
            yield from ({**others, key: text} for text in hostile(each))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from ([*value[:place], text, *value[place + 1 :]] for text in hostile(each))


def refusal(path: str, value: Any) -> str:
    """What is said against a document with this value; empty if it is taken."""
    whole = {"metadata": {"name": "prod"}, "spec": copy.deepcopy(ROWS[path][1])}
    fields.put(whole, path, value)
    try:
        document(whole["spec"], name=whole["metadata"]["name"])
    except ProblemsError as error:
        return str(error)
    return ""


def test_every_field_takes_hostile_text_as_text_or_not_at_all() -> None:
    said = [(path, refusal(path, each)) for path, (value, _around) in ROWS.items() for each in hostile(value)]
    taken = {path for path, told in said if not told}
    assert {path for path in taken if not TAKES_ANY.fullmatch(path)} == set()
    assert len(taken) > 100, "or nothing was taken"
    refused = {path: told for path, told in said if told}
    assert [path for path, told in refused.items() if path.split(".")[1].removesuffix("[]") not in told] == []
    assert len(refused) > 100, "or nothing was refused"
    assert [told for told in refused.values() if not told.replace("\n", "").isprintable()] == []


# The estimators of single members are not in the trees that are looked at here; their units are made in the same place.
@pytest.mark.parametrize("component", [each.field for each in PROGRAMS if each.field != "karmadaSchedulerEstimator"])
def test_on_hosts_it_is_no_line_of_any_file(component: str, tmp_path: Path) -> None:
    """systemd reads such units in ``contract/test_unit_text.py``."""
    settings = {"extraArgs": {"v": HOSTILE}, "extraEnv": [{"name": "NOTE", "value": HOSTILE}]}
    spec = copy.deepcopy(host_fields.AROUND)
    spec["components"] = {component: {"local": settings} if component == ETCD.field else settings}
    found = host_fields.effects(Runs(tmp_path / "run"), document(spec))
    lines = [
        line
        for parts in found[host_fields.TREES]
        for tree in parts
        for file in tree["files"]
        for line in base64.b64decode(file["content"]).decode().splitlines()
    ]
    assert [line for line in lines if line.startswith(DIRECTIVE)] == []
    assert [line for line in lines if DIRECTIVE in line], "or it would prove nothing"
