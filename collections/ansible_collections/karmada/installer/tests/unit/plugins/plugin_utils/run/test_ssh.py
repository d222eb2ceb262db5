# SPDX-License-Identifier: Apache-2.0
"""Plain hosts are reached by keys only, and only those whose key is known; the document says with which."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh

FINGERPRINT = "SHA256:n3v+rTe11/aB0dy0123456789abcdefghijklmnopqr"
ALWAYS = [
    *("-oStrictHostKeyChecking=yes", "-oPasswordAuthentication=no", "-oKbdInteractiveAuthentication=no"),
    *("-oServerAliveInterval=10", "-oServerAliveCountMax=3"),
]
BY_FINGERPRINT = [
    *("-oUserKnownHostsFile=/dev/null", "-oGlobalKnownHostsFile=/dev/null"),
    f'-oKnownHostsCommand=/bin/sh -c "test %f != {FINGERPRINT} || echo %H %t %K"',
]


def variables(host: dict[str, Any], settings: dict[str, Any], secrets: str | None = "/s") -> dict[str, Any]:
    return ssh.variables(
        {"name": "cp1", "address": "192.0.2.1", **host}, {"port": 22, **settings}, secrets, "/run of me"
    )


@pytest.mark.parametrize(
    ("host", "settings", "expected"),
    [
        ({}, {}, {"ansible_host": "192.0.2.1", "ansible_port": 22}),
        ({}, {"port": 2222}, {"ansible_port": 2222}),
        ({"port": 2022}, {"port": 2222}, {"ansible_port": 2022}),
        ({}, {"user": "operator"}, {"ansible_user": "operator"}),
        ({}, {"privateKeySecretRef": {"name": "key"}}, {"ansible_ssh_private_key_file": "/s/key/ssh-privatekey"}),
    ],
)
def test_what_the_document_says_becomes_a_variable(
    host: dict[str, Any], settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = variables(host, settings)
    assert {name: found.get(name) for name in expected} == expected


def test_the_check_of_host_keys_is_asked_for_in_each_place_that_decides() -> None:
    """The variable decides for every kind of connection, ``paramiko`` too; the arguments before all others of ssh."""
    found = variables({}, {})
    assert found["ansible_host_key_checking"] is True
    assert shlex.split(found["ansible_ssh_args"])[:2] == ["-o", "StrictHostKeyChecking=yes"]
    assert shlex.split(found["ansible_ssh_common_args"])[0] == "-oStrictHostKeyChecking=yes"


def test_equal_relative_paths_in_two_folders_share_no_connection_that_stays_open() -> None:
    """Each folder has its own file of host keys: what one has let in, the other may not know."""
    host, settings = {"name": "cp1", "address": "192.0.2.1"}, {"port": 22, "knownHostsSecretRef": {"name": "hosts"}}
    found = [
        ssh.variables(host, settings, "secrets", working_directory=here)["ansible_control_path_dir"]
        for here in ("/a", "/a", "/b")
    ]
    assert found[0] == found[1] != found[2]


def test_a_key_of_a_secret_of_a_cluster_is_where_the_run_has_put_it() -> None:
    found = variables({}, {"privateKeySecretRef": {"name": "key"}}, None)
    assert found["ansible_ssh_private_key_file"] == "/run of me/ssh-privatekey"


def test_what_the_document_does_not_say_is_left_to_the_configuration_of_ssh() -> None:
    assert not {"ansible_user", "ansible_ssh_private_key_file"} & variables({}, {}).keys()


@pytest.mark.parametrize(
    ("host", "settings", "secrets", "more"),
    [
        ({}, {}, "/s", []),
        ({}, {"privateKeySecretRef": {"name": "key"}}, "/s", ["-oIdentitiesOnly=yes"]),
        ({}, {"knownHostsSecretRef": {"name": "hosts"}}, "/s", ['-oUserKnownHostsFile="/s/hosts/known_hosts"']),
        ({}, {"knownHostsSecretRef": {"name": "h"}}, "/of me/s", ['-oUserKnownHostsFile="/of me/s/h/known_hosts"']),
        (
            {},
            {"privateKeySecretRef": {"name": "key"}, "knownHostsSecretRef": {"name": "hosts"}},
            None,
            ["-oIdentitiesOnly=yes", '-oUserKnownHostsFile="/run of me/known_hosts"'],
        ),
        ({"hostKeyFingerprint": FINGERPRINT}, {}, None, BY_FINGERPRINT),
        ({"hostKeyFingerprint": FINGERPRINT}, {"knownHostsSecretRef": {"name": "hosts"}}, "/s", BY_FINGERPRINT),
    ],
)
def test_ssh_gets_these_options_and_no_others(
    host: dict[str, Any], settings: dict[str, Any], secrets: str | None, more: list[str]
) -> None:
    found = variables(host, settings, secrets)
    assert shlex.split(found["ansible_ssh_common_args"]) == [*ALWAYS, *more]


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        # Before ssh has seen a key, to find out which kinds are known.
        ({"f": "NONE", "t": "NONE", "K": "NONE"}, ""),
        ({"f": "SHA256:" + "B" * 43, "t": "ssh-ed25519", "K": "AAAA"}, ""),
        ({"f": FINGERPRINT, "t": "ssh-ed25519", "K": "AAAA"}, "192.0.2.1 ssh-ed25519 AAAA\n"),
    ],
)
def test_ssh_is_told_the_key_with_the_fingerprint_and_no_other(shown: dict[str, str], line: str) -> None:
    """ssh gives up when the command fails (load_hostkeys_command), so it must not, whatever it is asked."""
    options = shlex.split(variables({"hostKeyFingerprint": FINGERPRINT}, {})["ansible_ssh_common_args"])
    (command,) = (each.partition("=")[2] for each in options if each.startswith("-oKnownHostsCommand="))
    for token, value in {"H": "192.0.2.1", **shown}.items():
        command = command.replace(f"%{token}", value)
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
    assert done.stdout == line


def test_there_is_no_password_and_an_unknown_host_is_refused_whatever_the_document_says() -> None:
    settings = {
        "user": "operator",
        "privateKeySecretRef": {"name": "key"},
        "knownHostsSecretRef": {"name": "hosts"},
    }
    found = variables({"hostKeyFingerprint": FINGERPRINT}, settings)
    assert not [name for name in found if "pass" in name]
    assert set(ALWAYS) <= set(shlex.split(found["ansible_ssh_common_args"]))


@pytest.mark.parametrize(
    ("endpoint", "roles", "expected"),
    [
        ("External", [["etcd", "controlPlane"]], [["etcd", "controlPlane"]]),
        ("VirtualIP", [["etcd", "controlPlane"], ["etcd"]], [["etcd", "controlPlane", "loadBalancer"], ["etcd"]]),
        ("VirtualIP", [["controlPlane"], ["loadBalancer"]], [["controlPlane"], ["loadBalancer"]]),
        ("External", [["controlPlane"], ["loadBalancer"]], [["controlPlane"], ["loadBalancer"]]),
    ],
)
def test_control_plane_hosts_balance_the_load_where_nobody_else_is_to(
    endpoint: str, roles: list[list[str]], expected: list[list[str]]
) -> None:
    hosts = [{"name": f"host{number}", "roles": each} for number, each in enumerate(roles)]
    spec = Spec({"endpoint": {"type": endpoint}, "hosts": hosts})
    assert [ssh.roles(spec, host) for host in spec.hosts] == expected
    assert [host["roles"] for host in hosts] == roles, "the document stays as it is"
