"""The whole suite as parts that run one after the other, with a table of what each has cost."""
