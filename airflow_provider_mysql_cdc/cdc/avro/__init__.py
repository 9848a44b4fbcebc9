"""Confluent Avro: Connect schemas as Avro schemas, and values as Avro bytes."""
