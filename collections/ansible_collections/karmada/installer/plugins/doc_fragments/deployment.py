# SPDX-License-Identifier: Apache-2.0
"""Options that all actions of this collection share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options for the document and for access to it."""

    DOCUMENTATION = r"""
options:
  deployment:
    description:
      - >-
        The KarmadaDeployment with all defaults, as the inventory plugin P(karmada.installer.karmada#inventory) gives
        it. Without it, the variable C(karmada_deployment) of the host, which is what V(karmada_control) has.
    type: dict
  connection:
    description:
      - >-
        What the inventory source says beside the document. Without it, the variable C(karmada_connection) of the host.
        Paths are relative to the working directory.
    type: dict
    suboptions:
      kubeconfig:
        description: >-
          Kubeconfig of the host cluster, for documents that do not name one of their own. Without it, what the
          environment names; see P(karmada.installer.karmada#inventory).
        type: path
      context:
        description: Context of that kubeconfig.
        type: str
      secrets:
        description: Directory that stands for the Secrets that the document names.
        type: path
      config_maps:
        description: Directory that stands for the ConfigMaps that the document names.
        type: path
      artifacts:
        description: Directory with artifacts that were prepared before.
        type: path
      backups:
        description: Directory in which backups lie.
        type: path
      kubeconfig_output:
        description: File for the kubeconfig of the control plane.
        type: path
      report_output:
        description: File for the report, as JSON. A page is beside it if it was asked for.
        type: path
      beside:
        description: >-
          Where the two files above are without a path of their own, as far as their endings. A job of AWX writes none
          there.
        type: path
      object_uid:
        description: UID of the object that the document was read from, which manages the instance. A file has none.
        type: str
"""
