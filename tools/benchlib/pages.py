"""What docs/performance.md says of the bench: text and tables between marks, and plots, all from the result files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from stacklib.settings import REPOSITORY

from benchlib.plots import PLOTS
from benchlib.result import Figures, WorkloadLine
from benchlib.sessions import RESULT, Session, read
from benchlib.sides import FLINK, SIDES, Side
from benchlib.targets import verdicts
from benchlib.workload import WORKLOADS

PAGE = REPOSITORY / "docs" / "performance.md"
NOTHING = "Not measured yet: `scripts/bench` writes the result file."
_MARKED = re.compile(r"(<!-- bench: (?P<name>[a-z]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
_HEAD = (
    "| workload | who | records | wall s | CPU s a million | without start | spread | "
    "peak MB | ratio | without start |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def page(text: str, sessions: Sequence[Session]) -> str:
    """Return a page with the text between its marks generated again.

    Raises:
        KeyError: A mark names nothing that is known.
    """

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}{BLOCKS[found['name']](sessions) or NOTHING}\n{found[3]}"

    return _MARKED.sub(block, text)


def files(sessions: Sequence[Session]) -> dict[Path, str]:
    """Return all files that are made from the result file, with their text."""
    found = {PAGE: page(PAGE.read_text(encoding="utf-8"), sessions)}
    lines = all_lines(sessions)
    for name, draw in PLOTS.items():
        if (drawn := draw(lines)) is not None:
            found[RESULT.parent / f"{name}.svg"] = drawn
    return found


def write_pages() -> list[Path]:
    """Generate all files again, and remove plots of what is no longer measured; return the files that changed."""
    changed, made = [], files(read(RESULT))
    for path in set(RESULT.parent.glob("*.svg")) - set(made):
        path.unlink()
        changed.append(path)
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def all_lines(sessions: Sequence[Session]) -> list[WorkloadLine]:
    """Return the lines of all sessions in the order of the workloads."""
    found = {line.workload: line for session in sessions for line in session.lines}
    return [found[name] for name in WORKLOADS if name in found]


def rows(lines: Sequence[WorkloadLine]) -> Iterator[str]:
    """Yield the rows of a table, one a side."""
    for line in lines:
        for side, found in line.sides.items():
            steady = "" if found.steady_s is None else f"{found.steady_s:.1f}"
            yield (
                f"| {line.workload} | {_title(SIDES[side], found)} | {found.records:,} | {found.wall_s:.0f} | "
                f"{found.cpu_s:.1f} | {steady} | {found.spread:.0%} | {found.peak_mb:,.0f} | "
                f"{_share(line.ratio(side))} | {_share(line.ratio(side, steady=True))} |"
            )


def table(lines: Sequence[WorkloadLine]) -> str:
    """Return a table of all sides; empty without lines."""
    return "\n".join((*_HEAD, *rows(lines))) if lines else ""


def _title(side: Side, found: Figures) -> str:
    """Return who ran, and whether the kernel left all rows to Python."""
    return f"{side.title}, which left the rows to Python" if side.native and not found.native else side.title


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _lines_of(begins: Sequence[str], sessions: Sequence[Session]) -> str:
    found = [line for line in all_lines(sessions) if line.workload.startswith(tuple(begins))]
    if not found:
        return ""
    names = "\n".join(f"* `{line.workload}`: {WORKLOADS[line.workload].about}" for line in found)
    return f"{table(found)}\n\n{names}"


def _lag(sessions: Sequence[Session]) -> str:
    out = [
        "| workload | who | median s | 95 of 100 s | most s | changes | CPU s a minute | ratio | peak MB | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in all_lines(sessions):
        for side, found in line.sides.items():
            if lag := found.lag_s:
                out.append(
                    f"| {line.workload} | {SIDES[side].title} | {lag['p50']:.2f} | {lag['p95']:.2f} | "
                    f"{lag['max']:.2f} | {found.records:,} | {found.busy * 60:.1f} | {_share(line.ratio(side))} | "
                    f"{found.peak_mb:,.0f} | {found.load:.1f} |"
                )
    return "\n".join(out) if len(out) > 2 else ""


def _targets(sessions: Sequence[Session]) -> str:
    found = [verdict for session in sessions for verdict in verdicts(session.lines)]
    if not found:
        return ""
    out = ["| target | wanted | measured | |", "|---|---|---|---|"]
    for each in found:
        wanted = f"at {'most' if each.at_most else 'least'} {each.limit:.3g}"
        out.append(f"| {each.about} | {wanted} | {each.value:.3g} | {'missed' if each.missed else 'reached'} |")
    return "\n".join(out)


def _sessions(sessions: Sequence[Session]) -> str:
    return "\n".join(f"* {_session(session)}" for session in sessions)


def _session(session: Session) -> str:
    about = session.about
    machine, versions = about["machine"], about["versions"]
    starts = ", ".join(f"{SIDES[side].title} {s:.1f}" for side, s in session.starts.items())
    loads = [run.load for run in session.runs]
    kernel = f", native kernel {versions['kernel']}" if versions["kernel"] else ""
    flink = f"{FLINK.title} on Flink {versions['flink']}, " if FLINK.name in session.starts else ""
    return (
        f"{about['at'][:10]}, commit {about['commit']}, `scripts/bench {' '.join(about['arguments'])}`: "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"load {min(loads):.1f} to {max(loads):.1f}; MySQL {versions['mysql']}, "
        f"Kafka {versions['kafka']}, Debezium {versions['debezium']} in Connect {versions['connect']}, "
        f"{flink}Spark {versions['spark']}, Python {versions['python']}{kernel}. "
        f"CPU seconds of a start: {starts}."
    )


def _plots(sessions: Sequence[Session]) -> str:
    lines = all_lines(sessions)
    return "\n".join(f"![{name}](bench/{name}.svg)" for name, draw in PLOTS.items() if draw(lines) is not None)


def _table_of(*begins: str) -> Callable[[Sequence[Session]], str]:
    return partial(_lines_of, begins)


BLOCKS: Mapping[str, Callable[[Sequence[Session]], str]] = {
    "sessions": _sessions,
    "targets": _targets,
    "drains": _table_of("narrow", "wide", "single-row", "one-transaction", "compressed"),
    "kinds": _table_of("updates", "key-updates", "deletes", "skipped-bytes"),
    "forms": _table_of("avro", "unwrap", "ticdc"),
    "snapshots": _table_of("snapshot", "incremental"),
    "verify": _table_of("verify"),
    "tables": _table_of("tables-1"),
    "linear": _table_of("linear"),
    "writers": _table_of("tables-writers", "hot-writers", "tables-cores", "hot-cores"),
    "flink": _table_of("flink"),
    "fleet": _table_of("fleet"),
    "lag": _lag,
    "plots": _plots,
}
