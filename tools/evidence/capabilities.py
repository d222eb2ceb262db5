# SPDX-License-Identifier: Apache-2.0
"""Capabilities of the product, in the words of whoever would use it, and which scenarios and checks show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Capability(NamedTuple):
    """A sentence about the product, and names of those that would fail if it were not true.

    ``hosts_variants:ipv6`` is a part of a scenario, by the names in its ``vars/parts.yml``.
    """

    what: str
    shown_by: tuple[str, ...]


class Area(NamedTuple):
    """Capabilities that a reader looks for in one place."""

    title: str
    capabilities: Sequence[Capability]


def _can(what: str, *shown_by: str) -> Capability:
    return Capability(what, shown_by)


CAPABILITIES = (
    Area(
        "A control plane in pods of a host cluster",
        (
            _can("From nothing to an application on two members, with one command", "demo"),
            _can("Each component has replicas, flags, feature gates, resources, images and labels of its own; a change "
                 "of one touches nothing else", "pods_settings"),
            _can("Optional components (scheduler estimator, descheduler, search, metrics adapter) come and go with "
                 "the document", "pods_settings"),
            _can("Fields of objects that the document has no word for, by an overlay", "pods_settings"),
            _can("Reachable by port-forward, node port, load balancer, Ingress, Route or a name outside; a change of "
                 "it makes one certificate anew", "pods_endpoints"),
            _can("Reachable only through its host cluster, with restricted pods and Secrets encrypted at rest",
                 "pods_cluster_ip"),
            _can("Three etcd members", "pods_cluster_ip", "pods_etcd_storage"),
            _can("etcd in directories of nodes; a member that is deleted comes back to its data",
                 "pods_etcd_storage"),
            _can("Members of etcd come, go and are replaced while the control plane serves; one is killed or cut off, "
                 "and nothing that was acknowledged is lost", "pods_etcd_members:changes"),
            _can("From one member to three, five, three and one, five times, while somebody writes; no write fails",
                 "pods_etcd_members:rounds", "hosts_etcd_members:rounds"),
            _can("From one member to three by a run that is killed and one that goes on; no write fails",
                 "run_convergence", "hosts_plain"),
            _can("Members come and go, and make room, with 100 MB in each", "pods_etcd_members:large",
                 "hosts_etcd_members:large"),
            _can("All members killed at once, or the data of most of them lost: started in any order, nothing that was "
                 "acknowledged is lost, and none begins an etcd of its own", "contract"),
            _can("An etcd that a flood of writes has filled gets room by one command, and loses nothing",
                 "pods_etcd_room"),
            _can("Backups on a schedule, each restored on trial before it counts, encrypted, in a directory or in S3; "
                 "old ones go, none is lost by a run that is killed or fails", "pods_backup", "contract"),
            _can("A database of 500 MB is backed up while others write, and restored; a watcher from before holds what "
                 "is there then", "pods_large_backup"),
            _can("Restores into quarantine: nothing reaches a member, agents are refused, what members would get is "
                 "told; released, or taken back; a run that is killed is gone on with", "pods_restore", "contract"),
            _can("A restore is released for some clusters, or namespaces on them; the API server holds the rest, which "
                 "is not written to; old data goes by name only", "pods_restore", "hosts_restore", "contract", "unit"),
            _can("Most volumes of etcd lost: what the one member that is left has is restored, newer than any backup; "
                 "that the last writes may be missing is told", "pods_survivor", "hosts_survivor", "contract", "unit"),
            _can("A control plane moves to another place: handed over with a final backup, taken over into quarantine; "
                 "members follow it with other tokens; what was left has no effect on them", "pods_move", "contract",
                 "unit"),
            _can("An etcd that exists already, shared by several control planes", "pods_external_etcd"),
            _can("IPv6 alone, and both families", "pods_ip_families:six", "pods_ip_families:dual"),
            _can("Images from a private registry, by pull secrets", "pods_private_registry"),
            _can("Several control planes in one host cluster, in one namespace, of different versions",
                 "pods_many_instances"),
            _can("An account on the host cluster with the listed rights and no more", "pods_least_rights"),
            _can("Removal leaves nothing on host cluster and members, whoever is lost or holds an object", "demo",
                 "pods_uninstall:hindered"),
            _can("Removal keeps the data where the document says so, and the next installation takes it up",
                 "pods_uninstall:retained"),
            _can("Removal of what somebody has removed half by hand", "pods_uninstall:half"),
        ),
    ),
    Area(
        "A control plane from an object",
        (
            _can("The operator, from its chart, turns an object into a control plane; edits, annotations, changed "
                 "Secrets and what somebody deletes start runs; who leads may be killed; deleted, it leaves nothing",
                 "operator_in_pods"),
            _can("An object with mode Binary: a control plane on a plain host, by the operator over SSH; a unit that "
                 "somebody stops and a host without power are told and come back", "operator_hosts"),
            _can("Runs as Jobs go on when the operator is killed; the next leader follows them to their end, under an "
                 "account of their own", "operator_jobs"),
            _can("The operator is killed at any point of an installation and started anew again and again: the same "
                 "end, no pod of the control plane restarted, no two runs that write at a time", "operator_faults"),
            _can("Ten edits in a row, also during a run: the last one holds, none is lost, few runs; a pause and a "
                 "deletion during a run", "operator_edits"),
            _can("Two operators, and one leads: killed, stopped or cut off in the middle of an installation, another "
                 "one acts within 20 s, and the installation goes on within 60 s; never do two write one instance",
                 "operator_ha", "unit"),
            _can("Many objects at once: four runs at a time, namespaces in turn, none lost, the operator with its runs "
                 "below 1 GiB", "operator_many"),
            _can("An object whose host cluster is another one: wrong credentials are told before any change; what "
                 "somebody deletes or changes there is seen and put right; deleted, it leaves nothing there",
                 "operator_remote", "unit"),
            _can("Backups and restores by objects: the operator takes what is due; a restore waits for confirmation "
                 "and, in quarantine, for a decision, upon one member first and then upon the rest, although who leads "
                 "is killed", "operator_backup"),
            _can("Backups in a volume claim: taken, pruned, listed and verified; no pod stays, and the claim outlives "
                 "the control plane", "operator_backup", "contract", "unit"),
        ),
    ),
    Area(
        "A control plane on plain hosts, over SSH",
        (
            _can("Three hosts with a virtual IP, as systemd units, by a user that is not root", "hosts_plain"),
            _can("Hardened units; nothing is left on a host after removal", "hosts_plain"),
            _can("A changed flag starts one unit anew, on one host after the other, while the API answers",
                 "hosts_plain"),
            _can("etcd or load balancer on hosts of their own, or of the site's own", "hosts_variants:apart",
                 "hosts_variants:balancers", "hosts_variants:site_etcd", "hosts_variants:site_balancer"),
            _can("Programs out of images, from a mirror, from a directory, or built from Go modules",
                 "hosts_variants:images", "hosts_variants:mirror", "hosts_variants:go_modules", "hosts_plain"),
            _can("IPv6 alone", "hosts_variants:ipv6"),
            _can("Data of a removed control plane is kept and taken up again", "hosts_variants:kept_data"),
            _can("A host whose state of the installer is older, damaged or tampered with: refused until a person "
                 "decides", "hosts_variants:states"),
            _can("As root, by another port, with a fingerprint; hosts that let nobody in are told before any change",
                 "hosts_variants:access"),
            _can("Packages that are missing on a host are installed, also after a kill", "hosts_variants:packages"),
            _can("Members that register themselves", "hosts_variants:members"),
            _can("Hosts come and go, and lose roles; every port can be chosen", "hosts_change"),
            _can("Members of etcd come, go, are replaced and restarted on plain hosts while the control plane serves",
                 "hosts_etcd_members:changes"),
            _can("Another patch and another minor of etcd on plain hosts, member by member, while somebody writes",
                 "hosts_variants:etcd_versions"),
            _can("etcd on plain hosts below a control plane in pods", "hosts_etcd_below_pods"),
            _can("Backups of etcd on plain hosts, as of one in pods; nothing of a snapshot stays on a host, whatever "
                 "ends the run", "hosts_backup", "contract"),
            _can("Backups in a directory of a plain host: taken, pruned, listed, verified and restored over the "
                 "connection of Ansible; one where others may write is refused", "hosts_backup", "hosts_restore",
                 "contract", "unit"),
            _can("Restores on plain hosts, as of one in pods: what is held stays away after a boot, too; nothing of a "
                 "snapshot stays on a host; old data goes by name only", "hosts_restore", "contract", "unit"),
            _can("Restores of etcd on plain hosts below a control plane in pods: killed, undone, released in parts",
                 "hosts_etcd_below_pods:restore", "unit"),
            _can("A control plane moves from pods to a plain host: members in both modes follow, and what they run "
                 "keeps its UIDs; what is started by hand at the place it left writes to no member", "hosts_move:host"),
            _can("And from a plain host back to pods", "hosts_move:pods"),
            _can("Three hosts that are lost for good: others take over from a backup, members in both modes follow; "
                 "the lost ones write to no member when they come back", "hosts_move:lost"),
            _can("New machines under the names and addresses of lost hosts: of all, which take over from a backup, and "
                 "of two of three, which get what the third has", "hosts_move:renewed"),
            _can("Loss of power, reboots, full disks and lost connections lose no acknowledged write",
                 "hosts_faults", "hosts_etcd_below_pods"),
            _can("A host whose root lies has no power over other hosts or the machine with Ansible", "hosts_hostile"),
        ),
    ),
    Area(
        "Members",
        (
            _can("Join in mode Push, at once and many together; one that is broken stops no other", "demo",
                 "members_change:broken", "unit"),
            _can("Join in mode Pull, where the control plane cannot connect to the member; an agent with a "
                 "certificate of its own, which it renews", "members_pull"),
            _can("An agent as a unit of a plain host; another host takes over", "members_agent_on_host"),
            _can("Leave, with applications that stay untouched or go; a member that is lost is given up by name",
                 "members_leave", "members_pull"),
            _can("From Push to Pull and back without a pod being disturbed", "members_change:modes"),
            _can("Labels, region, provider, taints and credentials change in place", "members_change:in_place",
                 "members_change:address", "members_pull"),
            _can("A member whose accounts somebody deleted is repaired, and worked on at once", "members_change:reset"),
            _can("Cordon, drain and uncordon", "members_change:drained"),
            _can("Members that Karmada's own command registered or joined are left alone until they are listed",
                 "members_of_others"),
            _can("Scoped rights on a member: what is not listed is refused", "pods_settings"),
            _can("A member's kubeconfig fetched from a host over SSH", "hosts_plain"),
            _can("Members chosen by limit, name and tag", "members_change:chosen"),
        ),
    ),
    Area(
        "Runs",
        (
            _can("Jobs of AWX: an inventory that is stored, renewed credentials, workflows, surveys, cancels; two on "
                 "one control plane never write at once", "awx", "contract"),
            _can("Jobs of AWX in pods of a container group, in the execution environment, as a user of no list and "
                 "without a token of the cluster; one loses its pod in the middle, and the next goes on", "awx_pod"),
            _can("Jobs of AWX for a control plane on a plain host, with the key of a machine credential or of a "
                 "Secret; one is canceled, and the next goes on", "awx_hosts"),
            _can("A second run changes nothing and writes nothing", "demo", "run_check_mode", "hosts_plain"),
            _can("Check mode with diff says what a run would change, and changes nothing", "run_check_mode"),
            _can("A check that fails at its end if it would change something, for whoever is told of failures only",
                 "unit"),
            _can("No run shows a secret, however much it says", "run_check_mode", "hosts_faults"),
            _can("What drifted is put right, and nothing else", "run_convergence"),
            _can("A new version of a component that does not start stops the run with the reason, while the old "
                 "pods serve", "run_convergence"),
            _can("Killed at any point and run again, in pods", "run_interrupted"),
            _can("Killed at any point and run again, on plain hosts", "hosts_faults:killed"),
            _can("An API server that fails, refuses and goes away for a minute", "run_faulty_api"),
            _can("Every mistake in a document is refused before the first change, with what, where and how to mend "
                 "it", "run_bad_input", "unit"),
            _can("Removal asks for the name once more", "pods_least_rights"),
            _can("A report on what is there now, which changes nothing", "run_check_mode", "hosts_plain"),
            _can("An output for people in 80 columns: a line for a step, an error once; the report as a page",
                 "newcomer", "unit"),
            _can("A wait for what pods serve ends with the pod's reason, such as an image that nobody has",
                 "newcomer", "pods_image_missing", "unit"),
            _can("A document does not make a second control plane because a kubeconfig leads elsewhere",
                 "newcomer", "unit"),
        ),
    ),
    Area(
        "Karmada at work on the result",
        (
            _can("Policies, overrides and namespaces reach members", "functions_in_pods", "functions_on_hosts"),
            _can("Requests to members through the control plane, as oneself and no further", "functions_in_pods",
                 "functions_on_hosts"),
            _can("A Service of one member used on another one", "functions_in_pods", "functions_on_hosts"),
            _can("More pods where pods are busy, across members", "functions_in_pods", "functions_on_hosts"),
            _can("A member that dies: its pods run elsewhere, and it comes back", "functions_in_pods",
                 "functions_on_hosts"),
        ),
    ),
    Area(
        "Releases and other installers",
        (
            _can("Every known release of Karmada, with all its components", "release_all"),
            _can("A control plane made by an earlier version of this collection is taken over",
                 "release_adopts_earlier", "hosts_adopts_earlier"),
            _can("The newest ansible-core, from the built artifact", "release_newest_core"),
            _can("The built artifact, by somebody who has nothing else", "pods_cluster_ip"),
            _can("Control planes of karmadactl and of Karmada's operator are recognised and refused",
                 "other_installers"),
        ),
    ),
    Area(
        "How it is made",
        (
            _can("Clean for ansible-lint (production), yamllint, ruff, mypy and shellcheck", "lint"),
            _can("What Galaxy asks of the artifact: its importer, sanity of ansible-core 2.19 to 2.21, changelog, "
                 "documentation, execution environment", "publishable"),
            _can("The engine, its invariants, and the refusals, without a cluster", "unit"),
            _can("What is rendered, against the real programs: API servers, etcd, systemd, each flag", "contract"),
            _can("A lab on one machine: clusters of several nodes, and plain hosts by SSH", "lab_hosts"),
            _can("The lab, killed at any moment, comes up and goes down and leaves nothing", "lab_recovery"),
        ),
    ),
)  # fmt: skip
