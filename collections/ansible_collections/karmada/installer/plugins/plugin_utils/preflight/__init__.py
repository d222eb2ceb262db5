# SPDX-License-Identifier: Apache-2.0
"""Checks before the first change.

Imports every package but report.
"""
