"""What every tier of tests may use."""

import os

from hypothesis import HealthCheck, settings

# Machines are noisy: no deadline per example, since tests assert no timings.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("headgate"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headgate"))
