# SPDX-License-Identifier: Apache-2.0
"""Inventory of hosts and groups from a KarmadaDeployment."""

from __future__ import annotations

DOCUMENTATION = r"""
name: karmada
short_description: Hosts and groups from a KarmadaDeployment
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Reads the document that describes a Karmada control plane, from a file or from a cluster, validates it as an API
    server would, fills in all defaults, and makes hosts and groups of it. All playbooks of this collection start from
    it.
  - >-
    The host V(karmada_control) stands for the place that the control plane is worked on from, which is this machine. It
    has the variables C(karmada_deployment), the document with all defaults, C(karmada_backups) and C(karmada_restores),
    the documents of kind EtcdBackup and EtcdRestore beside it in the same file, and C(karmada_connection), the options
    below: nothing of the environment, and paths below the working directory relative to it. So an inventory that AWX
    keeps is right in a job, whose folders and credentials are others.
  - >-
    Each member cluster is a host in the group V(karmada_members), with the variables C(karmada_member_name) and
    C(karmada_member), its entry of the document. They are there to look at, to group and to select; the work on members
    is done from V(karmada_control), many at a time. The host is named like the member, or C(member_) and its name where
    Ansible gives the name a meaning of its own (V(localhost), V(all), V(ungrouped)).
  - >-
    Below V(karmada_members) are V(karmada_members_join), V(karmada_members_keep) and V(karmada_members_leave), by what
    the next run does with them, and V(karmada_members_push) and V(karmada_members_pull), by their mode. Which members a
    control plane already has is looked up with O(membership=live) only; else all that are listed are in
    V(karmada_members_join).
  - >-
    Plain hosts of the document are in the groups V(karmada_etcd), V(karmada_control_plane), V(karmada_load_balancer)
    and V(karmada_agent) by their roles. Together they are the group V(karmada_hosts). Each has the variable
    C(karmada_host), its entry of the document, and the connection variables that follow from the document:
    C(ansible_host), C(ansible_user), C(ansible_port), the key and what is known of host keys. Those of an inventory of
    your own that comes after this one win. Without O(secrets) the last two are files that a run makes and removes
    (M(karmada.installer.ssh_files)); the variables say where that run has them.
  - >-
    The group V(karmada_hosts_leaving) is empty. A run puts those hosts there that have left the document and are to be
    cleaned.
  - >-
    Playbooks work on V(karmada_in_pods) in mode Container and on V(karmada_on_hosts) in mode Binary. The one that is
    not empty has V(karmada_control) and the plain hosts. In mode Container these run etcd, if there are any.
  - >-
    Variables contain names of Secrets and never their content. Strings of the document are never taken for templates.
notes:
  - >-
    One run works on one control plane. Two sources of this plugin in the same inventory are an error, as is a source
    that is not called C(karmada.yml) or something that ends in C(.karmada.yml).
  - >-
    Ansible turns the failure of an inventory plugin into a warning. The playbooks of this collection begin with
    M(karmada.installer.require_document), which fails with the same message. When C(ansible-playbook) runs them, and
    without C(--limit), a document with problems is therefore no failure of this plugin: the inventory has the host
    V(karmada_no_document) only, and the message comes once. For C(ansible-inventory) set
    E(ANSIBLE_INVENTORY_UNPARSED_FAILED), as AWX does.
  - >-
    In a checkout that is not installed as a collection, set E(ANSIBLE_INVENTORY_PLUGINS) to its directory
    C(inventory_plugins), or put that beside your playbook, and write V(plugin=karmada).
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: Marks the file as a source of this plugin.
    required: true
    type: str
    choices: [karmada.installer.karmada, karmada]
  manifest:
    description:
      - >-
        File with the KarmadaDeployment, relative to the inventory file. Documents of kind EtcdBackup and EtcdRestore in
        it are validated as well, those of other kinds are passed over.
      - Mutually exclusive with O(namespace) and O(name).
    type: str
  namespace:
    description: >-
      Namespace of the KarmadaDeployment object, to read it from the cluster of O(kubeconfig). Needs O(name).
    type: str
  name:
    description: >-
      Name of the KarmadaDeployment object, to read it from the cluster of O(kubeconfig). Needs O(namespace).
    type: str
  kubeconfig:
    description:
      - >-
        Kubeconfig of the cluster that holds the KarmadaDeployment object. Where the document names no host cluster of
        its own, the control plane is installed into this cluster, too.
      - Relative to the inventory file.
      - >-
        Without it, whoever uses the inventory looks in the environment, as C(kubernetes.core) does: E(K8S_AUTH_HOST)
        with a credential (E(K8S_AUTH_API_KEY), or E(K8S_AUTH_USERNAME) and E(K8S_AUTH_PASSWORD), or
        E(K8S_AUTH_CERT_FILE) and E(K8S_AUTH_KEY_FILE)), which is what AWX gives for its credential of a bearer token;
        then the kubeconfig of E(K8S_AUTH_KUBECONFIG), of E(KUBECONFIG), or C(~/.kube/config); then the service account
        of the pod that Ansible runs in.
      - >-
        E(K8S_AUTH_SSL_CA_CERT), E(K8S_AUTH_VERIFY_SSL), E(K8S_AUTH_PROXY), E(K8S_AUTH_NO_PROXY),
        E(K8S_AUTH_IMPERSONATE_USER) and E(K8S_AUTH_IMPERSONATE_GROUPS) count then, too, and the settings above stand
        in the place of those of a kubeconfig. E(K8S_AUTH_VERIFY_SSL=false) is obeyed, with a warning.
    type: str
  context:
    description: >-
      Context of O(kubeconfig), or of the one that is found without it. Without it, that of E(K8S_AUTH_CONTEXT), then
      the current context.
    type: str
  secrets:
    description:
      - >-
        Directory that stands for Secrets that the document names: the value of a key is the file
        C(<Secret name>/<key>) in it. Relative to the inventory file.
      - Without it, Secrets are read from the cluster.
    type: str
  config_maps:
    description:
      - >-
        Directory that stands for ConfigMaps that the document names: the value of a key is the file
        C(<ConfigMap name>/<key>) in it. Relative to the inventory file.
      - Without it, ConfigMaps are read from the cluster.
    type: str
  artifacts:
    description:
      - >-
        Directory with artifacts that were prepared before, for documents with C(spec.artifacts.source=Directory).
        Relative to the inventory file.
    type: str
  backups:
    description:
      - >-
        Directory in which backups lie, for documents of kind EtcdBackup with C(spec.target.directory): a disk, or a
        share that is mounted there. Relative to the inventory file.
    type: str
  membership:
    description:
      - >-
        V(spec) knows of the members that the document lists and asks nobody, so that an installation, a repair or an
        uninstallation needs no control plane that answers.
      - >-
        V(live) reads which clusters are registered in the control plane: in mode Container through the host cluster, in
        mode Binary with the kubeconfig that the installation has written (O(kubeconfig_output)). Members that are no
        longer listed are hosts then, too, and each member has the variable C(karmada_member_ready), whether the control
        plane finds it ready. Expressions of O(compose), O(groups) and O(keyed_groups) know C(karmada_cluster) as well,
        the Cluster object without the list of kinds that it serves; queries of JMESPath over it are possible, and what
        they find is kept as a variable by O(compose).
      - >-
        A cluster that somebody else registered and that is not listed is in V(karmada_members) and in the group of its
        mode only; one that is listed is in V(karmada_members_join), because it becomes one of ours.
      - >-
        If that cannot be read, V(live) is an error and C(ansible-inventory) ends with a code other than 0, so that
        nobody takes an empty answer for an empty control plane. Before the first installation nothing is registered.
      - >-
        In mode Binary what the installer has on record lies on the hosts, which an inventory does not log in to. So a
        member that is neither listed nor registered any more is no host, although it leaves with the next run.
      - The roles look again at what is registered when they act, whatever this says.
    type: str
    choices: [spec, live]
    default: spec
  uid:
    description: >-
      UID that the object must have, and O(generation) its generation, in quotes. For whoever decides upon an object
      before the run reads it, as the operator does: one that was edited or made anew since is not carried out.
    type: str
  generation:
    description: Generation that the object must have. See O(uid).
    type: str
  report_output:
    description:
      - File that a run leaves its report in, as JSON. Relative to the inventory file.
      - >-
        Without it, C(<name of the deployment>.report.json) beside the document; in a job of AWX, C(report.json) among
        the artifacts of ansible-runner.
    type: str
  kubeconfig_output:
    description:
      - >-
        File that the installation writes the kubeconfig of the new control plane to. Relative to the inventory file.
      - >-
        Without it, C(<name of the deployment>.kubeconfig) beside a document from a file. For an object of a cluster,
        and in a job of AWX, nothing is written then; in mode Container the kubeconfig is in the Secret
        C(<name>-admin-config) of the host cluster.
    type: str
seealso:
  - module: karmada.installer.require_document
"""

EXAMPLES = r"""
# site.karmada.yml: a document from a file, installed into the cluster of the current kubeconfig.
plugin: karmada.installer.karmada
manifest: prod.yaml

---
# With a kubeconfig, and files in the place of the Secrets that the document names (./secrets/member1/kubeconfig).
plugin: karmada.installer.karmada
manifest: prod.yaml
kubeconfig: ~/.kube/site-a
context: admin@site-a
secrets: ./secrets

---
# Without network access to release files.
plugin: karmada.installer.karmada
manifest: prod.yaml
artifacts: ./artifacts

---
# A document that is an object of a cluster, which AWX gives access to by a credential of the source and of the job.
plugin: karmada.installer.karmada
namespace: karmada-prod
name: prod

---
# Groups of members by region and label: karmada_region_eu_west, tier_prod.
plugin: karmada.installer.karmada
manifest: prod.yaml
keyed_groups:
  - key: karmada_member.region
    prefix: karmada_region
  - key: karmada_member.labels.tier
    prefix: tier

---
# What is really registered, kept for a minute: groups by readiness and by each zone, and those that leave.
plugin: karmada.installer.karmada
manifest: prod.yaml
membership: live
keyed_groups:
  - key: karmada_member_ready | ternary('ready', 'not_ready')
    prefix: member
  - key: karmada_cluster.spec.zones
    prefix: zone
groups:
  of_old_kubernetes: karmada_cluster.status.kubernetesVersion is version('v1.33.0', '<')
compose:
  conditions: karmada_cluster.status.conditions | items2dict(key_name='type', value_name='status')
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /var/tmp/karmada-inventory
cache_timeout: 60
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import constants, template
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

if not __name__.startswith("ansible_collections."):
    # Found by its path, in a checkout whose collection is not installed. Ansible looks for collections beside
    # playbooks, in a directory `collections`; the checkout has one, so it is named as one more place with playbooks. It
    # comes first: this plugin must not meet the code of another version that is installed elsewhere.
    from ansible.utils.collection_loader import AnsibleCollectionConfig

    # CHECKOUT/collections/ansible_collections/karmada/installer/plugins/inventory/karmada.py, also when found by a link
    _checkout = str(Path(__file__).resolve().parents[6])
    AnsibleCollectionConfig.playbook_paths = [
        _checkout,
        *(str(Path(path).parent) for path in AnsibleCollectionConfig.playbook_paths),
    ]

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import is_true
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import k8s_auth
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh, told_by_playbook
from ansible_collections.karmada.installer.plugins.plugin_utils.run.inventory_names import (
    CONTROL,
    HOSTS,
    MEMBERS,
    NO_DOCUMENT,
)

#: Group of hosts that have left the document; empty until a run finds some and adds them.
LEAVING = "karmada_hosts_leaving"
ON_HOSTS = "karmada_on_hosts"
IN_PODS = "karmada_in_pods"
#: Role of plain hosts → their group.
ROLE_GROUPS = {
    "etcd": "karmada_etcd",
    "controlPlane": "karmada_control_plane",
    "loadBalancer": "karmada_load_balancer",
    "agent": "karmada_agent",
}
JOIN = f"{MEMBERS}_join"
KEEP = f"{MEMBERS}_keep"
LEAVE = f"{MEMBERS}_leave"
#: Mode of members → their group.
MODE_GROUPS = {"Push": f"{MEMBERS}_push", "Pull": f"{MEMBERS}_pull"}
#: Host names that Ansible reserves. A member with one gets a host name with an underscore instead, which cannot clash,
#: as names of members are DNS labels.
RESERVED = ("localhost", "all", "ungrouped")


#: Text of these characters only is never a template, nor an expression with an effect.
_HARMLESS = re.compile(r"[A-Za-z0-9_./:@+-]*")
_PATH = re.compile(r"[a-z]\w*(\.[a-zA-Z]\w*)+", re.ASCII)
_NOT_PLAIN = object()
#: Connection variables of inventory hosts that stand for this machine.
_HERE = {"ansible_connection": "local"}
#: Theirs, too: the interpreter of the ansible-playbook that uses the inventory, which another one may have read.
_HERE_TEMPLATES = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}


class UnusableDocumentError(AnsibleParserError):  # type: ignore[misc]  # ansible-core ships no types
    """Problems of the document, or of the source that names it."""


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]  # ansible-core: no types
    """See DOCUMENTATION."""

    NAME = "karmada.installer.karmada"

    def verify_file(self, path: str) -> bool:
        """Return whether the file is a source of this plugin, also one that it refuses by its name.

        What no plugin takes is tried by all of Ansible's, and each tells why it cannot read it.
        """
        return bool(super().verify_file(path)) and inventory_source.is_meant(path)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory; problems of a document are left to a playbook that is certain to tell them.

        Raises AnsibleError. Ansible turns that into a warning, asks its other plugins what they make of the file, and
        warns of each: a wall around one sentence, which the first task of our playbooks tells as well, and fails.
        """
        try:
            self.fill(inventory, loader, path, cache)
        except UnusableDocumentError:
            if not told_by_playbook.is_certain():
                raise
            # Without any host, Ansible would warn of that.
            if inventory.get_host(CONTROL) is None:
                inventory.add_host(NO_DOCUMENT)

    def fill(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory. Raises AnsibleError, of class UnusableDocumentError for problems of the document."""
        super().parse(inventory, loader, path, cache)
        if inventory.get_host(CONTROL) is not None:
            raise UnusableDocumentError(
                "another source of this plugin was loaded before it; a run works on one control plane"
            )
        try:
            if misnamed := inventory_source.misnamed(path):
                raise ProblemsError(misnamed)
            source = inventory_source.load(path)
            self._read_config_data(path)
            registered = self._registered(source, path, cache) if source.membership == inventory_source.LIVE else None
        except ProblemsError as error:
            if inventory_source.asks_for_live_members(path):
                # Ansible would only warn, and go on as if there were no members.
                constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
            raise UnusableDocumentError(str(error)) from error
        if unverified := self._unverified(source):
            self.display.warning(str(unverified))
        self._add_control(source)
        self._add_hosts(source)
        self._add_members(source.deployment, registered)

    def _unverified(self, source: inventory_source.Source) -> Any:
        """Warning if something was read from a server that nobody verified, and no playbook is certain to tell it."""
        asked = source.connection["object_uid"] or source.membership == inventory_source.LIVE
        left = inventory_source.leaves_to_environment(source.deployment, source.connection)
        if not asked or not left or told_by_playbook.is_certain():
            return None
        return k8s_auth.unverified(os.environ)

    def _registered(self, source: inventory_source.Source, path: str, cache: bool) -> Any:
        """Registered members, from the cache if the user enabled it; see ``members.registered``."""
        # Imports the client of API servers, which other sources do not need.
        from ansible_collections.karmada.installer.plugins.plugin_utils.members import registered as membership  # noqa: PLC0415

        self.load_cache_plugin()
        key, wanted = self.get_cache_key(path), self.get_option("cache")
        if wanted and cache and key in self._cache:
            return membership.Registered.of(self._cache[key])
        found = membership.live(source)
        if wanted:
            self._cache[key] = found.plain()
        return found

    def _add_control(self, source: inventory_source.Source) -> None:
        in_pods = Spec(source.deployment["spec"]).mode == "Container"
        for group in (IN_PODS, ON_HOSTS, HOSTS, LEAVING, *ROLE_GROUPS.values()):
            self.inventory.add_group(group)
        variables = {
            "karmada_deployment": source.deployment,
            "karmada_connection": source.connection,
            "karmada_backups": list(source.backups),
            "karmada_restores": list(source.restores),
        }
        # The first host of a play takes the steps that are taken once.
        everything = IN_PODS if in_pods else ON_HOSTS
        self.inventory.add_host(CONTROL, group=everything)
        for name, value in _HERE_TEMPLATES.items():
            self.inventory.set_variable(CONTROL, name, _as_template(value))
        self._add_host(CONTROL, everything, {**_HERE, **variables})
        self.inventory.add_child(everything, HOSTS)
        for group in ROLE_GROUPS.values():
            self.inventory.add_child(HOSTS, group)

    def _add_hosts(self, source: inventory_source.Source) -> None:
        spec, secrets = Spec(source.deployment["spec"]), source.connection["secrets"]
        here = str(Path.cwd()) if secrets else ""
        for host in spec.hosts:
            connection = ssh.variables(host.plain, spec.ssh, secrets, working_directory=here)
            self._add_host(host.name, HOSTS, {"karmada_host": host.plain, **connection})
            for name, value in connection.items():
                # This template is our own text and contains nothing of the document.
                if isinstance(value, str) and any(each in value for each in ssh.TEMPLATES):
                    self.inventory.set_variable(host.name, name, _as_template(value))
            for role in ssh.roles(spec, host):
                self.inventory.add_host(host.name, group=ROLE_GROUPS[role])

    def _add_members(self, deployment: dict[str, Any], registered: Any) -> None:
        """Add members and their groups. ``registered`` is None if the document alone lists them."""
        self.inventory.add_group(MEMBERS)
        for group in (JOIN, KEEP, LEAVE, *MODE_GROUPS.values()):
            self.inventory.add_group(group)
            self.inventory.add_child(MEMBERS, group)
        # As variables of the group, because with thousands of hosts each variable of a host costs time.
        for name, value in _HERE.items():
            self.inventory.set_variable(MEMBERS, name, _as_data(value))
        for name, value in _HERE_TEMPLATES.items():
            self.inventory.set_variable(MEMBERS, name, _as_template(value))
        spec = Spec(deployment["spec"])
        taken = {*RESERVED, *(host.name for host in spec.hosts)}
        listed = {name: entry.plain for name, entry in spec.member_by_name.items()}
        for name, group, member, cluster in _members(listed, registered, deployment):
            host = f"member_{name}" if name in taken else name
            variables = {"karmada_member_name": name, "karmada_member": member}
            if registered is not None:
                variables["karmada_member_ready"] = is_true(cluster, "Ready")
            self.inventory.add_host(host, group=MODE_GROUPS.get(member.get("mode", "")))
            # The Cluster is for groups and composed variables only; thousands of whole ones are too much to show.
            self._add_host(host, group, variables, {"karmada_cluster": cluster} if cluster else {})

    def _add_host(self, host: str, group: str, variables: dict[str, Any], more: dict[str, Any] | None = None) -> None:
        """Add a host. ``more`` are variables that expressions of the source may use and the host does not keep."""
        self.inventory.add_host(host, group=group)
        for name, value in variables.items():
            self.inventory.set_variable(host, name, _as_data(value))
        if not any(self.get_option(name) for name in ("compose", "groups", "keyed_groups")):
            return
        known = {
            **self.inventory.get_host(host).get_vars(),
            **{name: _as_data(each) for name, each in (more or {}).items()},
        }
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), known, host, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), known, host, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), known, host, strict=strict)

    def _compose(self, template: Any, variables: Any, *more: Any) -> Any:
        """Extend Ansible's method by a lookup of plain paths: compiling each of thousands takes seconds."""
        found = _NOT_PLAIN if self.get_option("use_extra_vars") else _at_path(template, variables)
        return super()._compose(template, variables, *more) if found is _NOT_PLAIN else found


def _members(
    listed: Mapping[str, Mapping[str, Any]], registered: Any, deployment: dict[str, Any]
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any] | None]]:
    """Members, each with its name, its group, its entry in the document or an equivalent one, and its Cluster."""
    if registered is None:
        yield from ((name, JOIN, member, None) for name, member in listed.items())
        return
    plan = registered.plan(deployment)
    groups = {JOIN: (*plan.join, *plan.adopt), KEEP: plan.keep, LEAVE: plan.leave, MEMBERS: plan.others}
    for group, names in groups.items():
        for name in names:
            cluster = registered.clusters.get(name)
            yield name, group, listed.get(name) or _entry_of(name, cluster), cluster


def _entry_of(name: str, cluster: Mapping[str, Any] | None) -> dict[str, Any]:
    """Equivalent of a document's entry for a member that is not listed, without its access."""
    if cluster is None:
        return {"name": name}
    spec = cluster["spec"]
    labels = {
        key: value
        for key, value in (cluster["metadata"].get("labels") or {}).items()
        if not key.startswith(("installer.karmada.io/", "app.kubernetes.io/"))
    }
    found = {"name": name, "mode": spec.get("syncMode", "Push")}
    found.update({key: spec[key] for key in ("provider", "region", "zones") if spec.get(key)})
    return {**found, "labels": labels} if labels else found


def _at_path(expression: Any, variables: Any) -> Any:
    """Value of an expression like ``karmada_member.labels.tier``, or ``_NOT_PLAIN`` if it is uncertain.

    It is uncertain if Ansible's result could differ: undefined, a method of a mapping, or in earlier versions a number
    from a string.
    """
    if not hasattr(template, "trust_as_template") or not _PATH.fullmatch(str(expression)):
        return _NOT_PLAIN
    found = variables
    for step in str(expression).split("."):
        if not isinstance(found, Mapping) or step not in found or hasattr(found, step):
            return _NOT_PLAIN
        found = found[step]
    return found


def _as_data(value: Any) -> Any:
    """Value whose strings no version of ansible-core takes for templates or shows with more than their text.

    A string that cannot be a template is marked as trusted: `ansible-inventory` writes any other one as a mapping of
    its own, which with thousands of members takes more time than all else.
    """
    if isinstance(value, dict):
        return {key: _as_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_data(item) for item in value]
    return _as_text(value) if isinstance(value, str) else value


def _as_template(text: str) -> Any:
    """Text that every version of ansible-core takes for a template."""
    return template.trust_as_template(text) if hasattr(template, "trust_as_template") else text


@functools.lru_cache(maxsize=10_000)
def _as_text(text: str) -> Any:
    harmless = _HARMLESS.fullmatch(text) is not None
    if hasattr(template, "trust_as_template"):
        # Since 2.19 only strings that are marked as trusted are templates. Ours come from a reader that marks none, and
        # the plugin does not request it (trusted_by_default).
        return _as_template(text) if harmless else text
    # Before, every string is a template unless it is marked as unsafe.
    from ansible.utils.unsafe_proxy import wrap_var  # noqa: PLC0415 - goes away in later versions

    return text if harmless else wrap_var(text)
