"""Read rows and records.

``event_record`` is a record in whatever format it is written, and how its values are written, ``event_record`` where
in the binlog it is from, ``row_records`` whether a repair has written it, ``event_record`` the bytes of a row, and
``entries`` what the tasks that read hand to those that compare. Rows are read by ``row_records`` and ``sql_row_text``.
"""
