"""What the driver of a job needs to reach a Spark Connect server; the address may hold a token.

It is never an argument, a file with a name, or a variable: the driver inherits the open file that holds it
(docs/adr/0026-spark-connect.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.model.stored_record import Record, parse_json, record_location


@dataclass(frozen=True, slots=True)
class ConnectSettings(Record):
    """Hold how a driver reaches a Spark Connect server.

    Args:
        url: ``sc://host:port/;token=...``, as pyspark's client takes it.
        conf: Settings of the session, and those of this provider (``spark.mysqlcdc.*``).
        archives: Archives that executors of the session unpack, as ``path#alias``.
        py_files: Python files and zip archives for the executors' path.
    """

    url: str = field(repr=False)
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    archives: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()

    def write(self, fd: int) -> None:
        """Write the settings into an open file, in place of what it holds.

        Args:
            fd: The file's descriptor, which the driver inherits.
        """
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(self.to_json()).encode(), 0)

    @classmethod
    def read(cls, fd: int) -> ConnectSettings:
        """Read the settings from an inherited file, and close it.

        Args:
            fd: The file's descriptor.

        Raises:
            DamagedRecordError: The file holds something else.
        """
        with os.fdopen(fd, "rb") as file, record_location("settings of Spark Connect"):
            file.seek(0)
            return cls.from_json(parse_json(file.read()))
