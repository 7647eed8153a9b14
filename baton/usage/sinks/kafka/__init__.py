"""The request log: usage records as messages of a Kafka topic."""
