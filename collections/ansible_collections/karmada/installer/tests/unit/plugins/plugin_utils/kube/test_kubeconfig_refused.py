# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs that are refused, whatever bytes they are: with what is wrong, where, and how to mend it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import access as member_access
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.kubeconfigs import (
    AT_CLUSTER,
    AT_USER,
    CERT_PEM,
    EXEC,
    FIELD,
    KEY,
    KEY_PEM,
    TOKEN,
    UNSENT,
    Object,
    accessed,
    config,
    encoded,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def refusal(content: Any, **more: Any) -> str:
    with pytest.raises(ProblemsError) as caught:
        accessed(content, **more)
    assert TOKEN not in str(caught.value)
    (problem,) = caught.value.problems
    assert problem.remedy, "how to mend it is missing"
    return str(problem)


# -- refused -----------------------------------------------------------------------------------------------------------
FLATTEN = "Write the content of its files into it: kubectl config view --flatten --minify."
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
    "groups of nobody": (
        config(user={"token": TOKEN, "as-groups": ["a"]}),
        f"{AT_USER}.as-groups: names groups without a user. Add the user: as: …",
    ),
    "the UID of another": (
        config(user={"token": TOKEN, "as": "x", "as-uid": "1"}),
        f"{AT_USER}.as-uid: is not supported. Use the credentials of an account of its own.",
    ),
    "a group with a line break": (
        config(user={"token": TOKEN, "as": "x", "as-groups": ["a\r\nX: y"]}),
        f"{AT_USER}.as-groups: {UNSENT}",
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


# Of a proxy that is no address, another takes the place.
@pytest.mark.parametrize("form", [each for each in REFUSED if "proxy" not in each])
def test_a_file_is_refused_in_the_same_words_with_a_setting_of_the_environment(tmp_path: Path, form: str) -> None:
    content, _ = REFUSED[form]
    (tmp_path / "kubeconfig").write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    told = []
    for more in ({}, {"K8S_AUTH_PROXY": "http://proxy.example.com"}):
        environment = {"K8S_AUTH_KUBECONFIG": str(tmp_path / "kubeconfig"), **more}
        try:
            kubeconfig.from_environment(None, environment)
        except ProblemsError as error:
            told.append(str(error))
    # Some are wrong in a Secret only.
    assert len(told) in (0, 2)
    assert len(set(told)) <= 1


def test_a_directory_that_stands_for_a_secret_and_is_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as caught:
        kubeconfig.from_secret({}, None, FIELD, tmp_path)
    (found,) = caught.value.problems
    assert found.what.startswith(f"the directory {tmp_path}, which stands for the Secret, has neither")
    assert found.remedy == "Add one or the other as files."


@pytest.mark.parametrize(
    ("content", "context", "told"),
    [
        (b"Hello, world", None, "this is not a kubeconfig"),
        (yaml.safe_dump(config()).encode(), "prod", "there is no context 'prod'. There are: c."),
    ],
)
def test_the_file_or_the_secret_with_a_wrong_kubeconfig_is_named(
    tmp_path: Path, content: bytes, context: str | None, told: str
) -> None:
    for folder, place in ((tmp_path, f"{tmp_path}/kubeconfig"), (None, "Secret site/member1, key kubeconfig")):
        with pytest.raises(ProblemsError) as caught:
            kubeconfig.from_secret({"kubeconfig": content}, context, FIELD, folder, "site/member1")
        (found,) = caught.value.problems
        assert str(found).startswith(f"{FIELD} ({place}): {told}")


def test_the_file_or_the_secret_with_a_key_that_is_no_text_is_named(tmp_path: Path) -> None:
    keys = {"server": b"https://192.0.2.1", "token": b"\xff", "ca.crt": b""}
    for folder, place in ((tmp_path, f"{tmp_path}/token"), (None, "Secret site/member1, key token")):
        with pytest.raises(ProblemsError) as caught:
            kubeconfig.from_secret(keys, None, FIELD, folder, "site/member1")
        (found,) = caught.value.problems
        assert str(found) == f"{FIELD} ({place}): is not text. Write it as text."


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
        member_access.refuse_unusable(MemberEntry({}), found, FIELD, KEY)
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


@settings(max_examples=300, deadline=None)
@given(_configs)
def test_any_values_with_settings_of_the_environment_give_what_these_say_or_one_clear_error(content: Object) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(yaml.safe_dump(content, allow_unicode=False).encode())
        file.flush()
        for more in ({"K8S_AUTH_PROXY": "http://proxy.example.com"}, {"K8S_AUTH_API_KEY": TOKEN}):
            try:
                found = kubeconfig.from_environment(None, {"K8S_AUTH_KUBECONFIG": file.name, **more})
            except ProblemsError:
                continue
            assert found.proxy == more.get("K8S_AUTH_PROXY", found.proxy)
            assert found.headers().get("Authorization") == f"Bearer {TOKEN}" or "K8S_AUTH_API_KEY" not in more


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
