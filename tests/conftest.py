"""What every tier of tests may use."""

import os
import signal

from hypothesis import HealthCheck, settings

# Machines are noisy: no deadline per example, since tests assert no timings.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("headgate"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headgate"))

# A shell that starts something in the background has it ignore Ctrl-C, and so would everything that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
