"""What the bench writes down, and that the documents say it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchlib import pages
from benchlib.process_tree import Usage
from benchlib.run import Run
from benchlib.sessions import RESULT, START, Session, about, merge_sessions, read, write
from benchlib.workload import WORKLOADS

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


def test_a_page_is_created_again_between_its_marks_only() -> None:
    text = "# A\n\n<!-- bench: drains -->\nold\n<!-- /bench -->\nmine\n\n<!-- bench: lag -->\n<!-- /bench -->\n"
    first = pages.page(text, [session("narrow", "lag-run-for")])
    row = "| narrow | this provider | 1,000,000 | 10 | 8.0 | 4.0 | 0% | 200 | 0.200 | 0.133 |"
    assert row in first and "old" not in first and "mine" in first
    assert "| lag-run-for | this provider | 1.25 | 2.50 | 3.00 | 1,000,000 | 48.0 | 0.200 | 200 | 1.5 |" in first
    assert pages.page(first, [session("narrow", "lag-run-for")]) == first
    assert pages.page(first, []).count(pages.NOTHING) == 2
    with pytest.raises(KeyError):
        pages.page("<!-- bench: nonsense -->\n<!-- /bench -->", [])


@pytest.mark.parametrize("output", [["--output", "/home/me/r.json"], ["--output=/home/me/r.json"], []])
def test_a_result_does_not_tell_where_it_was_written(output: list[str]) -> None:
    assert about(["--workload", "wide", *output, "--repeat", "3"], "9")["arguments"] == [
        *("--workload", "wide", "--repeat", "3")
    ]


def test_each_measured_workload_is_on_the_page() -> None:
    found = [session(*WORKLOADS)]
    text = "".join(block(found) for block in pages.BLOCKS.values())
    for name in WORKLOADS:
        assert f"| {name} | this provider |" in text, name
    assert "| narrow without start | at most 0.1 | 0.133 | missed |" in text
    assert "CPU seconds of a start: Debezium" in text


def test_a_session_names_flink_where_it_ran() -> None:
    runs = (run(START, "flink", 18.0, 100), run(START, "python", 5.0, 100), run("flink-narrow", "flink", 40.0))
    beside = Session(ABOUT, (*runs, run("flink-narrow", "python", 10.0)))
    text = pages.BLOCKS["sessions"]([session("narrow"), beside])
    assert text.count(" on Flink 1.20") == 1 and "start: Flink CDC 3.5.0 18.0, this provider 5.0." in text
    assert "| flink-narrow | this provider | 1,000,000 | 10 | 10.0 | 5.0 | 0% | 200 | 0.250 | 0.227 |" in pages.BLOCKS[
        "flink"
    ]([beside])
    earlier = {**ABOUT, "versions": {k: v for k, v in ABOUT["versions"].items() if not k.startswith("flink")}}
    assert "Flink" not in pages.BLOCKS["sessions"]([Session(earlier, session("narrow").runs)])


def test_plots_are_pictures_that_are_the_same_each_time() -> None:
    lines = pages.all_lines([session(*WORKLOADS)])
    for name, draw in pages.PLOTS.items():
        drawn = draw(lines)
        assert drawn is not None and drawn == draw(lines)
        assert "script" not in drawn and "<!--" not in drawn
        texts = {element.text for element in ElementTree.fromstring(drawn).iter() if element.text}
        assert {"this provider", "narrow, python", "linear-1m", "tables-100"} & texts, name
        assert draw([]) is None


def test_pages_are_written_where_they_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, page = tmp_path / "bench" / "result.json", tmp_path / "performance.md"
    monkeypatch.setattr(pages, "RESULT", result)
    monkeypatch.setattr(pages, "PAGE", page)
    page.write_text("<!-- bench: drains -->\n<!-- /bench -->\n")
    write(result, [session("narrow")])
    assert {path.name for path in pages.write_pages()} == {"performance.md", "cpu.svg", "memory.svg", "parts.svg"}
    assert pages.write_pages() == []
    write(result, [session("linear-1m")])
    assert "linear.svg" in {path.name for path in pages.write_pages()}
    write(result, [])
    assert pages.write_pages() and not list(result.parent.glob("*.svg"))
    assert pages.NOTHING in page.read_text()


def test_the_documents_say_what_the_result_file_says() -> None:
    for path, text in pages.files(read(RESULT)).items():
        assert path.exists() and path.read_text(encoding="utf-8") == text, f"{path}: run scripts/bench --docs"
    drawn = {path.name for path in pages.files(read(RESULT)) if path.suffix == ".svg"}
    assert {path.name for path in RESULT.parent.glob("*.svg")} == drawn


def test_the_page_has_a_place_for_each_block() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    for name in pages.BLOCKS:
        assert page.count(f"<!-- bench: {name} -->\n") == 1, name
