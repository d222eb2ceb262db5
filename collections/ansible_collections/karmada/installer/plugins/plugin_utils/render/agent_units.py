# SPDX-License-Identifier: Apache-2.0
"""The karmada-agent of a member as a unit of plain hosts: what it has there that no other component has.

Its identity in the control plane stays where the agent renews it, in a Secret on the member. Each start fetches it from
there, with the account that the agent has on its member anyway, so no run of the installer carries it to a host. It is
certificate and key, and nothing else: others may write that Secret, too, so where the control plane is and who has
signed for it stands in a file of ours.
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
from ..components.types import MEMBER_NAMESPACE, Component, Layout
from ..encoding import base64_text
from ..pki import kubeconfig as pki_kubeconfig
from ..pki import x509
from ..pki.files import CLUSTER_NAME, MEMBER_CONFIG
from . import unit_text, units

#: Where every host with systemd has it; the modules of this collection are run with it, too.
PYTHON = "/usr/bin/python3"
_PROGRAM = "fetch_identity.py"
#: Certificate and key in one file, which is replaced as a whole.
_PAIR = "identity.pem"
#: The agent renews its certificate when a fifth of its time is left, and reads it when it starts only. So it starts
#: anew each time that this part of the validity has passed: a renewed one is in use long before the former one ends.
_LIFETIMES, _SHORTEST_SECONDS = 20, 60


@dataclass(frozen=True, repr=False)
class AgentAccess:
    """How an agent on hosts gets to its member: a kubeconfig in JSON. Has no representation, because it holds a token.

    ``identity`` changes with what the installer wrote of its identity in the control plane (``agent.config_hash``).
    """

    kubeconfig: bytes
    identity: str

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> AgentAccess:
        """From its plain form."""
        return cls(base64.b64decode(plain["kubeconfig"]), str(plain["identity"]))

    @property
    def plain(self) -> dict[str, str]:
        """As one step of a run hands it on to the next."""
        return {"kubeconfig": base64_text(self.kubeconfig), "identity": self.identity}

    @property
    def server(self) -> str:
        """The address of the member's API server."""
        return str(json.loads(self.kubeconfig)["clusters"][0]["cluster"]["server"])


def addition(
    instance: Instance, component: Component, where: Layout, access: AgentAccess, server: str, ca_pem: bytes
) -> units.Addition:
    """The program that fetches the identity, and the lines of the unit that run it and start the agent anew in time.

    ``server`` is the URL of the control plane, ``ca_pem`` the authority that its certificate is from.
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


def seconds_between_starts(spec: Mapping[str, Any]) -> int:
    """How long an agent runs before it starts anew, and so takes up a renewed certificate."""
    validity = x509.parse_duration(spec["certificates"]["validity"])
    return max(_SHORTEST_SECONDS, int(validity.total_seconds()) // _LIFETIMES)


def _control_plane(member: str, server: str, ca_pem: bytes, pair: str) -> bytes:
    """The agent's kubeconfig of the control plane, in JSON; ``pair`` is the path of its certificate and key."""
    config = pki_kubeconfig.kubeconfig(CLUSTER_NAME, server, ca_pem, member, "", context=member)
    config["users"] = [{"name": member, "user": {"client-certificate": pair, "client-key": pair}}]
    return json.dumps(config, indent=1).encode()


@functools.cache
def _program() -> bytes:
    return Path(agent_identity.__file__).read_bytes()
