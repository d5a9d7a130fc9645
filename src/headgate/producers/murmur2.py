"""Kafka's hash of record keys (B-28): murmur2 with its own seed, so that a key lands where Java would put it."""

SEED = 0x9747B28C
_M, _MASK = 0x5BD1E995, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """As a signed 32-bit number, like Java's."""
    h = (SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_of_key(key: bytes, partitions: int) -> int:
    """Over all partitions, led or not: a key must not move because a node is away."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
