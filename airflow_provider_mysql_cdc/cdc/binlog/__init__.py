"""The source server: connections, positions, checks before a run, and the binlog as a stream of events."""
