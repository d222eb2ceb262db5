# SPDX-License-Identifier: Apache-2.0
"""Files of a release from any source, verified: CRDs, programs, images.

Imports components.
"""
