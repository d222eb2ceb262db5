# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Which API server, trusted how, as whom: the parts of a kubeconfig that one connection needs, all held in memory.

Certificates and tokens are read here instead of by ``kubernetes.config``, whose loader writes keys to temporary files
that stay behind in forked Ansible workers, goes on without a user when the context names a missing one, and only logs
when an exec plugin fails. Exec plugins and auth providers still run through the kubernetes package.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import yaml_document
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Projected service-account tokens are rotated on disk well before they expire; a minute is what client-go uses.
TOKEN_FILE_SECONDS = 60.0
EXPIRY_MARGIN_SECONDS = 60.0


@dataclass
class Credential:
    """What identifies us at one moment. ``expires`` is Unix time in seconds, or None when it is not known."""

    authorization: str | None = None
    cert_pem: str | None = None
    key_pem: str | None = None
    expires: float | None = None


@dataclass
class Access:
    """How to reach one API server: address, trust and identity. ``load`` fetches the identity, anew when it expires."""

    server: str
    context: ssl.SSLContext
    load: Callable[[], Credential]
    tls_server_name: str | None = None
    proxy: str | None = None
    extra_headers: dict[str, str] = field(default_factory=dict)
    _credential: Credential | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def headers(self) -> dict[str, str]:
        """Headers that identify us; renews the identity when it is about to expire."""
        with self._lock:
            current = self._credential
            if current is None or (current.expires and current.expires - EXPIRY_MARGIN_SECONDS < time.time()):
                current = self._renew()
            found = dict(self.extra_headers)
            if current.authorization:
                found["Authorization"] = current.authorization
            return found

    def prepare(self) -> None:
        """Load the identity so that the TLS context is complete before the first connection."""
        self.headers()

    def refresh(self) -> bool:
        """Load the identity again after it was refused; True when that gave another one."""
        with self._lock:
            before = self._credential
            after = self._renew()
            return before is None or (before.authorization, before.cert_pem) != (after.authorization, after.cert_pem)

    def _renew(self) -> Credential:
        loaded = self.load()
        if loaded.cert_pem and (self._credential is None or self._credential.cert_pem != loaded.cert_pem):
            load_client_certificate(self.context, loaded.cert_pem, loaded.key_pem or loaded.cert_pem, self.server)
        self._credential = loaded
        return loaded


def in_cluster() -> Access:
    """The API server of the cluster this process runs in as a pod. Raises ProblemsError outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (SERVICE_ACCOUNT / "token").is_file():
        raise ProblemsError(
            Problem(
                "no kubeconfig was given and this process does not run in a pod with a service account",
                "KUBECONFIG",
                "Name a kubeconfig file, or set KUBECONFIG.",
            )
        )
    host = f"[{host}]" if ":" in host else host
    context = tls_context((SERVICE_ACCOUNT / "ca.crt").read_text(), str(SERVICE_ACCOUNT / "ca.crt"))
    return Access(f"https://{host}:{port}", context, lambda: _token_from_file(SERVICE_ACCOUNT / "token"))


def from_parts(
    server: str,
    *,
    ca_pem: str | None,
    cert_pem: str | None = None,
    key_pem: str | None = None,
    token: str | None = None,
    tls_server_name: str | None = None,
) -> Access:
    """An API server described by PEM texts. ``ca_pem`` None means the trust store of this machine."""
    credential = Credential(f"Bearer {token}" if token else None, cert_pem, key_pem)
    return Access(server.rstrip("/"), tls_context(ca_pem, server), lambda: credential, tls_server_name)


def from_file(path: str | None, context: str | None) -> Access:
    """Read a kubeconfig file, or the ones KUBECONFIG or the default place name (merged as kubectl does), or in-cluster.

    Raises ProblemsError naming the file and what is wrong in it.
    """
    if path is None:
        named = os.environ.get("KUBECONFIG") or os.environ.get("K8S_AUTH_KUBECONFIG") or "~/.kube/config"
        files = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        files = [file for file in files if file.exists()]
        if not files:
            return in_cluster()
    else:
        files = [Path(path).expanduser()]
    merged: dict[str, Any] = {"clusters": [], "contexts": [], "users": []}
    for file in files:
        part = _read(file)
        for section in ("clusters", "contexts", "users"):
            known = {entry["name"] for entry in merged[section]}
            for entry in _entries(part, section, str(file)):
                if entry["name"] not in known:
                    merged[section].append({**entry, "base": file.parent})
        merged.setdefault("current-context", part.get("current-context") or None)
        if not merged["current-context"]:
            del merged["current-context"]
    return from_dict(merged, context, os.pathsep.join(map(str, files)))


def from_dict(config: dict[str, Any], context: str | None, where: str = "kubeconfig") -> Access:
    """The access that a context (default: the current one) of this kubeconfig describes.

    Raises ProblemsError; ``where`` is what its problems name as the place.
    """
    contexts = {entry["name"]: entry for entry in _entries(config, "contexts", where)}
    wanted = context or config.get("current-context")
    there = f"There are: {', '.join(sorted(contexts))}." if contexts else "It has no contexts at all."
    if not wanted:
        raise _problem("no context was chosen and the file sets no current-context", where, there)
    if wanted not in contexts:
        raise _problem(f"there is no context {wanted!r}", where, there)
    chosen = contexts[wanted].get("context") or {}
    cluster, base = _named(config, "clusters", "cluster", chosen.get("cluster"), wanted, where)
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise _problem(f"cluster {chosen.get('cluster')!r} has no server address", where, "Set server: https://….")
    ca = _pem(cluster, "certificate-authority", base, where)
    tls = tls_context(ca, where, verify=not cluster.get("insecure-skip-tls-verify"))
    user: dict[str, Any] = {}
    user_base = base
    if chosen.get("user"):
        user, user_base = _named(config, "users", "user", chosen["user"], wanted, where)
    access = Access(
        server,
        tls,
        lambda: _credential(user, user_base, where, cluster),
        cluster.get("tls-server-name") or None,
        cluster.get("proxy-url") or None,
        {"Impersonate-User": str(user["as"])} if user.get("as") else {},
    )
    # Files that are missing and plugins that fail belong to the kubeconfig: say so now, not at the first request.
    access.prepare()
    return access


def tls_context(ca_pem: str | None, where: str, *, verify: bool = True) -> ssl.SSLContext:
    """A TLS client context that trusts ``ca_pem``, or this machine's trust store when it is None."""
    # Not create_default_context(): from Python 3.13 on it refuses CAs that Kubernetes tools commonly make.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise _problem(f"the CA certificate cannot be read ({_reason(error)})", where, "It must be PEM.") from None
    return context


def load_client_certificate(context: ssl.SSLContext, cert_pem: str, key_pem: str, where: str) -> None:
    """Give the context a client certificate without leaving the key on a disk.

    Python loads keys from files only. On Linux that is an anonymous file in memory; elsewhere a file that only we can
    read, removed at once.
    """
    text = f"{key_pem.strip()}\n{cert_pem.strip()}\n".encode()
    try:
        if hasattr(os, "memfd_create"):
            handle = os.memfd_create("client", os.MFD_CLOEXEC)
            try:
                os.write(handle, text)
                context.load_cert_chain(f"/proc/self/fd/{handle}", password=_no_password)
            finally:
                os.close(handle)
        else:
            with tempfile.NamedTemporaryFile(prefix="karmada-installer-") as file:  # mode 0600
                file.write(text)
                file.flush()
                context.load_cert_chain(file.name, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise _problem(
            f"the client certificate and key cannot be used ({_reason(error)})",
            where,
            "Both must be PEM, the key without a passphrase, and they must belong together.",
        ) from None


def _no_password() -> str:
    """OpenSSL would ask on the terminal for the passphrase of a key; nobody is there to answer."""
    raise ValueError("the key has a passphrase")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__


def _problem(what: str, where: str, remedy: str = "") -> ProblemsError:
    return ProblemsError(Problem(what, where, remedy))


def _read(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml_document.load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _problem("there is no such kubeconfig file", str(file)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _problem(f"the kubeconfig cannot be read ({_reason(error)})", str(file)) from None
    except yaml.YAMLError as error:
        # Only the position: the error's text quotes the line, which may be a key.
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise _problem(f"the kubeconfig is not YAML{line}", str(file)) from None
    if not isinstance(loaded, dict):
        raise _problem("this is not a kubeconfig: expected a mapping with clusters, users and contexts", str(file))
    return loaded


def _entries(config: dict[str, Any], section: str, where: str) -> list[dict[str, Any]]:
    entries = config.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(e, dict) and "name" in e for e in entries):
        raise _problem(f"{section} must be a list of entries with a name", where)
    return entries


def _named(
    config: dict[str, Any], section: str, key: str, name: str | None, context: str, where: str
) -> tuple[dict[str, Any], Path]:
    for entry in _entries(config, section, where):
        if entry["name"] == name:
            return entry.get(key) or {}, Path(entry.get("base") or ".")
    raise _problem(f"context {context!r} names {key} {name!r}, which is not in {section}", where)


def _pem(entry: dict[str, Any], key: str, base: Path, where: str) -> str | None:
    if entry.get(f"{key}-data"):
        try:
            return base64.b64decode(entry[f"{key}-data"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, TypeError):
            raise _problem(f"{key}-data is not base64 of a PEM text", where) from None
    if entry.get(key):
        return _text(base / Path(entry[key]).expanduser(), f"{key} in {where}")
    return None


def _text(file: Path, named_by: str) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({_reason(error)})"
        raise _problem(f"{file} {what}", named_by) from None


def _token_from_file(file: Path, named_by: str = "token file") -> Credential:
    token = _text(file, named_by).strip()
    return Credential(f"Bearer {token}", expires=time.time() + EXPIRY_MARGIN_SECONDS + TOKEN_FILE_SECONDS)


def _credential(user: dict[str, Any], base: Path, where: str, cluster: dict[str, Any]) -> Credential:
    """The identity of a kubeconfig user, in kubectl's order of preference; a certificate goes with any other."""
    cert, key = _pem(user, "client-certificate", base, where), _pem(user, "client-key", base, where)
    if cert and not key:
        raise _problem("the user has a client certificate and no client key", where)
    if user.get("tokenFile"):
        found = _token_from_file(base / Path(user["tokenFile"]).expanduser(), f"tokenFile in {where}")
    elif user.get("token"):
        found = Credential(f"Bearer {user['token']}")
    elif user.get("exec"):
        found = _run_exec_plugin(user["exec"], base, where, cluster)
    elif user.get("auth-provider"):
        found = _ask_auth_provider(user, where)
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        found = Credential("Basic " + base64.b64encode(pair).decode())
    else:
        found = Credential()
    if cert:
        found.cert_pem, found.key_pem = cert, key
    return found


def _kubernetes_config() -> Any:
    """The package's loader, imported only when needed: it costs 0.3 s."""
    return importlib.import_module("kubernetes.config.kube_config")


def _run_exec_plugin(plugin: dict[str, Any], base: Path, where: str, cluster: dict[str, Any]) -> Credential:
    package = _kubernetes_config()
    command = plugin.get("command")
    arguments = [package.ConfigNode("exec", plugin), str(base)]
    if plugin.get("provideClusterInfo"):
        public = {key: value for key, value in cluster.items() if key != "base"}
        arguments.append(package.ConfigNode("cluster", public))
    try:
        status = package.ExecProvider(*arguments).run()
    except (package.ConfigException, OSError) as error:
        raise _problem(
            f"the exec plugin {command!r} of the user failed: {error}", where, plugin.get("installHint") or ""
        ) from None
    except TypeError:
        raise _problem(
            f"the exec plugin {command!r} of the user wants provideClusterInfo",
            where,
            "Install a newer kubernetes package: this one cannot.",
        ) from None
    expires = status.get("expirationTimestamp")
    token = status.get("token")
    if not token and not status.get("clientCertificateData"):
        raise _problem(f"the exec plugin {command!r} of the user gave neither a token nor a certificate", where)
    return Credential(
        f"Bearer {token}" if token else None,
        status.get("clientCertificateData"),
        status.get("clientKeyData"),
        package.parse_rfc3339(expires).timestamp() if expires else None,
    )


def _ask_auth_provider(user: dict[str, Any], where: str) -> Credential:
    package = _kubernetes_config()
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {}}],
        "users": [{"name": "u", "user": {"auth-provider": user["auth-provider"]}}],
    }
    configuration = package.Configuration()
    try:
        package.KubeConfigLoader(config).load_and_set(configuration)
    except Exception as error:  # noqa: BLE001 - the loader lets anything through that its HTTP and OAuth libraries raise
        raise _problem(f"the auth provider of the user failed: {type(error).__name__}", where) from None
    # The key of this entry was renamed between releases of the package.
    tokens = list(configuration.api_key.values())
    if not tokens:
        raise _problem("the auth provider of the user gave no token", where, "Use an exec plugin instead.")
    return Credential(str(tokens[0]), expires=time.time() + EXPIRY_MARGIN_SECONDS + TOKEN_FILE_SECONDS)
