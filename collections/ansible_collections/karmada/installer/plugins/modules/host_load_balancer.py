# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_load_balancer
short_description: "Inner step: run HAProxy and keepalived for the virtual IP of a control plane on a plain host"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Makes users, configuration and hardened units of HAProxy and keepalived as the document wants them, for an endpoint
    of type C(VirtualIP), and has M(karmada.installer._host_tree) bring the host to that. A host that is no load
    balancer loses what it has of one.
  - >-
    The units are the control plane's own. Those of the distribution's packages, C(haproxy.service) and
    C(keepalived.service), are not touched, unless they were held while the packages were installed: those are disabled.
  - >-
    A restart of HAProxy cuts the connections that go through this host, and new ones are refused for a fraction of a
    second. The virtual IP stays where it is. A restart of keepalived moves it to another host. Either is restarted only
    when its own unit differs; other settings are taken by a reload. So hosts should be done one after the other.
  - >-
    M(karmada.installer.host_observe) has to look at the host before, and the programs have to be there.
  - >-
    keepalived of a host that hears the others no more takes the virtual IP for itself. So a host that is a load
    balancer no longer has to end before the others are told that it is none (O(state=ended)), and one that comes has to
    begin when the others know it (RV(in_turn)).
options:
  state:
    description:
      - V(present) brings the host to what the document says of it.
      - >-
        V(ended) does so if the host is a load balancer no longer, also if it has left the document, and if another one
        serves the virtual IP. Otherwise it changes nothing.
      - >-
        V(held) keeps the units of the packages from starting, for the time of their installation. It is for hosts that
        do not have the packages yet.
      - >-
        V(released) ends that, and leaves these units disabled. V(present) does the same, should a run have been killed,
        and so does an uninstall.
      - V(looked_for) changes nothing and tells the packages whose program is not there (RV(missing)).
      - >-
        V(installed) installs O(packages), as M(ansible.builtin.package) does. Of what the host answers to either,
        nothing becomes a variable of Ansible.
    type: str
    choices: [present, ended, held, released, looked_for, installed]
    default: present
  packages:
    description: Packages to install, for O(state=installed).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait.
    type: int
    default: 60
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  diff_mode:
    support: full
    description: Shows what changes in files. There is nothing secret in them.
"""

EXAMPLES = r"""
- name: End it where the document wants none any more
  karmada.installer.host_load_balancer:
    state: ended
  become: true

- name: Serve the virtual IP
  karmada.installer.host_load_balancer:
  become: true
"""

RETURN = r"""
in_turn:
  description: >-
    The hosts that are to be load balancers, in the order in which they should be done, without those that serve and
    were seen to be as they should be.
  returned: success
  type: list
  elements: str
  sample: [cp1, cp2]
missing:
  description: The packages whose program is not there.
  returned: O(state=looked_for)
  type: list
  elements: str
  sample: [keepalived]
changes:
  description: What was done, or in check mode would be done, a line each.
  returned: success
  type: list
  elements: str
  sample: [restart karmada-prod-haproxy.service]
"""
