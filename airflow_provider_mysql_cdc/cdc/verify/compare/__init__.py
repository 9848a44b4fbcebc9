"""Compare the last states of keys with rows: by checksum first, and by value what these leave."""
