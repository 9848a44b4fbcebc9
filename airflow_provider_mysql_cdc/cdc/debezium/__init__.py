"""Take a stream over from a Debezium connector, and give it back."""
