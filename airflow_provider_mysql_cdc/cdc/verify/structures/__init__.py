"""Say what a record does not say: the structure it was written under, and what its values stand for."""
