# SPDX-License-Identifier: Apache-2.0
"""What all tests of the engine have in common."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast examples are made says how busy the machine is, and nothing of what is tested.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
