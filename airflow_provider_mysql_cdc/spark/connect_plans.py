"""The plans of a job at a Spark Connect server, as its messages; what a ``DataFrame`` would build.

A task is a partition of ``range(n)`` and a function of ``mapInArrow``; results and blocks are binary columns.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.spark.connect_tasks import ColumnTypes

_MAP_ARROW_ITERATOR = 207
"""``PythonEvalType.SQL_MAP_ARROW_ITER_UDF`` (pyspark.util)."""
RESULT = ColumnTypes((("task", "long"), ("result", "binary")))
"""Columns of what a task returns, as ``connect_tasks`` builds them."""
BLOCK = ColumnTypes((("bucket", "integer"), ("block", "binary")))
"""Columns of what a task hands to the tasks of the buckets."""
DIRECT_SHUFFLE_SINCE = (4, 1)
"""Version of Spark whose servers and clients know the partition of a row by its number."""
_INDEX = ("id",)


class PlanMessages:
    """Build plans.

    Args:
        messages: ``pyspark.sql.connect.proto``.
    """

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def plan(self, relation: Any) -> Any:
        """Return the plan whose result is a relation."""
        return self._messages.Plan(root=relation)

    def numbers(self, end: int, partitions: int | None = None) -> Any:
        """Return the numbers from 0.

        Args:
            end: The number behind the last one.
            partitions: In how many partitions; None for as many as Spark chooses.
        """
        return self._messages.Relation(range=self._messages.Range(start=0, end=end, step=1, num_partitions=partitions))

    def tasks(self, count: int, function: Any, columns: ColumnTypes, *, barrier: bool) -> Any:
        """Return what tasks yield: each gets its index.

        Args:
            count: Number of tasks.
            function: A function of ``mapInArrow`` that can be pickled.
            columns: What it yields.
            barrier: Whether all run at once or none.
        """
        return self._mapped(self.numbers(count, count), _INDEX, function, columns, barrier=barrier)

    def buckets(self, blocks: Any, count: int, function: Any, spark: tuple[int, ...]) -> Any:
        """Return what the tasks of the buckets yield: each gets the blocks of its bucket, one after the other.

        Args:
            blocks: What the first tasks yield (``BLOCK``).
            count: Number of buckets.
            function: A function of ``mapInArrow`` that can be pickled.
            spark: Version of the server.
        """
        return self._mapped(self._by_bucket(blocks, count, spark), BLOCK.names, function, RESULT, barrier=False)

    def _by_bucket(self, blocks: Any, count: int, spark: tuple[int, ...]) -> Any:
        messages = self._messages
        bucket = self._column(BLOCK.names[0])
        known = "direct_shuffle_partition_id" in messages.Expression.DESCRIPTOR.fields_by_name
        direct = known and spark >= DIRECT_SHUFFLE_SINCE
        by = (
            messages.Expression(direct_shuffle_partition_id=messages.Expression.DirectShufflePartitionID(child=bucket))
            if direct
            else bucket
        )
        parts = messages.Relation(
            repartition_by_expression=messages.RepartitionByExpression(
                input=blocks, partition_exprs=[by], num_partitions=count
            )
        )
        if direct:
            return parts
        order = messages.Expression.SortOrder
        ascending = order(child=bucket, direction=order.SORT_DIRECTION_ASCENDING, null_ordering=order.SORT_NULLS_FIRST)
        return messages.Relation(sort=messages.Sort(input=parts, order=[ascending], is_global=False))

    def _mapped(self, rows: Any, names: Sequence[str], function: Any, columns: ColumnTypes, *, barrier: bool) -> Any:
        messages = self._messages
        udf = messages.CommonInlineUserDefinedFunction(
            function_name=type(function).__name__,
            deterministic=True,
            arguments=[self._column(name) for name in names],
            python_udf=messages.PythonUDF(
                output_type=self._struct(columns),
                eval_type=_MAP_ARROW_ITERATOR,
                command=pickle.dumps((function, columns)),
                python_ver=f"{sys.version_info.major}.{sys.version_info.minor}",
            ),
        )
        mapped = messages.MapPartitions(input=rows, func=udf, is_barrier=barrier)
        return messages.Relation(map_partitions=mapped)

    def _column(self, name: str) -> Any:
        attribute = self._messages.Expression.UnresolvedAttribute(unparsed_identifier=name)
        return self._messages.Expression(unresolved_attribute=attribute)

    def _struct(self, columns: ColumnTypes) -> Any:
        type_ = self._messages.DataType
        makers = {"long": type_.Long, "integer": type_.Integer, "binary": type_.Binary}
        fields = [
            type_.StructField(name=name, data_type=type_(**{kind: makers[kind]()}), nullable=True)
            for name, kind in columns.columns
        ]
        return type_(struct=type_.Struct(fields=fields))
