"""Partitioners: which partition a record goes to."""
