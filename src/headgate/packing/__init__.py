"""Where partitions go: bin packing with a price on moves. No I/O."""

from headgate.packing.protocol import Packer

__all__ = ["Packer"]
