"""Where a job writes its lines for people."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]
"""Takes one line of text: the log of an Airflow task, of a Spark driver, or a list in a test."""
