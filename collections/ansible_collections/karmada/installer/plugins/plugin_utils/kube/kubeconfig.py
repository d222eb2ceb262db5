# SPDX-License-Identifier: Apache-2.0
"""Access to one API server, read from a kubeconfig and held in memory.

Certificates and tokens are read here instead of by ``kubernetes.config``, whose loader writes keys to temporary files
that stay behind in forked Ansible workers, goes on without a user when the context names a missing one, only logs the
failure of an exec plugin, and waits for one without a timeout.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from urllib3 import HTTPHeaderDict

from .. import private_file
from ..problems import Problem, ProblemsError, Reason
from . import k8s_auth
from . import kubeconfig_fields as fields
from .credentials import EXPIRY_MARGIN_SECONDS, Credential, from_token_file, lasting_until, of_user
from .kubeconfig_fields import Origin, problem, reason

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass
class Access:
    """Access to one API server: address, trust and identity. ``load`` returns the identity and runs again on expiry.

    ``insecure``: the server's certificate is not verified. ``ca_pem`` are the CAs that may have signed it; None means
    this machine's trust store. ``given_by`` is the variable of the environment that named the server, ``insecure_by``
    the one that switched the verification off; both are empty where a kubeconfig did. ``direct``: no proxy is used,
    also not that of HTTPS_PROXY.
    """

    server: str
    context: ssl.SSLContext
    load: Callable[[], Credential]
    tls_server_name: str | None = None
    proxy: str | None = None
    insecure: bool = False
    extra_headers: tuple[tuple[str, str], ...] = ()
    ca_pem: str | None = None
    given_by: str = ""
    insecure_by: str = ""
    direct: bool = False
    _credential: Credential | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def headers(self) -> HTTPHeaderDict:
        """HTTP headers with our identity, which is renewed when it is about to expire. One may stand there twice."""
        with self._lock:
            current = self._credential
            if current is None or (current.expires and current.expires - EXPIRY_MARGIN_SECONDS < time.time()):
                current = self._renew()
            found = HTTPHeaderDict(self.extra_headers)
            if current.authorization:
                found["Authorization"] = current.authorization
            return found

    def prepare(self) -> None:
        """Load the identity so that the TLS context is complete before the first connection."""
        self.headers()

    def expiry(self) -> float | None:
        """End, in Unix time, of an identity that is not renewed here; None if it is renewed or states no end."""
        with self._lock:
            current = self._credential
        return lasting_until(current) if current else None

    def refresh(self) -> bool:
        """Load the identity again after it was refused; returns whether it differs."""
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
    """Access to the cluster in which this process runs as a pod. Raises ProblemsError outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (SERVICE_ACCOUNT / "token").is_file():
        raise ProblemsError(
            Problem(
                "no kubeconfig was given and this process does not run in a pod with a service account",
                "KUBECONFIG",
                "Name a kubeconfig file, or set KUBECONFIG. In AWX, give the job template and the inventory source a "
                "credential of the cluster.",
                reason=Reason.KUBECONFIG_NOT_FOUND,
            )
        )
    host = f"[{host}]" if ":" in host else host
    context = tls_context((SERVICE_ACCOUNT / "ca.crt").read_text(), str(SERVICE_ACCOUNT / "ca.crt"))
    return Access(f"https://{host}:{port}", context, _of_this_pod)


def _of_this_pod() -> Credential:
    token = str(SERVICE_ACCOUNT / "token")
    return from_token_file(fields.file_text(Path(token), token), token)


def from_parts(
    server: str,
    *,
    ca_pem: str | None,
    cert_pem: str | None = None,
    key_pem: str | None = None,
    token: str | None = None,
    tls_server_name: str | None = None,
) -> Access:
    """Access from PEM texts. ``ca_pem`` None means this machine's trust store."""
    credential = Credential(f"Bearer {token}" if token else None, cert_pem, key_pem)
    context = tls_context(ca_pem, server)
    access = Access(server.rstrip("/"), context, lambda: credential, tls_server_name, ca_pem=ca_pem)
    access.prepare()
    return access


def from_file(path: str | None, context: str | None, *, prepared: bool = True) -> Access:
    """Access from a kubeconfig file; None means what the environment names, see ``from_environment``.

    Without ``prepared`` it is to be looked at, and no identity is loaded. Raises ProblemsError naming the file and what
    is wrong in it.
    """
    if path is None:
        return from_environment(context, prepared=prepared)
    file = private_file.expanded(path)
    return from_dict(_merged([file]), context, Origin(str(file)), prepared=prepared)


def from_environment(
    context: str | None = None, environment: Mapping[str, str] | None = None, *, prepared: bool = True
) -> Access:
    """Access that the environment names: by K8S_AUTH_* as kubernetes.core takes them, else like kubectl.

    K8S_AUTH_HOST with a credential needs no kubeconfig. Else it is the one of K8S_AUTH_KUBECONFIG, those of KUBECONFIG
    (merged like kubectl), or the default one, with the other K8S_AUTH_* in the place of its fields; else the service
    account of this pod. ``context`` was asked for by name, and is stronger than K8S_AUTH_CONTEXT. Raises ProblemsError.
    """
    environment = os.environ if environment is None else environment
    given = k8s_auth.settings(environment)
    _refuse_unusable(given)
    if given.is_whole:
        config, origin = _of_variables(given, context), Origin(f"environment variables {k8s_auth.PREFIX}*")
        access = from_dict(config, None, origin, prepared=prepared)
    elif files := _named_files(given, environment):
        context = context or given.context
        config, origin = _merged(files), Origin(os.pathsep.join(map(str, files)))
        access = from_dict(_laid_over(config, context, origin, given), context, origin, prepared=prepared)
    else:
        if given.unused_in_pod:
            raise _without_server(given.unused_in_pod)
        access = in_cluster()
        if context:
            raise problem(f"there is no context {context!r}: no kubeconfig was found", "context", "Name a kubeconfig.")
    if given.is_direct(access.server):
        access.proxy, access.direct = None, True
    access.given_by = given.place("host") if "server" in given.cluster else ""
    access.insecure_by = given.named["verify"] if given.cluster.get("insecure-skip-tls-verify") else ""
    return access


def _refuse_unusable(given: k8s_auth.Settings) -> None:
    """Raise ProblemsError, by the name of the variable, for certificates that cannot be used."""
    if "ca" in given.named:
        tls_context(base64.b64decode(given.cluster["certificate-authority-data"]).decode(), given.place("ca"))
    if "certificate" in given.named:
        cert, key = (base64.b64decode(given.user[f"client-{each}-data"]).decode() for each in ("certificate", "key"))
        load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert, key, given.place("certificate"))


def _named_files(given: k8s_auth.Settings, environment: Mapping[str, str]) -> list[Path]:
    """Kubeconfigs that are read, the strongest first; none if there is no kubeconfig."""
    if given.kubeconfig:
        # One that was named for Ansible has to be there; kubectl passes over those that are not.
        return _files(given.kubeconfig) or [Path(given.kubeconfig)]
    if "server" in given.cluster:
        raise _without_credential()
    if named := environment.get("KUBECONFIG"):
        return [file for file in _files(named) if _is_there(file)]
    default = private_file.expanded("~/.kube/config")
    # Not Path.exists(): before Python 3.12, it fails in the home folder of somebody else, such as the image's user.
    return [default] if os.access(default, os.F_OK) else []


def _files(named: str) -> list[Path]:
    return [private_file.expanded(part) for part in named.split(os.pathsep) if part]


def _is_there(file: Path) -> bool:
    """Return whether a file is there; one that nobody can look at counts, and its reader tells why."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _of_variables(given: k8s_auth.Settings, context: str | None) -> dict[str, Any]:
    """Kubeconfig of a server and a credential that the environment has. Raises ProblemsError if it has no contexts."""
    if context:
        raise problem(
            f"there is no context {context!r}: {k8s_auth.PREFIX}HOST and a credential lead to one server, without a "
            "kubeconfig",
            "context",
            f"Take context out, or give a kubeconfig in the place of {k8s_auth.PREFIX}HOST.",
        )
    cluster, user = given.laid_over({}, {})
    name = "given"
    return {
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _laid_over(config: dict[str, Any], context: str | None, origin: Origin, given: k8s_auth.Settings) -> dict[str, Any]:
    """Kubeconfig whose chosen context has the settings of the environment. One with problems is left as it is.

    What the context names and the kubeconfig lacks is no problem where the environment has all of it.
    """
    contexts = {entry["name"]: entry.get("context") for entry in fields.entries(config, "contexts", origin.where)}
    wanted = context or config.get("current-context")
    chosen = contexts.get(wanted) if isinstance(wanted, str) else None
    if not isinstance(chosen, dict):
        return config
    entries: dict[str, dict[str, Any]] = {}
    anonymous = chosen.get("user") in (None, "")
    for key, dispensable in (("cluster", "server" in given.cluster), ("user", given.has_credential or anonymous)):
        named = (entry for entry in fields.entries(config, f"{key}s", origin.where) if entry["name"] == chosen.get(key))
        found: dict[str, Any] = next(named, {"name": f"of {k8s_auth.PREFIX}*"} if dispensable else {})
        if not found or not isinstance(found.get(key) or {}, dict):
            return config
        entries[key] = found
    cluster, user = given.laid_over(entries["cluster"].get("cluster") or {}, entries["user"].get("user") or {})
    of_context = {"cluster": entries["cluster"]["name"], "user": entries["user"]["name"]}
    return {
        **config,
        "clusters": [{**entries["cluster"], "cluster": cluster}],
        "users": [{**entries["user"], "user": user}],
        "contexts": [{"name": wanted, "context": of_context}],
    }


def _without_credential() -> ProblemsError:
    return problem(
        "names a server, and nothing says who asks there",
        f"{k8s_auth.PLACE}{k8s_auth.PREFIX}HOST",
        f"Set {k8s_auth.PREFIX}API_KEY, or {k8s_auth.PREFIX}USERNAME and {k8s_auth.PREFIX}PASSWORD, or "
        f"{k8s_auth.PREFIX}CERT_FILE and {k8s_auth.PREFIX}KEY_FILE. A kubeconfig has to be named for Ansible: "
        f"{k8s_auth.PREFIX}KUBECONFIG.",
    )


def _without_server(names: Iterable[str]) -> ProblemsError:
    return problem(
        f"is set, and there is neither {k8s_auth.PREFIX}HOST nor a kubeconfig",
        f"{k8s_auth.PLACE}{', '.join(names)}",
        f"Set {k8s_auth.PREFIX}HOST or {k8s_auth.PREFIX}KUBECONFIG; or unset it, to use the account of this pod.",
    )


def _merged(files: Iterable[Path]) -> dict[str, Any]:
    """Kubeconfig of several files, as kubectl merges them."""
    merged: dict[str, Any] = {"clusters": [], "contexts": [], "users": []}
    for file in files:
        part = _read(file)
        for section in ("clusters", "contexts", "users"):
            known = {entry["name"] for entry in merged[section]}
            for entry in fields.entries(part, section, str(file)):
                if entry["name"] not in known:
                    merged[section].append({**entry, "base": file.parent})
        merged.setdefault("current-context", part.get("current-context") or None)
        if not merged["current-context"]:
            del merged["current-context"]
    return merged


def from_secret(
    keys: Mapping[str, bytes], context: str | None, where: str, folder: Path | None = None, secret: str = ""
) -> Access:
    """Access from a Secret: key ``kubeconfig``, or ``server``, ``token`` and ``ca.crt``.

    ``folder`` is the directory that stands for the Secret, if there is one; see ``Origin``. ``where`` is the field that
    names the Secret, ``secret`` its namespace and name. Raises ProblemsError, whatever the keys hold.
    """
    if "kubeconfig" in keys:
        origin = Origin(fields.place_of_key(where, "kubeconfig", folder, secret), keys, folder)
        return from_dict(fields.parsed(keys["kubeconfig"], origin.where), context, origin)
    missing = [key for key in ("server", "token", "ca.crt") if key not in keys]
    if missing:
        keeper = f"the directory {folder}, which stands for the Secret," if folder else "the Secret"
        raise problem(
            f"{keeper} has neither `kubeconfig` nor all of `server`, `token` and `ca.crt` "
            f"(missing: {', '.join(missing)})",
            where,
            f"Add one or the other{' as files' if folder else ''}.",
        )
    if context:
        raise problem(f"there is no context {context!r}: the Secret has no kubeconfig", where, "Take context out.")
    parts = {}
    key = f"{where}, key "
    for name in ("server", "token", "ca.crt"):
        try:
            parts[name] = keys[name].decode().strip()
        except UnicodeDecodeError:
            place = fields.place_of_key(where, name, folder, secret)
            raise problem("is not text", place, "Write it as text.") from None
    server = fields.address(parts, "server", ("https",), key)
    token = fields.visible(parts, "token", key)
    if not server or not token or not parts["ca.crt"]:
        raise problem("`server`, `token` or `ca.crt` of the Secret is empty", where, "Fill it.")
    return from_parts(server, ca_pem=parts["ca.crt"], token=token)


def from_host(content: bytes, context: str | None, where: str, file: str, server: str | None) -> Access:
    """Access from a kubeconfig that was read on a host; ``file`` names host and file for people.

    ``server`` replaces its address. Raises ProblemsError, whatever the content.
    """
    origin = Origin(f"{where}, {file}", keys={}, of_host=True)
    return from_dict(fields.parsed(content, origin.where), context, origin, server=server)


def from_dict(
    config: Mapping[str, Any],
    context: str | None,
    origin: Origin | None = None,
    *,
    prepared: bool = True,
    server: str | None = None,
) -> Access:
    """Access that a context of a kubeconfig describes (default: the current one); see ``from_file``.

    ``server`` replaces its address. Raises ProblemsError, whatever the content.
    """
    origin = origin or Origin()
    where = origin.where
    contexts = {entry["name"]: entry for entry in fields.entries(config, "contexts", where)}
    wanted = context or fields.value(config, "current-context", str, f"{where}: ")
    there = f"There are: {', '.join(sorted(contexts))}." if contexts else "It has no contexts at all."
    if not wanted:
        raise problem("no context was chosen and the file sets no current-context", where, there)
    if wanted not in contexts:
        raise problem(f"there is no context {wanted!r}", where, there)
    place = f"{where}: contexts[{wanted}].context"
    chosen = fields.value(contexts[wanted], "context", dict, f"{where}: contexts[{wanted}]") or {}
    cluster, base, cluster_place = _named(config, "clusters", "cluster", chosen, place, where)
    named = fields.address(cluster, "server", ("https", "http"), cluster_place)
    if not named:
        raise problem(f"cluster {chosen.get('cluster')!r} has no server address", where, "Set server: https://….")
    server = (server or named).rstrip("/")
    insecure = bool(fields.value(cluster, "insecure-skip-tls-verify", bool, cluster_place))
    ca = fields.pem(cluster, "certificate-authority", base, origin, cluster_place)
    user: Mapping[str, Any] = {}
    user_base, user_place = base, where
    if fields.value(chosen, "user", str, place):
        user, user_base, user_place = _named(config, "users", "user", chosen, place, where)
    public = {key: each for key, each in cluster.items() if key != "base"}
    access = Access(
        server,
        tls_context(ca, cluster_place, verify=not insecure, encrypted=server.startswith("https:")),
        lambda: of_user(user, user_base, origin, user_place, public),
        fields.visible(cluster, "tls-server-name", cluster_place),
        fields.address(cluster, "proxy-url", ("http", "https", "socks5"), cluster_place),
        insecure,
        _impersonated(user, user_place),
        ca,
    )
    # Missing files and failing plugins are problems of the kubeconfig: report them now, not at the first request.
    if prepared:
        access.prepare()
    return access


def _named(
    config: Mapping[str, Any], section: str, key: str, chosen: Mapping[str, Any], place: str, where: str
) -> tuple[Mapping[str, Any], Path, str]:
    """Entry that the context names in a section: its content, the directory of its file, and its path for people."""
    name = fields.value(chosen, key, str, place)
    for entry in fields.entries(config, section, where):
        if entry["name"] == name:
            base = entry.get("base")
            found = fields.value(entry, key, dict, f"{where}: {section}[{name}]") or {}
            # Only our own reader sets a Path; a field of this name in a kubeconfig is a string.
            return found, base if isinstance(base, Path) else Path(), f"{where}: {section}[{name}].{key}"
    known = ", ".join(sorted(entry["name"] for entry in fields.entries(config, section, where))) or "none"
    raise problem(f"the context names {key} {name!r}, which is not in {section}", place, f"There are: {known}.")


def _impersonated(user: Mapping[str, Any], place: str) -> tuple[tuple[str, str], ...]:
    for key in ("as-uid", "as-user-extra"):
        if user.get(key):
            raise problem("is not supported", f"{place}.{key}", "Use the credentials of an account of its own.")
    found, groups = fields.visible(user, "as", place), fields.texts(user, "as-groups", place)
    if groups and not found:
        raise problem("names groups without a user", f"{place}.as-groups", "Add the user: as: …")
    for each in groups:
        fields.visible({"as-groups": each}, "as-groups", place)
    return (*([("Impersonate-User", found)] if found else ()), *(("Impersonate-Group", each) for each in groups))


def tls_context(ca_pem: str | None, where: str, *, verify: bool = True, encrypted: bool = True) -> ssl.SSLContext:
    """TLS client context that trusts ``ca_pem``, or this machine's trust store when it is None.

    For an address without TLS (``encrypted`` is false) the trust store is not read, which takes 30 ms or more.
    """
    # Not create_default_context(): since Python 3.13 it refuses CAs that common Kubernetes tools make.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem is None:
        if encrypted:
            context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise problem(f"the CA certificate cannot be read ({reason(error)})", where, "It must be PEM.") from None
    return context


def load_client_certificate(context: ssl.SSLContext, cert_pem: str, key_pem: str, where: str) -> None:
    """Load a client certificate into the context without leaving the key on disk.

    Python loads keys from files only. On Linux that is an anonymous file in memory; elsewhere a file of mode 0600,
    removed at once.
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
        raise problem(
            f"the client certificate and key cannot be used ({reason(error)})",
            where,
            "Both must be PEM, the key without a passphrase, and they must belong together.",
        ) from None


def _no_password() -> str:
    """Callback for encrypted keys; without it OpenSSL would ask for the passphrase on the terminal."""
    raise ValueError("the key has a passphrase")


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(fields.MAX_BYTES + 1)
    except FileNotFoundError:
        raise problem(
            "there is no such kubeconfig file", str(file), "Name another one.", Reason.KUBECONFIG_NOT_FOUND
        ) from None
    except OSError as error:
        raise problem(f"the kubeconfig cannot be read ({reason(error)})", str(file), "See who may read it.") from None
    return fields.parsed(text, str(file))
