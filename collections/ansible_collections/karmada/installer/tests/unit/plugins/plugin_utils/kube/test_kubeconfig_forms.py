# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs as people have them, out of a Secret of a member: taken, or refused with what, where and how to mend."""

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
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import Access
from ansible_collections.karmada.installer.plugins.plugin_utils.members import access as member_access
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration as members
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.samples import client_pair
from hypothesis import given, settings
from hypothesis import strategies as st

Object = dict[str, Any]
FIELD = "spec.members[m1].secretRef"
KEY = f"{FIELD}, key kubeconfig"
TOKEN = "t0ps3cret"
CERT_PEM, KEY_PEM = client_pair()
EKS = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"
EXEC = {"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}
V1 = "client.authentication.k8s.io/v1"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(cluster: Object | None = None, user: Object | None = None, **top: Any) -> Object:
    """A kubeconfig with one context; ``top`` takes the place of whole sections."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "site", "user": "me", "namespace": "default"}}],
        "clusters": [{"name": "site", "cluster": {"server": "https://192.0.2.1:6443", **(cluster or {})}}],
        "users": [{"name": "me", "user": {"token": TOKEN} if user is None else user}],
        "preferences": {},
        **top,
    }


def accessed(
    content: Any, context: str | None = None, folder: Path | None = None, entry: Object | None = None, **files: bytes
) -> Access:
    """What a member's Secret with this kubeconfig gives."""
    text = content if isinstance(content, bytes) else yaml.safe_dump(content).encode()
    keys = {"kubeconfig": text, **{name.replace("_", "."): each for name, each in files.items()}}
    found = kubeconfig.from_secret(keys, context, FIELD, folder)
    member_access.refuse_unusable(MemberEntry(entry or {}), found, FIELD)
    return found


def refusal(content: Any, **more: Any) -> str:
    with pytest.raises(ProblemsError) as caught:
        accessed(content, **more)
    assert TOKEN not in str(caught.value)
    (problem,) = caught.value.problems
    assert problem.remedy, "how to mend it is missing"
    return str(problem)


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

AT_USER, AT_CLUSTER = f"{KEY}: users[me].user", f"{KEY}: clusters[site].cluster"
FLATTEN = "Write the content of its files into it: kubectl config view --flatten --minify."
UNSENT = "has a character that cannot be sent, such as a line break. Remove it."
COMPARE = "Compare it with one that kubectl takes."
NO_KUBECONFIG = (
    f"{KEY}: this is not a kubeconfig: expected one mapping with clusters, users and contexts. Put a kubeconfig there."
)
REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (b"", f"{KEY}: the kubeconfig is empty. Put a kubeconfig there."),
    "comments": (b"# none\n---\n", f"{KEY}: the kubeconfig is empty. Put a kubeconfig there."),
    "binary": (
        b"\x7fELF\x02\xff\xfe",
        f"{KEY}: the kubeconfig is not text in UTF-8 (line 1). {COMPARE}",
    ),
    "control characters": (
        b"a: \x00\x01",
        f"{KEY}: the kubeconfig is not YAML. {COMPARE}",
    ),
    "nonsense": (
        f"a: b\n- {TOKEN}".encode(),
        f"{KEY}: the kubeconfig is not YAML (line 2). {COMPARE}",
    ),
    "too large": (
        b"a" * (2**20 + 1),
        (
            f"{KEY}: it has 1024 KiB, more than the 1024 KiB of the largest kubeconfig. "
            "Put only what is needed there: kubectl config view --flatten --minify."
        ),
    ),
    "1 MiB of words": (
        b"word " * 209_715,
        NO_KUBECONFIG,
    ),
    "aliases that grow": (
        "\n".join(
            ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))]
        ).encode(),
        f"{KEY}: the kubeconfig has too many values, those that aliases repeat included (line 6). {COMPARE}",
    ),
    "aliases that nest": (
        "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 400))]).encode(),
        f"{KEY}: the kubeconfig is nested too deep (line 64). {COMPARE}",
    ),
    "an alias of itself": (
        b"a: &a [*a]",
        f"{KEY}: the kubeconfig uses an alias inside of what it stands for, or before it (line 1). {COMPARE}",
    ),
    "a tag": (
        b"a: !!python/object/apply:os.system [id]",
        f"{KEY}: the kubeconfig is not plain YAML, each key once (line 1). {COMPARE}",
    ),
    "a key twice": (
        b"users: []\nusers: []",
        f"{KEY}: the kubeconfig is not plain YAML, each key once (line 2). {COMPARE}",
    ),
    "a list": (
        b"- 1",
        NO_KUBECONFIG,
    ),
    "two documents": (
        b"{a: b}\n---\n{c: d}",
        NO_KUBECONFIG,
    ),
    "another kind of object": (
        {"apiVersion": "v1", "kind": "Secret", "data": {"kubeconfig": "eA=="}},
        f"{KEY}: no context was chosen and the file sets no current-context. It has no contexts at all.",
    ),
    "a context that is not there": (
        config(**{"current-context": "d"}),
        f"{KEY}: there is no context 'd'. There are: c.",
    ),
    "a context that is a number": (
        config(**{"current-context": 5}),
        f"{KEY}: current-context: must be a string. See kubectl config view. Put it in quotes.",
    ),
    "contexts as a mapping": (
        config(contexts={"c": {}}),
        (
            f"{KEY}: contexts must be a list of entries, each with a name that is a string. "
            "Put names that look like numbers in quotes."
        ),
    ),
    "a name that is a list": (
        config(users=[{"name": ["me"]}]),
        (
            f"{KEY}: users must be a list of entries, each with a name that is a string. "
            "Put names that look like numbers in quotes."
        ),
    ),
    "a context that is a text": (
        config(contexts=[{"name": "c", "context": "site"}]),
        f"{KEY}: contexts[c].context: must be a mapping. See kubectl config view.",
    ),
    "a user that is missing": (
        config(users=[{"name": "you"}]),
        f"{KEY}: contexts[c].context: the context names user 'me', which is not in users. There are: you.",
    ),
    "a cluster that is missing": (
        config(clusters=[]),
        f"{KEY}: contexts[c].context: the context names cluster 'site', which is not in clusters. There are: none.",
    ),
    "a user that is a list": (
        config(users=[{"name": "me", "user": []}]),
        f"{KEY}: users[me].user: must be a mapping. See kubectl config view.",
    ),
    "no server": (
        config({"server": ""}),
        f"{KEY}: cluster 'site' has no server address. Set server: https://….",
    ),
    "a server without a scheme": (
        config({"server": "192.0.2.1:6443"}),
        f"{AT_CLUSTER}.server: is no address that can be connected to. Write https://… or http://….",
    ),
    "a server with a port that there is not": (
        config({"server": "https://192.0.2.1:99999"}),
        f"{AT_CLUSTER}.server: is no address that can be connected to. Write https://… or http://….",
    ),
    "half an IPv6 address": (
        config({"server": "https://[fd00::1"}),
        f"{AT_CLUSTER}.server: is no address that can be connected to. Write https://… or http://….",
    ),
    "a server with a line break": (
        config({"server": "https://192.0.2.1\r\nHost: x"}),
        f"{AT_CLUSTER}.server: {UNSENT}",
    ),
    "a server that is a number": (
        config({"server": 5}),
        f"{AT_CLUSTER}.server: must be a string. See kubectl config view. Put it in quotes.",
    ),
    "without TLS": (
        config({"server": "http://192.0.2.1:8080"}),
        f"{KEY}: it leads to an address without TLS, where tokens could be read. Use the https:// address.",
    ),
    "not verified": (
        config({"insecure-skip-tls-verify": True}),
        (
            f"{KEY}: it switches off the verification of the server's certificate (insecure-skip-tls-verify). Put the "
            "CA there instead (certificate-authority-data). If nobody else can answer at that address, allow it: "
            "spec.members[m1].insecureSkipTLSVerification: true."
        ),
    ),
    "verified by a word": (
        config({"insecure-skip-tls-verify": "no way"}),
        f"{AT_CLUSTER}.insecure-skip-tls-verify: must be true or false. See kubectl config view.",
    ),
    "another name in the certificate": (
        config({"tls-server-name": "kubernetes.default"}),
        (
            f"{KEY}: it expects a certificate for kubernetes.default (tls-server-name), which Karmada cannot do. "
            "Use an address that the certificate is for, and take tls-server-name out."
        ),
    ),
    "a proxy with a password": (
        config({"proxy-url": f"http://me:{TOKEN}@192.0.2.9:3128"}),
        (
            f"{KEY}: its proxy-url holds a password, which everybody could read who may read Cluster objects. "
            "Use a proxy that knows the control plane by its address."
        ),
    ),
    "a proxy of another kind": (
        config({"proxy-url": "ftp://192.0.2.9"}),
        f"{AT_CLUSTER}.proxy-url: is no address that can be connected to. Write http://… or https://… or socks5://….",
    ),
    "a CA that is no base64": (
        config({"certificate-authority-data": "-----BEGIN"}),
        f"{AT_CLUSTER}.certificate-authority-data: is not base64 of a PEM text. Encode it again: base64 -w0.",
    ),
    "a CA that is no certificate": (
        config({"certificate-authority-data": encoded("nothing")}),
        (f"{AT_CLUSTER}: the CA certificate cannot be read (no start line). It must be PEM."),
    ),
    "a CA on this machine": (
        config({"certificate-authority": "/etc/ssl/certs/ca-certificates.crt"}),
        f"{AT_CLUSTER}.certificate-authority in {KEY}: it names a file outside of its Secret. {FLATTEN}",
    ),
    "a CA that is no key of the Secret": (
        config({"certificate-authority": "ca.pem"}),
        f"{AT_CLUSTER}.certificate-authority in {KEY}: it names 'ca.pem', and the Secret has no such key. {FLATTEN}",
    ),
    "the token of the machine": (
        config(user={"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}),
        f"{AT_USER}.tokenFile in {KEY}: it names a file outside of its Secret. {FLATTEN}",
    ),
    "a key of the person": (
        config(user={"client-certificate-data": encoded(CERT_PEM), "client-key": "~/.ssh/id_ed25519"}),
        f"{AT_USER}.client-key in {KEY}: it names a file outside of its Secret. {FLATTEN}",
    ),
    "a way out of the directory": (
        config(user={"tokenFile": "../m2/token"}),
        f"{AT_USER}.tokenFile in {KEY}: it names a file outside of its Secret. {FLATTEN}",
    ),
    "a directory of its own": (
        config(users=[{"name": "me", "base": "/etc", "user": {"tokenFile": "hostname"}}]),
        f"{AT_USER}.tokenFile in {KEY}: it names 'hostname', and the Secret has no such key. {FLATTEN}",
    ),
    "a certificate without its key": (
        config(user={"client-certificate-data": encoded(CERT_PEM)}),
        f"{AT_USER}: the user has a client certificate and no client key. Put both there.",
    ),
    "a key without its certificate": (
        config(user={"client-key-data": encoded(KEY_PEM)}),
        f"{AT_USER}: the user has a client key and no client certificate. Put both there.",
    ),
    "a token with a line break": (
        config(user={"token": f"{TOKEN}\r\nX: y"}),
        f"{AT_USER}.token: {UNSENT}",
    ),
    "a token that is a number": (
        config(user={"token": 5}),
        f"{AT_USER}.token: must be a string. See kubectl config view. Put it in quotes.",
    ),
    "a certificate that is a mapping": (
        config(user={"client-certificate-data": {}}),
        f"{AT_USER}.client-certificate-data: must be a string. See kubectl config view.",
    ),
    "groups of another": (
        config(user={"token": TOKEN, "as": "x", "as-groups": ["system:masters"]}),
        f"{AT_USER}.as-groups: is not supported. Use the credentials of an account of its own.",
    ),
    "a program": (
        config(user={"exec": EXEC}),
        (
            f"{AT_USER}.exec: a kubeconfig out of a Secret of a cluster may not start programs on the machine "
            "where Ansible runs. Give it the token of a service account, or a client certificate."
        ),
    ),
    "a provider": (
        config(user={"auth-provider": {"name": "gcp", "config": {"cmd-path": "sh"}}}),
        (
            f"{AT_USER}.auth-provider: the user comes by an auth-provider, which only a kubeconfig of your own may "
            "have. Use an exec plugin, the token of a service account, or a client certificate."
        ),
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_wrong_is_told_with_its_place_and_its_remedy(form: str) -> None:
    content, expected = REFUSED[form]
    assert refusal(content) == expected


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


def test_a_directory_that_stands_for_a_secret_and_is_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as caught:
        kubeconfig.from_secret({}, None, FIELD, tmp_path)
    (found,) = caught.value.problems
    assert found.what.startswith(f"the directory {tmp_path}, which stands for the Secret, has neither")
    assert found.remedy == "Add one or the other as files."


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
    assert f"{AT_USER}.exec: the exec plugin './login' of the user {said}" in str(caught.value)
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

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just("https://192.0.2.1")
_values = st.recursive(
    _scalars, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3)
)
_KEYS = (
    *("server", "certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url"),
    *("insecure-skip-tls-verify", "token", "tokenFile", "client-certificate", "client-key", "client-key-data"),
    *("client-certificate-data", "exec", "auth-provider", "username", "password", "as", "as-groups", "cluster", "user"),
)
_content = _values | st.dictionaries(st.sampled_from(_KEYS), _values, max_size=4)


def _entries(key: str) -> st.SearchStrategy[Any]:
    """Often with the name that the context asks for."""
    named = st.fixed_dictionaries({"name": st.just("c"), key: _content | st.just({"cluster": "c", "user": "c"})})
    return st.lists(named | _values, min_size=1, max_size=2) | _values


_configs = st.fixed_dictionaries(
    {
        "current-context": st.just("c") | _values,
        **{f"{key}s": _entries(key) for key in ("context", "cluster", "user")},
    }
)


def check_taken_or_refused(text: bytes) -> None:
    started = time.process_time()
    try:
        found = kubeconfig.from_secret({"kubeconfig": text}, None, FIELD)
        member_access.refuse_unusable(MemberEntry({}), found, FIELD)
        with Cluster(found) as cluster:
            assert cluster.server
    except ProblemsError as error:
        problems = error.problems
    else:
        problems = []
    assert all(each.what and each.where.startswith(FIELD) for each in problems)
    assert time.process_time() - started < 10


@given(st.binary(max_size=2000))
def test_any_bytes_give_an_access_or_one_clear_error(text: bytes) -> None:
    check_taken_or_refused(text)


@given(st.text(alphabet=":-[]{}&*!|>%@`'\"#,?\n\t abc012~", max_size=400))
def test_anything_that_looks_like_yaml_gives_an_access_or_one_clear_error(text: str) -> None:
    check_taken_or_refused(text.encode())


@settings(max_examples=300)
@given(_configs)
def test_any_values_of_a_kubeconfig_give_an_access_or_one_clear_error(content: Object) -> None:
    check_taken_or_refused(yaml.safe_dump(content, allow_unicode=False).encode())


@pytest.mark.parametrize(
    "text",
    [b"[" * 2**20, b"{a: " * 2**18, b"- " * 2**19, b"? " * 2**19, b"&a " * 2**18, b"'" * 2**20, b"\n" * 2**20,
     b"a: " * 2**18, b"!" * 2**20, b"%" * 2**20, b"1" * 2**20, b"a: b\n" * 2**17],
    ids=lambda text: repr(text[:5]),
)  # fmt: skip
def test_a_mebibyte_of_one_thing_is_refused_in_time(text: bytes) -> None:
    started = time.process_time()
    with pytest.raises(ProblemsError):
        kubeconfig.from_secret({"kubeconfig": text}, None, FIELD)
    assert time.process_time() - started < 10


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
