# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Report on a control plane as it is now
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Looks at the host cluster and at the control plane, and says what is there, and what the steps before it in the same
    run have changed, or in check mode would change. Changes nothing there. Leaves the report as JSON in the file
    O(connection.report_output), except in check mode, and shows it as a block of text.
  - >-
    It does not fail when the control plane is not ready; that is what the phase and the conditions say. What cannot
    be read counts as not ready. It fails when the host cluster does not answer.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  broken_members:
    description: >-
      Members that a run could not bring to what the document says, as M(karmada.installer.member_join) and
      M(karmada.installer.member_leave) return them. They are in the report with reason and next step.
    type: list
    elements: dict
    default: []
  form:
    description:
      - >-
        With V(json), the report is left as JSON. With V(html), a page for people is left beside it, in a file whose
        name ends with C(.html) in place of C(.json). It is one file that needs nothing else, for any browser.
      - Neither is written in check mode. Any other value is refused.
    type: str
    default: json
  fail_on_drift:
    description: >-
      Whether RV(failure) of a run in check mode tells what the steps before would change, if that is anything. Outside
      of check mode it means nothing here; M(karmada.installer.require_document) refuses it.
    type: bool
    default: false
  backups:
    description: The documents of kind EtcdBackup beside the document, as the inventory plugin has read them.
    type: list
    elements: dict
    default: []
attributes:
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.preflight
"""

EXAMPLES = r"""
- name: Look at the control plane as it is now
  karmada.installer.report:
  register: report_result

- name: Show what the run has changed
  ansible.builtin.debug:
    var: report_result.status.changes

- name: Fail unless everything is ready
  ansible.builtin.assert:
    that: report_result.status.phase == 'Completed'
"""

RETURN = r"""
changed:
  description: Always false.
  returned: success
  type: bool
  sample: false
status:
  description: >-
    The report as data, in the form of C(status) in the schema of the document. Its key C(phase) is C(Completed) when
    every condition holds, otherwise how far the control plane is.
  returned: success
  type: dict
  sample: {"phase": "Completed"}
artifact:
  description: >-
    The report as data in at most 64 KiB of JSON, for AWX to keep with a job. Members that are not ready come
    first. C(leftOut) has the number of entries that each list lacks.
  returned: success
  type: dict
  sample: {"phase": "Completed"}
warnings_found:
  description: What works today and may hurt later, such as etcd data in an emptyDir, or certificates that end soon.
  returned: success
  type: list
  elements: str
  sample: []
problems:
  description: >-
    What is wrong or worth knowing, as data: errors of members first, then warnings and hints.
  returned: success
  type: list
  elements: dict
  sample:
    - severity: warning
      reason: DataNotDurable
      what: etcd keeps its data in the pod (emptyDir)
      where: ""
      remedy: ""
summary:
  description: The report for people, line by line, as it was shown.
  returned: success
  type: list
  elements: str
  sample: ["Karmada control plane prod: Completed"]
failure:
  description: >-
    Why the run is to fail although it came to its end: O(broken_members) in words, and with O(fail_on_drift) what a
    check would change, the first few by name. Empty where it is not.
  returned: success
  type: str
  sample: ""
"""
