# SPDX-License-Identifier: Apache-2.0
"""A secret that is planted in an output is found in every form, and what everybody may know is not."""

from __future__ import annotations

import base64
import datetime
import functools
import io
import json
import random
import stat
import string
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import leaks
import pyrage
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
SSH = ed25519.Ed25519PrivateKey.generate()
SSH_PUBLIC = SSH.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
RSA_PUBLIC = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
KEYS = {
    "elliptic, PKCS 8": (EC, PrivateFormat.PKCS8),
    "elliptic": (EC, PrivateFormat.TraditionalOpenSSL),
    "RSA, PKCS 8": (RSA, PrivateFormat.PKCS8),
    "RSA": (RSA, PrivateFormat.TraditionalOpenSSL),
    "SSH": (SSH, PrivateFormat.OpenSSH),
}
_CHARACTERS = random.Random(4711)


def _drawn(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_CHARACTERS.choices(alphabet, k=length - 1)) + "7"


@functools.cache
def _pem(name: str) -> str:
    key, form = KEYS[name]
    return key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()


def _certificate(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "karmada-apiserver")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 4711, now, now + datetime.timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _public(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def _secret(**data: str) -> dict[str, object]:
    return {
        "kind": "Secret", "metadata": {"name": "s", "namespace": "a"},
        "data": {key.replace("_", "."): _encoded(value) for key, value in data.items()},
    }  # fmt: skip


TOKEN = ".".join([_encoded('{"alg":"RS256","kid":"1"}').rstrip("="), _drawn(60), _drawn(86)])
KUBECONFIG = f"""apiVersion: v1
kind: Config
clusters:
- name: member1
  cluster: {{server: "https://192.0.2.10:6443", certificate-authority-data: {_encoded(_certificate(EC))}}}
users:
- name: a
  user: {{client-certificate-data: {_encoded(_certificate(EC))}, client-key-data: {_encoded(_pem("elliptic"))}}}
- name: b
  user:
    token: {TOKEN}
"""
#: What an installation has that is secret: a Secret's key, its value, and what of the value is to be found anywhere.
MATERIAL = {
    **{f"key: {name}": ("tls_key", _pem(name), _pem(name)) for name in KEYS},
    "token": ("token", TOKEN, TOKEN),
    "last part of a token": ("token", TOKEN, TOKEN.rpartition(".")[2]),
    "key in a kubeconfig": ("kubeconfig", KUBECONFIG, _encoded(_pem("elliptic"))),
    "key in a kubeconfig, readable": ("kubeconfig", KUBECONFIG, _pem("elliptic")),
    "token in a kubeconfig": ("kubeconfig", KUBECONFIG, TOKEN),
    "key after its certificate": ("agent_pem", _certificate(EC) + _pem("elliptic"), _pem("elliptic")),
    "encryption key": ("encryption_yaml", f"secret: {(SECRET := _encoded(_drawn(32)))}", SECRET),
    "encryption key in a record": ("instance.json", json.dumps({"encryptionKey": SECRET}), SECRET),
    "login": (".dockerconfigjson", json.dumps({"auths": {"x": {"auth": (AUTH := _encoded(_drawn(30)))}}}), AUTH),
    "half of a bootstrap token": ("token-secret", (HALF := _drawn(16, string.ascii_lowercase)), HALF),
    "password": ("password", "corréct horse!", "corréct horse!"),
}


def _values(name: str) -> dict[str, set[str]]:
    key, value, _found = MATERIAL[name]
    return leaks.values_of([_secret(**{key: value})])


def _found(text: str, values: dict[str, set[str]]) -> list[str]:
    """By its value, not by its shape."""
    return [line for line in leaks.leaks(text, values) if "the value of" in line]


@pytest.mark.parametrize("name", MATERIAL)
@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_a_secret_is_found_readable_and_in_base64_at_every_offset(name: str, before: str) -> None:
    planted = MATERIAL[name][2]
    assert _found(f"x {planted} y", _values(name))
    assert _found(f"x {_encoded(before + planted + before)} y", _values(name))


@pytest.mark.parametrize("name", MATERIAL)
@pytest.mark.parametrize("width", [64, 76])
def test_base64_that_is_cut_into_lines_is_found(name: str, width: int) -> None:
    wrapped = textwrap.fill(_encoded(f"before {MATERIAL[name][2]} after"), width, subsequent_indent="    ")
    assert _found(f"data:\n    {wrapped}\nend", _values(name))
    assert _found(json.dumps({"stdout": wrapped}), _values(name))


@pytest.mark.parametrize("name", KEYS)
def test_each_line_of_a_key_is_found_without_its_frame_unless_it_is_public(name: str) -> None:
    lines = _pem(name).splitlines()[1:-1]
    found = [bool(_found(f"x {line} y", _values(f"key: {name}"))) for line in lines]
    # The last line of an elliptic key is a piece of its public one, and may be a whole line of its certificate; the
    # number that an RSA key has in common with its certificate fills several, and its last line may be a short one.
    # Every key of OpenSSH has the first line of any other.
    public = {"elliptic, PKCS 8": 1, "elliptic": 1, "RSA, PKCS 8": 6, "RSA": 6, "SSH": 1}[name]
    assert found.count(False) <= public
    assert found.count(True) >= 2


#: Its names are those of the tests: the keys are drawn by each process that collects them.
PUBLIC = {
    "elliptic certificate": _certificate(EC),
    "RSA certificate": _certificate(RSA),
    "elliptic public key": _public(EC),
    "RSA public key": _public(RSA),
    "elliptic certificate in base64": _encoded(_certificate(EC)),
    "elliptic public key in base64": _encoded(_public(EC)),
    "RSA certificate in base64, after a letter": _encoded("a" + _certificate(RSA)),
    "RSA public key as DER": base64.b64encode(b"a" + RSA_PUBLIC).decode(),
    "in JSON": json.dumps({"caBundle": _encoded(_certificate(RSA)), "pem": _certificate(EC)}),
    "SSH": SSH_PUBLIC,
    "address": "server: https://192.0.2.10:6443",
    "account": "karmada-cluster/karmada-member1 system:serviceaccount:karmada-cluster:karmada-member1",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_what_everybody_may_know_is_not_reported(name: str) -> None:
    public = PUBLIC[name]
    every = [_secret(**{key: value}) for key, value, _planted in MATERIAL.values()]
    beside = [_secret(ca_crt=_certificate(EC), ca=_certificate(RSA), caBundle=_certificate(EC), sa_pub=_public(RSA))]
    hosts = [_secret(known_hosts=f"[192.0.2.10]:22 {SSH_PUBLIC}")]
    values = leaks.values_of(every + beside + hosts)
    assert _found(public, values) == []
    assert [line for line in leaks.leaks(public, values) if "BEGIN" in line] == []


def test_of_a_key_pair_of_age_the_private_key_is_secret() -> None:
    pair = pyrage.x25519.Identity.generate()
    values = leaks.values_in({"identity.txt": f"# public key: {pair.to_public()}\n{pair}\n".encode()})
    assert list(leaks.leaks(f'{{"recipients": ["{pair.to_public()}"]}}', values)) == []
    assert list(leaks.leaks(f"opened with {pair}", values)) == ["line 1: the value of identity.txt"]


def test_a_public_value_is_nothing_to_look_for() -> None:
    public = _secret(ca=_certificate(RSA), ca_crt="x" * 40, sa_pub=_public(RSA), ssh=SSH_PUBLIC, namespace="karmada")
    assert leaks.values_of([public]) == {}


@pytest.mark.parametrize(
    "text",
    [
        "TASK [karmada.installer.etcd : Wait until every member is healthy]",
        "<127.0.0.1> EXEC /bin/sh -c 'echo ~root && sleep 0'",
        "python version = 3.11.7 (main, Nov 20 2026, 10:00:00) [GCC 12.2.0]",
        "docker.io/karmada/karmada-scheduler:v1.18.2",
    ],
)
def test_ordinary_texts_are_no_secrets(text: str) -> None:
    assert list(leaks.leaks(text, {})) == []


@pytest.mark.parametrize("name", ["key: RSA", "token", "key in a kubeconfig"])
def test_what_nobody_has_told_is_found_by_its_shape(name: str) -> None:
    assert list(leaks.leaks(MATERIAL[name][2], {}))
    assert name == "key in a kubeconfig" or list(leaks.leaks(_encoded("a" + MATERIAL[name][2]), {}))
    assert list(leaks.leaks("--token abcdef.0123456789abcdef", {}))


def test_a_finding_says_where_and_never_what() -> None:
    found = list(leaks.leaks(f"one\n{TOKEN}\n", _values("token")))
    assert found == ["line 2: a token", "line 2: the value of a/s/token"]


def _archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


ON_HOST = {
    "etc/karmada/prod/etcd/server.key": _pem("elliptic, PKCS 8"),
    "etc/karmada/prod/etcd/server.crt": _certificate(RSA),
    "etc/karmada/prod/agent/kubeconfig": KUBECONFIG,
    "etc/karmada/prod/apiserver/encryption.yaml": f"keys:\n  - name: k\n    secret: {SECRET}\n",
    "etc/karmada/prod/haproxy/haproxy.cfg": "server karmada-prod-apiserver-0123456789 192.0.2.10:5443",
    "var/lib/karmada-installer/prod/instance.json": json.dumps(
        {"encryptionKey": SECRET, "owner": "0e984725-c51c-4bf4"}
    ),
    "var/lib/karmada-installer/prod/journal.json": json.dumps({"run": _drawn(40)}),
}


def test_files_of_a_host_that_hold_keys_are_known_by_what_they_hold() -> None:
    values = leaks.values_in(leaks.holding_keys(_archive(ON_HOST)))
    assert sorted(values) == [
        "/etc/karmada/prod/agent/kubeconfig",
        "/etc/karmada/prod/apiserver/encryption.yaml",
        "/etc/karmada/prod/etcd/server.key",
        "/var/lib/karmada-installer/prod/instance.json/encryptionKey",
    ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``leaks.py`` with these arguments, on a cluster and a host of which one has secrets."""
    monkeypatch.chdir(tmp_path)
    secrets = {"full": [_secret(token=TOKEN)], "empty": [_secret(ca_crt=_certificate(EC))]}
    monkeypatch.setattr(leaks, "_secrets_in", lambda kubeconfig: secrets[kubeconfig])
    archives = {"cp1": ON_HOST, "bare": {"etc/karmada/x": "x"}}
    monkeypatch.setattr(leaks, "_on_host", lambda _lab, host: leaks.holding_keys(_archive(archives[host])))

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["leaks.py", *arguments])
        return leaks.main()

    return call


def test_what_is_remembered_is_found_later_and_adds_up(run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ssh").write_text(_pem("SSH"))
    assert run("remember", "values", "--cluster=c=full") == 0
    assert run("remember", "values", "--host=cp1", "--file=ssh") == 0
    assert stat.S_IMODE((tmp_path / "values").stat().st_mode) == 0o600
    capsys.readouterr()
    (tmp_path / "quiet.log").write_text("TASK [x]\n")
    assert run("look", "values", "quiet.log") == 0
    for planted in (TOKEN, _pem("elliptic"), SECRET, _pem("SSH").splitlines()[2]):
        (tmp_path / "loud.log").write_text(f"TASK [x]\n{_encoded(planted)}\n")
        assert run("look", "values", "quiet.log", "loud.log") == 1
        assert planted not in capsys.readouterr().out


@pytest.mark.parametrize("place", ["--cluster=c=empty", "--host=bare", "--file=ssh"])
def test_a_place_without_a_secret_is_an_error(run, tmp_path: Path, place: str) -> None:
    (tmp_path / "ssh").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBl4 lab")
    assert run("remember", "values", "--cluster=c=full", place) == 2
    assert not (tmp_path / "values").exists()


def test_nothing_to_look_for_is_an_error(run, tmp_path: Path) -> None:
    (tmp_path / "values").write_text("{}")
    (tmp_path / "quiet.log").write_text("")
    assert run("look", "values", "quiet.log") == 2


def test_a_key_that_was_renewed_is_looked_for_beside_the_one_before(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for token in (old := TOKEN[:-9] + "otherone1", TOKEN):
        monkeypatch.setattr(leaks, "_secrets_in", lambda _kubeconfig, token=token: [_secret(token=token)])
        assert run("remember", "values", "--cluster=c=full") == 0
    (tmp_path / "log").write_text(_encoded(old))
    assert run("look", "values", "log") == 1


def _planted(root: Path, *places: str) -> bytes:
    """What is packed of a host that has the key in these files, and much else that is none."""
    for place in (*places, "var/log/quiet.log", "etc/hosts"):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(_pem("elliptic") if place in places else "127.0.0.1 localhost")
    return subprocess.run(["sh", "-c", leaks.packing_elsewhere(str(root))], check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    "place",
    [
        *("home/lab/.ansible/tmp/one/source", "tmp/x", "run/user/0/.state.json", "dev/shm/y", "var/tmp/z"),
        *("var/log/journal/a", "etc/systemd/system/karmada.service", "root/.bash_history", "etc/karmada-copy/a.key"),
    ],
)
def test_a_key_outside_of_the_folders_of_control_planes_is_found_on_a_host(tmp_path: Path, place: str) -> None:
    values = leaks.values_in({"etc/karmada/prod/etcd/server.key": _pem("elliptic").encode()})
    found = leaks.elsewhere(_planted(tmp_path, place), values)
    assert found
    assert all(each.startswith(f"/{place}: ") for each in found)


def test_where_control_planes_have_their_keys_is_not_elsewhere(tmp_path: Path) -> None:
    places = ("etc/karmada/prod/a.key", "var/lib/karmada-installer/prod/state/b.key", "var/lib/karmada/prod/etcd/c")
    values = leaks.values_in({"etc/karmada/prod/a.key": _pem("elliptic").encode()})
    assert leaks.elsewhere(_planted(tmp_path, *places), values) == []


def test_a_host_is_looked_at_for_the_values_that_are_remembered(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("remember", "values", "--cluster=c=full") == 0
    packed = {"sound": _archive({"tmp/x": "x"}), "leaky": _archive({"tmp/x": f"x\n{_encoded(TOKEN)}"})}
    monkeypatch.setattr(leaks, "_packed", lambda _lab, host, _pack: packed[host])
    assert run("look", "values", "--host=sound") == 0
    assert run("look", "values", "--host=sound", "--host=leaky") == 1
    told = capsys.readouterr().out
    assert "host leaky: /tmp/x: line 2: the value of cluster c" in told
    assert TOKEN not in told


def test_no_place_to_look_at_is_an_error(run) -> None:
    assert run("remember", "values", "--cluster=c=full") == 0
    assert run("look", "values") == 2


def test_the_first_line_of_a_key_of_openssh_is_that_of_any_other() -> None:
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    ours = leaks.texts_of(_pem("SSH").encode())
    assert ours
    assert not [each for each in ours if each in other.decode()]
    assert [each for each in ours if each in _pem("SSH")], "its other lines are looked for"
