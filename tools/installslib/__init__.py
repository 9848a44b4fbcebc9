"""Fresh environments of every documented install, each tried."""
