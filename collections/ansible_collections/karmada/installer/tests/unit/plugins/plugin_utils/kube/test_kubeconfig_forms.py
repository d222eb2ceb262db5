# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs as people have them, out of a Secret of a member: what is taken, programs they name, when they end."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import credentials, kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.members import access as member_access
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration as members
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.kubeconfigs import (
    CERT_PEM,
    EXEC,
    FIELD,
    KEY_PEM,
    TOKEN,
    UNSENT,
    Object,
    accessed,
    config,
    encoded,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import client_pair

EKS = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"
V1 = "client.authentication.k8s.io/v1"


# -- taken -----------------------------------------------------------------------------------------------------------


def several() -> Object:
    names = {"admin@site-a": "192.0.2.1", "team/a:prod": "192.0.2.2", EKS: "192.0.2.3"}
    return {
        "current-context": EKS,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "clusters": [{"name": name, "cluster": {"server": f"https://{host}/"}} for name, host in names.items()],
        "users": [{"name": name, "user": {"token": f"of-{host}"}} for name, host in names.items()],
    }


@pytest.mark.parametrize(
    ("context", "server"),
    [(None, "192.0.2.3"), ("admin@site-a", "192.0.2.1"), ("team/a:prod", "192.0.2.2"), (EKS, "192.0.2.3")],
)
def test_one_of_several_contexts_is_chosen_whatever_its_name(context: str | None, server: str) -> None:
    found = accessed(several(), context)
    assert (found.server, found.headers()) == (f"https://{server}", {"Authorization": f"Bearer of-{server}"})


CERTIFICATE = {"client-certificate-data": encoded(CERT_PEM), "client-key-data": encoded(KEY_PEM)}
FILES: Mapping[str, bytes] = {"tls_crt": CERT_PEM.encode(), "tls_key": KEY_PEM.encode(), "token": b"of-a-file\n"}


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({"token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}),
        (CERTIFICATE, {}),
        ({"client-certificate": "tls.crt", "client-key": "./tls.key"}, {}),
        ({"tokenFile": "token"}, {"Authorization": "Bearer of-a-file"}),
        ({"tokenFile": "token", "token": TOKEN}, {"Authorization": "Bearer of-a-file"}),
        ({**CERTIFICATE, "token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}),
        ({"username": "me", "password": "ü"}, {"Authorization": "Basic " + encoded("me:ü")}),
        ({"token": TOKEN, "as": "admin"}, {"Authorization": f"Bearer {TOKEN}", "Impersonate-User": "admin"}),
        ({"token": TOKEN, "exec": None, "client-certificate-data": ""}, {"Authorization": f"Bearer {TOKEN}"}),
        ({}, {}),
    ],
    ids="+".join,
)
def test_users_of_every_form(user: Object, headers: Mapping[str, str]) -> None:
    assert accessed(config(user=user), **FILES).headers() == headers


def test_a_context_without_a_user_and_fields_that_others_keep_there() -> None:
    found = config(
        contexts=[{"name": "c", "context": {"cluster": "site", "extensions": [{"name": "minikube", "extension": 5}]}}],
        users=None,
        extensions=[{"name": "x"}],
    )
    assert accessed(found).headers() == {}


def test_a_relative_file_is_a_key_of_the_secret_also_by_its_path_in_the_directory(tmp_path: Path) -> None:
    for name in ("ca.crt", "./ca.crt", str(tmp_path / "ca.crt")):
        assert accessed(config({"certificate-authority": name}), folder=tmp_path, ca_crt=CERT_PEM.encode())


def test_a_proxy_is_the_way_of_the_control_plane_too() -> None:
    found = accessed(config({"proxy-url": "socks5://192.0.2.9:1080"}))
    assert found.proxy == "socks5://192.0.2.9:1080"
    registration = members.Registration("id", found.server, found.proxy)
    entry = {"name": "m1", "mode": "Push"}
    assert members.cluster(MemberEntry(entry), "me", registration)["spec"]["proxyURL"] == found.proxy


def test_a_server_that_is_not_verified_is_allowed_by_name_only_and_the_control_plane_is_told() -> None:
    entry = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}, members.INSECURE: True}
    found = accessed(config({"insecure-skip-tls-verify": True}), entry=entry)
    assert found.insecure
    registration = members.Registration("id", found.server, insecure=True)
    assert members.cluster(MemberEntry(entry), "me", registration)["spec"]["insecureSkipTLSVerification"] is True
    assert members.record(MemberEntry(entry))[members.INSECURE] is True, "it leaves as it joined"


def test_a_member_that_may_be_unverified_and_is_verified_stays_verified() -> None:
    found = accessed(config(), entry={members.INSECURE: True})
    assert not found.insecure
    assert (
        members.INSECURE
        not in members.cluster(
            MemberEntry({"name": "m1", "mode": "Push"}),
            "me",
            members.Registration("id", found.server, insecure=found.insecure),
        )["spec"]
    )


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {},
            (
                ": the Secret has neither `kubeconfig` nor all of `server`, `token` and `ca.crt` (missing: server, "
                "token, ca.crt). Add one or the other."
            ),
        ),
        ({"token": b"\xff"}, ", key token: is not text. Write it as text."),
        ({"token": b"a b"}, f", key token: {UNSENT}"),
        ({"server": b"http://x"}, ", key server: is no address that can be connected to. Write https://…."),
        ({"token": b""}, ": `server`, `token` or `ca.crt` of the Secret is empty. Fill it."),
    ],
)
def test_a_secret_with_an_address_and_a_token(keys: Mapping[str, bytes], message: str) -> None:
    good = {"server": b"https://192.0.2.1", "token": b"t", "ca.crt": CERT_PEM.encode()}
    assert kubeconfig.from_secret(good, None, FIELD).headers() == {"Authorization": "Bearer t"}
    with pytest.raises(ProblemsError) as caught:
        kubeconfig.from_secret({**good, **keys} if keys else {}, None, FIELD)
    assert [str(each) for each in caught.value.problems] == [f"{FIELD}{message}"]


# -- programs ----------------------------------------------------------------------------------------------------------

ANSWER = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "given"}})


def program(folder: Path, *lines: str) -> Object:
    """A user whose program is a file beside the kubeconfig."""
    file = folder / "login"
    file.write_text("\n".join([f"#!{shutil.which('sh')}", *lines, ""]))
    file.chmod(0o700)
    return {"exec": {"command": "./login", "apiVersion": V1, "env": [{"name": "SITE", "value": "a/b"}]}}


def test_a_directory_of_the_person_may_have_a_program_beside_the_kubeconfig(tmp_path: Path) -> None:
    user = program(tmp_path, f'test "$SITE" = a/b && test -n "$KUBERNETES_EXEC_INFO" && echo \'{ANSWER}\'')
    assert accessed(config(user=user), folder=tmp_path).headers() == {"Authorization": "Bearer given"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["echo no login >&2; exit 3"], "failed with code 3: no login"),
        ([f"echo token={TOKEN} >&2; exit 1"], "failed with code 1: token=<redacted>"),
        (["exit 1"], "failed with code 1: it printed no reason"),
        (["echo hello"], f"did not print an ExecCredential of {V1}"),
        (["echo null"], f"did not print an ExecCredential of {V1}"),
        ([f"echo '{ANSWER}' | sed s/v1/v1beta1/"], f"did not print an ExecCredential of {V1}"),
        ([f"echo '{ANSWER}' | sed s/given//"], "gave neither a token nor a certificate with its key"),
        (["sleep 600 & sleep 600"], "did not answer within 1 s"),
    ],
)
def test_a_program_that_gives_nothing_is_told_soon_and_without_what_is_secret(
    lines: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "PROGRAM_SECONDS", 1.0 if "within 1 s" in said else 300.0)
    started = time.monotonic()
    with pytest.raises(ProblemsError) as caught:
        accessed(config(user=program(tmp_path, *lines)), folder=tmp_path)
    place = f"{FIELD} ({tmp_path}/kubeconfig): users[me].user"
    assert f"{place}.exec: the exec plugin './login' of the user {said}" in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert time.monotonic() - started < 300


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": "no-such-plugin", "installHint": "Get it."}, "'no-such-plugin' is not on this machine. Get it."),
        ({"command": ""}, "names no command that can be started"),
        ({"command": ["sh"]}, "exec.command: must be a string"),
        ({"args": "-c"}, "exec.args: must be a list"),
        ({"args": [5]}, "exec.args: must be a list of strings"),
        ({"env": [{"name": "A"}]}, "exec.env: must be a list of entries with name and value"),
        ({"env": ["A=b"]}, "exec.env: must be a list of entries with name and value"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "has no known apiVersion"),
        ({"interactiveMode": "Always"}, "wants to ask somebody, and nobody is there"),
    ],
)
def test_a_program_that_cannot_be_started(changes: Object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as caught:
        accessed(config(user={"exec": {**EXEC, **changes}}), folder=tmp_path)
    assert said in str(caught.value)


# -- whatever it is ------------------------------------------------------------------------------------------------


def test_a_kubeconfig_file_of_the_person_may_name_its_files_and_programs(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-a-file")
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config(user={"tokenFile": "token"})))
    assert kubeconfig.from_file(str(file), None).headers() == {"Authorization": "Bearer of-a-file"}
    printing = {"command": sys.executable, "args": ["-c", f"print({ANSWER!r})"], "apiVersion": V1}
    file.write_text(yaml.safe_dump(config(user={"exec": printing})))
    assert kubeconfig.from_file(str(file), None).headers() == {"Authorization": "Bearer given"}


# -- what ends ---------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def jwt(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"token": jwt(exp=(NOW + timedelta(days=29)).timestamp())}, "expires on 2026-05-30 at 12:00 UTC"),
        ({"token": jwt(exp=(NOW - timedelta(days=1)).timestamp())}, "expired on 2026-04-30 at 12:00 UTC"),
        ({"token": jwt(exp=(NOW + timedelta(days=31)).timestamp())}, ""),
        ({"token": jwt(sub="account")}, ""),
        *(({"token": each}, "") for each in ("opaque", "a.b.c", "a.!.c", jwt(exp="soon"), f"x.{'W' * 4000}.y")),
        ({"username": "me", "password": "x"}, ""),
        ({}, ""),
    ],
)
def test_an_identity_is_told_of_before_it_ends(user: Object, said: str) -> None:
    found = member_access.expiring(accessed(config(user=user)), NOW)
    assert found.startswith(f"its kubeconfig {said}: put a newer one") if said else found == ""


@pytest.mark.parametrize(("days", "ends"), [(20, True), (40, False)])
def test_a_certificate_is_told_of_before_it_ends(days: float, ends: bool) -> None:
    cert, key = client_pair(days)
    user = {"client-certificate-data": encoded(cert), "client-key-data": encoded(key)}
    assert bool(member_access.expiring(accessed(config(user=user)), datetime.now(UTC))) is ends


def test_what_is_fetched_anew_does_not_end() -> None:
    ended = jwt(exp=1)
    assert member_access.expiring(accessed(config(user={"tokenFile": "token"}), token=ended.encode()), NOW) == ""
