"""Keep the rows of a chunk until all of them are read: in memory, and above a limit in a temporary file.

A Kafka transaction must not last longer than ``transaction.timeout.ms``, but a task cannot limit how long the source
takes to return rows. So the transaction of a chunk begins after its last row was read.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import IO

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

MEMORY_BYTES = 32 << 20
# Rows, bytes, and whether it is one row of several packets.
_BLOCK_HEADER = struct.Struct("<II?")


class RowSpool:
    """Store rows once and return them in their order.

    Args:
        where: The chunk, for errors.
        memory_bytes: Bytes above which the rows are written to a temporary file in the folder that TMPDIR names.
    """

    def __init__(self, where: str, memory_bytes: int = MEMORY_BYTES) -> None:
        self._where = where
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=memory_bytes, prefix="mysql-cdc-rows-")  # noqa: SIM115
        self.rows = 0

    def fill(self, blocks: Iterable[RowBlock], on_rows: Callable[[int], None]) -> None:
        """Store all rows.

        Args:
            blocks: The rows.
            on_rows: Called with the number of rows after each block.

        Raises:
            StateError: The rows cannot be written to the folder for temporary files.
        """
        for block in blocks:
            with self._disk_errors():
                self._file.write(_BLOCK_HEADER.pack(block.rows, len(block.data), block.large) + block.data)
            self.rows += block.rows
            on_rows(self.rows)
        # seek flushes the buffer of the file.
        with self._disk_errors():
            self._file.seek(0)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(
                "the rows of a chunk cannot be stored on the local disk",
                where=f"{self._where}, folder {tempfile.gettempdir()}",
                why=str(error),
                remedy="free space there, or set TMPDIR of the executors to a folder with more space; a table "
                "that cannot be "
                "split into chunks needs space for all its rows",
                retriable=True,
            ) from error

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows once, in blocks."""
        while header := self._file.read(_BLOCK_HEADER.size):
            rows, size, large = _BLOCK_HEADER.unpack(header)
            yield RowBlock(rows, self._file.read(size), large)

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # On a full disk closing fails, too, as it flushes the buffer. The file is deleted nevertheless.
        with contextlib.suppress(OSError):
            self._file.close()
