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
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import DEFAULT_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.members import rights as member_rights
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import account_rights, member_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason, Severity
from collection_docs import manifest, modes_picture, plugins, variables, which_tool
from collection_docs.sources import row

ROOT = Path(__file__).resolve().parents[1]
SCHEMA_FILE = ROOT / "collections/ansible_collections/karmada/installer/schemas/karmadadeployments.yaml"
REFERENCE = ROOT / "docs/reference"
CHART_RIGHTS = ROOT / "operator/chart/files/rights.yaml"

#: (verb, API group, resource, namespace, subresource, name), shorter where the rest is empty
Permission = tuple[Any, ...]

ACCOUNT = "karmada-installer"
RIGHTS_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from host_rights.py, member_checks.py, member_rights.py by `make reference`. Change those. -->

# Rights

Preflight asks each API server whether the account of the kubeconfig has the rights below, and names those that it has
not. It does so before the first change.

## Host cluster

In the namespace of the control plane:

{inside}

In the whole cluster:

{outside}

[host-rights.yaml](host-rights.yaml) holds these rights as a Role and a ClusterRole, bound to a service account
`{account}` in the namespace `{namespace}`, which it makes. An administrator of the host cluster applies it:

```shell
kubectl apply -f host-rights.yaml
```

A namespace that was there before the installation stays when the control plane is removed.

To let the installation make the namespace, and the uninstall remove it, use an account that has the rights of the first
table in a namespace that does not exist yet, and that may create, change and delete namespaces. In practice that is an
administrator. Preflight then asks for this too:

{absent}

The uninstall deletes that namespace only if the account may list every kind in it: what it may not look at could be
somebody's. Otherwise it names those kinds and leaves the namespace.

Leave out the rules that are only for types of endpoint that you do not use.

Only where etcd keeps its data in directories of the nodes (`volumeData.hostPath`), cluster-wide too. They are not in
host-rights.yaml, because whoever may create volumes can reach any directory of a node:

{host_path}

With `spec.endpoint.port` and type NodePort preflight also looks for another Service that has this node port, if the
account may list Services in all namespaces. Without that right it goes on; the host cluster then refuses a port that is
taken. Likewise it looks for an Ingress or a Route of somebody else that has the name `spec.endpoint.host`: in all
namespaces if it may list them there, else in its own.

Only for what preflight does when it is [asked to](../guides/preflight.md#try-that-members-are-reached)
(`karmada_preflight_pull_images`, `karmada_preflight_reach_members`): create `pods` in the namespace of the control
plane.

## Members

The account of a member's kubeconfig, when the member is joined:

{members}

Joining hands rights on the member to the account of the control plane, and Kubernetes lets only those hand out rights
who have them. So preflight also asks for these: all rights, or with
[scopedRights](../guides/members.md#less-than-all-rights) those below. In practice the kubeconfig is that of an
administrator of the member (ClusterRole cluster-admin). It is used for joining and for removing, and the control plane
never gets it. What is made on a member: [members](../guides/members.md).

With `karmada_preflight_reach_members`, on members in mode Pull: create, patch and delete `namespaces`, and get and
create `pods` in the namespace that was made.

### Scoped rights

With `scopedRights` the account of the control plane may do this, and read `/readyz`, `/healthz`, `/version` and what
the API server serves. It is what Karmada asks of a member whatever is propagated:

{by_itself}

and of each resource that is listed:

{listed}
"""


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
be empty. For example:

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
<!-- Generated from tests/unit/collection/test_field_effects.py by `make reference`. Change that, not this page. -->

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
        REFERENCE / "rights.md": rights_page(),
        REFERENCE / "host-rights.yaml": host_rights_yaml(),
        CHART_RIGHTS: chart_rights(),
        REFERENCE / "field-tests.md": field_tests_page(),
        REFERENCE / "releases.md": releases_page(),
        REFERENCE / "problems.md": problems_page(),
        REFERENCE / "variables.md": variables.page(),
        REFERENCE / "plugins.md": plugins.plugins_page(),
        REFERENCE / "roles.md": plugins.roles_page(),
        which_tool.PAGE: which_tool.page(),
        modes_picture.FILE: modes_picture.picture(),
    }


# -- rights ------------------------------------------------------------------------------------------------------------


def host_permissions(
    *, namespace_exists: bool, endpoint: Mapping[str, str], volume_data: str = "volumeClaim"
) -> list[Permission]:
    """Exactly what preflight asks the host cluster about, found by having it ask."""
    asked: list[Permission] = []

    def can_i(wanted: Iterable[Permission]) -> list[Permission]:
        asked.extend(wanted)
        return []

    host = SimpleNamespace(get=lambda *_: {} if namespace_exists else None, can_i=can_i)
    spec = Spec({"endpoint": endpoint, "components": {"etcd": {"local": {"volumeData": {volume_data: {}}}}}})
    run: Any = SimpleNamespace(namespace=DEFAULT_NAMESPACE, host_cluster=host, spec=spec)
    list(account_rights.problems(run))
    return [(*each, *[None] * (6 - len(each))) for each in asked]


def _rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Permissions of one scope as rules of a Role, one for each resource."""
    verbs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for verb, group, resource, _namespace, subresource, name in permissions:
        full = f"{resource}/{subresource}" if subresource else resource
        if verb not in verbs[group, full, name or ""]:
            verbs[group, full, name or ""].append(verb)
    return [
        {"apiGroups": [group], "resources": [resource], **({"resourceNames": [name]} if name else {}), "verbs": found}
        for (group, resource, name), found in verbs.items()
    ]


#: Names of single objects that a right is about → note; any other is the namespace of the control plane.
_OF_NAMED: Mapping[str | None, str] = {
    account_rights.IDENTITY[-1]: "only `kube-system`; without it, another host cluster is not noticed"
}

#: Endpoints that need more than others, and how the table speaks of them.
ENDPOINTS: tuple[tuple[Mapping[str, str], str], ...] = (
    ({"type": "NodePort"}, "only for endpoint type NodePort without `spec.endpoint.host`"),
    ({"type": "Ingress", "host": "karmada.example.com"}, "only for endpoint type Ingress"),
    ({"type": "Route"}, "only for endpoint type Route (OpenShift)"),
    ({"type": "Route", "host": "karmada.example.com"}, "only for endpoint type Route with `spec.endpoint.host`"),
)


def _notes() -> dict[Permission, str]:
    """What is asked with the namespace there, for every endpoint; a note for what only one of them needs."""
    found = dict.fromkeys(host_permissions(namespace_exists=True, endpoint={"type": "ClusterIP"}), "")
    for endpoint, note in ENDPOINTS:
        for each in host_permissions(namespace_exists=True, endpoint=endpoint):
            found.setdefault(each, note)
    found[account_rights.IDENTITY] = ""
    return found


def _scopes() -> tuple[list[Permission], list[Permission]]:
    """In the namespace, which exists; and cluster-wide, for every endpoint type."""
    everything = _notes()
    inside = [each for each in everything if each[3]]
    outside = [each for each in everything if not each[3]]
    return inside, outside


def host_rights_yaml() -> str:
    """Role and ClusterRole with their bindings, to be applied by an administrator of the host cluster."""
    inside, outside = _scopes()
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": DEFAULT_NAMESPACE}]
    rbac = "rbac.authorization.k8s.io"
    here = {"name": ACCOUNT, "namespace": DEFAULT_NAMESPACE}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DEFAULT_NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": here, "rules": _rules(inside)},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": here,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": subjects,
        },
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": ACCOUNT}, "rules": _rules(outside)},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": subjects,
        },
    ]
    head = (
        "# SPDX-License-Identifier: Apache-2.0\n"
        "# Generated from plugin_utils/preflight/account_rights.py by `make reference`; "
        "rights.md says which rules can be left out.\n"
        f"# Change {DEFAULT_NAMESPACE} to your namespace everywhere; the account may be any other one.\n"
    )
    return head + "".join(
        "---\n" + yaml.dump(each, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110)
        for each in objects
    )


def chart_rights() -> str:
    """Rules of the operator's account, as data of its chart: what a run needs always, and for each endpoint beside."""
    asked = {
        name: host_permissions(namespace_exists=True, endpoint=endpoint)
        for name, endpoint in (
            ("ClusterIP", {"type": "ClusterIP"}),
            ("NodePort", {"type": "NodePort"}),
            ("Ingress", {"type": "Ingress", "host": "karmada.example.com"}),
            ("Route", {"type": "Route", "host": "karmada.example.com"}),
        )
    }
    always = [*asked.pop("ClusterIP"), account_rights.IDENTITY]
    directories = host_permissions(namespace_exists=True, endpoint={"type": "ClusterIP"}, volume_data="hostPath")
    found = {
        "always": _scoped(always),
        "endpoints": {name: _scoped([each for each in more if each not in always]) for name, more in asked.items()},
        "hostPath": _scoped([each for each in directories if each not in always]),
    }
    head = (
        "# SPDX-License-Identifier: Apache-2.0\n"
        "# Generated from plugin_utils/preflight/account_rights.py by `make reference`.\n"
        "# Rules of the operator's account.\n"
        "---\n"
    )
    return head + yaml.dump(found, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110)


def _scoped(permissions: Iterable[Permission]) -> dict[str, list[dict[str, Any]]]:
    """Rules by scope. The namespace may be read wherever its Role is, so the rule needs no name."""
    inside = [(*each[:5], None) for each in permissions if each[3]]
    return {"namespace": _rules(inside), "cluster": _rules([each for each in permissions if not each[3]])}


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
    everybody = len(tests.PROGRAMS) - 1
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


class _Dumper(yaml.SafeDumper):
    """Writes a shared list out each time, and indents lists as yamllint wants them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


def rights_page() -> str:
    """What the accounts of host cluster and members need."""
    inside, outside = _scopes()
    absent = host_permissions(namespace_exists=False, endpoint={"type": "ClusterIP"})
    always = host_permissions(namespace_exists=True, endpoint={"type": "ClusterIP"})
    with_host_path = host_permissions(namespace_exists=True, endpoint={"type": "ClusterIP"}, volume_data="hostPath")
    on_members = [(verb, group, resource, where, None, None) for verb, group, resource, where in member_checks.RIGHTS]

    of_listed = member_rights.rules(MemberEntry({member_rights.FIELD: [{"apiGroup": "…", "resources": ["…"]}]}))

    def of_rules(rules: Iterable[Mapping[str, Any]]) -> list[Permission]:
        return [(*each, None) for each in member_rights.permissions(rules)]

    notes = {(each[1], f"{each[2]}/{each[4]}" if each[4] else each[2]): note for each, note in _notes().items()}

    def only_sometimes(rule: Mapping[str, Any]) -> str:
        return notes[rule["apiGroups"][0], rule["resources"][0]]

    return RIGHTS_PAGE.format(
        account=ACCOUNT,
        namespace=DEFAULT_NAMESPACE,
        inside=_table(_rules(inside), only_sometimes),
        outside=_table(_rules(outside), only_sometimes),
        absent=_table(_rules([each for each in absent if each not in always])),
        host_path=_table(_rules([each for each in with_host_path if each not in always])),
        members=_table(_rules(on_members)),
        by_itself=_table(_rules(of_rules(member_rights.BY_ITSELF))),
        listed=_table(_rules(of_rules(of_listed[len(member_rights.BY_ITSELF) :]))),
    )


def _table(rules: Iterable[Mapping[str, Any]], note: Callable[[Mapping[str, Any]], str] = lambda _rule: "") -> str:
    rows = ["| API group | resource | verbs | note |", "|---|---|---|---|"]
    for rule in rules:
        named = rule.get("resourceNames")
        told = _OF_NAMED.get(named[0], "only the namespace itself") if named else note(rule)
        group = rule["apiGroups"][0] or "(core)"
        rows.append(row(f"`{group}`", f"`{rule['resources'][0]}`", ", ".join(rule["verbs"]), told))
    return "\n".join(rows)


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
