#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/ from what the program itself uses: schema, rights that preflight asks for, plugins, and so on.

`make reference` runs it; a unit test fails when a committed file differs.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import PROGRAMS
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason, Severity
from collection_docs import manifest, metrics, modes_picture, plugins, rights, variables, which_tool
from collection_docs.sources import row

ROOT = Path(__file__).resolve().parents[1]
SCHEMA_FILE = ROOT / "collections/ansible_collections/karmada/installer/schemas/karmadadeployments.yaml"
BACKUPS_FILE = SCHEMA_FILE.with_name("etcdbackups.yaml")
RESTORES_FILE = SCHEMA_FILE.with_name("etcdrestores.yaml")
REFERENCE = ROOT / "docs/reference"
CHART_RIGHTS = ROOT / "operator/chart/files/rights.yaml"

#: (verb, API group, resource, namespace, subresource, name), shorter where the rest is empty
Permission = tuple[Any, ...]

ACCOUNT = "karmada-installer"
ETCD_BACKUP = """\
metadata: {name: nightly}
spec:
  deploymentRef: {name: prod}
  recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]
  target: {directory: {}}"""
BACKUP_GUIDE = "[Backup](../guides/backup.md) tells how they are used."
ETCD_RESTORE = """\
metadata: {name: back}
spec:
  deploymentRef: {name: prod}
  backupRef: {name: nightly}"""
PROBLEMS_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from plugin_utils/problems.py by `make reference`. Change that, not this page. -->

# Problems

Whatever a run tells of trouble is a problem: what was found, where, and how to mend it. For programs it has a reason
and a severity, too. Reasons are stable: a new kind of trouble gets a new one, and none changes its meaning. Compare
these, not the sentences.

{severities}

The results of actions have problems under `problems`, those of a failed step included, beside the text in `msg`; so has
the status in the report's JSON. Each has the texts `severity`, `reason`, `what`, `where` and `remedy`; the last two may
be empty. A failed action also returns, for programs that want one answer, `phase` (of the report's phases), `reason`
(that of the first problem) and `component` (the one that this problem names, or empty). For example:

```yaml
- name: Install
  block:
    - name: Check first
      karmada.installer.preflight:
      register: checked
  rescue:
    - name: Fail, unless only somebody else is at work
      ansible.builtin.fail:
        msg: "{{{{ ansible_failed_result.msg }}}}"
      when: ansible_failed_result.problems | map(attribute='reason') | unique | list != ['Locked']
```

## Reasons

{reasons}
"""

FIELD_TESTS_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from tests/unit/support/document_fields.py by `make reference`. Change that, not this page. -->

# Fields and their tests

Every field of the document changes something that a test sees. For each, two documents are compared between which only
that field differs: what they make the installer render for the host cluster, the control plane and members, which
certificates they ask for, where they connect, what they fetch and what they remove. A field without a row fails the
tests, and so does a row without a difference. One of them by itself:

```shell
.ci/venv pytest -k 'spec.version' \\
  collections/ansible_collections/karmada/installer/tests/unit/collection/test_field_effects.py
```

How a field is rendered exactly is tested beside that, for the pods in
`tests/unit/plugins/plugin_utils/render/test_pods.py`.

{own}

Settings of components:

{settings}
"""


RELEASES_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from plugin_utils/components/releases.py by `make reference`. Change that, not this page. -->

# Releases

`spec.version` names one of these. Left out, the first installation takes {newest}, and keeps it.

{table}

Kubernetes is what runs as API server and kube-controller-manager of the control plane. It follows the minor that
Karmada itself installs and tests with that release. etcd is a patch of the minor that Karmada ships, at or above the
one that mends what is known to be wrong with older ones.

For each release it is on record which flags, feature gates and CRDs it has, read from its own programs. Unit tests
judge every flag that is rendered by that record, and preflight judges `extraArgs` and `featureGates` by it.
`make test-full` compares the record with the programs, and installs each release, uses it and removes it.

The host cluster runs Kubernetes {oldest_host} or newer; an older one is refused. {newest_host} is the newest that the
scenarios ran on; preflight says so of a newer one and goes on. An etcd of your own is {oldest_etcd} or newer.
"""


def files() -> dict[Path, str]:
    """Every generated file and what it should contain."""
    return {
        REFERENCE / "manifest.md": manifest.page(yaml.safe_load(SCHEMA_FILE.read_text(encoding="utf-8"))),
        REFERENCE / "etcdbackup.md": manifest.page(
            yaml.safe_load(BACKUPS_FILE.read_text(encoding="utf-8")), ETCD_BACKUP, BACKUP_GUIDE
        ),
        REFERENCE / "etcdrestore.md": manifest.page(
            yaml.safe_load(RESTORES_FILE.read_text(encoding="utf-8")), ETCD_RESTORE, BACKUP_GUIDE
        ),
        REFERENCE / "rights.md": rights.page(),
        REFERENCE / "host-rights.yaml": rights.host_rights_yaml(),
        CHART_RIGHTS: rights.chart_rights(),
        REFERENCE / "field-tests.md": field_tests_page(),
        REFERENCE / "releases.md": releases_page(),
        REFERENCE / "problems.md": problems_page(),
        REFERENCE / "variables.md": variables.page(),
        REFERENCE / "metrics.md": metrics.page(),
        REFERENCE / "plugins.md": plugins.plugins_page(),
        REFERENCE / "roles.md": plugins.roles_page(),
        which_tool.PAGE: which_tool.page(),
        modes_picture.FILE: modes_picture.picture(),
    }


# -- fields and their tests --------------------------------------------------------------------------------------------


def field_tests_page() -> str:
    """Each field of the spec, the two documents that a test compares, and where their difference has to show."""
    # Not imported above: a test's types are pytest's business.
    tests: Any = importlib.import_module(
        "ansible_collections.karmada.installer.tests.unit.collection.test_field_effects"
    )
    component = re.compile(r"spec\.components\.(etcd\.local|[A-Za-z]+)\.")
    own: list[str] = []
    settings: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for path, (one, other) in tests.ROWS.items():
        compared = f"{_value(one)}, {_value(other)}"
        shows = tests.shows_in(path)
        found = component.match(path)
        if found:
            settings[path[found.end() :], compared, shows].append(found[1])
        else:
            own.append(row(f"`{path}`", compared, shows))
    # The agent shows elsewhere, and so has rows of its own.
    everybody = len(PROGRAMS) - 1
    shared = [
        row(
            f"`{name}`",
            "every component" if len(users) == everybody else ", ".join(f"`{each}`" for each in users),
            compared,
            shows,
        )
        for (name, compared, shows), users in settings.items()
    ]
    return FIELD_TESTS_PAGE.format(
        own="\n".join(["| field | compared | has to show in |", "|---|---|---|", *own]),
        settings="\n".join(["| setting | of | compared | has to show in |", "|---|---|---|---|", *shared]),
    )


def _value(value: Any) -> str:
    return "absent" if value is None else f"`{json.dumps(value)}`"


# -- releases ----------------------------------------------------------------------------------------------------------


def releases_page() -> str:
    """The releases that are known, newest first, and what they run with."""
    known = sorted(releases.RELEASES, key=lambda each: releases.parse_version(each.karmada), reverse=True)
    rows = [
        "| Karmada | Kubernetes | etcd |",
        "|---|---|---|",
        *(row(each.karmada, each.kubernetes, each.etcd) for each in known),
    ]

    def dotted(version: Iterable[int]) -> str:
        return ".".join(map(str, version))

    return RELEASES_PAGE.format(
        newest=releases.newest().karmada,
        table="\n".join(rows),
        oldest_host=dotted(releases.OLDEST_HOST_MINOR),
        newest_host=dotted(releases.NEWEST_TESTED_HOST_MINOR),
        oldest_etcd=dotted(releases.OLDEST_EXTERNAL_ETCD),
    )


# -- problems ----------------------------------------------------------------------------------------------------------


def problems_page() -> str:
    """Every reason of a problem with its meaning, by name, and the severities."""
    meanings = {
        Severity.ERROR: "keeps the run, or one member, from being brought to what the document says",
        Severity.WARNING: "goes on, and may hurt later",
        Severity.HINT: "goes on; somebody may want to know it",
    }
    severities = [(f"`{each.value}`", meanings[each]) for each in Severity]
    rows = [(f"`{each.value}`", each.meaning) for each in sorted(Reason, key=str)]
    return PROBLEMS_PAGE.format(
        severities="\n".join(["| severity | means |", "|---|---|", *(row(*each) for each in severities)]),
        reasons="\n".join(["| reason | means |", "|---|---|", *(row(*each) for each in rows)]),
    )


def main() -> None:
    """Write what differs, and say so."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, content in files().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
