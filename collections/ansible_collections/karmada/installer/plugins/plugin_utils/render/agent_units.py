# SPDX-License-Identifier: Apache-2.0
"""The karmada-agent of a member as a unit of plain hosts: additions to what every component has there.

The agent renews its identity in the control plane in a Secret on the member. Each start fetches it from there, with the
account that the agent has on its member anyway, so no run of the installer has to bring it to a host. Only certificate
and key are used: others may write that Secret, too, so address and authority of the control plane come from a file of
ours.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import agent_identity

from ..components.flags import AGENT_IDENTITY, CONTROL_PLANE_CONFIG
from ..components.instance import Instance
from ..components.spec import Spec
from ..components.types import MEMBER_NAMESPACE, Component, Layout
from ..encoding import base64_text
from ..pki import kubeconfig as pki_kubeconfig
from ..pki import x509
from ..pki.files import CLUSTER_NAME, MEMBER_CONFIG
from . import unit_text, units

#: Path on every host with systemd; the modules of this collection use it, too.
PYTHON = "/usr/bin/python3"
_PROGRAM = "fetch_identity.py"
#: Certificate and key in one file, which is replaced atomically.
_PAIR = "identity.pem"
#: The agent renews its certificate when a fifth of its validity is left, and reads it only at its start. So it restarts
#: every twentieth of the validity: a renewed certificate is in use long before the former one expires.
_LIFETIMES, _SHORTEST_SECONDS = 20, 60


@dataclass(frozen=True, repr=False)
class AgentAccess:
    """Access of an agent on hosts to its member: a kubeconfig in JSON. Has no repr, because it holds a token.

    ``identity`` is the hash of its identity in the control plane, as the installer wrote it (``agent.config_hash``).
    """

    kubeconfig: bytes
    identity: str

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> AgentAccess:
        """Access from its ``plain`` form."""
        return cls(base64.b64decode(plain["kubeconfig"]), str(plain["identity"]))

    @property
    def plain(self) -> dict[str, str]:
        """JSON form, in which one step of a run passes it to the next."""
        return {"kubeconfig": base64_text(self.kubeconfig), "identity": self.identity}

    @property
    def server(self) -> str:
        """URL of the member's API server."""
        return str(json.loads(self.kubeconfig)["clusters"][0]["cluster"]["server"])


def addition(
    instance: Instance, component: Component, where: Layout, access: AgentAccess, server: str, ca_pem: bytes
) -> units.Addition:
    """Program that fetches the identity, and the lines of the unit that run it and restart the agent in time.

    ``server`` is the URL of the control plane, ``ca_pem`` the authority of its certificate.
    """
    program, pair = where.path(_PROGRAM), f"{where.runtime}/{_PAIR}"
    fetch = [
        *(PYTHON, "-I", "-B", program),
        *(where.path("member", MEMBER_CONFIG), MEMBER_NAMESPACE, AGENT_IDENTITY, pair),
    ]
    user = units.user_name(instance, component)
    config = _control_plane(component.member, server, ca_pem, pair)
    return units.Addition(
        files=[
            units.configuration_file(program, _program(), user),
            units.configuration_file(where.path(CONTROL_PLANE_CONFIG), config, user),
        ],
        service=[
            ("RuntimeDirectory", units.runtime_folder(instance, component)),
            ("RuntimeDirectoryMode", "0700"),
            ("ExecStartPre", " ".join(unit_text.argument(part) for part in fetch)),
            ("RuntimeMaxSec", str(seconds_between_starts(instance.spec))),
        ],
        programs=[PYTHON],
        read_at_start=access.identity,
    )


def seconds_between_starts(spec: Spec) -> int:
    """Seconds after which an agent restarts, and so uses a renewed certificate."""
    validity = x509.parse_duration(spec.certificates.validity)
    return max(_SHORTEST_SECONDS, int(validity.total_seconds()) // _LIFETIMES)


def _control_plane(member: str, server: str, ca_pem: bytes, pair: str) -> bytes:
    """Kubeconfig of the agent for the control plane, in JSON; ``pair`` is the path of its certificate and key."""
    config = pki_kubeconfig.kubeconfig(CLUSTER_NAME, server, ca_pem, member, "", context=member)
    config["users"] = [{"name": member, "user": {"client-certificate": pair, "client-key": pair}}]
    return json.dumps(config, indent=1).encode()


@functools.cache
def _program() -> bytes:
    return Path(agent_identity.__file__).read_bytes()
