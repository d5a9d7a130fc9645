"""When to act and how big to be. No I/O; the simulator and the live controller run the same objects."""

from headgate.policies.protocol import Policy

__all__ = ["Policy"]
