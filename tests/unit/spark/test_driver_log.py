"""How much Spark writes into a driver's output."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from airflow_provider_mysql_cdc.spark.main import TASK_LOGGERS, reduce_log, silence_stop


def context(**settings: str) -> MagicMock:
    """Return a Spark context with settings."""
    made = MagicMock()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    made.getConf().get.side_effect = lambda name, default=None: named.get(name, default)
    return made


def test_spark_writes_errors_only_and_none_of_its_tasks() -> None:
    spark = context(spark_log_level="WARN")
    reduce_log(spark)
    spark.setLogLevel.assert_called_once_with("ERROR")
    levels = spark._jvm.org.apache.logging.log4j.core.config.Configurator.setLevel
    assert [call.args[0] for call in levels.call_args_list] == list(TASK_LOGGERS)


def test_a_level_that_somebody_chose_stays() -> None:
    spark = context(spark_log_level="INFO")
    reduce_log(spark)
    silence_stop(spark)
    spark.setLogLevel.assert_not_called()
    spark._jvm.java.lang.System.setErr.assert_not_called()


@pytest.mark.parametrize(("mode", "silent"), [("client", True), ("cluster", False)])
def test_the_end_of_spark_is_silent_where_the_task_log_shows_it(mode: str, silent: bool) -> None:
    spark = context(spark_submit_deployMode=mode)
    silence_stop(spark)
    assert spark.setLogLevel.called is spark._jvm.java.lang.System.setErr.called is silent


def test_a_jvm_that_is_gone_is_no_reason_to_fail() -> None:
    spark = context()
    spark.setLogLevel.side_effect = ConnectionRefusedError("py4j")
    silence_stop(spark)
