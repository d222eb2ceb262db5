# SPDX-License-Identifier: Apache-2.0
"""The table on plain hosts: the same flags and files as in pods, and what only a host needs."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.hosts import CONTROL_PLANE_ROLE, ETCD_ROLE
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    ETCD,
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_APISERVER,
    KARMADA_SCHEDULER,
    KARMADA_SEARCH,
    member_places,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import unfit_for_systemd
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.render import unit_text, units
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EVERYTHING,
    MEMBER_ACCESS,
    NOW,
    OWNER,
    RUNNING,
    TOKEN,
    document,
    state,
)
from hypothesis import example, given
from hypothesis import strategies as st

STACKED = [
    {"name": f"cp{number}", "address": f"192.0.2.{number}", "roles": ["etcd", "controlPlane"]} for number in (1, 2, 3)
]


def instance(spec: dict[str, Any] | None = None, hosts: list[dict[str, Any]] | None = None) -> Instance:
    deployment = document(spec or EVERYTHING)
    deployment["spec"]["hosts"] = hosts or STACKED
    places = member_places(Spec(deployment["spec"]), {})
    return Instance.of(deployment, releases.newest(), OWNER, "10.96.0.0/12", member_places=places)


def tree(of: Instance, component: Component, number: int = 0, **etcd: Any) -> dict[str, Any]:
    role = ETCD_ROLE if component is ETCD else CONTROL_PLANE_ROLE
    host = component_hosts.hosts_of(of.spec, role)[number]
    where = units.layout(of, host, component, "karmada.example.com")
    issued = certificates.issue_missing(of, state(), where, {}, NOW, None, component.certificates)
    material = replace(issued.material, member_access=MEMBER_ACCESS)
    return units.component_tree(of, component, where, material, EtcdState(token=TOKEN, **etcd))


def unit(of: Instance, component: Component, number: int = 0) -> list[tuple[str, str]]:
    text = base64.b64decode(tree(of, component, number)["files"][-1]["content"]).decode()
    lines = text.replace(" \\\n  ", " ").splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line]  # type: ignore[misc]


def command(of: Instance, component: Component, number: int = 0) -> list[str]:
    return shlex.split(dict(unit(of, component, number))["ExecStart"])


def content(of: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(next(file["content"] for file in of["files"] if file["path"].endswith(name)))


@pytest.mark.parametrize("component", RUNNING, ids=lambda component: component.name)
class TestEveryComponent:
    def test_runs_with_the_flags_of_the_table(self, component: Component) -> None:
        of = instance()
        if component is ETCD:
            assert command(of, component)[1:] == ["--config-file=/etc/karmada/prod/etcd/etcd.yaml"]
            return
        where = units.layout(of, component_hosts.hosts_of(of.spec, "controlPlane")[0], component, "")
        assert command(of, component)[1:] == component.flags(of.spec, where)

    def test_has_a_user_and_a_folder_of_its_own_that_nobody_else_can_read(self, component: Component) -> None:
        """And that the user cannot change: root works there, and would follow links."""
        found = tree(instance(), component)
        user = found["users"][0]["name"]
        assert dict(unit(instance(), component))["User"] == user
        own = [entry for entry in found["directories"] if entry.get("group") == user]
        assert own
        assert all((entry["user"], entry["mode"]) == ("root", 0o750) for entry in own)
        data = [entry for entry in found["directories"] if entry["user"] == user]
        assert [(entry["path"], entry["mode"]) for entry in data] == [(path, 0o700) for path in found["data_folders"]]
        files = [file for file in found["files"] if not file["path"].endswith(".service")]
        assert files
        assert all((file["user"], file["group"], file["mode"]) == ("root", user, 0o640) for file in files)
        assert all(file["path"].startswith(f"/etc/karmada/prod/{component.name}/") for file in files)

    def test_has_every_file_that_it_is_told_to_read(self, component: Component) -> None:
        found = tree(instance(), component)
        present = {file["path"] for file in found["files"]}
        folders = {path.rsplit("/", 1)[0] for path in present}
        told = [value for _flag, _, value in (each.partition("=") for each in command(instance(), component)[1:])]
        for path in (value for value in told if value.startswith("/etc/karmada")):
            assert path in present | folders

    def test_marks_keys_as_secret_and_nothing_that_a_diff_may_show(self, component: Component) -> None:
        for file in tree(instance(), component)["files"]:
            text = base64.b64decode(file["content"])
            secret = any(mark in text for mark in (b"PRIVATE KEY", b"secretbox", *MEMBER_ACCESS.values()))
            assert file["secret"] == secret, file["path"]

    def test_may_do_nothing_but_talk_to_the_network_and_read_its_files(self, component: Component) -> None:
        settings = unit(instance(), component)
        assert dict(settings).items() >= unit_text.HARDENING.items()
        assert ("CapabilityBoundingSet", "") in settings
        assert [value for key, value in settings if key == "ReadWritePaths"] == (
            ["/var/lib/karmada/prod/etcd"] if component is ETCD else []
        )

    def test_is_not_called_failed_when_it_was_told_to_stop(self, component: Component) -> None:
        """Karmada's schedulers give up their Lease by a fatal error, whoever ends them."""
        said = [value for key, value in unit(instance(), component) if key == "SuccessExitStatus"]
        assert said == (["255"] if component.name in ("karmada-scheduler", "karmada-descheduler") else [])

    def test_says_where_its_health_is(self, component: Component) -> None:
        health = tree(instance(), component)["units"][0]["health"]
        address = "192.0.2.1" if component is KARMADA_APISERVER else "127.0.0.1"
        assert health["url"].startswith(("http://", "https://", "tcp://"))
        assert health["url"].split("/")[2].rpartition(":")[0] == address
        assert bool(health["authority"]) == health["url"].startswith("https:")
        if health["authority"]:
            assert health["authority"] in {file["path"] for file in tree(instance(), component)["files"]}


def test_only_etcd_and_the_api_server_can_be_reached_from_other_hosts() -> None:
    for component in RUNNING:
        told = " ".join(command(instance(), component)) + content(tree(instance(), component), ".service").decode()
        assert ("192.0.2.1" in told.replace("etcd-servers=https://192.0.2.1:", "")) == (component is KARMADA_APISERVER)
    configuration = yaml.safe_load(content(tree(instance(), ETCD), "etcd.yaml"))
    assert configuration["listen-metrics-urls"] == "http://127.0.0.1:2381"


def test_an_api_server_talks_to_the_member_on_its_own_host() -> None:
    assert "--etcd-servers=https://192.0.2.2:2379" in command(instance(), KARMADA_APISERVER, 1)


def test_an_api_server_without_a_member_beside_it_talks_to_all() -> None:
    hosts = [
        *({"name": f"e{n}", "address": f"192.0.2.1{n}", "roles": ["etcd"]} for n in (1, 2, 3)),
        {"name": "cp1", "address": "192.0.2.1", "roles": ["controlPlane"]},
    ]
    wanted = "--etcd-servers=https://192.0.2.11:2379,https://192.0.2.12:2379,https://192.0.2.13:2379"
    assert wanted in command(instance(hosts=hosts), KARMADA_APISERVER)


VIRTUAL_IP = {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.9"}}
EXTERNAL = {"type": "External", "host": "karmada.example.com"}


@pytest.mark.parametrize(
    ("hosts", "endpoint", "seconds"),
    [
        (3, VIRTUAL_IP, "3s"),
        (1, VIRTUAL_IP, "3s"),
        (3, EXTERNAL, "5s"),
        (1, EXTERNAL, "5s"),
        (1, {"type": "External", "host": STACKED[0]["address"]}, "0s"),
    ],
)
def test_an_api_server_that_stops_serves_until_clients_are_led_to_another_one(
    hosts: int, endpoint: dict[str, Any], seconds: str
) -> None:
    of = instance(hosts=STACKED[:hosts])
    of = replace(of, spec=Spec({**of.spec.plain, "endpoint": endpoint}))
    assert f"--shutdown-delay-duration={seconds}" in command(of, KARMADA_APISERVER)


def test_watches_do_not_keep_an_api_server_from_stopping() -> None:
    assert "--shutdown-watch-termination-grace-period=5s" in command(instance(), KARMADA_APISERVER)


def test_watches_do_not_keep_what_is_behind_it_from_stopping() -> None:
    """It serves nobody any more as soon as it is told to stop, and the API server stops after it."""

    def seconds(component: Component) -> str:
        return dict(unit(instance(), component))["TimeoutStopSec"]

    assert (seconds(KARMADA_AGGREGATED_APISERVER), seconds(KARMADA_SEARCH)) == ("10", "10")
    assert (seconds(KARMADA_APISERVER), seconds(ETCD)) == ("60", "60")


def test_components_talk_to_the_api_server_of_their_own_host() -> None:
    config = yaml.safe_load(content(tree(instance(), KARMADA_SCHEDULER, 2), "karmada.config"))
    assert config["clusters"][0]["cluster"]["server"] == "https://192.0.2.3:5443"


def test_each_member_of_etcd_has_its_own_name_and_knows_all() -> None:
    configuration = yaml.safe_load(content(tree(instance(), ETCD, 1), "etcd.yaml"))
    assert configuration["name"] == "cp2"
    assert configuration["listen-client-urls"] == "https://192.0.2.2:2379"
    assert configuration["initial-cluster"] == ",".join(
        f"cp{number}=https://192.0.2.{number}:2380" for number in (1, 2, 3)
    )


def test_a_changed_flag_restarts_its_component_only() -> None:
    changed = {"components": {"karmadaScheduler": {"extraArgs": {"v": "4"}}}}
    for component in (component for component in RUNNING if not component.optional):
        before, after = (_hash_with_fixed_keys(spec, component) for spec in ({}, changed))
        assert (before != after) == (component is KARMADA_SCHEDULER)


def test_what_is_to_start_again_is_told_from_what_runs_and_nothing_else_is() -> None:
    for component in (component for component in RUNNING if not component.optional):
        counts = ({}, {KARMADA_SCHEDULER.name: 1}, {KARMADA_SCHEDULER.name: 2})
        hashes = {_hash_with_fixed_keys({}, component, restarts) for restarts in counts}
        assert len(hashes) == (3 if component is KARMADA_SCHEDULER else 1)


def _hash_with_fixed_keys(spec: dict[str, Any], component: Component, restarts: dict[str, int] | None = None) -> str:
    of = replace(instance(spec), restarts=restarts or {})
    host = component_hosts.hosts_of(of.spec, CONTROL_PLANE_ROLE)[0]
    where = units.layout(of, host, component, "")
    leaves = {name: state().authorities["karmada-ca"] for name in _leaves()}
    issued = certificates.issue_missing(of, state(), where, {}, NOW, None, component.certificates).material
    tree_ = units.component_tree(of, component, where, replace(issued, leaves=leaves), EtcdState(token=TOKEN))
    return str(tree_["units"][0]["hash"])


def _leaves() -> list[str]:
    return [leaf.name for component in RUNNING for leaf in component.certificates] + ["admin"]


def test_neither_a_renewed_certificate_nor_the_end_of_the_bootstrap_restarts_etcd() -> None:
    of = instance()
    members = (EtcdMemberState("cp1", "a1"),)
    first, renewed = tree(of, ETCD), tree(of, ETCD, bootstrapped=True, members=members)
    assert content(first, "server/tls.crt") != content(renewed, "server/tls.crt")
    before, after = (yaml.safe_load(content(each, "etcd.yaml")) for each in (first, renewed))
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert changed == {"initial-cluster", "initial-cluster-state", "feature-gates"}
    assert first["units"][0]["hash"] == renewed["units"][0]["hash"]


def test_gates_of_the_document_restart_etcd() -> None:
    gates = [{"feature-gates": f"InitialCorruptCheck={each}"} for each in ("true", "false")]
    specs = [{}, *({"components": {"etcd": {"local": {"extraArgs": each}}}} for each in gates)]
    assert len({_hash_with_fixed_keys(each, ETCD) for each in specs}) == len(specs)


def test_resources_become_shares_and_limits() -> None:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2G"}}
    settings = dict(unit(instance({"components": {"karmadaScheduler": {"resources": resources}}}), KARMADA_SCHEDULER))
    wanted = {"CPUWeight": "50", "CPUQuota": "150%", "MemoryLow": str(1024**3), "MemoryMax": str(2 * 10**9)}
    assert settings.items() >= wanted.items()


def test_names_of_users_fit_into_linux_and_stay_apart() -> None:
    names = ["prod", "prod-eu", "a" * 39, "a" * 38 + "b"]
    instances = [replace(instance(), name=name) for name in names]
    users = [units.user_name(each, component) for each in instances for component in RUNNING]
    assert len(set(users)) == len(users)
    assert max(map(len, users)) <= 31


def test_versions_lie_side_by_side() -> None:
    of = instance()
    assert units.program(of, ETCD) == f"/usr/local/lib/karmada/{of.release.etcd}/etcd"
    assert units.program(of, KARMADA_APISERVER) == f"/usr/local/lib/karmada/{of.release.kubernetes}/kube-apiserver"


def test_the_components_of_a_host_are_one_tree_in_which_nothing_stands_twice() -> None:
    of = instance()
    merged = units.merged([tree(of, component) for component in RUNNING], OWNER)
    for key in ("users", "directories", "files", "units"):
        names = [entry.get("path") or entry["name"] for entry in merged[key]]
        assert len(set(names)) == len(names)
    assert len(merged["units"]) == len(RUNNING)


_ESCAPES = re.compile(r'\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|([\\"]))')


def _read_as_systemd_does(word: str, doubled: str) -> str:
    """Quotes and backslashes off, then what systemd would expand put back (systemd.service(5), systemd.unit(5))."""
    assert word[0] == word[-1] == '"'
    text, found = word[1:-1], ""
    while text:
        if escape := _ESCAPES.match(text):
            found += escape[3] or chr(int(escape[1] or escape[2], 16))
            text = text[escape.end() :]
            continue
        assert text[0] not in '\\"'
        if text[0] in doubled:
            assert text[:2] == text[0] * 2
            text = text[1:]
        found, text = found + text[0], text[1:]
    return found


@given(st.text(st.characters(codec="utf-8"), max_size=60).filter(lambda text: not unfit_for_systemd(text)))
@example("x\rUser=root\nUser=root\x0bUser=root\x85User=root\u2028User=root\u2029\x7f\x1b[2J")
def test_no_value_of_the_document_means_anything_to_systemd(value: str) -> None:
    """And whatever it is, it is one line to systemd (LF, CR and NUL end one), and to Python, which reads units, too."""
    argument, variable = unit_text.argument(value), unit_text.environment("NAME", value)
    for word in (argument, variable):
        assert word.splitlines() == [word]
        assert not set(word) & set("\n\r\0")
    assert _read_as_systemd_does(argument, "%$") == value
    assert _read_as_systemd_does(variable, "%") == f"NAME={value}"


@pytest.mark.parametrize("unfit", ["\0", "\ufdd0", "\ufffe", "\U0010ffff", "\ud800"], ids=ascii)
@pytest.mark.parametrize("write", [unit_text.argument, lambda value: unit_text.environment("NAME", value)])
def test_what_no_program_can_be_given_is_refused(write: Callable[[str], str], unfit: str) -> None:
    with pytest.raises(ValueError, match=rf"character U\+{ord(unfit):04X} "):
        write(f"a{unfit}b")


def test_a_dollar_is_one_in_the_environment_and_in_the_arguments_of_a_process() -> None:
    settings = {"extraArgs": {"v": "a$b"}, "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://u:a$b%c@proxy"}]}
    lines = unit(instance({"components": {"karmadaScheduler": settings}}), KARMADA_SCHEDULER)
    assert ("Environment", '"HTTPS_PROXY=http://u:a$b%%c@proxy"') in lines
    assert '"--v=a$$b"' in dict(lines)["ExecStart"]


@pytest.mark.parametrize(("longer", "shorter"), [("192.0.2.10", "192.0.2.1"), ("2001:db8::10", "2001:db8::1")])
def test_a_member_is_not_taken_for_one_whose_address_begins_with_its_own(longer: str, shorter: str) -> None:
    hosts = [
        {"name": "long", "address": longer, "roles": ["etcd"]},
        {"name": "short", "address": shorter, "roles": ["etcd"]},
    ]
    found = tree(instance(hosts=hosts), ETCD, 1)
    assert yaml.safe_load(content(found, "/etcd.yaml"))["name"] == "short"


def test_an_uninstall_looks_for_the_data_itself_which_root_may_have_on_another_disk() -> None:
    (data,) = tree(instance(), ETCD)["data_folders"]
    assert data in units.skeleton(instance())["folders"]
    kept = units.skeleton(instance(), keep_data=True)["folders"]
    assert not any(f"{data}/".startswith(f"{folder}/") for folder in kept)
