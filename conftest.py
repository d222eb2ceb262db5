# SPDX-License-Identifier: Apache-2.0
"""Settings of all tests."""

import os

from hypothesis import HealthCheck, settings

# No test fails on a clock: on a busy machine the same examples only take longer to make and to run.
settings.register_profile(
    "without-clock", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without-clock")

# What tests serve is on loopback. A proxy of whoever runs them would look for it elsewhere.
for _name in ("no_proxy", "NO_PROXY"):
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1", "localhost")))
