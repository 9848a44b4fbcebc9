"""The history of a topic: every record, where a comparison looks at the last one of each key.

It finds what the commit protocol of the stream excludes, so it is an option: for streams whose consumers need each
change, and for topics that somebody has restored, mirrored or written to (docs/verify.md). A comparison knows nothing
of it but the entries that it adds.

* ``key_history``: the events of a key one after the other: duplicates, events out of order, gaps, missing tombstones.
* ``transactions``: the events of a transaction, against what the transaction topic says of it.
* ``batch_counts``: the records of a batch, against the counts in the ledger.
"""
