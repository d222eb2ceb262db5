# SPDX-License-Identifier: Apache-2.0
"""The lab: real systemd hosts and real Kubernetes clusters on one Linux machine, without a container engine."""
