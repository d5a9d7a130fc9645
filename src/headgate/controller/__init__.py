"""Synchronize → Sentinel → Reassign → GroupManagement: carries out what a policy decides, and writes it down."""
