"""What rows and records are read into.

``event_record`` is a record in whatever format it is written, and how its values are written, ``source_place`` where
in the binlog it is from, ``repair_marks`` whether a repair has written it, ``row_text`` the bytes of a row, and
``entries`` what the tasks that read hand to those that compare.
"""
