# SPDX-License-Identifier: Apache-2.0
"""Variables K8S_AUTH_*, by which AWX and kubernetes.core name a cluster, as entries of a kubeconfig.

Values are checked here, so that a problem names the variable. Those that may be secret are never quoted.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from .. import private_file
from ..encoding import base64_text
from ..problems import Problem, Reason, Severity
from . import kubeconfig_fields as fields

PREFIX = "K8S_AUTH_"
#: Beginning of the place of a problem with one variable.
PLACE = "environment variable "
#: Setting → what its variable is called after the prefix. Of two, the first that is not empty counts.
_NAMES = {
    "kubeconfig": ("KUBECONFIG",),
    "context": ("CONTEXT",),
    "host": ("HOST",),
    "api_key": ("API_KEY",),
    "username": ("USERNAME",),
    "password": ("PASSWORD",),
    "verify": ("VALIDATE_CERTS", "VERIFY_SSL"),
    "ca": ("CA_CERT", "SSL_CA_CERT"),
    "certificate": ("CLIENT_CERT", "CERT_FILE"),
    "key": ("CLIENT_KEY", "KEY_FILE"),
    "proxy": ("PROXY",),
    "no_proxy": ("NO_PROXY",),
    "as_user": ("IMPERSONATE_USER",),
    "as_groups": ("IMPERSONATE_GROUPS",),
}
#: Values by which kubernetes.core takes a switch for off.
_OFF = ("0", "false", "no")


@dataclass(frozen=True)
class Settings:
    """Settings of the environment. ``cluster`` and ``user`` are the entries of a kubeconfig that they make.

    ``named`` has the variable behind each setting, ``no_proxy`` the hosts that are reached without any proxy.
    """

    kubeconfig: str | None = None
    context: str | None = None
    cluster: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    no_proxy: str = ""

    @property
    def has_credential(self) -> bool:
        """True if they say who asks, be it for this server or for that of a kubeconfig."""
        return any(key in self.user for key in ("token", "username", "client-key-data"))

    @property
    def is_whole(self) -> bool:
        """True if they name a server and a credential, so that no kubeconfig is needed."""
        return "server" in self.cluster and self.has_credential

    @property
    def unused_in_pod(self) -> tuple[str, ...]:
        """Variables that would have no effect on the account of a pod, whose server and CA are known."""
        return tuple(name for setting, name in self.named.items() if setting not in ("verify", "no_proxy"))

    def place(self, setting: str) -> str:
        """Place of a problem with a setting that is there."""
        return PLACE + self.named[setting]

    def laid_over(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Entries of a kubeconfig with these settings in their place. A credential replaces the other as a whole."""
        return {**cluster, **self.cluster}, {**({} if self.has_credential else user), **self.user}

    def is_direct(self, server: str) -> bool:
        """Return whether the address is among those that are reached without a proxy: by name, domain or network."""
        host = urlsplit(server).hostname or ""
        if not self.no_proxy:
            return False
        by_name: bool = urllib.request.proxy_bypass_environment(host, {"no": self.no_proxy})  # type: ignore[attr-defined]  # typeshed lacks it
        return by_name or any(_is_in(host, each.strip()) for each in self.no_proxy.split(","))


def _is_in(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def settings(environment: Mapping[str, str]) -> Settings:
    """Settings in the environment. Raises ProblemsError naming the variable that is wrong."""
    named = {}
    for setting, names in _NAMES.items():
        there = (f"{PREFIX}{name}" for name in names if environment.get(f"{PREFIX}{name}"))
        if found := next(there, ""):
            named[setting] = found
    value = {setting: environment[name] for setting, name in named.items()}
    cluster: dict[str, Any] = {}
    if "host" in named:
        cluster["server"] = fields.address(environment, named["host"], ("https", "http"), PLACE)
        if "@" in urlsplit(environment[named["host"]]).netloc:
            # Addresses are shown, and a password in one would be.
            remedy = f"Put the name into {PREFIX}USERNAME and the password into {PREFIX}PASSWORD."
            raise fields.problem("has a login in it, which no API server takes", PLACE + named["host"], remedy)
    if "ca" in named:
        cluster["certificate-authority-data"] = base64_text(_content(environment, named["ca"]))
    if "verify" in named:
        cluster["insecure-skip-tls-verify"] = is_off(environment)
    if "proxy" in named:
        cluster["proxy-url"] = fields.address(environment, named["proxy"], ("http", "https", "socks5"), PLACE)
    return Settings(
        kubeconfig=value.get("kubeconfig"),
        context=value.get("context"),
        cluster=cluster,
        user=_user(environment, named),
        named=named,
        no_proxy=value.get("no_proxy", ""),
    )


def _user(environment: Mapping[str, str], named: Mapping[str, str]) -> dict[str, Any]:
    user: dict[str, Any] = {}
    pairs = (("username", "password"), ("certificate", "key"))
    for one, other in pairs:
        if (one in named) != (other in named):
            there, missing = (one, other) if one in named else (other, one)
            raise fields.problem(
                f"is set, and {PREFIX}{_NAMES[missing][-1]} is not", PLACE + named[there], "Set both, or neither."
            )
    if "api_key" in named:
        user["token"] = fields.visible(environment, named["api_key"], PLACE)
    if "username" in named:
        user["username"], user["password"] = environment[named["username"]], environment[named["password"]]
    if "certificate" in named:
        user["client-certificate-data"] = base64_text(_content(environment, named["certificate"]))
        user["client-key-data"] = base64_text(_content(environment, named["key"]))
    if "as_user" in named:
        user["as"] = fields.visible(environment, named["as_user"], PLACE)
    if "as_groups" in named:
        if "as_user" not in named:
            what = f"is set, and {PREFIX}IMPERSONATE_USER is not: no API server takes groups without a user"
            raise fields.problem(what, PLACE + named["as_groups"], "Set both, or neither.")
        groups = [each.strip() for each in environment[named["as_groups"]].split(",")]
        user["as-groups"] = [
            each for each in groups if fields.visible({named["as_groups"]: each}, named["as_groups"], PLACE)
        ]
    return user


def _content(environment: Mapping[str, str], name: str) -> bytes:
    text = fields.file_text(private_file.expanded(environment[name]), PLACE + name)
    if not text.strip():
        # It would count as not given: another CA, or nobody, would take its place.
        raise fields.problem("names a file with nothing in it", PLACE + name, "Fill the file, or unset the variable.")
    return text.encode()


def _switch(environment: Mapping[str, str]) -> str:
    """Variable that decides on the verification of certificates; empty if none is set."""
    return next((f"{PREFIX}{name}" for name in _NAMES["verify"] if environment.get(f"{PREFIX}{name}")), "")


def is_off(environment: Mapping[str, str]) -> bool:
    """Return whether the environment switches the verification of certificates off."""
    return environment.get(_switch(environment), "").lower() in _OFF


def unverified(environment: Mapping[str, str]) -> Problem | None:
    """Warning if the environment switches the verification of certificates off; None if it does not."""
    if not is_off(environment):
        return None
    return Problem(
        "it switches off the verification of the API server's certificate: whoever answers at that address gets the "
        "credential and all keys of the control plane. AWX sets it when its credential has no CA, whatever is ticked "
        "there, and when Verify SSL is not ticked",
        PLACE + _switch(environment),
        "In AWX, put the API server's CA into the credential (Certificate Authority data) and tick Verify SSL. "
        f"Elsewhere, unset it, and name the file of the CA in {PREFIX}SSL_CA_CERT.",
        reason=Reason.INSECURE_CONNECTION,
        severity=Severity.WARNING,
    )
