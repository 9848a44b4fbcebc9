"""Metrics of a stream under Debezium's names: one table of them, the values, and how they are shown."""
