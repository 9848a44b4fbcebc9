"""A file with metrics, for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.replaced_file import replace_file

_FILE_MODE = 0o644
"""The collector runs as another account; metrics contain no secrets."""


def write_metrics_file(path: str, text: str) -> None:
    """Replace a file as a whole: who reads it at the same time sees the old text or the new one.

    Args:
        path: The file. node_exporter reads those that end with ``.prom``; the part that is being written does not.
        text: Its text.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        replace_file(Path(path), text, _FILE_MODE)
    except OSError as error:
        raise ConfigError(
            "the file with the metrics cannot be written",
            where=path,
            why=error.strerror or str(error),
            remedy="name a file in a folder that exists, and that this account may write into",
        ) from error
