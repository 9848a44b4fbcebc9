"""The whole suite as parts that run at once, with a table of what each has cost."""
