# SPDX-License-Identifier: Apache-2.0
"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# No test fails on a clock: on a busy machine the same examples only take longer to make and to run.
settings.register_profile(
    "without-clock", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without-clock")
