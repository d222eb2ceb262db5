# SPDX-License-Identifier: Apache-2.0
"""The KarmadaDeployment: its inventory source, its validation, overlays, objects and files to which it refers, and
the validation of a recorded state.

Imports kube, components.
"""
