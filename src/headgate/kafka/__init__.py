"""Everything that talks to Kafka outside Spark: admin, measurements, commands, codecs and the embedded broker."""
