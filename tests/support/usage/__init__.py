"""Usage records for tests, and their destinations: Kafka, ClickHouse."""
