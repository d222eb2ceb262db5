# SPDX-License-Identifier: Apache-2.0
"""Connection tests from a plain host to its targets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _host_reach
short_description: "Inner step on a host: try whether a host reaches others by TLS"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Connects to all targets at once and looks whether their certificates are right, as components of Kubernetes would.
    Nothing is sent but what begins a connection. What cannot be reached does not fail the task.
options:
  targets:
    description: What to try.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: By what name it is in the result.
        type: str
        required: true
      url:
        description: For people. It is not used.
        type: str
        default: ""
      host:
        description: Host name or address.
        type: str
        required: true
      port:
        description: TCP port; with 0 the name is looked up, and no more.
        type: int
        required: true
      tls:
        description: Whether more than the port is tried.
        type: bool
        default: true
      authority:
        description: Certificates in PEM, one of which must have signed that of the target. It is not verified without.
        type: str
        default: ""
      server_name:
        description: The host name or address that the certificate of the target must be for.
        type: str
        default: ""
  seconds:
    description: How long all of it may take.
    type: int
    default: 5
attributes:
  check_mode:
    support: full
    description: It changes nothing anyway.
  diff_mode:
    support: none
    description: It changes nothing.
  platform:
    support: full
    platforms: posix
    description: Linux.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: Does this host reach the API server of the member
  karmada.installer._host_reach:
    targets:
      - name: m1
        host: m1.example.com
        port: 6443
        authority: "{{ lookup('ansible.builtin.file', 'm1-ca.crt') }}"
        server_name: m1.example.com
"""

RETURN = r"""
unreached:
  description: >-
    Name to C(fault) (such as C(refused) or C(other name)) and C(detail) of each target that is not reached.
  returned: always
  type: dict
  sample:
    m1: {fault: refused, detail: ""}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_reach


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "targets": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "url": {"type": "str", "default": ""},
                    "host": {"type": "str", "required": True},
                    "port": {"type": "int", "required": True},
                    "tls": {"type": "bool", "default": True},
                    "authority": {"type": "str", "default": ""},
                    "server_name": {"type": "str", "default": ""},
                },
            },
            "seconds": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, unreached=host_reach.look(module.params["targets"], module.params["seconds"]))


if __name__ == "__main__":
    main()
