# SPDX-License-Identifier: Apache-2.0
"""Operator: KarmadaDeployment objects in, runs of the collection's playbooks out. See docs/operator.md."""
