"""What the driver for a Spark Connect server imports, and the address and plans of its client, without a server."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.spark.connect_channel import ServerAddress, load_parts
from airflow_provider_mysql_cdc.spark.connect_plans import BLOCK, RESULT, PlanMessages
from airflow_provider_mysql_cdc.spark.connect_tasks import ResultFunction

DRIVER = """
import sys
from airflow_provider_mysql_cdc.spark.connect_channel import import_arrow_alone, load_parts
import_arrow_alone()
parts = load_parts()
import pyarrow.ipc
with pyarrow.ipc.open_stream(sys.stdin.buffer.read()) as batches:
    assert [column.to_pylist() for batch in batches for column in batch.columns] == [[7], [b"x"]]
assert not {"pandas", "numpy", "py4j"} & set(sys.modules), "the driver imports too much"
assert "pyspark" not in sys.modules and parts.reattach.ExecutePlanResponseReattachableIterator
# Whoever wants the packages afterwards gets them whole.
import pyspark.sql
assert pyspark.sql.SparkSession and pyspark.__version__
"""


def test_the_driver_imports_neither_pandas_nor_numpy() -> None:
    table = pyarrow.table({"task": [7], "result": [b"x"]})
    rows = io.BytesIO()
    with pyarrow.ipc.new_stream(rows, table.schema) as writer:
        writer.write_table(table)
    driver = [sys.executable, "-c", DRIVER]
    subprocess.run(driver, input=rows.getvalue(), check=True, cwd=Path(__file__).parents[3], timeout=120)


def test_an_address_has_a_host_a_user_and_headers() -> None:
    address = ServerAddress.parse("sc://h/;token=a%3Db;user_id=cdc;use_ssl=True;x-tenant=7;grpc_keepalive_time_ms=9")
    assert (str(address), address.user, address.headers()) == ("h:15002", "cdc", (("x-tenant", "7"),))
    assert address.parameters["token"] == "a=b" and address.session is None
    id_ = "00112233-4455-4677-8899-aabbccddeeff"
    assert ServerAddress.parse(f"sc://h/;session_id={id_}").session == id_


@for_each("url", ["spark://h", "sc://", "sc://h:x", "sc://h/path", "sc://h/;token", "sc://h/;token=secret=b"])
def test_what_is_no_address_is_refused_without_its_token(url: str) -> None:
    with pytest.raises(ConfigError, match="address of the Spark Connect server cannot be used") as failure:
        ServerAddress.parse(url)
    assert "secret" not in failure.value.message()
    with pytest.raises(ConfigError, match="session_id is not a UUID"):
        _ = ServerAddress.parse("sc://h/;session_id=mine").session


class Channels:
    """Record how a channel is opened."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **_: Any) -> str:
            self.calls.append((name, args))
            return name

        return call


@for_each(
    ("url", "credentials", "channel"),
    [
        ("sc://h", set(), "insecure_channel"),
        ("sc://localhost/;token=t", {"local_channel_credentials"}, "secure_channel"),
        ("sc://h/;token=t", {"ssl_channel_credentials"}, "secure_channel"),
        ("sc://localhost/;token=t;use_ssl=true", {"ssl_channel_credentials"}, "secure_channel"),
        ("sc://h/;use_ssl=True", {"ssl_channel_credentials"}, "secure_channel"),
    ],
)
def test_a_token_leaves_this_host_through_tls_only(url: str, credentials: set[str], channel: str) -> None:
    grpc = Channels()
    assert ServerAddress.parse(url).channel(grpc) == channel
    called = {name for name, _ in grpc.calls}
    assert called & {"local_channel_credentials", "ssl_channel_credentials"} == credentials
    assert ("access_token_call_credentials", ("t",)) in grpc.calls or "token" not in url


def test_the_plan_of_tasks_is_the_one_of_pyspark() -> None:
    """A range with a partition for each task; the columns are pyspark's types in a task."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    plans = PlanMessages(load_parts().messages)
    relation = plans.tasks(3, ResultFunction(str, {"a": 1}), RESULT, barrier=True)
    mapped = relation.map_partitions
    assert (mapped.input.range.end, mapped.input.range.num_partitions, mapped.is_barrier) == (3, 3, True)
    function, columns = pickle.loads(mapped.func.python_udf.command)
    assert function == ResultFunction(str, {"a": 1})
    assert columns == StructType([StructField("task", LongType()), StructField("result", BinaryType())])
    blocks = plans.tasks(1, ResultFunction(str, {}), BLOCK, barrier=False)
    read = plans.buckets(blocks, 5, ResultFunction(str, {}), (4, 3)).map_partitions.input.repartition_by_expression
    assert read.num_partitions == 5 and read.partition_exprs[0].HasField("direct_shuffle_partition_id")


def test_an_earlier_server_is_asked_for_nothing_that_it_does_not_know() -> None:
    """Since Spark 4.1 a row can name its partition; before, the rows of a bucket are found by hash and sorted."""
    plans = PlanMessages(load_parts().messages)
    blocks = plans.tasks(1, ResultFunction(str, {}), BLOCK, barrier=False)
    sort = plans.buckets(blocks, 5, ResultFunction(str, {}), (4, 0)).map_partitions.input.sort
    assert not sort.is_global and sort.order[0].child.unresolved_attribute.unparsed_identifier == "bucket"
    by = sort.input.repartition_by_expression
    assert by.num_partitions == 5 and by.partition_exprs[0].HasField("unresolved_attribute")
