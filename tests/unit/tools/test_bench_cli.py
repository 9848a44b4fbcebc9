"""How scripts/bench goes through its workloads, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchlib import cli
from benchlib.process_tree import Usage
from benchlib.run import Run
from benchlib.sessions import START, read
from benchlib.sides import Side
from benchlib.workload import Workload
from kit.cases import case

from airflow_provider_mysql_cdc.cdc.errors import CdcError

CPU_S = {"debezium": 100.0, "flink": 40.0, "python": 20.0, "native": 5.0}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace servers and runs; return the names of the workloads that were begun together."""
    together: list[list[str]] = []

    @contextmanager
    def ground(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(source=SimpleNamespace(version=lambda: "9.7.4"))

    @contextmanager
    def server(given: Any, version: str | None, _: Path) -> Iterator[Any]:
        if version:
            together.append([f"MySQL {version}"])
        try:
            yield given
        finally:
            if version:
                together.append(["ended"])

    def measured(_: Any, workloads: Sequence[Workload], sides: Sequence[Side], *__: Any) -> Iterator[Run]:
        together.append([workload.name for workload in workloads])
        for workload in workloads:
            if workload.name == "one-transaction":
                raise CdcError("Kafka went away")
            for side in sides:
                if not side.provider and side.name != workload.peer:
                    continue
                share = 1e-5 if workload.name == START else workload.rows / 1e6
                cpu_s = CPU_S[side.name] * share
                used = Usage(cpu_s, cpu_s, {"java": cpu_s}, {"java": CPU_S[side.name]})
                yield Run(workload.name, side.name, workload.rows, used)

    monkeypatch.setattr(cli, "_ground", ground)
    monkeypatch.setattr(cli, "on_server", server)
    monkeypatch.setattr(cli, "measure_workloads", measured)
    monkeypatch.setattr(cli, "kernel_version", lambda: "9.9")
    return together


def test_the_last_line_has_all_ratios_and_a_missed_target_is_an_exit_code(
    begun: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [f"--side={name}" for name in CPU_S]
    assert cli.main(["--quick", *sides]) == 0
    assert begun == [[START], ["narrow", "avro", "snapshot"], ["narrow-schemas"], ["wide"], ["incremental"]]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("ratios to Debezium") and "wide 0.200 / 0.050" in last and "missed" not in last
    assert cli.main(["--workload=narrow", "--side=debezium", "--side=python"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("narrow 0.200; missed: narrow 0.2 (> 0.167), narrow without start 0.2 (> 0.1)")


def test_what_fails_keeps_nothing_else_from_being_measured(
    begun: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    chosen = [f"--workload={name}" for name in ("single-row", "one-transaction", "compressed")]
    assert cli.main([*chosen, "--scale=0.01", "--side=python", f"--output={path}"]) == 2
    assert "error: Kafka went away" in capsys.readouterr().err
    (session,) = read(path)
    assert [run.workload for run in session.runs] == [START, "single-row", "compressed"]
    assert session.about["versions"]["mysql"] == "9.7.4"
    assert cli.main(["--workload=one-transaction", "--side=python"]) == 2


def test_a_server_ends_when_the_bench_gets_a_signal_between_two_runs(
    begun: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*_: Any) -> None:
        if begun[-1] == ["flink-narrow"]:
            raise SystemExit(143)

    monkeypatch.setattr(cli, "_log", told)
    with pytest.raises(SystemExit) as found:
        cli.main(["--workload=flink-narrow"])
    assert begun[-1] == ["ended"] and found.value.code == 143


def test_a_result_file_that_is_damaged_is_reported_and_left_as_it_is(
    begun: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ["", "{", "[]", "{}", '{"sessions": [{}]}', '{"sessions": [{"runs": [{}]}]}']:
        with case(text):
            path = tmp_path / "result.json"
            path.write_text(text)
            assert cli.main(["--workload=compressed", "--side=python", f"--output={path}"]) == 2
            error = capsys.readouterr().err
            assert begun == [] and path.read_text() == text
            assert error.startswith("error: reading measurements") and str(path) in error and error.count("\n") == 1


def test_an_argument_that_says_nothing_is_refused_at_once(begun: list[list[str]]) -> None:
    for wrong in ["--property=a", "--property==b", "--repeat=0", "--cores=-1", "--scale=nan"]:
        with case(wrong):
            with pytest.raises(SystemExit):
                cli.main(["--workload=compressed", wrong])
            assert begun == []
