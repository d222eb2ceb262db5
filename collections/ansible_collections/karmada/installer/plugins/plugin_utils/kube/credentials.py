# SPDX-License-Identifier: Apache-2.0
"""Identity of a kubeconfig's user: a certificate, a token, or the output of an exec plugin."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from .. import run_process
from ..encoding import base64_text
from ..problems import ProblemsError, Reason
from ..redaction import redacted
from . import kubeconfig_fields as fields
from .kubeconfig_fields import Origin, problem

# Projected service-account tokens are rotated on disk well before they expire; a minute is what client-go uses.
TOKEN_FILE_SECONDS = 60.0
EXPIRY_MARGIN_SECONDS = 60.0
#: Timeout of an exec plugin; some ask a cloud service.
PROGRAM_SECONDS = 60.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass
class Credential:
    """Identity at one moment. ``expires`` is Unix time in seconds, or None if unknown."""

    authorization: str | None = None
    cert_pem: str | None = None
    key_pem: str | None = None
    expires: float | None = None


def from_token_file(text: str, where: str) -> Credential:
    """Credential for the content of a token file."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or not token:
        raise problem("the file does not hold a token", where, "Write one token into it.")
    return Credential(f"Bearer {token}", expires=time.time() + EXPIRY_MARGIN_SECONDS + TOKEN_FILE_SECONDS)


def lasting_until(credential: Credential) -> float | None:
    """Earliest end, in Unix time, of the client certificate and the token; None if neither states one.

    A credential that is renewed when it expires has no end here.
    """
    if credential.expires is not None:
        return None
    ends = []
    if credential.cert_pem:
        with contextlib.suppress(ValueError):
            ends.append(x509.load_pem_x509_certificate(credential.cert_pem.encode()).not_valid_after_utc.timestamp())
    if credential.authorization:
        ends += _end_of_token(credential.authorization.removeprefix("Bearer "))
    return min(ends, default=None)


def _end_of_token(token: str) -> list[float]:
    """Expiry of a JWT, as a list of at most one; empty for other tokens."""
    try:
        claims = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return [float(end)] if isinstance(end, int | float) else []
    except (ValueError, LookupError, TypeError, RecursionError):
        return []


def of_user(user: Mapping[str, Any], base: Path, origin: Origin, place: str, cluster: Mapping[str, Any]) -> Credential:
    """Credential of a kubeconfig user, in kubectl's order of preference; a certificate goes with any other.

    ``base`` is the directory of the kubeconfig, ``place`` the path of the user in it, ``cluster`` what exec plugins
    get.
    """
    cert = fields.pem(user, "client-certificate", base, origin, place)
    key = fields.pem(user, "client-key", base, origin, place)
    if bool(cert) != bool(key):
        there, missing = ("certificate", "key") if cert else ("key", "certificate")
        raise problem(f"the user has a client {there} and no client {missing}", place, "Put both there.")
    token_file = fields.value(user, "tokenFile", str, place)
    program = fields.value(user, "exec", dict, place)
    provider = fields.value(user, "auth-provider", dict, place)
    name = fields.value(user, "username", str, place)
    token = fields.visible(user, "token", place)
    if token_file:
        found = from_token_file(origin.text(token_file, base, f"{place}.tokenFile"), f"{place}.tokenFile")
    elif token:
        found = Credential(f"Bearer {token}")
    elif program:
        found = _run_program(program, base, origin, f"{place}.exec", cluster)
    elif provider:
        found = _ask_auth_provider(provider, origin, f"{place}.auth-provider")
    elif name:
        password = fields.value(user, "password", str, place) or ""
        found = Credential("Basic " + base64_text(f"{name}:{password}".encode(errors="replace")))
    else:
        found = Credential()
    if cert:
        found.cert_pem, found.key_pem = cert, key
    return found


def _unavailable(what: str, place: str, remedy: str = "") -> ProblemsError:
    """The problem of a program, or of a library, that gives no credentials."""
    return problem(what, place, remedy, Reason.CREDENTIALS_UNAVAILABLE)


def _run_program(
    plugin: Mapping[str, Any], base: Path, origin: Origin, place: str, cluster: Mapping[str, Any]
) -> Credential:
    """Run an exec plugin and read its ExecCredential, as client-go does, but without a terminal."""
    command = fields.value(plugin, "command", str, place)
    arguments = fields.texts(plugin, "args", place)
    version = fields.value(plugin, "apiVersion", str, place)
    variables = dict(fields.variables(plugin, "env", place))
    hint = (fields.value(plugin, "installHint", str, place) or "").strip()
    if not origin.runs_programs:
        origin_of = "of a host" if origin.of_host else "out of a Secret of a cluster"
        raise problem(
            f"a kubeconfig {origin_of} may not start programs on the machine where Ansible runs",
            place,
            "Give it the token of a service account, or a client certificate.",
        )
    if not command or any("\0" in each for each in (command, *arguments)):
        raise problem("names no command that can be started", place, "Set command: and args:.")
    if version not in _EXEC_VERSIONS:
        raise problem(f"the exec plugin {command!r} has no known apiVersion", place, f"Write {_EXEC_VERSIONS[0]}.")
    if plugin.get("interactiveMode") == "Always":
        raise _unavailable(f"the exec plugin {command!r} wants to ask somebody, and nobody is there", place, hint)
    # A path is relative to the kubeconfig; a bare name is looked up in PATH.
    found = str((origin.folder or base) / command) if "/" in command else command
    if shutil.which(found) is None:
        raise _unavailable(f"the exec plugin {command!r} is not on this machine", place, hint or "Install it.")
    about: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        about["cluster"] = dict(cluster)
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": about}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request, default=str)}
    answer = _output([found, *arguments], environment, f"the exec plugin {command!r} of the user", place, hint)
    return _credential_of(answer, str(version), f"the exec plugin {command!r} of the user", place)


def _output(command: list[str], environment: Mapping[str, str], who: str, place: str, hint: str) -> str:
    """Standard output of the program. On timeout its whole process group is killed."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=run_process.ends_with_us(),  # noqa: PLW1509 - one system call, resolved before
        )
    except (OSError, ValueError) as error:
        raise _unavailable(f"{who} cannot be started ({fields.reason(error)})", place, hint) from None
    try:
        output, errors = process.communicate(timeout=PROGRAM_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that left the session may keep the pipe open
            process.communicate(timeout=1)
        raise _unavailable(f"{who} did not answer within {PROGRAM_SECONDS:.0f} s", place, hint) from None
    if process.returncode != 0:
        said = redacted(errors.decode(errors="replace")).strip().splitlines()[-1:] or ["it printed no reason"]
        raise _unavailable(f"{who} failed with code {process.returncode}: {said[0][:300]}", place, hint)
    return output.decode(errors="replace")


def _credential_of(answer: str, version: str, who: str, place: str) -> Credential:
    """Credential in an ExecCredential. Raises ProblemsError if it holds none that can be used."""
    try:
        found = json.loads(answer)
        status = found["status"]
        texts = [status.get(key) for key in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")]
        fits = found["kind"] == "ExecCredential" and found["apiVersion"] == version
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fits, texts = False, []
    if not fits or not all(each is None or isinstance(each, str) for each in texts):
        raise _unavailable(f"{who} did not print an ExecCredential of {version}", place, "Run it by hand and see.")
    token, cert, key, expires = texts
    if not token and not (cert and key):
        raise _unavailable(
            f"{who} gave neither a token nor a certificate with its key", place, "Run it by hand and see."
        )
    if token and not (token.isascii() and token.isprintable()):
        raise _unavailable(f"{who} gave a token that cannot be sent", place, "Run it by hand and see.")
    return Credential(f"Bearer {token}" if token else None, cert, key, _seconds(expires))


def _seconds(timestamp: str | None) -> float | None:
    try:
        moment = datetime.fromisoformat(timestamp) if timestamp else None
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() if moment else None


def _ask_auth_provider(provider: Mapping[str, Any], origin: Origin, place: str) -> Credential:
    if origin.keys is not None:
        raise problem(
            "the user comes by an auth-provider, which only a kubeconfig of your own may have",
            place,
            "Use an exec plugin, the token of a service account, or a client certificate.",
        )
    # Imported only when needed: it costs 0.3 s.
    package = importlib.import_module("kubernetes.config.kube_config")
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {}}],
        "users": [{"name": "u", "user": {"auth-provider": provider}}],
    }
    configuration = package.Configuration()
    try:
        package.KubeConfigLoader(config).load_and_set(configuration)
    except Exception as error:  # noqa: BLE001 - the loader lets anything through that its HTTP and OAuth libraries raise
        raise _unavailable(f"the auth provider of the user failed: {type(error).__name__}", place) from None
    # The key of this entry was renamed between releases of the package.
    tokens = list(configuration.api_key.values())
    if not tokens:
        raise _unavailable("the auth provider of the user gave no token", place, "Use an exec plugin instead.")
    return Credential(str(tokens[0]), expires=time.time() + EXPIRY_MARGIN_SECONDS + TOKEN_FILE_SECONDS)
