# SPDX-License-Identifier: Apache-2.0
"""The parts of a control plane: releases, the table, flags, plain hosts of a document, the instance, its state.

Imports the files beside it only.
"""
