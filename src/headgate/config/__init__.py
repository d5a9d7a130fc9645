"""The pipeline file: its models, its loader, and what other rooms derive from it."""

from headgate.config.clients import (
    java_settings,
    kafka_python_settings,
    librdkafka_settings,
)
from headgate.config.kafka import Kafka
from headgate.config.lake import Lake
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.config.problems import PipelineFileError, Problem
from headgate.config.settings import Consumer, Controller, Fleet, Monitor, Policy, Slo, Spark
from headgate.config.table import PartitionField, Table
from headgate.config.transform import import_transform

__all__ = [
    "Consumer",
    "Controller",
    "Fleet",
    "Kafka",
    "Lake",
    "Monitor",
    "PartitionField",
    "Pipeline",
    "PipelineFileError",
    "Policy",
    "Problem",
    "Slo",
    "Spark",
    "Table",
    "import_transform",
    "java_settings",
    "kafka_python_settings",
    "librdkafka_settings",
    "load_pipeline",
]
