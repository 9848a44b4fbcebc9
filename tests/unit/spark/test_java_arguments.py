"""What the driver imports to hand values to Java."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DRIVER = """
import sys
from airflow_provider_mysql_cdc.spark.main import leave_out_numpy
leave_out_numpy()
from py4j.protocol import INPUT_CONVERTER
assert INPUT_CONVERTER, "without any, the gateway converts no lists and times either"
values = ("text", 1, [1], {"a": 1})
assert [any(each.can_convert(value) for each in INPUT_CONVERTER) for value in values] == [False, False, True, True]
found = {"numpy", "pandas", "pyarrow"} & set(sys.modules)
assert not found, found
"""


def test_the_driver_asks_no_value_whether_it_is_numpy_s() -> None:
    subprocess.run([sys.executable, "-c", DRIVER], check=True, cwd=Path(__file__).parents[3], timeout=120)
