"""A Kafka cluster as sets of nodes and topics: who leads what, who shares nodes, and what failures would do."""
