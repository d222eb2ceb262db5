# SPDX-License-Identifier: Apache-2.0
"""Records of what has passed, on which tree, and the page that is made of them."""
