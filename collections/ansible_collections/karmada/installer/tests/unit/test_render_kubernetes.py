# SPDX-License-Identifier: Apache-2.0
"""What stands in the host cluster: rules that hold for every object, whatever the document says."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import etcd_configuration, manifest, releases
from ansible_collections.karmada.installer.plugins.plugin_utils import render_kubernetes as render
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import Component, etcd_client_urls
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    BY_NAME,
    COMPONENTS,
    ETCD,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.pod_security import violations
from ansible_collections.karmada.installer.tests.unit.samples import (
    FULL_SPEC,
    OPTIONAL,
    OWNER,
    SETTINGS,
    SPECS,
    TOKEN,
    Rendered,
    document,
    etcd,
    flags,
    pods,
    rendered,
    settings_in,
    state,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,37}[a-z0-9])?", fullmatch=True)


@pytest.fixture(params=list(SPECS), scope="module")
def result(request: pytest.FixtureRequest) -> Rendered:
    return rendered(SPECS[request.param])


# -- every object ------------------------------------------------------------------------------------------------------


def test_every_object_can_be_told_to_be_ours(result: Rendered) -> None:
    for each in result.objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "karmada-installer"
        assert labels["app.kubernetes.io/instance"] == "prod"
        assert labels["installer.karmada.io/owner"] == OWNER
        assert each["metadata"]["namespace"] == "karmada"
        assert each["metadata"]["name"].startswith("prod-")


def test_no_object_is_rendered_twice(result: Rendered) -> None:
    assert max(Counter((each["kind"], each["metadata"]["name"]) for each in result.objects).values()) == 1


def test_objects_are_plain_data_and_the_same_each_time() -> None:
    one, two = rendered(FULL_SPEC), rendered(FULL_SPEC)
    two.material = one.material
    assert json.dumps(one.objects, sort_keys=True) == json.dumps(two.objects, sort_keys=True)


def all_names(name: str) -> set[tuple[str, str]]:
    found = {(each["kind"], each["metadata"]["name"]) for each in shared(name).objects}
    extra = {("Secret", f"{name}-{each}") for each in ("admin-cert", "admin-config", "installer-state")}
    return found | extra | {("Lease", f"{name}-installer")}


def shared(name: str) -> Rendered:
    """With the certificates of another instance, because making them is what takes time."""
    found = rendered(FULL_SPEC, name=name)
    found.material = _MATERIAL.material
    return found


_MATERIAL = rendered(FULL_SPEC)


def shared_spec(spec: dict[str, Any]) -> Rendered:
    found = rendered(spec)
    found.material = _MATERIAL.material
    return found


@settings(max_examples=60, deadline=None)
@given(NAMES, NAMES)
def test_two_instances_in_one_namespace_share_no_name(one: str, other: str) -> None:
    """Only ``x`` and ``x-kube``, ``x`` and ``x-aggregated`` do, and preflight refuses the second (test_checks)."""
    if one == other or any(a == f"{b}-{part}" for a, b in ((one, other), (other, one)) for part in CLASHING):
        return
    assert not all_names(one) & all_names(other)


CLASHING = {"kube", "aggregated"}


def test_the_names_that_clash_are_known_and_are_those_of_workloads() -> None:
    names = {name.removeprefix("prod-") for _, name in all_names("prod")}
    parts = {
        longer.removesuffix(f"-{shorter}") for longer in names for shorter in names if longer.endswith(f"-{shorter}")
    }
    clashing = {part for part in parts if all_names("prod") & all_names(f"prod-{part}")}
    assert clashing == CLASHING
    for part in clashing:
        assert {"Deployment"} <= {kind for kind, _ in all_names("prod") & all_names(f"prod-{part}")}


@pytest.mark.parametrize("spec", [{}, FULL_SPEC], ids=["empty", "full"])
def test_the_longest_name_gives_names_that_services_and_pods_can_have(spec: dict[str, Any]) -> None:
    found = rendered(spec, name="a" * 39)
    for each in found.objects:
        name = each["metadata"]["name"]
        # a pod of a StatefulSet is a DNS label of its own, and its revision label is 11 characters longer than its name
        most = {"Deployment": 63, "Service": 63, "StatefulSet": 52}.get(each["kind"], 253)
        assert len(name) <= most, (each["kind"], name, len(name))
        for value in each["metadata"]["labels"].values():
            assert len(value) <= 63


# -- pods --------------------------------------------------------------------------------------------------------------


def test_every_pod_may_run_in_a_restricted_namespace(result: Rendered) -> None:
    assert {name: violations(pod["spec"]) for name, pod in pods(result.workloads).items()} == {
        component.name: [] for component in wanted_components(result.spec)
    }


def test_the_documents_of_these_tests_have_every_component() -> None:
    """Else the rules that hold for all objects would not be known of some."""
    assert {name for spec in SPECS.values() for name in pods(rendered(spec).workloads)} == set(BY_NAME)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pod: pod["securityContext"].pop("runAsNonRoot"),
        lambda pod: pod["securityContext"].pop("seccompProfile"),
        lambda pod: pod["securityContext"].update(runAsUser=0),
        lambda pod: pod.update(hostNetwork=True),
        lambda pod: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        lambda pod: pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
        lambda pod: pod["containers"][0]["securityContext"].pop("capabilities"),
        lambda pod: pod["containers"][0]["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
        lambda pod: pod["containers"][0]["securityContext"].update(privileged=True),
        lambda pod: pod["containers"][0]["ports"].append({"containerPort": 1, "hostPort": 1}),
        lambda pod: pod.setdefault("initContainers", []).append({"name": "bare"}),
    ],
)
def test_the_checker_itself_finds_what_is_not_restricted(spoil: Any) -> None:
    pod = copy.deepcopy(pods(rendered().workloads)["karmada-webhook"]["spec"])
    spoil(pod)
    assert violations(pod)


def test_no_port_needs_a_privilege(result: Rendered) -> None:
    for pod in pods(result.workloads).values():
        (container,) = pod["spec"]["containers"]
        ports = [port["containerPort"] for port in container["ports"]]
        named = re.findall(r"(?:-port=|address=[^=]*:)(\d+)", " ".join(container["command"]))
        assert ports
        assert min([*ports, *map(int, named)]) >= 1024


def test_every_probe_asks_a_port_that_the_container_declares(result: Rendered) -> None:
    for pod in pods(result.workloads).values():
        (container,) = pod["spec"]["containers"]
        declared = {port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] in declared
        # readiness is asked often, life is given up late: five minutes of a busy disk kill nothing
        assert container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"] >= 60


def test_pods_hold_no_identity_of_the_host_cluster_and_cannot_write_their_image(result: Rendered) -> None:
    for pod in pods(result.workloads).values():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["enableServiceLinks"] is False
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_every_mount_has_its_volume_and_every_volume_its_object(result: Rendered) -> None:
    present = {(each["kind"], each["metadata"]["name"]) for each in result.objects}
    for name, pod in pods(result.workloads).items():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        claims = {"data"} if name == "etcd" and "data" not in volumes else set()
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounts} == set(volumes) | claims
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        for volume in volumes.values():
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in present
                assert volume["secret"]["defaultMode"] & 0o007 == 0, "a key must not be readable for others"
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in present
        assert all(mount.get("readOnly") for mount in mounts if mount["name"] not in ("data", "scratch"))


def paths(value: Any) -> set[str]:
    """Every file of ours that a text names."""
    return set(re.findall(r"/etc/karmada/[\w./-]+", json.dumps(value)))


def test_every_file_that_a_component_is_told_of_is_mounted_with_that_content(result: Rendered) -> None:
    """A flag that names a file nobody mounts is a component that does not start."""
    secrets = {each["metadata"]["name"]: each["data"] for each in result.secrets}
    for name, pod in pods(result.workloads).items():
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        files = {
            f"{mount['mountPath']}/{key}"
            for mount in container["volumeMounts"]
            if "secret" in volumes.get(mount["name"], {})
            for key in secrets[volumes[mount["name"]]["secret"]["secretName"]]
        } | {
            f"{mount['mountPath']}/{key}"
            for mount in container["volumeMounts"]
            if "configMap" in volumes.get(mount["name"], {})
            for key in result.one("ConfigMap", volumes[mount["name"]]["configMap"]["name"])["data"]
        }
        wanted = paths(container["command"])
        if name == "etcd":
            wanted |= paths(result.one("ConfigMap", "prod-etcd-config")["data"]) - {"/etc/karmada/etcd.yaml"}
            wanted.discard("/etc/karmada/etcd.yaml")
        if name == "karmada-webhook":  # is told of a directory
            wanted = {f"{each}/tls.crt" if each.endswith("/server") else each for each in wanted}
        assert wanted, name
        assert wanted <= files, name


# -- selectors and Services --------------------------------------------------------------------------------------------


def selectors(found: Rendered) -> dict[str, Any]:
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["spec"]["selector"]
        for each in found.workloads
        if "selector" in each.get("spec", {})
    }


def test_selectors_change_with_nothing_but_the_name() -> None:
    """They cannot be changed in place; one that follows the document makes the next run fail."""
    before = selectors(rendered())
    for spec in (FULL_SPEC, SPECS["settings"]):
        after = selectors(Rendered(document(spec), state=state(owner="another-owner")))
        assert {name: after[name] for name in before} == before
    assert all(OWNER not in str(selector) for selector in before.values())


def test_a_selector_finds_the_pods_of_its_component_and_of_no_other(result: Rendered) -> None:
    templates = {name: pod["metadata"]["labels"] for name, pod in pods(result.workloads).items()}
    for each in result.workloads:
        if "selector" not in each.get("spec", {}):
            continue
        selector = each["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        found = [name for name, labels in templates.items() if wanted <= labels.items()]
        assert found == [each["metadata"]["labels"]["app.kubernetes.io/name"]]


def test_every_service_leads_to_a_port_of_its_pods(result: Rendered) -> None:
    templates = pods(result.workloads)
    for each in result.workloads:
        if each["kind"] != "Service":
            continue
        component = each["metadata"]["labels"]["app.kubernetes.io/name"]
        declared = {port["containerPort"] for port in templates[component]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= declared


def test_only_the_api_server_is_ever_exposed() -> None:
    found = rendered({"endpoint": {"type": "NodePort", "port": 32001}})
    types = {each["metadata"]["name"]: each["spec"]["type"] for each in found.workloads if each["kind"] == "Service"}
    assert {name for name, kind in types.items() if kind != "ClusterIP"} == {"prod-apiserver"}
    assert found.one("Service", "prod-apiserver")["spec"]["ports"][0]["nodePort"] == 32001
    chosen = rendered({"endpoint": {"type": "NodePort"}})
    # a node port that the host cluster chose stays only if we never send the field
    assert "nodePort" not in chosen.one("Service", "prod-apiserver")["spec"]["ports"][0]


# -- names that clients use --------------------------------------------------------------------------------------------


def certificate(found: Rendered, leaf: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(found.material.leaves[leaf].certificate)


def covers(certificate: x509.Certificate, host: str) -> bool:
    """As Go verifies it: a wildcard stands for exactly one label, the first."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if host in [str(address) for address in names.get_values_for_type(x509.IPAddress)]:
        return True
    for name in names.get_values_for_type(x509.DNSName):
        if name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:] and host.partition(".")[0]):
            return True
    return False


def host_of(url: str) -> str:
    return re.sub(r"^https://|:\d+(/.*)?$", "", url)


@pytest.mark.parametrize("spec", list(SPECS.values()), ids=list(SPECS))
def test_every_name_by_which_a_server_is_called_is_in_its_certificate(spec: dict[str, Any]) -> None:
    found = rendered(spec)
    found.endpoint_host = "198.51.100.7"
    addresses, domain = found.addresses, found.instance.cluster_domain
    called: dict[str, list[str]] = {
        "karmada-apiserver": [
            host_of(found.layout.apiserver_url),
            "localhost",
            "127.0.0.1",
            "kubernetes.default.svc",
            host_of(found.layout.service_account_issuer),
            "198.51.100.7",
            *(["karmada.example.com", "x.lb.example.com", "192.0.2.10", "2001:db8::1"] if spec is FULL_SPEC else []),
        ],
        "karmada-webhook": [host_of(addresses.webhook_url)],
        "karmada-aggregated-apiserver": [
            "karmada-aggregated-apiserver.karmada-system.svc",  # what kube-aggregator verifies
            addresses.aggregated["karmada-aggregated-apiserver"][0],
        ],
        **{
            name: [f"{name}.karmada-system.svc", host]
            for name, (host, _port) in addresses.aggregated.items()
            if name != "karmada-aggregated-apiserver"
        },
    }
    if found.layout.etcd_members:
        called["etcd-server"] = [host_of(url) for url in etcd_client_urls(found.spec, found.layout)]
        called["etcd-peer"] = [host_of(member.peer_url) for member in found.layout.etcd_members]
    for leaf, hosts in called.items():
        missing = [host for host in hosts if not covers(certificate(found, leaf), host)]
        assert not missing, (leaf, missing)
    assert host_of(found.layout.apiserver_url).endswith(f".svc.{domain}")
    assert covers(certificate(found, "karmada-apiserver"), "10.112.0.1" if spec is FULL_SPEC else "10.96.0.1")


def test_a_wildcard_stands_for_one_label_only() -> None:
    found = rendered(etcd(replicas=3))
    server = certificate(found, "etcd-server")
    assert covers(server, "prod-etcd-2.prod-etcd.karmada.svc.cluster.local")
    assert not covers(server, "a.b.prod-etcd.karmada.svc.cluster.local")
    assert not covers(server, "other-etcd-0.other-etcd.karmada.svc.cluster.local")


def test_a_certificate_says_nothing_of_names_that_are_not_its_own() -> None:
    found = rendered(FULL_SPEC)
    assert not covers(certificate(found, "karmada-webhook"), "karmada.example.com")
    assert not covers(certificate(found, "karmada-webhook"), host_of(found.layout.apiserver_url))


def test_a_new_etcd_member_needs_no_new_certificate() -> None:
    one, five = rendered(etcd(replicas=1)), rendered(etcd(replicas=5))
    assert one.layout.server_names == five.layout.server_names


# -- etcd --------------------------------------------------------------------------------------------------------------


def configurations(found: Rendered) -> dict[str, dict[str, Any]]:
    data = found.one("ConfigMap", "prod-etcd-config")["data"]
    return {name: yaml.safe_load(text) for name, text in data.items()}


@pytest.mark.parametrize("replicas", [1, 3, 5, 7])
def test_each_member_has_a_configuration_of_its_own_with_addresses_of_its_own(replicas: int) -> None:
    found = rendered(etcd(replicas=replicas))
    members = configurations(found)
    stateful_set = found.one("StatefulSet", "prod-etcd")
    assert stateful_set["spec"]["replicas"] == replicas
    # the pods of a StatefulSet are numbered from 0; each mounts the key that is named after it
    assert set(members) == {f"prod-etcd-{ordinal}.yaml" for ordinal in range(replicas)}
    host = "prod-etcd.karmada.svc.cluster.local"
    for ordinal in range(replicas):
        one = members[f"prod-etcd-{ordinal}.yaml"]
        assert one["name"] == f"prod-etcd-{ordinal}"
        assert one["advertise-client-urls"] == f"https://prod-etcd-{ordinal}.{host}:2379"
        assert one["initial-advertise-peer-urls"] == f"https://prod-etcd-{ordinal}.{host}:2380"
        assert one["initial-cluster"].split(",") == [
            f"prod-etcd-{each}=https://prod-etcd-{each}.{host}:2380" for each in range(replicas)
        ]
    servers = flags(pods(found.workloads)["karmada-apiserver"])["etcd-servers"].split(",")
    assert servers == [f"https://prod-etcd-{each}.{host}:2379" for each in range(replicas)]
    assert servers == flags(pods(found.workloads)["karmada-aggregated-apiserver"])["etcd-servers"].split(",")


def test_members_are_in_the_order_of_their_numbers() -> None:
    found = rendered(etcd(replicas=7))
    assert [member.name for member in found.layout.etcd_members] == [f"prod-etcd-{each}" for each in range(7)]


def test_a_cluster_is_founded_once_and_never_again() -> None:
    assert {one["initial-cluster-state"] for one in configurations(rendered(etcd(replicas=3))).values()} == {"new"}
    later = rendered(etcd(replicas=3), bootstrapped=True)
    assert {one["initial-cluster-state"] for one in configurations(later).values()} == {"existing"}


def test_the_token_and_the_generation_are_the_states() -> None:
    (one,) = configurations(rendered(generation=4)).values()
    assert one["initial-cluster-token"] == TOKEN
    assert one["data-dir"].endswith("/gen-4")
    assert one["data-dir"].startswith(render.ETCD_DATA + "/")


def test_both_ports_of_etcd_speak_tls_and_ask_for_a_certificate() -> None:
    (one,) = configurations(rendered()).values()
    for key in ("listen-client-urls", "listen-peer-urls", "advertise-client-urls", "initial-advertise-peer-urls"):
        assert all(url.startswith("https://") for url in one[key].split(",")), key
    for transport in ("client-transport-security", "peer-transport-security"):
        security = one[transport]
        assert security["client-cert-auth"] is True
        assert {"cert-file", "key-file", "trusted-ca-file"} <= set(security)
    assert one["peer-transport-security"]["allowed-cn"] == ["system:karmada:etcd-peer"]
    plain = [value for value in one.values() if isinstance(value, str) and value.startswith("http://")]
    assert plain == ["http://0.0.0.0:2381"], "health without keys, for probes"


def test_etcd_has_no_flags_beside_its_file() -> None:
    """etcd ignores every other flag when it is given a configuration file."""
    assert flags(pods(rendered(etcd(extraArgs={"quota-backend-bytes": "8589934592"})).workloads)["etcd"]) == {
        "config-file": "/etc/karmada/etcd.yaml"
    }


def test_no_rollout_replaces_members_of_etcd_and_members_find_each_other_before_they_are_ready() -> None:
    found = rendered(etcd(replicas=3))
    spec = found.one("StatefulSet", "prod-etcd")["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    service = found.one("Service", spec["serviceName"])["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["clusterIP"] == "None"
    (mount,) = [
        mount for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "configuration"
    ]
    assert mount["subPathExpr"] == "$(POD_NAME).yaml"


def test_data_outlives_the_stateful_set() -> None:
    spec = rendered().one("StatefulSet", "prod-etcd")["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    without = rendered(storage="emptyDir").one("StatefulSet", "prod-etcd")["spec"]
    assert "volumeClaimTemplates" not in without
    assert {"name": "data", "emptyDir": {}} in without["template"]["spec"]["volumes"]


# -- what users set ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", [each for each in COMPONENTS if each is not ETCD], ids=lambda each: each.name)
def test_flags_of_the_user_win_and_leave_the_others_alone(component: Any) -> None:
    plain = flags(pods(rendered({"components": OPTIONAL}).workloads)[component.name])
    taken = next(iter(plain))
    spec = {"components": {component.field: {"extraArgs": {taken: "a=b,c", "zz-new": ""}}}}
    found = flags(pods(rendered(spec).workloads)[component.name])
    assert found == {**plain, taken: "a=b,c", "zz-new": ""}
    assert list(found) == sorted(found), "the order must not depend on anything"


def test_configuration_of_the_user_wins_in_etcd_too() -> None:
    extra = {
        "quota-backend-bytes": "8589934592",
        "log-level": "warn",
        "strict-reconfig-check": "false",
        "auto-compaction-retention": "1",
        "cipher-suites": "A,B",
        "odd": "--5",
    }
    (one,) = configurations(rendered(etcd(extraArgs=extra))).values()
    assert one["quota-backend-bytes"] == 8589934592
    assert one["log-level"] == "warn"
    assert one["strict-reconfig-check"] is False
    assert one["auto-compaction-retention"] == "1", "etcd does not start with a number here"
    assert one["cipher-suites"] == ["A", "B"]
    assert one["odd"] == "--5"


@given(st.text(max_size=20))
def test_any_text_can_be_a_value_of_etcd(value: str) -> None:
    found = etcd_configuration.of_member(
        _MATERIAL.layout.etcd_members[0],
        _MATERIAL.layout,
        token="t",
        existing=False,
        generation=1,
        extra={"x": value},
    )["x"]
    assert str(found).lower() == value.lower() or int(value) == found


def with_settings(component: Component, **settings: Any) -> Rendered:
    """With certificates of another instance, because making them is what takes time."""
    found = rendered({"components": {component.field: settings_in(component, **settings)}})
    found.material = _MATERIAL.material
    return found


def workload(found: Rendered, component: Component) -> Any:
    kind = "StatefulSet" if component is ETCD else "Deployment"
    return found.one(kind, found.instance.object_name(component.name))


each_component = pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)


@each_component
def test_labels_and_annotations_are_on_the_workload_and_on_its_pods(component: Component) -> None:
    plain = workload(with_settings(component), component)
    found = workload(with_settings(component, labels={"team": "a"}, annotations={"example.com/x": "y"}), component)
    for was, now in ((plain, found), (plain["spec"]["template"], found["spec"]["template"])):
        before, after = was["metadata"], now["metadata"]
        assert after["labels"] == {**before["labels"], "team": "a"}
        assert after["annotations"] == {**before.get("annotations", {}), "example.com/x": "y"}
    assert found["spec"]["selector"] == plain["spec"]["selector"]


@each_component
def test_labels_and_annotations_of_the_installer_cannot_be_replaced(component: Component) -> None:
    """The schema refuses them; what finds our objects again must not depend on that."""
    ours = workload(with_settings(component), component)["spec"]["template"]["metadata"]
    spoilt = with_settings(component)
    settings = spoilt.deployment["spec"]["components"][component.field]
    settings = settings["local"] if component is ETCD else settings
    settings["labels"] = dict.fromkeys(ours["labels"], "x")
    settings["annotations"] = dict.fromkeys(ours["annotations"], "x")
    found = workload(spoilt, component)
    assert found["metadata"]["labels"] == found["spec"]["template"]["metadata"]["labels"] == ours["labels"]
    assert found["spec"]["template"]["metadata"]["annotations"] == ours["annotations"]


@each_component
def test_settings_of_a_pod_are_taken_over_as_they_are(component: Component) -> None:
    pod = workload(with_settings(component, **SETTINGS, priorityClassName="high"), component)["spec"]["template"][
        "spec"
    ]
    for name in ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints"):
        assert pod[name] == SETTINGS[name]
    assert pod["priorityClassName"] == "high"
    (container,) = pod["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["env"][: len(SETTINGS["extraEnv"])] == SETTINGS["extraEnv"]
    assert SETTINGS["extraVolumes"][0] in pod["volumes"]
    assert SETTINGS["extraVolumeMounts"][0] in container["volumeMounts"]


@each_component
def test_nothing_is_sent_for_settings_that_nobody_made(component: Component) -> None:
    pod = workload(with_settings(component), component)["spec"]["template"]["spec"]
    assert not {"affinity", "nodeSelector", "tolerations", "imagePullSecrets"} & set(pod)
    assert pod["containers"][0].get("env", []) == ([POD_NAME] if component is ETCD else [])


@each_component
def test_pods_are_spread_over_the_nodes_that_take_them_and_members_of_etcd_strictly(component: Component) -> None:
    found = workload(with_settings(component, replicas=3), component)
    (spread,) = found["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"] == found["spec"]["selector"]
    assert spread["nodeTaintsPolicy"] == "Honor", "or members wait for ever for a tainted node to have one"
    assert spread["whenUnsatisfiable"] == ("DoNotSchedule" if component is ETCD else "ScheduleAnyway")
    # only pods of a Deployment have this label, and without it the old pods count while new ones come
    assert spread.get("matchLabelKeys") == (None if component is ETCD else ["pod-template-hash"])


@each_component
@pytest.mark.parametrize(("asked", "expected"), [(None, "system-cluster-critical"), ("high", "high"), ("", None)])
def test_pods_outrank_ordinary_ones_unless_told_otherwise(
    component: Component, asked: str | None, expected: str | None
) -> None:
    settings = {} if asked is None else {"priorityClassName": asked}
    pod = workload(with_settings(component, **settings), component)["spec"]["template"]["spec"]
    assert pod.get("priorityClassName") == expected


@each_component
def test_pull_secrets_of_a_component_stand_in_the_place_of_those_of_all(component: Component) -> None:
    def of(**settings: Any) -> Any:
        spec = {
            "images": {"pullSecrets": [{"name": "all"}]},
            "components": {component.field: settings_in(component, **settings)},
        }
        found = rendered(spec)
        found.material = _MATERIAL.material
        return workload(found, component)["spec"]["template"]["spec"].get("imagePullSecrets")

    assert of() == [{"name": "all"}]
    assert of(imagePullSecrets=[{"name": "own"}]) == [{"name": "own"}]
    assert of(imagePullSecrets=[]) is None


def test_a_component_runs_on_any_architecture_that_its_image_has(result: Rendered) -> None:
    """No image, selector or flag of ours speaks of one."""
    text = json.dumps(result.workloads)
    assert [each for each in ("amd64", "arm64", "x86_64", "kubernetes.io/arch") if each in text] == []


def images(found: Rendered) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in pods(found.workloads).items()}


def test_a_mirror_takes_the_place_of_every_registry_that_the_document_does_not_give() -> None:
    plain = images(shared_spec({"components": OPTIONAL}))
    assert {image.rpartition("/")[0] for image in plain.values()} == set(releases.REGISTRIES.values())
    mirrored = images(shared_spec({"images": {"mirrorCountry": "cn"}, "components": OPTIONAL}))
    assert mirrored == {name: f"m.daocloud.io/{image}" for name, image in plain.items()}
    own = {"mirrorCountry": "cn", "kubeRegistry": "registry.example.com"}
    some = images(shared_spec({"images": own, "components": {**OPTIONAL, "etcd": {"local": {"imageTag": "x"}}}}))
    assert some["karmada-apiserver"] == f"registry.example.com/kube-apiserver:{releases.newest().kubernetes}"
    assert some["etcd"] == "m.daocloud.io/quay.io/coreos/etcd:x"
    assert some["karmada-webhook"] == mirrored["karmada-webhook"]


def test_the_reference_tells_which_registries_are_meant_where_none_is_given() -> None:
    fields = manifest.schema()["properties"]["spec"]["properties"]["images"]["properties"]
    countries = fields["mirrorCountry"]
    assert set(countries["enum"]) == set(releases.MIRRORS)
    for field, registry in releases.REGISTRIES.items():
        assert registry in fields[field]["description"]
        for mirrors in releases.MIRRORS.values():
            assert mirrors[field] in countries["description"]


POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def test_a_member_of_etcd_keeps_the_name_by_which_it_finds_its_configuration() -> None:
    env = workload(with_settings(ETCD, extraEnv=[{"name": "GODEBUG", "value": "x"}]), ETCD)
    assert env["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "GODEBUG", "value": "x"}, POD_NAME]


@each_component
def test_security_settings_of_the_document_win_and_leave_the_others_alone(component: Component) -> None:
    plain = workload(with_settings(component), component)["spec"]["template"]["spec"]
    found = workload(with_settings(component, securityContext={"runAsUser": 7, "fsGroup": 8}), component)
    pod = found["spec"]["template"]["spec"]
    assert pod["securityContext"] == {**plain["securityContext"], "runAsUser": 7, "fsGroup": 8}
    assert pod["containers"][0]["securityContext"] == plain["containers"][0]["securityContext"]
    assert violations(pod) == []


def test_rendering_changes_nothing_in_the_document() -> None:
    found = rendered(SPECS["settings"])
    before = copy.deepcopy(found.deployment)
    assert found.objects
    assert found.deployment == before


# -- disruption budgets ------------------------------------------------------------------------------------------------


def budgets(found: Rendered) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in found.workloads if each["kind"] == "PodDisruptionBudget"}


@each_component
@pytest.mark.parametrize(
    ("replicas", "asked", "expected"),
    [
        (1, None, None),
        (3, None, {"maxUnavailable": 1}),
        (1, {"maxUnavailable": 0}, {"maxUnavailable": 0}),
        (3, {"minAvailable": "50%"}, {"minAvailable": "50%"}),
    ],
)
def test_pods_may_be_taken_away_one_at_a_time_where_there_are_several(
    component: Component, replicas: int, asked: dict[str, Any] | None, expected: dict[str, Any] | None
) -> None:
    """With one replica a budget would only keep nodes from being drained."""
    settings = {"replicas": replicas, **({"podDisruptionBudgetConfig": asked} if asked else {})}
    found = with_settings(component, **settings)
    name = found.instance.object_name(component.name)
    selector = workload(found, component)["spec"]["selector"]
    assert budgets(found) == ({name: {**expected, "selector": selector}} if expected else {})


# -- optional components -----------------------------------------------------------------------------------------------


def test_without_their_names_optional_components_leave_no_trace() -> None:
    names = [component.name.removeprefix("karmada-") for component in COMPONENTS if component.optional]
    found = [
        each["metadata"]["name"]
        for each in rendered().objects
        if any(name in each["metadata"]["name"] for name in names)
    ]
    assert found == []


@pytest.mark.parametrize("component", [each for each in COMPONENTS if each.optional], ids=lambda each: each.name)
def test_an_optional_component_adds_its_own_objects_and_changes_no_other(component: Component) -> None:
    plain = rendered()
    plain.material = _MATERIAL.material
    before = {(each["kind"], each["metadata"]["name"]): each for each in plain.objects}
    after = {(each["kind"], each["metadata"]["name"]): each for each in with_settings(component).objects}
    assert {key: after[key] for key in before} == before
    added = {after[key]["metadata"]["labels"]["app.kubernetes.io/name"] for key in set(after) - set(before)}
    assert added == {component.name}
    kinds = Counter(kind for kind, _ in set(after) - set(before))
    assert kinds["Deployment"] == 1
    assert kinds["Service"] == (1 if component.served_port else 0)
    own = [files for files in component.file_sets if files.name != "client-ca"]
    assert kinds["Secret"] == len(own)


# -- the hash that replaces pods ---------------------------------------------------------------------------------------


def hashes(found: Rendered) -> dict[str, str]:
    return {
        name: pod["metadata"]["annotations"][render.CONFIG_HASH_ANNOTATION]
        for name, pod in pods(found.workloads).items()
    }


def mounted(found: Rendered) -> dict[str, Any]:
    """Component → directory → files, as the pod sees them."""
    secrets = {each["metadata"]["name"]: each["data"] for each in found.secrets}
    return {
        name: {
            mount["mountPath"]: secrets[volume["secret"]["secretName"]]
            for volume in pod["spec"]["volumes"]
            if "secret" in volume
            for mount in pod["spec"]["containers"][0]["volumeMounts"]
            if mount["name"] == volume["name"]
        }
        for name, pod in pods(found.workloads).items()
    }


@pytest.mark.parametrize(
    "spec",
    [
        {
            "images": {"pullPolicy": "Always"},
            "components": {"karmadaWebhook": {"replicas": 3, "extraArgs": {"v": "9"}}},
        },
        {"encryption": {"provider": "identity"}},
        {"hostCluster": {"domain": "cluster.example"}},
        {"deletion": {"policy": "Retain"}},
    ],
    ids=["flags", "encryption", "domain", "deletion"],
)
def test_the_hash_changes_if_and_only_if_a_mounted_file_does(spec: dict[str, Any]) -> None:
    before, after = rendered(), rendered(spec)
    after.material = before.material
    same = {name for name, files in mounted(before).items() if mounted(after)[name] == files}
    assert len(same) > 1
    assert {name for name, value in hashes(before).items() if hashes(after)[name] == value} == same


def test_a_renewed_certificate_replaces_the_pods_that_mount_it_and_no_other() -> None:
    before = rendered()
    after = rendered()
    leaves = {**before.material.leaves, "karmada-webhook": after.material.leaves["karmada-webhook"]}
    material = before.material
    after.material = type(material)(
        authorities=material.authorities,
        leaves=leaves,
        service_account_key=material.service_account_key,
        encryption_key=material.encryption_key,
    )
    changed = {name for name, value in hashes(before).items() if hashes(after)[name] != value}
    assert changed == {"karmada-webhook"}


def test_renewed_certificates_of_etcd_replace_no_member_but_another_authority_and_other_settings_do() -> None:
    """etcd reads its certificate for every connection; the authorities and its settings when it starts only."""
    before, renewed = rendered(), rendered()
    old = before.material
    leaves = {**old.leaves, **{name: renewed.material.leaves[name] for name in ("etcd-server", "etcd-peer")}}
    renewed.material = replace(old, leaves=leaves)
    assert mounted(renewed)["etcd"] != mounted(before)["etcd"]
    assert hashes(renewed)["etcd"] == hashes(before)["etcd"]
    other = rendered()
    other.material = replace(old, authorities={**old.authorities, "etcd-ca": old.authorities["karmada-ca"]})
    assert hashes(other)["etcd"] != hashes(before)["etcd"]
    assert hashes(with_settings(ETCD, extraArgs={"log-level": "warn"}))["etcd"] != hashes(with_settings(ETCD))["etcd"]
    bootstrapped = rendered(bootstrapped=True)
    bootstrapped.material = old
    assert hashes(bootstrapped)["etcd"] == hashes(before)["etcd"]


# -- secrets -----------------------------------------------------------------------------------------------------------


def private_keys(each: dict[str, Any]) -> dict[str, bytes]:
    """Key of the Secret → public half of the private key that it holds."""
    found = {}
    for key, value in each["data"].items():
        content = base64.b64decode(value)
        if b"PRIVATE KEY" in content:
            found[key] = public_half(content)
    return found


def public_half(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def test_the_key_of_an_authority_is_in_no_secret_but_the_one_that_signs_requests(result: Rendered) -> None:
    keys = {public_half(pair.key): name for name, pair in result.material.authorities.items()}
    found = {
        (each["metadata"]["name"], key): keys[public]
        for each in result.secrets
        for key, public in private_keys(each).items()
        if public in keys
    }
    assert found == {("prod-kube-controller-manager-signing", "tls.key"): "client-signing-ca"}


def test_no_object_but_a_secret_holds_a_key(result: Rendered) -> None:
    text = json.dumps(result.workloads)
    assert "PRIVATE KEY" not in text
    for pair in (*result.material.leaves.values(), *result.material.authorities.values()):
        assert base64.b64encode(pair.key).decode() not in text
    assert result.material.encryption_key not in text


def test_secrets_are_not_written_readable_into_etcd_unless_the_document_says_so() -> None:
    flag = "encryption-provider-config"
    assert flag in flags(pods(rendered().workloads)["karmada-apiserver"])
    encryption = json.loads(
        base64.b64decode(rendered().one("Secret", "prod-apiserver-encryption")["data"]["encryption.yaml"])
    )
    providers = [next(iter(each)) for each in encryption["resources"][0]["providers"]]
    assert providers == ["secretbox", "identity"], "the first one writes"
    plain = rendered({"encryption": {"provider": "identity"}})
    assert flag not in flags(pods(plain.workloads)["karmada-apiserver"])
    assert not [each for each in plain.secrets if "encryption" in each["metadata"]["name"]]


def test_the_namespace_enforces_what_the_pods_keep() -> None:
    labels = render.namespace(rendered().instance)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["installer.karmada.io/owner"] == OWNER
