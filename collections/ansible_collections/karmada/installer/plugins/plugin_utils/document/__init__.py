# SPDX-License-Identifier: Apache-2.0
"""The KarmadaDeployment: its source, its validity, the objects and files it refers to.

Imports kube, components.
"""
