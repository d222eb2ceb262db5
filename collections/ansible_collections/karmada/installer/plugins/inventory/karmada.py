# SPDX-License-Identifier: Apache-2.0
"""Inventory of hosts and groups from a KarmadaDeployment.

The file is long because Ansible reads a plugin's documentation out of it: that is more than half of it.
"""

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
      Namespace of the KarmadaDeployment object, to read it from the cluster of O(kubeconfig). Needs O(name), or
      O(instances), which may be without it.
    type: str
  name:
    description: >-
      Name of the KarmadaDeployment object, to read it from the cluster of O(kubeconfig). Needs O(namespace).
    type: str
  instances:
    description:
      - >-
        V(all) reads every KarmadaDeployment object of O(namespace), or without that of the cluster, in the place of one
        by O(name). Each is a host in the group V(karmada_instances), named C(<namespace>.<name>), with the variables
        that V(karmada_control) has for one, C(karmada_instance_name) (C(<namespace>/<name>)), C(karmada_phase),
        C(karmada_version) and C(karmada_instance_names), the names of all.
      - >-
        Groups of these hosts are C(karmada_namespace_<namespace>), C(karmada_mode_<mode>),
        C(karmada_version_<version>), C(karmada_phase_<phase>) and, for each label of the object,
        C(karmada_label_<key>_<value>). What a name of a group cannot have is an underscore there; two that become the
        same are no group, with a warning.
      - >-
        Members are in V(karmada_all_members) and plain hosts in V(karmada_all_hosts), named C(<name>@<host of the
        instance>), with the variables that they have for one document, and all of an instance in
        C(karmada_instance_<namespace>_<name>).
      - >-
        An object that cannot be worked with, because it is not valid, is a host in V(karmada_broken) with
        C(karmada_problems) and C(karmada_broken_reason). A server that does not answer fails the inventory, as does a
        control plane with O(membership=live). No object at all is allowed, with a warning.
      - >-
        Playbooks of this collection work on one of them, which C(-e karmada_instance=<namespace>/<name>) chooses;
        it is not needed if the source has only one. Members are then chosen by C(-e karmada_members=...), not by
        C(--limit).
    type: str
    choices: [all]
  label_selector:
    description: >-
      Selector of labels of the objects, as C(kubectl --selector) takes it. Needs O(instances).
    type: str
  members_query:
    description:
      - >-
        Query of JMESPath that chooses which members become hosts. It sees a list, whose items have C(name),
        C(namespace) and C(instance) of the control plane, C(plan) (V(join), V(keep), V(leave) or empty), C(member) (the
        entry of the document), and with O(membership=live) C(ready) and C(cluster). It gives a list of items, or of
        names, which O(instances) does not take: members of several control planes may have the same one. So write
        V([?ready]) there, and not V([?ready].name).
      - >-
        A run works on all members, chosen or not, unless C(--limit karmada_members) restricts it to those that became
        hosts. Where a limit cannot choose members, which is so with O(instances), and on plain hosts with the playbook
        C(members), C(-e karmada_members=...) has their names.
      - Needs the Python package C(jmespath).
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
# All control planes for production in a cluster; hosts are the members in Europe that are ready.
plugin: karmada.installer.karmada
instances: all
label_selector: tier=prod
membership: live
members_query: "[?ready && member.region == 'eu']"

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

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants
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

from ansible_collections.karmada.installer.plugins.plugin_utils.run import before_forks

# Of the collection, this is loaded first; what is imported from here on stays.
before_forks.look_for_garbage_rarely()

from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import k8s_auth
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import (
    inventory_hosts,
    inventory_members,
    told_by_playbook,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_names as names
from ansible_collections.karmada.installer.plugins.plugin_utils.run.inventory_values import (
    NOT_PLAIN,
    as_data,
    as_template,
    at_path,
)

if TYPE_CHECKING:
    from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients

#: Control planes that are asked at the same time.
_AT_ONCE = 8


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
            if inventory.get_host(names.CONTROL) is None:
                inventory.add_host(names.NO_DOCUMENT)

    def fill(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory. Raises AnsibleError, of class UnusableDocumentError for problems of the document."""
        super().parse(inventory, loader, path, cache)
        if inventory.get_host(names.CONTROL) is not None or names.INSTANCES in inventory.groups:
            raise UnusableDocumentError(
                "another source of this plugin was loaded before it; a run works on one control plane"
            )
        try:
            if misnamed := inventory_source.misnamed(path):
                raise ProblemsError(misnamed)
            options = inventory_source.read_options(path)
            fill = self._fill_with_several if "instances" in options else self._fill_with_one
            fill(path, options, cache)
        except ProblemsError as error:
            if inventory_source.asks_servers(path):
                # Ansible would only warn, and go on as if there were no members.
                constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
            raise UnusableDocumentError(str(error)) from error

    def _fill_with_one(self, path: str, options: Mapping[str, str], cache: bool) -> None:
        source = inventory_source.of_options(Path(path), options)
        self._read_config_data(path)
        live = source.membership == inventory_source.LIVE
        (registered,) = self._registered_of_one(path, options, source, cache) if live else [None]
        found = [(source.deployment, registered)]
        where = f"{path}: members_query"
        (members,) = inventory_members.chosen(found, source.members_query, where, several=False)
        if unverified := self._unverified(source):
            self.display.warning(str(unverified))
        everything = inventory_hosts.everything(source)
        self._add_groups(everything)
        self._add_all(inventory_hosts.of_one(source, members, live=live))

    def _fill_with_several(self, path: str, options: Mapping[str, str], cache: bool) -> None:
        # Import the client of API servers, which other sources do not need.
        from ansible_collections.karmada.installer.plugins.plugin_utils.document import instances  # noqa: PLC0415
        from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients  # noqa: PLC0415

        live = options.get("membership") == inventory_source.LIVE
        with SharedClients() as clients:
            found = instances.load(path, options, clients)
            self._read_config_data(path)
            sources = [each.source for each in found.found]
            registered = self._registered(path, options, sources, cache, clients) if live else [None] * len(sources)
        documents = [(each.deployment, one) for each, one in zip(sources, registered, strict=True)]
        where = f"{path}: members_query"
        members = inventory_members.chosen(documents, options.get("members_query"), where, several=True)
        groups, sentences = inventory_hosts.groups_of(found.found)
        for sentence in sentences:
            self.display.warning(sentence)
        if not found.found and not found.broken:
            self.display.warning(f"{path}: there is no KarmadaDeployment that it asks for")
        if "kubeconfig" not in options and not told_by_playbook.is_certain():
            for each in filter(None, [k8s_auth.unverified(os.environ)]):
                self.display.warning(str(each))
        self._add_groups()
        for group in (names.INSTANCES, names.BROKEN, names.ALL_MEMBERS, names.ALL_HOSTS):
            self.inventory.add_group(group)
        self._make_local(names.ALL_MEMBERS)
        read = zip(found.found, members, strict=True)
        everybody = inventory_hosts.names_of(found.found, found.broken)
        self._add_all(inventory_hosts.of_several(read, groups, everybody, live=live))
        self._add_all(inventory_hosts.of_broken(found.broken, everybody))

    def _unverified(self, source: inventory_source.Source) -> Any:
        """Warning if something was read from a server that nobody verified, and no playbook is certain to tell it."""
        asked = source.connection["object_uid"] or source.membership == inventory_source.LIVE
        left = inventory_source.leaves_to_environment(source.deployment, source.connection)
        if not asked or not left or told_by_playbook.is_certain():
            return None
        return k8s_auth.unverified(os.environ)

    def _registered_of_one(
        self, path: str, options: Mapping[str, str], source: inventory_source.Source, cache: bool
    ) -> list[Any]:
        from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients  # noqa: PLC0415

        with SharedClients() as clients:
            return self._registered(path, options, [source], cache, clients)

    def _registered(
        self,
        path: str,
        options: Mapping[str, str],
        sources: Sequence[inventory_source.Source],
        cache: bool,
        clients: SharedClients,
    ) -> list[Any]:
        """Registered members of each, from the cache if the user enabled it; see ``members.registered``."""
        # Import the client of API servers, which other sources do not need.
        from ansible_collections.karmada.installer.plugins.plugin_utils.members import looked_up  # noqa: PLC0415
        from ansible_collections.karmada.installer.plugins.plugin_utils.members import registered as membership  # noqa: PLC0415

        self.load_cache_plugin()
        if not self.get_option("cache"):
            return membership.live_of_all(sources, clients, at_once=_AT_ONCE)
        # Who changes the selector, or gives another cluster, asks for others.
        key = f"{self.get_cache_key(path)}_{looked_up.key(options, sources)}"
        places = ["{namespace}/{name}".format_map(each.deployment["metadata"]) for each in sources]
        if cache and key in self._cache and set(self._cache[key]) == set(places):
            return [membership.Registered.of(self._cache[key][place]) for place in places]
        found = membership.live_of_all(sources, clients, at_once=_AT_ONCE)
        self._cache[key] = {place: each.plain() for place, each in zip(places, found, strict=True)}
        return found

    def _add_groups(self, everything: str = "") -> None:
        """Add the groups that playbooks name; ``everything`` is the one that they work on."""
        for group in (names.IN_PODS, names.ON_HOSTS, names.HOSTS, names.LEAVING, *names.ROLE_GROUPS.values()):
            self.inventory.add_group(group)
        for group in (names.MEMBERS, names.JOIN, names.KEEP, names.LEAVE, *names.MODE_GROUPS.values()):
            self.inventory.add_group(group)
        for group in (names.JOIN, names.KEEP, names.LEAVE, *names.MODE_GROUPS.values()):
            self.inventory.add_child(names.MEMBERS, group)
        for group in names.ROLE_GROUPS.values():
            self.inventory.add_child(names.HOSTS, group)
        if everything:
            self.inventory.add_child(everything, names.HOSTS)
        self._make_local(names.MEMBERS)

    def _make_local(self, group: str) -> None:
        """Have hosts stand for this machine, by the group: with thousands each variable of a host costs time."""
        for name, value in inventory_hosts.HERE.items():
            self.inventory.set_variable(group, name, as_data(value))
        for name, value in inventory_hosts.HERE_TEMPLATES.items():
            self.inventory.set_variable(group, name, as_template(value))

    def _add_all(self, hosts: Iterable[inventory_hosts.Placed]) -> None:
        composed = any(self.get_option(name) for name in ("compose", "groups", "keyed_groups"))
        for each in hosts:
            for group in each.groups:
                self.inventory.add_group(group)
                self.inventory.add_host(each.host, group=group)
            # By the host itself. The inventory that plugins are given copies each value, and tags all in it with this
            # file as their origin: with thousands of hosts a third of the time, and as_data has made a copy already.
            host = self.inventory.get_host(each.host)
            for name, value in each.variables.items():
                if name not in each.templates:
                    host.set_variable(name, as_data(value))
            for name, value in each.templates.items():
                # These are evaluated; where that fails, Ansible names the origin.
                self.inventory.set_variable(each.host, name, as_template(value))
            if composed:
                self._add_composed(each.host, each.more)

    def _add_composed(self, host: str, more: Mapping[str, Any]) -> None:
        """Add what expressions of the source say; ``more`` is what they may use and the host does not keep."""
        known = {
            **self.inventory.get_host(host).get_vars(),
            **{name: as_data(each) for name, each in more.items()},
        }
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), known, host, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), known, host, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), known, host, strict=strict)

    def _compose(self, template: Any, variables: Any, *more: Any) -> Any:
        """Extend Ansible's method by a lookup of plain paths: compiling each of thousands takes seconds."""
        found = NOT_PLAIN if self.get_option("use_extra_vars") else at_path(template, variables)
        return super()._compose(template, variables, *more) if found is NOT_PLAIN else found
