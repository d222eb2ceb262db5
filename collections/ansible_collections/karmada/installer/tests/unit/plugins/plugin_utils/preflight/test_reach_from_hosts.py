# SPDX-License-Identifier: Apache-2.0
"""Which members hosts look at, what is sent to them for it, and what is told of what they found."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.karmada.installer.plugins.action.reach_from_host import ActionModule as FromHost
from ansible_collections.karmada.installer.plugins.action.reach_targets import ActionModule as Targets
from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import ways_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    findings,
    member_checks,
    reach_from_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Fault, Target, sentences
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs, deployment, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, document

CA = x509.new_authority(x509.Authority("ca", "ca"), "ECDSA-P256", NOW).certificate.decode()
SECRET = "a-token-that-nobody-sees"
REMEDY = reach_from_hosts.REMEDY_OF_PLACE
#: No name that hosts would have to look up.
DIRECT = {"type": "External", "host": "192.0.2.1"}
URL = "https://192.0.2.7:6443"


def kubeconfig(**cluster: Any) -> dict[str, bytes]:
    described = {"server": URL, "certificate-authority-data": base64.b64encode(CA.encode()).decode(), **cluster}
    described = {key: value for key, value in described.items() if value is not None}
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": described}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
    }
    return {"kubeconfig": json.dumps(config).encode()}


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "mode": "Push", "secretRef": {"name": name}, **more}


class Site:
    """A control plane on hosts with these members, and the secrets that they have."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *entries: dict[str, Any], **secrets: Any) -> None:
        self.runs, self.document = Runs(folder / "run"), deployment(members=list(entries), endpoint=DIRECT)
        self.runs.see_all(seen(Stored()))
        self.registered: dict[str, Any] = {}
        self.said: list[str] = []
        self.secrets = {each["name"]: kubeconfig() for each in entries} | secrets
        monkeypatch.setattr(Run, "secret", lambda _run, name, _where: self.secrets[name])
        monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters(self.registered))
        # Tests of their own see to what members of etcd have to reach.
        monkeypatch.setattr(ways_on_hosts, "targets", lambda _run: {})

    def targets(self, *selected: str) -> dict[str, list[str]]:
        action: Any = Targets.__new__(Targets)
        run = self.runs.step(self.document)
        run.selected = selected
        run.say = self.said.append
        found: dict[str, list[str]] = action.perform(run, {})["hosts"]
        return found

    def look(self, host: dict[str, Any], answer: Any) -> dict[str, Any]:
        """The host answers with this; what it was sent is kept."""
        action: Any = FromHost.__new__(FromHost)
        action.karmada = self.runs.step(self.document)
        action.variables = {"inventory_hostname": host["name"]}
        action._task = SimpleNamespace(check_mode=False, delegate_to=None)

        def on_host(module: str, **arguments: Any) -> Any:
            self.sent = {"module": module, **arguments}
            if isinstance(answer, Exception):
                raise answer
            return {"unreached": answer}

        action.on_host = on_host
        found: dict[str, Any] = action.perform({})
        return found

    def problems(self) -> dict[str, list[Any]]:
        return reach_from_hosts.from_hosts(self.runs.step(self.document))


def refused(*names: str, fault: str = kinds.REFUSED, detail: str = "") -> dict[str, Any]:
    return {name: {"fault": fault, "detail": detail} for name in names}


def ready(name: str, status: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": status}]
    return {name: {"kind": "Cluster", "metadata": {"name": name}, "spec": {}, "status": {"conditions": conditions}}}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch, entry("m1"), entry("m2"), entry("p1", mode="Pull"))


def test_hosts_of_the_control_plane_look_at_members_that_push(site: Site) -> None:
    assert site.targets() == {"cp1": ["m1", "m2"], "cp2": ["m1", "m2"]}
    site.runs.see(cp1={"refusal": "it does not answer"})
    assert set(site.targets()) == {"cp2"}


def test_nobody_is_asked_where_nothing_has_to_be_known(site: Site, tmp_path: Path, monkeypatch: Any) -> None:
    site.registered = ready("m1") | ready("m2", "False")
    assert site.targets() == {"cp1": ["m2"], "cp2": ["m2"]}
    assert site.targets("m1") == {}
    site.registered = ready("m1") | ready("m2")
    assert site.targets() == {}
    assert Site(tmp_path / "none", monkeypatch, entry("p1", mode="Pull")).targets() == {}


def test_one_that_is_ready_in_the_other_mode_is_looked_at_before_it_changes(site: Site) -> None:
    site.registered = ready("m1") | ready("m2") | ready("p1")
    site.registered["m2"]["spec"]["syncMode"] = "Pull"
    site.registered["p1"]["spec"]["syncMode"] = "Push"
    assert site.targets() == {"cp1": ["m2"], "cp2": ["m2"]}


def test_a_host_is_sent_the_address_and_who_may_have_signed_and_nothing_else(site: Site) -> None:
    site.targets()
    site.look(HOSTS[0], {})
    expected = {"host": "192.0.2.7", "port": 6443, "tls": True, "authority": CA, "server_name": "192.0.2.7"}
    assert site.sent["targets"] == [{"name": name, "url": URL, **expected} for name in ("m1", "m2")]
    assert (site.sent["module"], site.sent["seconds"]) == ("_host_reach", 5)
    assert SECRET not in json.dumps(site.sent)


@pytest.mark.parametrize(
    ("cluster", "more", "expected"),
    [
        ({"server": "https://m1.example.com"}, {}, ("m1.example.com", 443, True, CA, "m1.example.com")),
        ({"server": "https://[2001:db8::7]:6443"}, {}, ("2001:db8::7", 6443, True, CA, "2001:db8::7")),
        ({"proxy-url": "http://proxy.example.com:3128"}, {}, ("proxy.example.com", 3128, False, "", "")),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority-data": None},
            {"insecureSkipTLSVerification": True},
            ("192.0.2.7", 6443, True, "", ""),
        ),
        ({"certificate-authority-data": None}, {}, ("192.0.2.7", 6443, True, "", "")),
    ],
    ids=["name", "IPv6", "proxy", "not verified", "no CA"],
)
def test_where_a_host_looks(
    cluster: Any, more: Any, expected: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, monkeypatch, entry("m1", **more), m1=kubeconfig(**cluster))
    (found,) = reach_from_hosts.targets(site.runs.step(site.document), {})
    assert (found.host, found.port, found.tls, found.authority, found.server_name) == expected


def test_it_is_said_that_behind_a_proxy_nothing_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = kubeconfig(**{"proxy-url": "http://proxy.example.com:3128"})
    site = Site(tmp_path, monkeypatch, entry("m1"), entry("m2"), m1=proxy)
    site.targets()
    assert site.said == [
        "hint: m1: only the port of its proxy http://proxy.example.com:3128 is tried, not what is behind it"
    ]


def test_one_whose_kubeconfig_cannot_be_used_keeps_no_other_from_being_looked_at(site: Site) -> None:
    site.secrets["m1"] = {"kubeconfig": b"nonsense"}
    assert site.targets() == {"cp1": ["m2"], "cp2": ["m2"]}


def test_what_hosts_do_not_reach_is_the_problem_of_that_member(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.targets()
    assert site.look(HOSTS[0], refused("m1"))["unreached"] == ["m1"]
    site.look(HOSTS[1], refused("m1") | refused("m2", fault=kinds.SILENT))
    found = site.problems()
    assert {name: [str(each) for each in problems] for name, problems in found.items()} == {
        "m1": [f"spec.members[m1].secretRef: cp1, cp2 do not reach {URL}: connection refused. {REMEDY}"],
        "m2": [f"spec.members[m2].secretRef: cp2 does not reach {URL}: connection timed out. {REMEDY}"],
    }
    monkeypatch.setattr(member_checks.MemberChecks, "problems", lambda *_: ())
    monkeypatch.setattr(findings, "_of_place", lambda *_: ())
    monkeypatch.setattr(findings, "_crds", lambda *_: ())
    assert findings.findings(site.runs.step(site.document)).members == found


def test_different_reasons_are_told_apart_and_a_certificate_has_another_remedy(site: Site) -> None:
    site.targets()
    site.look(HOSTS[0], refused("m1", fault=kinds.OTHER_AUTHORITY, detail="self-signed certificate"))
    site.look(HOSTS[1], refused("m1"))
    first, second = site.problems()["m1"]
    assert first.what == (
        f"cp1 does not reach {URL}: the certificate is not signed by the CA that it should be (self-signed certificate)"
    )
    assert first.remedy == reach_from_hosts.REMEDY_OF_CERTIFICATE
    assert (second.what, second.remedy) == (
        f"cp2 does not reach {URL}: connection refused",
        reach_from_hosts.REMEDY_OF_PLACE,
    )


def test_what_was_not_tried_is_said_and_is_no_problem(site: Site) -> None:
    site.targets()
    site.look(HOSTS[0], refused("m1", "m2", fault=kinds.NOT_TRIED))
    said: list[str] = []
    run = site.runs.step(site.document)
    run.say = said.append
    assert reach_from_hosts.from_hosts(run) == {}
    assert said == ["hint: cp1 had not the time to try 2 of the members, so what it reaches is not known of them"]


def test_a_host_that_is_lost_meanwhile_has_found_nothing(site: Site) -> None:
    site.targets()
    assert site.look(HOSTS[0], AnsibleConnectionFailure("gone"))["unreached"] == []
    assert site.problems() == {}


def test_a_host_without_targets_is_not_asked(site: Site) -> None:
    assert site.look(HOSTS[0], AssertionError()) == {"changed": False, "unreached": []}


def test_where_all_runs_in_pods_no_host_looks() -> None:
    action: Any = Targets.__new__(Targets)
    assert action.perform(fake_run(document(), host()), {}) == {"changed": False, "hosts": {}}


def test_every_fault_has_words_of_its_own() -> None:
    there = Target.of_url("m1", "https://m1.example.com", CA)
    every = [value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)]
    words = {Fault(kind).words(there) for kind in every}
    assert len(words) == len(every) == 11
    assert Fault(kinds.OTHER_NAME).words(there) == "the certificate is not for m1.example.com"
    assert Fault(kinds.OTHER, "what the system says").words(there) == "what the system says"
    assert Fault(kinds.NO_ROUTE, "No route to host").words(there) == "no route to host"
    assert Fault(kinds.NO_ROUTE, "Network is unreachable").words(there) == "no route to host (Network is unreachable)"
    proxy = Target.of_proxy("m1", "http://proxy.example.com:3128")
    assert [what for what, _ in sentences(proxy, {"cp1": Fault(kinds.REFUSED)})] == [
        "cp1 does not reach the proxy http://proxy.example.com:3128: connection refused"
    ]
