"""What the Spark layer makes of executors: their slots, their Python, and the address they reach the driver under."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.spark import spark_tasks
from airflow_provider_mysql_cdc.spark.errors import executor_error

HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"
OURS = "spark.mysqlcdc.coordinator."


class Clock:
    """A clock, and executors that register as time goes by."""

    def __init__(self, *slots: tuple[float, int]) -> None:
        self.now, self.slots = 0.0, slots

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def there(self) -> int:
        return max(n for at, n in self.slots if at <= self.now)


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*slots: tuple[float, int]) -> Clock:
        clock = Clock(*slots)
        monkeypatch.setattr(spark_tasks, "time", clock)
        return clock

    return make


def test_as_many_slots_as_are_wanted_are_waited_for(executors: Any) -> None:
    clock = executors((0, 2), (9, 4), (20, 8))
    assert spark_tasks.settled(clock.there, 4, 30) == 4
    assert 9 <= clock.now < 9.5
    assert spark_tasks.settled(clock.there, 3, 30) == 4, "nobody is waited for when enough are there"
    assert clock.now < 9.5


def test_the_wait_for_slots_that_never_come_ends(executors: Any) -> None:
    clock = executors((0, 2))
    assert spark_tasks.settled(clock.there, 64, 30) == 2
    assert 30 <= clock.now < 31


def test_without_a_number_all_that_come_are_taken(executors: Any) -> None:
    clock = executors((0, 2), (1.5, 4), (3.2, 6), (60, 8))
    assert spark_tasks.settled(clock.there, 0, 30) == 6
    assert clock.now < 6
    clock = executors((0, 1), *((n, n) for n in range(1, 90)))
    assert spark_tasks.settled(clock.there, 0, 30) in (29, 30), "executors that come all the time are not waited for"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, Endpoint("127.0.0.1", "", 0)),
        ({HOST: "driver"}, Endpoint("driver", "", 0)),
        ({HOST: "outside", BIND: "0.0.0.0"}, Endpoint("outside", "0.0.0.0", 0)),
        (
            {HOST: "a", BIND: "b", OURS + "host": "c", OURS + "bindAddress": "d", OURS + "port": "7100"},
            Endpoint("c", "d", 7100),
        ),
    ],
)
def test_the_coordinator_listens_where_spark_s_driver_does_unless_it_is_told(conf: Any, expected: Endpoint) -> None:
    assert spark_tasks.endpoint(conf) == expected


@pytest.mark.parametrize("port", ["any", "-1", "65536"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="no port"):
        spark_tasks.endpoint({OURS + "port": port})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("ModuleNotFoundError: No module named 'confluent_kafka'", "lacks a module", "'confluent_kafka"),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2',
            "is not there",
            "./environment",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "of another version than the driver's",
            "3.9 than that in driver: 3.11",
        ),
        (
            "AttributeError: Can't get attribute '_require_version' on <module 'airflow_provider_mysql_cdc.x'>",
            "different versions of airflow-provider-mysql-cdc",
            "_require_version",
        ),
    ],
)
def test_a_python_that_cannot_run_the_tasks_is_named(text: str, what: str, why: str) -> None:
    found = executor_error(RuntimeError(f"Job aborted due to stage failure: {text}"))
    assert found is not None and what in found.what and why in found.why
    assert not found.can_retry and "environment" in found.remedy


def test_other_failures_of_a_stage_keep_their_text() -> None:
    assert executor_error(RuntimeError("java.lang.OutOfMemoryError: Java heap space")) is None


@pytest.mark.parametrize(
    "text",
    [
        "Could not recover from a failed barrier ResultStage. Most recent failure reason: Stage failed because barrier"
        " task ResultTask(1, 2) finished unsuccessfully.\norg.apache.spark.SparkException: Python worker exited"
        " unexpectedly (crashed)",
        "Lost task 0.3 in stage 1.0 (TID 7): ExecutorLostFailure (executor 1 exited caused by one of the tasks)",
    ],
)
def test_a_task_that_is_lost_is_named_and_can_be_tried_again(text: str) -> None:
    found = executor_error(RuntimeError(text))
    assert isinstance(found, StateError) and found.can_retry
    assert found.why.startswith(("ExecutorLostFailure (executor 1", "Python worker exited unexpectedly"))


def test_tasks_of_another_version_are_refused() -> None:
    spark_tasks._require_version(spark_tasks.__version__)
    with pytest.raises(ConfigError, match=r"different versions.*the driver has 0\.0\.9"):
        spark_tasks._require_version("0.0.9")


def test_executors_that_do_not_come_are_waited_for_once(executors: Any) -> None:
    """An ad-hoc snapshot asks before each of its rounds."""
    clock = executors((0, 2))
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = {}
    spark = context._jsc.sc.return_value
    spark.maxNumConcurrentTasks.side_effect = lambda profile: clock.there()
    spark.conf.return_value.getTimeAsMs.return_value = 30_000
    runner = spark_tasks.SparkRunner(context)
    assert runner.slots(8) == 2
    waited = clock.now
    assert waited >= 30
    assert [runner.slots(8), runner.slots()] == [2, 2]
    assert clock.now == waited


@pytest.mark.parametrize("conf", [{"spark.dynamicAllocation.enabled": "TRUE"}, {}])
def test_a_gang_has_a_barrier_where_spark_has_one(conf: dict[str, str]) -> None:
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = conf
    rdd = context.parallelize.return_value
    spark_tasks.SparkRunner(context).run(print, 2, {}, gang=True)
    assert rdd.barrier.called is not bool(conf)
    assert rdd.mapPartitions.called is bool(conf)


def test_local_tasks_have_a_barrier_and_no_executors_to_wait_for(executors: Any) -> None:
    """Spark ignores dynamic allocation on a local master."""
    clock = executors((0, 2))
    context = MagicMock(master="local[2]")
    context.getConf.return_value = {"spark.dynamicAllocation.enabled": "true"}
    context._jsc.sc.return_value.maxNumConcurrentTasks.side_effect = lambda profile: clock.there()
    runner = spark_tasks.SparkRunner(context)
    assert runner.slots(8) == 2 and clock.now == 0
    runner.run(print, 2, {}, gang=True)
    assert context.parallelize.return_value.barrier.called
