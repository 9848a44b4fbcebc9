"""What a deferred task's log shows of its driver while the driver works."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.log import mask_secret

from airflow_provider_mysql_cdc.hooks.submission import (
    LEFT_OUT,
    LINE_CHARS,
    TAIL_BYTES,
    TAIL_LINES,
    OutputTail,
    Submission,
)
from airflow_provider_mysql_cdc.triggers.job import FREE_POLLS, NO_HOLDER, MySqlCdcJobTrigger

ERROR = "[mysql-cdc] ConfigError: x is wrong"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "driver.log"


def add(output: Path, text: str) -> None:
    with output.open("a") as file:
        file.write(text)


def submission(output: Path, **more: Any) -> Submission:
    return Submission("j", "name", socket.gethostname(), str(output), **more)


def test_each_line_comes_once_and_a_line_that_is_being_written_with_the_next_look(output: Path) -> None:
    tail = OutputTail(output)
    assert tail.new_lines() == []
    add(output, "one\ntwo\nthr")
    assert tail.new_lines() == ["one", "two"]
    assert tail.new_lines() == []
    add(output, f"ee\n{ERROR}\nfour\n")
    assert tail.new_lines() == ["three", "four"]


def test_a_driver_that_writes_much_does_not_fill_the_log(output: Path) -> None:
    tail = OutputTail(output)
    lines = [f"line {n}" for n in range(TAIL_LINES + 7)]
    add(output, "\n".join(lines) + "\n")
    assert tail.new_lines() == [LEFT_OUT, *lines[7:]]
    add(output, "x" * 2 * TAIL_BYTES + "\nlast\n")
    assert tail.new_lines() == [LEFT_OUT, "last"]
    add(output, "y" * 2 * LINE_CHARS + "\n")
    assert tail.new_lines() == ["y" * LINE_CHARS]
    add(output, "z" * 2 * TAIL_BYTES)
    assert tail.new_lines() == [LEFT_OUT]
    add(output, "\nnext\n")
    assert tail.new_lines()[-1] == "next"


def trigger(made: Submission | None) -> tuple[MySqlCdcJobTrigger, list[str]]:
    found = MySqlCdcJobTrigger(
        submission=None if made is None else made.to_json(),
        owner="d/r/t/-1",
        mysql_cdc_conn_id="mysql_cdc_default",
        kafka_conn_id=None,
        properties={},
        poll_interval=1.0,
    )
    lines: list[str] = []

    class Log:
        def info(self, text: str, *arguments: Any) -> None:
            lines.append(text % arguments)

    found._log = Log()  # type: ignore[assignment]
    return found, lines


def test_the_trigger_writes_them_without_secrets_and_says_how_far_it_came(output: Path) -> None:
    mask_secret("pa55-of-a-driver")
    add(output, "[mysql-cdc] begins\n[mysql-cdc] as cdc:pa55-of-a-driver\n")
    made = submission(output, shown=len("[mysql-cdc] begins\n"))
    found, lines = trigger(made)
    asyncio.run(found.report())
    assert lines == ["[mysql-cdc] as cdc:***"]
    add(output, f"{ERROR}\nlast")
    asyncio.run(found.report())
    assert lines[1:] == []
    event = [found.evaluate(NO_HOLDER) for _ in range(FREE_POLLS)][-1]
    assert event is not None
    rest: list[str] = []
    error = Submission.from_json({**made.to_json(), "shown": event["shown"]}).relay_output(
        lambda text, line: rest.append(text % line)
    )
    assert rest == ["last"] and "x is wrong" in str(error)
    assert not output.exists()


@pytest.mark.parametrize("more", [{"cluster": {"tag": "t"}}, None])
def test_of_a_driver_elsewhere_it_writes_nothing_of_spark_submit(output: Path, more: dict[str, Any] | None) -> None:
    add(output, "Application report for application_1 (state: RUNNING)\n")
    found, lines = trigger(None if more is None else submission(output, **more))
    asyncio.run(found.report())
    assert lines == []
