"""Keep the rows of a chunk until all of them are there: in memory, and beyond some size in a temporary file.

A Kafka transaction must not last longer than ``transaction.timeout.ms``, and how long a source takes to give its rows
is not in a task's hands. So a chunk's transaction begins when its last row has been read.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import IO

from airflow_provider_mysql_cdc.cdc.errors import StateError

MEMORY_BYTES = 32 << 20
_BLOCK = 1 << 20
_WORD = 4


class RowSpool:
    """Take rows once and give them back in their order.

    Args:
        where: The chunk, for errors.
        memory_bytes: Bytes beyond which the rows go to a temporary file, in the folder that TMPDIR names.
    """

    def __init__(self, where: str, memory_bytes: int = MEMORY_BYTES) -> None:
        self._where = where
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=memory_bytes, prefix="mysql-cdc-rows-")  # noqa: SIM115
        self.rows = 0

    def fill(self, packets: Iterable[bytes], passed: Callable[[int], None]) -> None:
        """Take all rows.

        Args:
            packets: The rows.
            passed: Called with the number of rows after each one.

        Raises:
            StateError: The folder for temporary files is full.
        """
        block, size = list[bytes](), 0
        for packet in packets:
            block.append(packet)
            size += len(packet) + _WORD
            self.rows += 1
            passed(self.rows)
            if size >= _BLOCK:
                self._write(block)
                block, size = [], 0
        self._write(block)
        self._file.seek(0)

    def _write(self, block: list[bytes]) -> None:
        """Write the number of rows, their lengths, and the rows."""
        head = struct.pack(f"<{len(block) + 1}I", len(block), *map(len, block))
        try:
            self._file.write(b"".join((head, *block)))
        except OSError as error:
            raise StateError(
                "the rows of a chunk cannot be kept on the local disk",
                where=f"{self._where}, folder {tempfile.gettempdir()}",
                why=str(error),
                remedy="free space there, or let TMPDIR of the executors name a larger folder; a table that cannot be "
                "cut needs room for all its rows",
                retriable=True,
            ) from error

    def __iter__(self) -> Iterator[bytes]:
        while head := self._file.read(_WORD):
            count = int.from_bytes(head, "little")
            lengths = struct.unpack(f"<{count}I", self._file.read(_WORD * count))
            block, pos = self._file.read(sum(lengths)), 0
            for length in lengths:
                yield block[pos : pos + length]
                pos += length

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()
