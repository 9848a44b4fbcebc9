"""Kafka Connect's single message transforms: records as Connect structs, and one class for each transform."""
