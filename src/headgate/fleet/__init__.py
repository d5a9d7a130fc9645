"""Where consumers run: start them, stop them, list those that live."""

from headgate.fleet.protocol import Fleet

__all__ = ["Fleet"]
