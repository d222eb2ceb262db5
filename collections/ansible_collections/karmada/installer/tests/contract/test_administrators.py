# SPDX-License-Identifier: Apache-2.0
"""Who runs a control plane, asked of a real kube-apiserver: rights that one binding gives, and a way in without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.karmada.installer.plugins.action import break_glass
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ADMIN, administrator
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import stages
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.bootstrap import ADMINISTRATORS
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all, delete_all, survey
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates, x509
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, spec_of, state

EVERYTHING = [
    ("*", "*", "*"),
    ("get", "", "secrets"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("impersonate", "", "groups"),
    # the way through to members
    ("get", "cluster.karmada.io", "clusters", None, "proxy"),
]
RBAC = "rbac.authorization.k8s.io/v1"
STATE = state()
FORMER = {
    "apiVersion": RBAC,
    "kind": "ClusterRoleBinding",
    "metadata": {
        "name": "cluster-proxy-admin",
        "labels": {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": STATE.owner},
    },
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-proxy-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ADMIN.common_name}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One that trusts the authority of our state, as a control plane does."""
    authority = tmp_path_factory.mktemp("authority") / "clients.crt"
    directory = tmp_path_factory.mktemp("administrators")
    authority.write_bytes(STATE.authorities["karmada-ca"].certificate)
    with running_api_server(directory, client_authority=authority) as found:
        yield found


def as_bearer(server: ApiServer, pair: KeyPair) -> Cluster:
    cert, key = pair.certificate.decode(), pair.key.decode()
    return Cluster(from_parts(server.url, ca_pem=server.ca.read_text(), cert_pem=cert, key_pem=key), "control plane")


@pytest.fixture(scope="module")
def people(server: ApiServer) -> Iterator[dict[str, Cluster]]:
    """The installer, an administrator, and who has broken the glass, each with a certificate as it is made for them."""
    now, spec = datetime.now(UTC), spec_of()
    wanted = x509.Certificate(ADMIN.name, ADMIN.authority, ADMIN.common_name, ADMIN.organizations, client=True)
    pairs = {
        "installer": certificates.superuser("system:karmada:installer", STATE, spec, now, timedelta(hours=1)),
        "administrator": x509.issue(wanted, STATE.authorities[ADMIN.authority], "ECDSA-P256", now, timedelta(days=365)),
        "glass": certificates.superuser(break_glass.USER, STATE, spec, now, timedelta(hours=1)),
    }
    with ExitStack() as open_clusters:
        yield {name: open_clusters.enter_context(as_bearer(server, pair)) for name, pair in pairs.items()}


def bring_up(installer: Cluster, generation: int = 1) -> None:
    """What the step for rights does."""
    spec = {"certificates": {"administratorGeneration": generation}}
    run = fake_run(document(spec), FakeCluster("host"), stored=STATE)
    run.__dict__["control_plane"] = installer
    apply_all(installer, stages.objects(run, "rights"))
    delete_all(installer, run.ours_in_control_plane(stages.switched_off(run, ["rights"])))


def eventually(holds: Callable[[], bool]) -> None:
    """An API server sees new rights a moment after they were written."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def may_everything(who: Cluster) -> bool:
    return not who.can_i(EVERYTHING)


def may_nothing(who: Cluster) -> bool:
    return len(who.can_i(EVERYTHING)) == len(EVERYTHING)


def test_an_empty_control_plane_is_worked_on_by_the_installer_alone(people: dict[str, Cluster]) -> None:
    """The first of these tests: nothing of ours is there yet."""
    assert may_everything(people["installer"])
    assert may_nothing(people["administrator"])
    bring_up(people["installer"])
    eventually(lambda: may_everything(people["administrator"]))


def test_without_the_binding_an_administrator_may_nothing_and_who_breaks_the_glass_everything(
    people: dict[str, Cluster],
) -> None:
    bring_up(people["installer"])
    eventually(lambda: may_everything(people["administrator"]))
    live = people["installer"].get(RBAC, "ClusterRoleBinding", ADMINISTRATORS)
    assert live
    delete_all(people["installer"], [(Ref.of(live), live["metadata"]["uid"])])
    eventually(lambda: may_nothing(people["administrator"]))
    with pytest.raises(Forbidden):
        people["administrator"].list("v1", "Secret")
    assert may_everything(people["glass"])
    assert may_everything(people["installer"])

    bring_up(people["glass"])
    eventually(lambda: may_everything(people["administrator"]))


def test_the_way_to_members_that_earlier_versions_left_open_is_closed(people: dict[str, Cluster]) -> None:
    installer = people["installer"]
    apply_all(installer, [FORMER])
    bring_up(installer)
    assert installer.get(RBAC, "ClusterRoleBinding", FORMER["metadata"]["name"]) is None
    run = fake_run(document(), FakeCluster("host"), stored=STATE)
    run.__dict__["control_plane"] = installer
    again = survey(installer, stages.objects(run, "rights"))
    assert {change.action for change in again} == {"unchanged"}
    assert run.ours_in_control_plane(stages.switched_off(run, ["rights"])) == []


def test_another_generation_takes_every_kubeconfig_of_the_one_before_back_for_good(
    server: ApiServer, people: dict[str, Cluster]
) -> None:
    """Also when the steps for rights are carried out again and again."""
    bring_up(people["installer"])
    eventually(lambda: may_everything(people["administrator"]))
    leaf = administrator(spec_of({"certificates": {"administratorGeneration": 2}}))
    wanted = x509.Certificate(leaf.name, leaf.authority, leaf.common_name, leaf.organizations, client=True)
    pair = x509.issue(wanted, STATE.authorities[leaf.authority], "ECDSA-P256", datetime.now(UTC), timedelta(days=1))
    with as_bearer(server, pair) as second:
        assert may_nothing(second)
        for _ in range(2):
            bring_up(people["installer"], 2)
            eventually(lambda: may_nothing(people["administrator"]))
            eventually(lambda: may_everything(second))


def test_it_is_narrowed_or_given_to_somebody_else_by_the_binding(people: dict[str, Cluster]) -> None:
    """The last of these tests: what people make beside stays when ours is taken away."""
    installer = people["installer"]
    bring_up(installer)
    own = {**FORMER, "metadata": {"name": "applicants"}}
    own["roleRef"] = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:node-bootstrapper",
    }
    installer.create(own)
    live = installer.get(RBAC, "ClusterRoleBinding", ADMINISTRATORS)
    assert live
    delete_all(installer, [(Ref.of(live), live["metadata"]["uid"])])
    eventually(lambda: may_nothing(people["administrator"]))
    asked = [("create", "certificates.k8s.io", "certificatesigningrequests")]
    eventually(lambda: not people["administrator"].can_i(asked))
