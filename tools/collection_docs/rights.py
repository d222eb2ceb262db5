# SPDX-License-Identifier: Apache-2.0
"""Rights that accounts need, found by having preflight ask for them: a page, a manifest for users, a chart's rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import DEFAULT_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.members import rights as member_rights
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import account_rights, member_checks

from collection_docs.sources import row

#: (verb, API group, resource, namespace, subresource, name), shorter where the rest is empty
Permission = tuple[Any, ...]

ACCOUNT = "karmada-installer"
PAGE = """\
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

Only for backups in a [volume claim](../guides/backup.md#in-a-volume-claim): {in_claim} `pods` in the namespace of the
control plane. Only for a [restore](../guides/backup.md#restore) of a control plane in pods: {restoring} them. The
operator's account has these unless its chart has `rights.restores: false`.

Only for what preflight does when it is [asked to](../guides/preflight.md#try-that-members-are-reached)
(`karmada_preflight_pull_images`, `karmada_preflight_reach_members`): create `pods` in the namespace of the control
plane.

## Members

The account of a member's kubeconfig, when the member is joined:

{members}

Joining hands rights on the member to the account of the control plane, and Kubernetes lets only those hand out rights
who have them. So preflight also asks for these: all rights, or with
[scopedRights](../guides/member-rights.md#less-than-all-rights) those below. In practice the kubeconfig is that of an
administrator of the member (ClusterRole cluster-admin). It is used for joining and for removing, and the control plane
never gets it. What is made on a member: [members](../guides/members.md).

Where a control plane is [taken over](../guides/move.md) from another place, it also deletes `secrets` in
`karmada-cluster`: the tokens by which that place knew the member.

With `karmada_preflight_reach_members`, on members in mode Pull: create, patch and delete `namespaces`, and get and
create `pods` in the namespace that was made.

### Scoped rights

With `scopedRights` the account of the control plane may do this, and read `/readyz`, `/healthz`, `/version` and what
the API server serves. It is what Karmada asks of a member whatever is propagated:

{by_itself}

and of each resource that is listed:

{listed}
"""


def page() -> str:
    """Page of the rights that the accounts of host cluster and members need."""
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

    return PAGE.format(
        account=ACCOUNT,
        namespace=DEFAULT_NAMESPACE,
        in_claim=" and ".join(account_rights.CLAIM_RIGHTS),
        restoring=" and ".join(account_rights.RESTORE_RIGHTS),
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
    """Requests with the namespace there, for every endpoint; a note for what only one of them needs."""
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
        "restores": _scoped(account_rights.of_restores("karmada-system")),
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


class _Dumper(yaml.SafeDumper):
    """Writes a shared list out each time, and indents lists as yamllint wants them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)
