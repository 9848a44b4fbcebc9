"""Open the views of a verification at one position, on the source or a replica."""
