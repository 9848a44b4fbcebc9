"""Mutants of the product: each brings a fixed fault back, and a named test has to fail."""
