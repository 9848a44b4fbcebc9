"""Another server, or another place: where the stream goes on, and with which table structures."""
