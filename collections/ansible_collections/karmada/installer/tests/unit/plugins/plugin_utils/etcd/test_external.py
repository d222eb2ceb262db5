# SPDX-License-Identifier: Apache-2.0
"""An etcd of somebody else, as objects and as rules; the contract test of the same name shows it with a real one."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import external as external_etcd
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import (
    Cause,
    EndpointStatus,
    EtcdError,
    Found,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings, fixed_settings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EXTERNAL_FILES,
    NOW,
    OPTIONAL,
    Rendered,
    document,
    etcd,
    flags,
    pods,
    rendered,
    state,
)

SPEC = {"components": {**samples.external_etcd()["components"], **OPTIONAL}}
STORES = ("karmada-apiserver", "karmada-aggregated-apiserver", "karmada-search")


def test_there_is_nothing_of_etcd_in_the_cluster() -> None:
    found = rendered(SPEC).objects
    assert not [each for each in found if each["metadata"]["labels"]["app.kubernetes.io/name"] == "etcd"]
    assert not [name for each in found if "etcd" in (name := each["metadata"]["name"]) if name != _SECRET]


_SECRET = "prod-external-etcd-client"


@pytest.mark.parametrize("component", STORES)
def test_all_that_store_something_use_the_endpoints_and_the_prefix(component: str) -> None:
    pod = pods(rendered(SPEC).objects)[component]
    given = flags(pod)
    assert given["etcd-servers"] == "https://etcd1.example.com:2379,https://etcd2.example.com:2379"
    assert given["etcd-prefix"] == "/karmada/prod"
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == "pki-etcd-client")
    assert volume["secret"]["secretName"] == _SECRET
    (mount,) = (each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["name"] == volume["name"])
    for flag, file in (("cafile", "ca.crt"), ("certfile", "tls.crt"), ("keyfile", "tls.key")):
        assert given[f"etcd-{flag}"] == f"{mount['mountPath']}/{file}"


def test_nobody_else_has_anything_to_do_with_it() -> None:
    others = {name: pod for name, pod in pods(rendered(SPEC).objects).items() if name not in STORES}
    assert len(others) > 4
    assert not [name for name, pod in others.items() if "etcd" in str(pod)]


def test_a_local_etcd_has_no_prefix() -> None:
    assert "etcd-prefix" not in flags(pods(rendered().objects)["karmada-apiserver"])


def test_the_files_of_the_users_secret_are_in_one_of_ours() -> None:
    data = rendered(SPEC).one("Secret", _SECRET)["data"]
    assert {name: base64.b64decode(value) for name, value in data.items()} == EXTERNAL_FILES


def test_another_certificate_replaces_the_pods_that_show_it_and_no_other() -> None:
    before, after = rendered(SPEC), rendered(SPEC)
    material = before.material
    for found, files in ((before, EXTERNAL_FILES), (after, {**EXTERNAL_FILES, "tls.crt": b"a new one"})):
        found.material = replace(material, external_etcd=files)  # type: ignore[misc]
    one, two = (_hashes(found) for found in (before, after))
    assert {name for name in one if one[name] != two[name]} == set(STORES)


def _hashes(found: Rendered) -> dict[str, str]:
    return {name: pod["metadata"]["annotations"]["installer.karmada.io/config-hash"]
            for name, pod in pods(found.objects).items()}  # fmt: skip


def test_there_is_no_authority_and_no_certificate_for_it() -> None:
    found = rendered(SPEC)
    made = certificates.with_new_keys(replace(state(), authorities={}), found.spec, NOW)
    assert "etcd-ca" not in made.authorities
    issued = certificates.issue_missing(found.instance, made, found.layout, {}, NOW, EXTERNAL_FILES)
    assert not [name for name in issued.material.leaves if "etcd" in name]
    assert certificates.unusable_authorities(made, found.spec, NOW) == []


def run_of(spec: Any, stored: State | None = None) -> Any:
    return fake_run(document(spec), FakeCluster("host cluster"), stored=stored)


ETCD_ON_HOSTS = {"hosts": [{"name": "etcd1", "address": "192.0.2.1", "roles": ["etcd"]}]}


def remembering(**fields: Any) -> State:
    return state(etcd=EtcdState(token="t", **fields))


@pytest.mark.parametrize(
    ("stored", "spec"),
    [
        (remembering(storage="external"), {}),
        (remembering(storage="volumeClaim"), samples.external_etcd()),
        (remembering(storage="hostPath"), ETCD_ON_HOSTS),
        (remembering(storage="directory"), {}),
        (remembering(storage="directory"), samples.external_etcd()),
    ],
)
def test_the_store_does_not_move_even_before_the_first_installation_has_ended(stored: State, spec: Any) -> None:
    (problem,) = fixed_settings.store(run_of(spec, stored))
    assert "its data does not move" in problem.what
    assert list(findings._external_etcd(run_of(spec, stored))) == []


def test_a_store_that_moves_is_told_once() -> None:
    before = document(samples.external_etcd())
    run = run_of(etcd(replicas=3), replace(remembering(storage="external"), document=before))
    assert [problem.where for problem in [*fixed_settings.changed(run), *fixed_settings.store(run)]] == [
        "spec.components.etcd"
    ]


@pytest.mark.parametrize("ended", [True, False])
def test_a_prefix_that_is_marked_does_not_change(ended: bool) -> None:
    before = document(samples.external_etcd()) if ended else None
    stored = replace(remembering(storage="external", prefix="/karmada/prod"), document=before)
    run = run_of(samples.external_etcd(keyPrefix="/karmada/other"), stored)
    assert [problem.where for problem in [*fixed_settings.changed(run), *fixed_settings.store(run)]] == [
        "spec.components.etcd.external.keyPrefix"
    ]


def test_a_secret_without_a_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(samples.external_etcd())
    monkeypatch.setattr(run, "secret", lambda *_: {"ca.crt": b"x", "tls.key": b""})
    with pytest.raises(ProblemsError, match=r"has no tls\.crt, tls\.key"):
        external_etcd.connect(run)


@pytest.mark.parametrize(
    ("days", "what", "remedy"),
    [(-1, "is not valid before", "compare the clocks"), (4000, "has expired", "put a new one there"), (1, "", "")],
)
def test_a_client_certificate_that_does_not_count_now_is_refused(
    days: int, what: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(samples.external_etcd())
    leaf = samples.quickly_rendered().material.leaves["karmada-apiserver-etcd-client"]
    monkeypatch.setattr(run, "secret", lambda *_: {**EXTERNAL_FILES, "tls.crt": leaf.certificate})
    run.now = NOW + timedelta(days=days)
    found = [(each.what, each.remedy) for each in external_etcd._certificate_problems(run)]
    assert len(found) == bool(what)
    assert all(what in told and mend == remedy for told, mend in found)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("etcdserver: user name is empty", "passwords are not supported"),
        ("etcdserver: permission denied", "passwords are not supported"),
        ("its certificate is not signed by the CA we were given", "ca.crt must be the authority"),
        ("it refuses our client certificate", "--trusted-ca-file"),
        ("its certificate is not valid for this address", "name the endpoint as its certificate does"),
        ("its certificate has expired", "renew the certificate of this member"),
        ("what answers there does not speak TLS", "check the address and the port"),
    ],
)
def test_each_way_in_which_an_etcd_refuses_has_a_remedy(message: str, remedy: str) -> None:
    assert remedy in external_etcd._remedy_for(message)


class Store:
    """An etcd with these keys, which may refuse to be asked for them."""

    def __init__(self, keys: dict[bytes, bytes], refuses: str = "") -> None:
        self.keys, self.refuses = keys, refuses

    def status(self) -> list[Any]:
        return [EndpointStatus("https://etcd1.example.com:2379", version="3.6.11", healthy=True, cluster_id="1")]

    def get(self, key: bytes) -> Found | None:
        if self.refuses:
            raise EtcdError(Cause.WRONG, self.refuses)
        return Found(key, self.keys[key]) if key in self.keys else None

    def count_below(self, prefix: bytes) -> int:
        return sum(key.startswith(prefix) for key in self.keys)


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (Store({b"/karmada/prod" + external_etcd._MARKER: b"not ours"}), "belongs to the control plane unknown"),
        (Store({b"/karmada/prod/secrets/a": b""}), "1 key below /karmada/prod/ are not of this control plane"),
        (Store({}, "etcdserver: permission denied"), "it answers, but not with data: "),
    ],
)
def test_a_prefix_that_cannot_be_had_is_refused(store: Store, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(samples.external_etcd())
    monkeypatch.setattr(external_etcd, "connect", lambda _: store)
    monkeypatch.setattr(external_etcd, "_certificate_problems", lambda _: ())
    (problem,) = external_etcd.problems(run)
    assert what in problem.what
    assert problem.remedy


def test_an_external_etcd_is_recorded_as_such() -> None:
    assert run_of(samples.external_etcd()).state.etcd == EtcdState(token=_ANY, storage="external")


class _Anything:
    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


_ANY: Any = _Anything()
