# SPDX-License-Identifier: Apache-2.0
"""Tests of the operator. A package, because pytest would take the folder ``operator`` for Python's own module."""
