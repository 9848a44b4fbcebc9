"""Compare topics with the tables that they are made from: read both, decode events, fold them by key.

The demo, the soak and the proofs judge the provider by this, so nothing of the provider is imported here.
"""
