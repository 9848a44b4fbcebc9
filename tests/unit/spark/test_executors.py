"""What the Spark layer makes of executors: their slots, their Python, and the address they reach the driver under."""

from __future__ import annotations

import threading
import time
from typing import Any
from unittest.mock import MagicMock

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.spark import cluster_slots, main, spark_tasks
from airflow_provider_mysql_cdc.spark.cluster_slots import endpoint
from airflow_provider_mysql_cdc.spark.errors import application_error, executor_error, require_version

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
        monkeypatch.setattr(cluster_slots, "time", clock)
        return clock

    return make


def test_as_many_slots_as_are_wanted_are_waited_for(executors: Any) -> None:
    clock = executors((0, 2), (9, 4), (20, 8))
    assert cluster_slots.wait_for_slots(clock.there, 4, 30) == 4
    assert 9 <= clock.now < 9.5
    assert cluster_slots.wait_for_slots(clock.there, 3, 30) == 4, "nobody is waited for when enough are there"
    assert clock.now < 9.5


def test_the_wait_for_slots_that_never_come_ends(executors: Any) -> None:
    clock = executors((0, 2))
    assert cluster_slots.wait_for_slots(clock.there, 64, 30) == 2
    assert 30 <= clock.now < 31


def test_without_a_number_all_that_come_are_taken(executors: Any) -> None:
    clock = executors((0, 2), (1.5, 4), (3.2, 6), (60, 8))
    assert cluster_slots.wait_for_slots(clock.there, 0, 30) == 6
    assert clock.now < 6
    clock = executors((0, 1), *((n, n) for n in range(1, 90)))
    assert cluster_slots.wait_for_slots(clock.there, 0, 30) in (29, 30), (
        "executors that come all the time are not waited for"
    )


@for_each(
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
def test_the_coordinator_listens_where_spark_s_driver_does_unless_configured(conf: Any, expected: Endpoint) -> None:
    assert endpoint(conf.get) == expected


@pytest.mark.parametrize("port", ["any", "-1", "65536"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="port of the coordinator is invalid"):
        endpoint({OURS + "port": port}.get)


@for_each(
    ("text", "what", "why"),
    [
        ("ModuleNotFoundError: No module named 'confluent_kafka'", "module is missing", "'confluent_kafka"),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2',
            "does not exist",
            "./environment",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "run different Python versions",
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


def test_spark_s_own_word_that_a_barrier_lacks_slots_is_named() -> None:
    text = (
        "org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed: [SPARK-24819]: Barrier execution mode does not "
        "allow run a barrier stage that requires more slots than the total number of slots in the cluster currently."
    )
    found = executor_error(RuntimeError(text))
    assert isinstance(found, StateError) and found.can_retry and "fewer slots than this job has tasks" in found.what
    assert found.why.endswith("total number of slots in the cluster currently")


@for_each(
    "text",
    [
        "Job aborted due to stage failure: Master removed our application: FAILED",
        "Job aborted due to stage failure: All masters are unresponsive! Giving up.",
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped one was",
        "Job 0 cancelled because SparkContext was shut down caused by ...",
        "[SPARK_JOB_CANCELLED] Job 0 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA",
    ],
)
def test_an_application_that_spark_has_ended_is_named_and_can_be_tried_again(text: str) -> None:
    found = application_error(RuntimeError(text))
    assert isinstance(found, StateError) and found.can_retry
    assert "\n" not in found.why and found.why in text
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = {}
    context.parallelize.return_value.mapPartitions.return_value.collect.side_effect = RuntimeError(text)
    with pytest.raises(StateError, match="Spark has ended the application of this job"):
        spark_tasks.SparkRunner(context).run(print, 2, {}, barrier=False)


def test_a_cluster_without_slots_is_reported_with_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_slots, "POLL_S", 0.01)
    monkeypatch.setattr(cluster_slots, "FIRST_WARNING_S", 0.02)
    lines: list[str] = []
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = {"spark.executor.memory": "100g"}
    context._jsc.sc.return_value.getExecutorMemoryStatus.return_value.size.return_value = 1
    tracker = context.statusTracker.return_value
    tracker.getActiveStageIds.return_value = [3]
    tracker.getStageInfo.return_value = MagicMock(numActiveTasks=0)

    def starve() -> list[int]:
        deadline = time.monotonic() + 30
        while not lines:
            assert time.monotonic() < deadline, "nothing was told"
            time.sleep(0.01)
        return [1]

    context.parallelize.return_value.mapPartitions.return_value.collect.side_effect = starve
    assert spark_tasks.SparkRunner(context, lines.append).run(print, 1, {}, barrier=False) == [1]
    assert "0 executor(s)" in lines[0] and "spark.executor.memory=100g" in lines[0] and "spark://one:7077" in lines[0]


@pytest.mark.parametrize(("retries", "there", "given_up"), [("", 0, True), ("", 1, False), ("-1", 0, False)])
def test_executors_that_end_one_after_the_other_end_the_job(
    monkeypatch: pytest.MonkeyPatch, retries: str, there: int, given_up: bool
) -> None:
    """Spark's master starts them for ever where two workers take turns; the driver has no task and no error."""
    monkeypatch.setattr(cluster_slots, "POLL_S", 0.01)
    monkeypatch.setattr(cluster_slots, "FIRST_WARNING_S", 0.05)
    end, lines = threading.Event(), []
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = {"spark.deploy.maxExecutorRetries": retries}
    context.cancelAllJobs.side_effect = end.set
    spark = context._jsc.sc.return_value
    spark.isStopped.return_value = False
    spark.getExecutorMemoryStatus.return_value.size.return_value = there + 1
    said = context._jvm.java.io.CharArrayWriter.return_value
    line = "Connected\nExecutor app-1/{} removed: Command exited with code 1\n"
    said.toString.side_effect = map(line.format, range(10_000))
    tracker = context.statusTracker.return_value
    tracker.getActiveStageIds.return_value = [3]
    tracker.getStageInfo.return_value = MagicMock(numActiveTasks=0)

    def tell(text: str) -> None:
        lines.append(text)
        if not given_up and said.reset.call_count > 30:
            end.set()

    def starve() -> list[int]:
        assert end.wait(60), "the job waits for ever"
        if given_up:
            raise RuntimeError("Job 0 cancelled as part of cancellation of all jobs")
        return [1]

    context.parallelize.return_value.mapPartitions.return_value.collect.side_effect = starve
    runner = spark_tasks.SparkRunner(context, tell)
    if not given_up:
        assert runner.run(print, 1, {}, barrier=False) == [1]
        assert "have ended, the last one: Command exited with code 1" in lines[-1]
        return
    with pytest.raises(
        StateError, match=r"end before they can run.*10 executors have ended.*Command exited with code 1"
    ) as told:
        runner.run(print, 1, {}, barrier=False)
    assert told.value.can_retry


def test_ends_before_a_task_ran_do_not_count_after_it() -> None:
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = {}
    context._jsc.sc.return_value.getExecutorMemoryStatus.return_value.size.return_value = 1
    said = context._jvm.java.io.CharArrayWriter.return_value
    said.toString.return_value = "Executor app-1/1 removed: Command exited with code 1\n" * 9
    runner = spark_tasks.SparkRunner(context)
    for running in (0, 1, None, 0):
        runner._check_executor_failures(running)
    assert not context.cancelAllJobs.called
    runner._check_executor_failures(0)
    assert context.cancelAllJobs.called


def test_a_call_on_a_stopped_context_is_reported_as_its_end() -> None:
    """What was gone first decides what Spark says: SparkEnv.get() is null, SparkContext has been shutdown, ..."""
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = {}
    context._jsc.sc.return_value.isStopped.return_value = True
    context._jsc.parallelize.return_value.count.side_effect = RuntimeError("SparkContext has been shutdown")
    with pytest.raises(StateError, match=r"Spark has ended the application of this job.*has been shutdown") as told:
        spark_tasks.SparkRunner(context).slots(2)
    assert told.value.can_retry
    context._jsc.sc.return_value.isStopped.return_value = False
    with pytest.raises(RuntimeError):
        spark_tasks.SparkRunner(context).slots(2)


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.IllegalArgumentException: requirement failed: spark.authenticate.secret must be specified\n\tat x",
        "o.a.s.SparkException: [INVALID_SPARK_CONFIG.NETWORK_AUTH_MUST_BE_ENABLED] spark.authenticate must be enabled",
    ],
)
def test_settings_that_spark_refuses_are_named_and_no_retry_helps(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(main, "require_same_version", lambda *known: None)
    monkeypatch.setattr("pyspark.SparkConf", MagicMock(**{"return_value.get.return_value": "false"}))
    monkeypatch.setattr("pyspark.SparkContext", MagicMock(side_effect=RuntimeError(text)))
    with pytest.raises(ConfigError, match=r"Spark refuses its settings.*spark\.authenticate") as told:
        main._on_spark(print, MagicMock())
    assert not told.value.can_retry and "\n" not in told.value.why
    monkeypatch.setattr("pyspark.SparkContext", MagicMock(side_effect=RuntimeError("no memory")))
    with pytest.raises(RuntimeError, match="no memory"):
        main._on_spark(print, MagicMock())


def test_what_a_worker_collects_before_a_shuffle_is_bounded_unless_somebody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf, context = MagicMock(), MagicMock(side_effect=RuntimeError("stop here"))
    conf.return_value.get.return_value = "false"
    monkeypatch.setattr(main, "require_same_version", lambda *known: None)
    monkeypatch.setattr("pyspark.SparkConf", conf)
    monkeypatch.setattr("pyspark.SparkContext", context)
    with pytest.raises(RuntimeError, match="stop here"):
        main._on_spark(print, MagicMock())
    conf.return_value.setIfMissing.assert_called_once_with("spark.python.worker.memory", "64m")
    assert context.call_args.kwargs["conf"] is conf.return_value.setIfMissing.return_value


def test_tasks_of_another_version_are_refused() -> None:
    require_version(__version__)
    with pytest.raises(ConfigError, match=r"different versions.*the driver has 0\.0\.9"):
        require_version("0.0.9")


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
def test_a_stage_has_a_barrier_where_spark_has_one(conf: dict[str, str]) -> None:
    context = MagicMock(master="spark://one:7077")
    context.getConf.return_value = conf
    rdd = context.parallelize.return_value
    spark_tasks.SparkRunner(context).run(print, 2, {}, barrier=True)
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
    runner.run(print, 2, {}, barrier=True)
    assert context.parallelize.return_value.barrier.called
