# SPDX-License-Identifier: Apache-2.0
"""The KarmadaDeployment: its inventory source, its validation, the objects and files to which it refers.

Imports kube, components.
"""
