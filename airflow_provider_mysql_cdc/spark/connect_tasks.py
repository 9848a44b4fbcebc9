"""The functions that Spark Connect calls in a task; each is pickled by its name, with its arguments.

A task gets a partition with its index as the only row. What tasks return and hand to each other are binary columns.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.job.task_runner import ArgumentsT, Block, BucketResultT, TaskResultT
from airflow_provider_mysql_cdc.spark.errors import marking_errors, require_version


@dataclass(frozen=True)
class ColumnTypes:
    """Name the columns that a function yields; a task reads it as pyspark's type, which the driver does not import.

    Args:
        columns: Name and type of each: ``long``, ``integer`` or ``binary``.
    """

    columns: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names."""
        return tuple(name for name, _ in self.columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return _struct_type, (self.columns,)


def _struct_type(columns: tuple[tuple[str, str], ...]) -> Any:
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

    types = {"long": LongType, "integer": IntegerType, "binary": BinaryType}
    return StructType([StructField(name, types[kind]()) for name, kind in columns])


@dataclass(frozen=True)
class ResultFunction(Generic[ArgumentsT, TaskResultT]):
    """Call a task for the indexes of a partition, and return its pickled results.

    Args:
        task: A module-level function.
        arguments: Values that can be pickled.
        version: The driver's version of this package.
    """

    task: Callable[[int, ArgumentsT], TaskResultT]
    arguments: ArgumentsT
    version: str = field(default=__version__)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a batch with one row for each index."""
        for index in _indexes(batches):
            with marking_errors():
                require_version(self.version)
                result = self.task(index, self.arguments)
            yield _batch("task", "int64", index, "result", pickle.dumps(result))


@dataclass(frozen=True)
class BlockFunction(Generic[ArgumentsT]):
    """Call a task for the indexes of a partition, and pass on the blocks that it yields.

    Args:
        task: A module-level function.
        arguments: Values that can be pickled.
        version: The driver's version of this package.
    """

    task: Callable[[int, ArgumentsT], Iterator[Block]]
    arguments: ArgumentsT
    version: str = field(default=__version__)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a batch for each block: a block has up to 64 KB."""
        for index in _indexes(batches):
            with marking_errors():
                require_version(self.version)
                for bucket, block in self.task(index, self.arguments):
                    yield _batch("bucket", "int32", bucket, "block", block)


@dataclass(frozen=True)
class BucketFunction(Generic[BucketResultT]):
    """Reduce the blocks of each bucket of a partition, whose rows come bucket after bucket.

    Args:
        reduce: Returns the result of one bucket from its blocks.
    """

    reduce: Callable[[Iterable[bytes]], BucketResultT]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a batch with one row for each bucket that has blocks."""
        rows = (row for batch in batches for row in zip(*map(_values, batch.columns), strict=True))
        for bucket, blocks in itertools.groupby(rows, key=lambda row: row[0]):
            with marking_errors():
                result = self.reduce(block for _, block in blocks)
            yield _batch("task", "int64", bucket, "result", pickle.dumps(result))


def _indexes(batches: Iterable[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _values(column: Any) -> Iterator[Any]:
    # One value after the other: a list of a batch's blocks would be a second copy of all of them.
    return (value.as_py() for value in column)


def _batch(name: str, type_: str, number: int, bytes_name: str, content: bytes) -> Any:
    """Return an Arrow batch of one row: a number and bytes."""
    import pyarrow

    numbers = pyarrow.array([number], pyarrow.type_for_alias(type_))
    return pyarrow.RecordBatch.from_arrays(
        [numbers, pyarrow.array([content], pyarrow.binary())], names=[name, bytes_name]
    )
