"""The documentation as a site (scripts/docs)."""
