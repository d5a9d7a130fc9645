"""The lake: Iceberg tables, the ledger inside their snapshots, the committer and their upkeep."""
