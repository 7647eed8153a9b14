"""Usage records for tests, and what takes them: Kafka, ClickHouse."""
