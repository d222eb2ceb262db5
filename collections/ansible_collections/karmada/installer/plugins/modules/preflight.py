# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Check everything that can be known before the first change
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Collects every problem and reports all of them at once, each as what is wrong, where, and how to mend it.
    Changes nothing, unless O(pull_images) is set.
  - >-
    It checks the release, the version of the host cluster, the rights of the account there, names and node ports
    that are taken, control planes that another tool has in the namespace, its quotas, limits and Pod Security level,
    the storage class, settings that an existing control plane cannot follow, its certificate authorities, and that
    the CRDs can be fetched and have the recorded checksum. Of each member it checks that it answers, that the account
    has the rights to join it, and that it does not carry the objects of another control plane. The clocks of all may
    be 30 seconds apart.
  - >-
    Of an external etcd it checks the certificates, that each endpoint answers, that it has a leader, no alarm and a
    version that is supported, and that the key prefix is not somebody else's. What cannot be found out from this
    machine is told and not refused.
  - >-
    Of plain hosts it checks, too, that tags of images lead where they led to when they were first used. One that leads
    elsewhere is accepted if the variable C(karmada_confirm_images) names the image: a list, or a text with commas, of
    references such as C(docker.io/karmada/karmada-webhook:v1.18.2). Images whose digest nobody knows beforehand are
    told in one line.
  - >-
    A member that is one cluster with another one, that has another cluster's name, or that is registered in another
    mode, is told, too.
  - >-
    It sends access reviews, which the API server answers without storing anything, and may fill the cache of
    artifacts on the machine where it runs.
options:
  scope:
    description:
      - What is about to be done.
      - V(install) checks everything.
      - >-
        V(uninstall) checks that the host cluster answers, that the account has the rights there, and that the
        installer's state can be read.
    type: str
    default: install
    choices: [install, uninstall]
    version_added: 0.1.0
  abandon_hosts:
    description: >-
      Names of plain hosts that no longer answer and are given up. What is on them stays there. With O(scope=install)
      these are hosts that have left the document.
    type: list
    elements: str
    default: []
  confirm_host_cluster:
    description: >-
      UID of a host cluster, by its namespace C(kube-system), that is meant although the last report beside the document
      or the installer's state names another one. Usually given as C(-e karmada_confirm_host_cluster=UID).
    type: str
    default: ''
  confirm_etcd_members:
    description: >-
      The number of members of etcd in the document, where it is smaller than the one that there is. Usually given as
      C(-e etcd_confirm_members=3).
    type: int
    default: 0
    version_added: 0.1.0
  document_seen:
    description: >-
      What an earlier check has returned as RV(document_seen). If something else would be carried out now, this is a
      problem of reason C(DocumentChanged). Nothing is compared where it is not given. Usually given as
      C(karmada_document_seen), which later nodes of a workflow in AWX get by themselves.
    type: dict
    default: {}
    version_added: 0.1.0
  etcd_abandon_nodes:
    description: >-
      Names of nodes with members of etcd in their directories that are given up, so that it is told whether others can
      have these. Usually given as C(-e '{"etcd_abandon_nodes": ["node-b"]}').
    type: list
    elements: str
    default: []
  etcd_replace:
    description: >-
      Names of members of etcd that are to be replaced, so that it is told whether they can be. Usually given as
      C(-e '{"etcd_replace": ["prod-etcd-1"]}').
    type: list
    elements: str
    default: []
    version_added: 0.1.0
  on_broken_member:
    description:
      - What to do if something is wrong with single members, and with nothing else.
      - V(fail) fails with it.
      - >-
        V(tell) names them and succeeds, with them in RV(broken_members), so that a play can do all the rest and fail at
        its end.
      - What is wrong with the whole document, such as a name that is there twice, is never one member's problem.
    type: str
    choices: [fail, tell]
    default: fail
  pull_images:
    description:
      - >-
        Whether to try that the images can be pulled. For each distinct image a pod starts in the namespace of the
        control plane, on a node that may run the component, with its pull secrets and limits. It asks the program for
        its version, and is removed whatever happens.
      - >-
        This writes. It needs the right to create pods, and the namespace. It is not done in check mode, nor while
        anything else is wrong.
    type: bool
    default: false
    version_added: 0.1.0
  pull_timeout:
    description:
      - Seconds that all images together may take.
    type: int
    default: 120
    version_added: 0.1.0
  reach_members:
    description:
      - >-
        Whether to try that pods reach what they have to, for members that are not known to be Ready. A pod in the
        namespace of the control plane connects to the API servers of those in mode Push, and looks whether their
        certificates are right. A pod on each of those in mode Pull does so with the control plane, if there is one.
      - >-
        The pods run etcdctl, with the image of etcd, and are removed whatever happens. What they do not reach is the
        problem of that member.
      - >-
        This writes. It needs the namespace and the right to create pods in it, and on members in mode Pull those to
        create and to delete a namespace and pods. It is not done in check mode, nor while anything is wrong with the
        whole.
    type: bool
    default: false
    version_added: 0.1.0
  reach_timeout:
    description:
      - Seconds that each of these pods may take, with the time to pull its image.
    type: int
    default: 60
    version_added: 0.1.0
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.require_document
  - module: karmada.installer.report
"""

EXAMPLES = r"""
- name: Check everything that can be known before the first change
  karmada.installer.preflight:
  register: preflight_result

- name: Say what will be installed
  ansible.builtin.debug:
    msg: "Karmada {{ preflight_result.versions.karmada }}"
  when: not preflight_result.installed
"""

RETURN = r"""
changed:
  description: Always false.
  returned: success
  type: bool
  sample: false
installed:
  description: Whether the host cluster holds the state of an earlier installation, finished or not.
  returned: success
  type: bool
  sample: false
versions:
  description: The versions that this run works with.
  returned: success, with O(scope=install)
  type: dict
  contains:
    karmada:
      description: Release of Karmada.
      returned: success
      type: str
      sample: v1.18.2
    kubernetes:
      description: Version of the control plane's API server and kube-controller-manager.
      returned: success
      type: str
      sample: v1.35.4
    etcd:
      description: Version of etcd.
      returned: success
      type: str
      sample: v3.6.16
broken_members:
  description: >-
    Members that cannot be worked on. Not empty with O(on_broken_member=tell) only.
  returned: success, with O(scope=install)
  type: list
  elements: dict
  contains:
    name:
      description: Name of the member.
      returned: always
      type: str
      sample: member1
    problem:
      description: What is wrong with it.
      returned: always
      type: str
      sample: "member member1: cannot reach https://192.0.2.1:6443: connection refused"
    next:
      description: What to do about it.
      returned: always
      type: str
      sample: let it answer; then run again
problems:
  description: >-
    What was found, as data: errors where the step fails, and warnings and hints. Their reasons are in the reference.
  returned: when there are any
  type: list
  elements: dict
  sample:
    - severity: error
      reason: MissingPermission
      what: "the account may not: create pods"
      where: host cluster
      remedy: grant these rights
phase:
  description: Phase of the control plane in which the step failed, in the words of the report.
  returned: failure
  type: str
  sample: Preflight
reason:
  description: Reason of the first problem. The reference has all.
  returned: failure
  type: str
  sample: InvalidFlag
component:
  description: Component that the first problem names; empty if it names none.
  returned: failure
  type: str
  sample: karmada-apiserver
document_seen:
  description: >-
    What would be carried out, as digests: of each field of the document, of the ConfigMaps that it names, of versions,
    and of the cluster. A later run that gets it as O(document_seen) carries out the same or fails. Contents of Secrets
    are no part of it.
  returned: success, with O(scope=install)
  type: dict
  contains:
    instance:
      description: Namespace and name of the document.
      returned: always
      type: str
      sample: karmada-prod/prod
    parts:
      description: Digest (SHA-256) of each part, by what it is.
      returned: always
      type: dict
      sample:
        spec.members: 4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945
etcd_storage:
  description: >-
    Where etcd keeps its data, C(volumeClaim), C(hostPath), C(emptyDir) or C(external), as the document says or as was
    decided.
  returned: success, with O(scope=install)
  type: str
  sample: volumeClaim
"""
