# SPDX-License-Identifier: Apache-2.0
"""Measures this collection beside karmadactl, on one lab, and writes down what came of it."""
