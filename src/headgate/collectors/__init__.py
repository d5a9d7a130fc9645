"""Collectors: small clusters near their producers, forwarded to the main cluster topic for topic (B-42 – B-44)."""
