# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates: issue, reasons to reissue, the files that components read.

Imports components.
"""
