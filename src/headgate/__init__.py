"""Headgate: elastic Kafka to Iceberg ingestion on PySpark, every record exactly once."""

__version__ = "0.1.0"
