# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods as they are seen: by etcd, by their own answers, by their pods and volumes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests

from ..api_object import Object
from ..components.etcd_state import EtcdMemberState
from ..components.table import ETCD, KARMADA_APISERVER, pod_components
from ..pki.files import ETCD_CLIENT_CERTIFICATE, certificate_files
from ..render import cluster_layout
from ..run.run import Run
from . import access, nodes
from . import plan_types as steps
from .client import EndpointStatus, EtcdClient, EtcdError
from .listed import identity_of, member_of
from .lists import agreed


def client(run: Run) -> EtcdClient:
    """Client of the members in pods, each through the host cluster, whether its pod is ready or not."""
    pods = {member.client_url: member.name for member in run.layout.etcd_members}
    files = certificate_files(ETCD_CLIENT_CERTIFICATE, run.material)
    return EtcdClient(list(pods), files, "etcd's client", access.dial_pods(run, pods))


def are_ours(run: Run) -> bool:
    """Return whether members of etcd are pods of this control plane."""
    return ETCD in pod_components(run.spec)


@dataclass(frozen=True)
class Look:
    """Members as they were seen, with what is asked and what they run on."""

    seen: steps.Seen
    client: EtcdClient
    #: name of a member → its pod, and the UID of what holds its data
    pods: Mapping[str, Object]
    volumes: Mapping[str, str]
    #: ID → status
    status: Mapping[str, EndpointStatus]

    def url(self, name: str) -> str:
        """URL of a member for clients."""
        return self.client.urls[self.names.index(name)]

    #: names of the members in the order of the client's URLs
    names: Sequence[str] = ()

    @property
    def working(self) -> frozenset[str]:
        """Names of the members that take part in majorities by their own words."""
        urls = {each.url for each in self.status.values() if each.works}
        return frozenset(name for name, url in zip(self.names, self.client.urls, strict=True) if url in urls)

    @property
    def versions(self) -> frozenset[str]:
        """Versions that members have answered with."""
        return frozenset(each.version for each in self.status.values() if each.version)


def look(run: Run) -> Look:
    """Members as etcd lists them, as each answers, and as their pods are."""
    etcd, asked = run.state.etcd, client(run)
    found = asked.status() if asked.urls else []
    lists = _lists(asked, found)
    listed = agreed(list(lists.values()))
    status = {each.member_id: each for each in found if each.member_id}
    labels = run.instance.pod_selector(ETCD.name)
    pods = {each["metadata"]["name"]: each for each in run.host_cluster.list("v1", "Pod", run.namespace, labels=labels)}
    volumes = _volumes(run, pods)
    names = [each.name for each in run.layout.etcd_members]
    members = None if listed is None else tuple(member_of(each, status.get(each.id)) for each in listed.members)
    healthy = {each.id for each in members or () if each.works}
    every = {*names, *(each.name for each in etcd.members), *cluster_layout.etcd_pod_names(run.instance)}
    seen = steps.Seen(
        members=members,
        known=tuple(_known(each, volumes, healthy, listed, nodes.lost(etcd, each.name)) for each in etcd.members),
        peer_urls={name: cluster_layout.etcd_pod(run.instance, name).peer_url for name in every},
        clients=_clients(run),
        answering=frozenset(name for name, each in zip(names, found, strict=True) if each.cause is None),
        lists={
            name: frozenset(member.id for member in lists[each.url].members)
            for name, each in zip(names, found, strict=True)
            if each.url in lists
        },
        cluster=listed.cluster_id if listed else "",
        known_cluster=etcd.cluster,
    )
    return Look(seen, asked, pods, volumes, status, names)


def _lists(asked: EtcdClient, found: Sequence[EndpointStatus]) -> dict[str, etcd_requests.Members]:
    """Members as each healthy one lists them, by its URL; nobody lists any without a majority."""

    def listed(url: str) -> etcd_requests.Members | None:
        try:
            return asked.at(url).members()
        except EtcdError:
            return None

    # A learner does not answer a linearizable read.
    able = [each.url for each in found if (each.healthy or each.alarms) and not each.learner]
    with ThreadPoolExecutor(max(1, len(able))) as pool:
        answers = zip(able, pool.map(listed, able), strict=True)
        return {url: members for url, members in answers if members is not None}


def _known(
    record: EtcdMemberState,
    volumes: Mapping[str, str],
    healthy: Collection[str],
    listed: etcd_requests.Members | None,
    without_node: str,
) -> steps.Known:
    """Member on record. Its data is lost if its node was given up, or if its volume is not the one on record and it is
    not healthy with that.
    """
    now = volumes.get(record.name)
    lost = record.lost or ("" if record.coming else without_node)
    if not lost and record.volume and now and now != record.volume and record.id not in healthy:
        lost = "its volume is another one than it had"
    identity = identity_of(record, listed.members if listed else None)
    return steps.Known(record.name, identity, leaving=record.leaving, lost=lost)


def _volumes(run: Run, pods: Mapping[str, Object]) -> dict[str, str]:
    """UID of what holds the data of each member: of its claim, or of the pod itself."""
    if run.state.etcd.storage == "emptyDir":
        return {name: pod["metadata"]["uid"] for name, pod in pods.items()}
    labels = run.instance.pod_selector(ETCD.name)
    claims = run.host_cluster.list("v1", "PersistentVolumeClaim", run.namespace, labels=labels)
    data = [each for each in claims if each["metadata"]["name"].startswith("data-")]
    return {each["metadata"]["name"].removeprefix("data-"): each["metadata"]["uid"] for each in data}


def _clients(run: Run) -> frozenset[str]:
    """Names of the members that the API server connects to now; the other clients are changed together with it."""
    live = run.host_cluster.get(*run.workload(KARMADA_APISERVER.name))
    if not live:
        return frozenset()
    container = live["spec"]["template"]["spec"]["containers"][0]
    flags = [*container.get("command", ()), *container.get("args", ())]
    urls = next((flag.partition("=")[2] for flag in flags if flag.startswith("--etcd-servers=")), "").split(",")
    every = {*(each.name for each in run.state.etcd.members), *cluster_layout.etcd_pod_names(run.instance)}
    return frozenset(name for name in every if cluster_layout.etcd_pod(run.instance, name).client_url in urls)
