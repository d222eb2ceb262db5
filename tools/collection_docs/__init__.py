# SPDX-License-Identifier: Apache-2.0
"""Pages of the documentation that are made from what the collection says of itself to Ansible, and a picture of it."""
