"""Readings of pipelines: one at a time each, few in all, and never an error for the page of the others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import Sample
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading
from airflow_provider_mysql_cdc.plugins.pipelines import Pipeline, PipelineTask
from airflow_provider_mysql_cdc.plugins.status_cache import (
    FRESH_S,
    KEPT_S,
    MAX_AGE_S,
    OVERDUE_S,
    THREADS,
    WAITERS,
    StatusCache,
    metrics_text,
)

pytestmark = pytest.mark.quick


def task(name: str) -> PipelineTask:
    return PipelineTask(name, f"{name}_drain", "drain", "drain")


class Sources:
    """Sources that answer when the test lets them."""

    def __init__(self) -> None:
        self.now, self.asked, self.at_work, self.most = 0.0, [], 0, 0
        self.answers = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()
        self.cache = StatusCache(self.read, lambda: self.now)

    def read(self, asked: PipelineTask) -> PipelineReading:
        with self._lock:
            self.asked.append(asked.conn_id)
            self.at_work += 1
            self.most = max(self.most, self.at_work)
        (self.answers if asked.conn_id.startswith("hung") else self.open).wait(30)
        with self._lock:
            self.at_work -= 1
        if asked.conn_id == "broken":
            raise RuntimeError("of a driver, with pa55")
        sample = Sample("mysql_cdc_lag_bytes", "gauge", "Bytes.", (("server", asked.conn_id[0]),), 1.0)
        return PipelineReading({"state": asked.conn_id}, (sample,))


@pytest.fixture
def sources() -> Iterator[Sources]:
    made = Sources()
    yield made
    made.open.set()
    made.answers.set()
    made.cache.close()


def test_a_reading_is_shown_again_while_it_is_fresh(sources: Sources) -> None:
    first = sources.cache.get(task("a"), 30)
    assert first.content is not None and first.content.report == {"state": "a"} and not first.running
    sources.now += FRESH_S - 1
    assert sources.cache.get(task("a"), 30).age_s == FRESH_S - 1
    assert sources.asked == ["a"]
    sources.now += 2
    assert sources.cache.get(task("a"), 30).age_s == 0
    assert sources.asked == ["a", "a"]


def test_who_asks_meanwhile_gets_the_reading_before_and_asks_nothing(sources: Sources) -> None:
    sources.cache.get(task("a"), 30)
    sources.now += FRESH_S + 1
    sources.open.clear()
    readings = [sources.cache.get(task("a"), 0) for _ in range(5)]
    assert all(r.running and r.content is not None and r.age_s == FRESH_S + 1 for r in readings)
    assert len(sources.asked) <= 2


def test_few_pipelines_are_read_at_once(sources: Sources) -> None:
    sources.open.clear()
    for number in range(50):
        assert sources.cache.get(task(f"p{number}"), 0).running
    sources.open.set()
    for number in range(50):
        assert not sources.cache.get(task(f"p{number}"), 30).running
    assert len(sources.asked) == 50 and sources.most <= THREADS


def test_a_pipeline_that_cannot_be_read_says_so_without_the_error_s_text(sources: Sources) -> None:
    reading = sources.cache.get(task("broken"), 30)
    assert reading.content is not None and reading.content.report["state"] == "unknown"
    assert "page" in reading.content.report["unread"] and "pa55" not in str(reading.content.report)


def test_other_arguments_are_another_reading(sources: Sources) -> None:
    sources.cache.get(task("a"), 30)
    other = PipelineTask("a", "a_drain", "drain", "drain", properties={"topic.prefix": "b"})
    assert sources.cache.known(other).content is None
    sources.cache.get(other, 30)
    assert sources.asked == ["a", "a"]


def test_readings_that_nobody_asks_for_are_forgotten(sources: Sources) -> None:
    sources.cache.get(task("a"), 30)
    sources.now += KEPT_S + 1
    sources.cache.get(task("b"), 30)
    assert sources.cache.known(task("a")).content is None


def test_metrics_of_all_pipelines_have_no_sample_twice(sources: Sources) -> None:
    pipelines = [Pipeline(name, (task(name),)) for name in ("ab", "ac", "b", "broken")]
    text = metrics_text(sources.cache, pipelines, 30)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert sorted(line for line in lines if "lag_bytes" in line) == [
        'mysql_cdc_lag_bytes{server="a"} 1',
        'mysql_cdc_lag_bytes{server="b"} 1',
    ]
    assert 'mysql_cdc_page_pipeline_read{connection="ac"} 1' in lines
    assert 'mysql_cdc_page_pipeline_read{connection="broken"} 0' in lines


def test_metrics_begin_all_readings_before_they_wait_for_one(sources: Sources) -> None:
    sources.open.clear()
    times: list[Any] = iter([0.0, *[100.0] * 10])  # type: ignore[assignment]
    text = metrics_text(sources.cache, [Pipeline(n, (task(n),)) for n in ("a", "b")], 1, lambda: next(times))
    assert len(sources.cache._begun) == 2
    assert "pipeline_read{" not in text, "nothing is known yet, and so nothing is said"


def test_metrics_of_minutes_ago_are_absent(sources: Sources) -> None:
    pipelines = [Pipeline("a", (task("a"),))]
    assert "lag_bytes" in metrics_text(sources.cache, pipelines, 30)
    sources.open.clear()
    sources.now += MAX_AGE_S
    assert "lag_bytes" in metrics_text(sources.cache, pipelines, 0)
    sources.now += 1
    assert metrics_text(sources.cache, pipelines, 0) == ""


def test_sources_that_hang_for_good_delay_others_for_a_minute_and_are_said(sources: Sources) -> None:
    hung = [task(f"hung{number}") for number in range(THREADS)]
    for each in hung:
        sources.cache.get(each, 0)
    assert sources.cache.get(task("a"), 0).running
    assert all(sources.cache.get(each, 0).running for each in hung)
    sources.now += OVERDUE_S
    overdue = sources.cache.get(hung[0], 30)
    assert overdue.content is not None and "has not answered" in overdue.content.report["unread"]["page"]["what"]
    assert not overdue.running, "the browser need not ask again every second"
    assert sources.cache.get(task("a"), 10).content is not None
    assert sources.asked.count("hung0") == 1, "what hangs is not asked a second time meanwhile"


def test_few_requests_wait_at_the_same_time(sources: Sources) -> None:
    sources.open.clear()
    waiting = [threading.Thread(target=sources.cache.get, args=(task(f"p{n}"), 30)) for n in range(WAITERS)]
    for thread in waiting:
        thread.start()
    while sources.cache._waiters < WAITERS:
        threading.Event().wait(0.01)
    answered = threading.Event()
    late = threading.Thread(target=lambda: (sources.cache.get(task("late"), 30), answered.set()))
    late.start()
    assert answered.wait(20), "Airflow's own requests need threads too"
    assert sources.cache._waiters == WAITERS
    sources.open.set()
    for thread in (*waiting, late):
        thread.join()
    assert sources.cache._waiters == 0


def test_a_source_that_hangs_does_not_keep_the_api_server_from_ending() -> None:
    code = (
        "import time\n"
        "from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask\n"
        "from airflow_provider_mysql_cdc.plugins.status_cache import StatusCache\n"
        "cache = StatusCache(lambda task: (time.sleep(10), print('waited for', flush=True)))\n"
        "print(cache.get(PipelineTask('a', 'a', 'a', 'drain'), 0.1).running)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True"], "the process has not waited for its reading"
