# SPDX-License-Identifier: Apache-2.0
"""``membership: live``: members as they are registered, by Ansible itself against an API server in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registered
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

CANARY = Path("/tmp/karmada-installer-was-here-live")
OURS = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": OWNER}
CLUSTERS = "apis/cluster.karmada.io/v1alpha1/clusters"
SPEC: dict[str, Any] = {
    "mode": "Binary",
    "endpoint": {"type": "External", "host": "karmada.example.com"},
    "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
    "members": [
        {"name": "kept", "secretRef": {"name": "a"}, "region": "eu"},
        {"name": "new", "secretRef": {"name": "b"}},
        {"name": "byhand", "secretRef": {"name": "c"}},
    ],
}


def cluster(name: str, labels: dict[str, str] | None = None, *, ready: bool = True, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {
            "name": name,
            "labels": labels or {},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "canary-annotation"},
            "managedFields": [{"manager": "canary-manager"}],
        },
        "spec": {"syncMode": "Push", "proxyHeader": {"Authorization": "canary-header"}, **spec},
        "status": {
            "kubernetesVersion": "v1.35.4",
            "apiEnablements": [{"groupVersion": "canary-list"}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        stub.types["v1"] = [{"name": "namespaces", "kind": "Namespace", "namespaced": False, "verbs": ["list", "get"]}]
        stub.types["cluster.karmada.io/v1alpha1"] = [
            {"name": "clusters", "kind": "Cluster", "namespaced": False, "verbs": ["list", "get"]}
        ]
        stub.put("api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "karmada-cluster", "labels": OURS}})
        yield stub


def site(directory: Path, api: StubApi | None, **options: Any) -> str:
    """The source in a directory with a document and, beside it, the kubeconfig that an installation leaves."""
    deployment = {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "KarmadaDeployment",
        "metadata": {"name": "prod"},
        "spec": SPEC,
    }
    (directory / "prod.yaml").write_text(yaml.safe_dump(deployment), encoding="utf-8")
    if api:
        (directory / "prod.kubeconfig").write_text(yaml.safe_dump(api.kubeconfig()), encoding="utf-8")
    path = directory / "site.karmada.yml"
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "membership": "live", **options}
    path.write_text(yaml.safe_dump(source), encoding="utf-8")
    return str(path)


def listed(directory: Path, source: str) -> dict[str, Any]:
    done = ansible_commands.run("ansible-inventory", "-i", source, "--list", "--export", directory=directory)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout, object_hook=_without_marks)
    return found


def _without_marks(value: dict[str, Any]) -> Any:
    return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else value


def hosts(found: dict[str, Any], group: str) -> list[str]:
    return sorted(found.get(group, {}).get("hosts", []))


def test_members_are_in_groups_by_what_the_next_run_does_with_them(tmp_path: Path, api: StubApi) -> None:
    for each in (
        cluster("kept", {**OURS, "tier": "prod"}),
        cluster("byhand"),
        cluster("gone", {**OURS, "tier": "test"}, ready=False, region="us", zones=["us-1", "us-2"], provider="aws"),
        cluster("other", syncMode="Pull"),
        cluster("cp1", {**OURS}),
    ):
        api.put(CLUSTERS, each)
    source = site(
        tmp_path,
        api,
        keyed_groups=[
            {"key": "karmada_member.region", "prefix": "region"},
            {"key": "karmada_member.provider", "prefix": "provider"},
            {"key": "karmada_cluster.spec.zones", "prefix": "zone"},
            {"key": "karmada_member.labels.tier", "prefix": "tier"},
            {"key": "karmada_member_ready | ternary('ready', 'not_ready')", "prefix": "member"},
        ],
        groups={"old": "karmada_cluster.status.kubernetesVersion is version('v2', '<')"},
        compose={"condition": "karmada_cluster.status.conditions[0].status"},
    )
    found = listed(tmp_path, source)
    assert hosts(found, "karmada_members_join") == ["byhand", "new"]
    assert hosts(found, "karmada_members_keep") == ["kept"]
    assert hosts(found, "karmada_members_leave") == ["gone", "member_cp1"], "a plain host has the name"
    assert hosts(found, "karmada_members") == ["other"]
    assert hosts(found, "karmada_members_pull") == ["other"]
    assert hosts(found, "karmada_members_push") == ["byhand", "gone", "kept", "member_cp1", "new"]
    assert hosts(found, "region_eu") == ["kept"]
    assert hosts(found, "region_us") == hosts(found, "provider_aws") == hosts(found, "zone_us_2") == ["gone"]
    assert hosts(found, "tier_test") == ["gone"]
    assert hosts(found, "member_not_ready") == ["gone", "new"]
    assert hosts(found, "old") == ["byhand", "gone", "kept", "member_cp1", "other"]
    variables = found["_meta"]["hostvars"]
    assert variables["gone"]["condition"] == "False"
    assert variables["gone"]["karmada_member"] == {
        "name": "gone",
        "mode": "Push",
        "provider": "aws",
        "region": "us",
        "zones": ["us-1", "us-2"],
        "labels": {"tier": "test"},
    }
    assert variables["kept"]["karmada_member"]["secretRef"] == {"name": "a"}
    assert "canary" not in json.dumps(found)


def test_strings_of_clusters_are_never_templates(tmp_path: Path, api: StubApi) -> None:
    CANARY.unlink(missing_ok=True)
    hostile = "{{ lookup('pipe', 'touch " + str(CANARY) + "') }}"
    each = cluster("evil", {**OURS, "label": hostile}, region=hostile, zones=[hostile], provider="{% if true %}x")
    each["status"]["conditions"][0]["reason"] = hostile
    api.put(CLUSTERS, each)
    source = site(
        tmp_path,
        api,
        keyed_groups=[{"key": "karmada_member.region", "prefix": "region"}],
        compose={"copied": "karmada_cluster.status.conditions[0].reason"},
    )
    shown = ansible_commands.run(
        *("ansible", "evil", "-i", source, "-m", "ansible.builtin.debug"),
        *("-a", "msg={{ copied }}{{ hostvars[inventory_hostname] }}"),
        directory=tmp_path,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "lookup('pipe', 'touch" in shown.stdout
    assert not CANARY.exists()


def test_one_that_does_not_answer_is_an_error_and_never_an_empty_list(tmp_path: Path, api: StubApi) -> None:
    api.faults.append(Fault("status", path="clusters", status=403, times=99))
    done = ansible_commands.run("ansible-inventory", "-i", site(tmp_path, api), "--list", directory=tmp_path)
    assert done.returncode != 0
    assert "it cannot be told which members are registered" in done.stderr
    assert "_meta" not in done.stdout


def test_one_whose_kubeconfig_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = ansible_commands.run("ansible-inventory", "-i", site(tmp_path, None), "--list", directory=tmp_path)
    assert done.returncode != 0
    assert "prod.kubeconfig: kubeconfig of the control plane: it is not there" in done.stderr


def test_the_kubeconfig_may_be_that_of_a_credential(
    tmp_path: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(CLUSTERS, cluster("kept", OURS))
    source = site(tmp_path, api)
    (tmp_path / "prod.kubeconfig").rename(tmp_path / "tmp1")
    monkeypatch.setenv("KARMADA_KUBECONFIG", str(tmp_path / "tmp1"))
    assert hosts(listed(tmp_path, source), "karmada_members_keep") == ["kept"]
    monkeypatch.setenv("KARMADA_KUBECONFIG", str(tmp_path / "tmp2"))
    done = ansible_commands.run("ansible-inventory", "-i", source, "--list", directory=tmp_path)
    assert "tmp2: kubeconfig of the control plane: it is not there" in done.stderr
    assert "KARMADA_KUBECONFIG, in AWX by a credential" in done.stderr


def test_any_other_failure_of_such_a_source_is_an_error_too(tmp_path: Path, api: StubApi) -> None:
    done = ansible_commands.run(
        "ansible-inventory", "-i", site(tmp_path, api, secrets="nowhere"), "--list", directory=tmp_path
    )
    assert done.returncode != 0
    assert "there is no directory" in done.stderr


def test_a_cache_is_used_where_it_is_wanted(tmp_path: Path, api: StubApi) -> None:
    api.put(CLUSTERS, cluster("kept", OURS))
    cached = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    source = site(tmp_path, api, **cached)
    first = listed(tmp_path, source)
    asked = len(api.requests)
    assert listed(tmp_path, source) == first
    assert len(api.requests) == asked
    assert "t0ps3cret" not in "".join(path.read_text() for path in (tmp_path / "cache").iterdir())
    listed(tmp_path, site(tmp_path, api))
    assert len(api.requests) > asked


def test_the_source_says_live_or_spec(tmp_path: Path) -> None:
    assert inventory_source.load(site(tmp_path, None, membership="spec")).membership == "spec"
    with pytest.raises(ProblemsError, match='membership is "alive"'):
        inventory_source.load(site(tmp_path, None, membership="alive"))


def test_control_planes_in_one_cluster_have_its_kubeconfig_read_once(
    tmp_path: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig()), encoding="utf-8")
    connection = {"kubeconfig": str(tmp_path / "kubeconfig"), "object_uid": "a-uid"}
    read: list[str] = []
    taken = kubeconfig.from_file
    monkeypatch.setattr(kubeconfig, "from_file", lambda path, context: read.append(path) or taken(path, context))
    before = len(api.requests)
    sources = [inventory_source.Source(document({**SPEC, "members": []}), connection, "live")] * 5
    with SharedClients() as clients:
        found = registered.live_of_all(sources, clients, at_once=3)
    assert found == [registered.Registered()] * 5, "none is installed"
    assert read == [connection["kubeconfig"]]
    assert [path for _, path in api.requests[before:]] == ["/api/v1/namespaces/karmada/secrets/prod-admin-config"] * 5


# -- through the host cluster ------------------------------------------------------------------------------------------


def in_pods(monkeypatch: pytest.MonkeyPatch, run: Run) -> registered.Registered:
    monkeypatch.setattr(registered, "Run", lambda *_, **__: run)
    with SharedClients() as clients:
        return registered.live(inventory_source.Source(document(), {}, "live"), clients)


def test_before_the_first_installation_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_pods(monkeypatch, fake_run(document(), FakeCluster("host cluster")))
    assert found == registered.Registered()
    assert found.plan(document({"members": SPEC["members"]})).join == ("byhand", "kept", "new")


def test_what_is_on_record_leaves_even_if_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(members={"lost": {"mode": "Push"}}))
    inside = FakeCluster("control plane", cluster("kept", OURS))
    inside.with_patience = lambda **_: inside  # type: ignore[attr-defined]
    run.__dict__["control_plane"] = inside
    found = in_pods(monkeypatch, run)
    assert found.plan(document()).leave == ("kept", "lost")
    assert registered.Registered.of(json.loads(json.dumps(found.plain()))) == found


def test_a_host_cluster_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeCluster("host cluster")
    host.dead = True
    with pytest.raises(ProblemsError, match="it cannot be told which members are registered"):
        in_pods(monkeypatch, fake_run(document(), host))
