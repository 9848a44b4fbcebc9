"""Mutants of the product: each takes one protection out, and a named test has to go red."""
