"""What the bench writes down, and that the documents say it."""

from __future__ import annotations

import json
from pathlib import Path

from benchlib import pages
from benchlib.process_tree import Usage
from benchlib.run import Run
from benchlib.sessions import RESULT, START, Session, about, merge_sessions, read, write

ABOUT = about(["--quick"], "9.7.4")


def run(workload: str, side: str, cpu_s: float, records: int = 1_000_000) -> Run:
    lag_s = {"p50": 1.25, "p95": 2.5, "max": 3.0} if workload.startswith(("lag", "connect")) else {}
    return Run(workload, side, records, Usage(10.0, cpu_s, {"java": cpu_s}, {"java": 200}), load=1.5, lag_s=lag_s)


def session(*workloads: str) -> Session:
    runs = [run(START, "debezium", 10.0, 100), run(START, "python", 4.0, 100), run(START, "python", 5.0, 100)]
    for workload in workloads:
        runs += [run(workload, "debezium", 40.0), run(workload, "python", 8.0)]
    return Session(ABOUT, tuple(runs))


def test_a_result_file_says_the_same_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    assert read(path) == []
    written = [session("narrow"), session("wide")]
    write(path, written)
    assert read(path) == written
    assert read(path)[0].starts == {"debezium": 10.0, "python": 4.0}
    assert len(json.loads(path.read_text())["sessions"]) == 2


def test_what_is_measured_again_replaces_what_was_there() -> None:
    def workloads(given: list[Session]) -> list[list[str]]:
        return [sorted({run.workload for run in each.runs}) for each in given]

    earlier = [session("narrow", "wide"), session("snapshot")]
    found = merge_sessions(earlier, session("snapshot", "wide"))
    assert workloads(found) == [["narrow", START], ["snapshot", START, "wide"]]
    assert workloads(merge_sessions([], session())) == [[START]]


def test_the_documents_say_what_the_result_file_says() -> None:
    for path, text in pages.files(read(RESULT)).items():
        assert path.exists() and path.read_text(encoding="utf-8") == text, f"{path}: run scripts/bench --docs"
    drawn = {path.name for path in pages.files(read(RESULT)) if path.suffix == ".svg"}
    assert {path.name for path in RESULT.parent.glob("*.svg")} == drawn


def test_the_page_has_a_place_for_each_block() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    for name in pages.BLOCKS:
        assert page.count(f"<!-- bench: {name} -->\n") == 1, name
