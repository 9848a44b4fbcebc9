"""Command line of scripts/compare."""

from __future__ import annotations

import argparse
import io
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from prooflib.differ import Difference, Result, compare
from prooflib.explained import Entry, read_explained
from prooflib.lines import read_lines
from prooflib.records import parse_records
from prooflib.time_kinds import SERVER_ZONE, session_zones
from prooflib.workload import ProofError, read_properties

OK, DIFFERENT, UNUSABLE = 0, 1, 2
LIST = Path(__file__).resolve().parents[2] / "docs" / "debezium-differences.md"
_KEYS_SHOWN = 3


def case_of(path: Path) -> str:
    """Return ``workload/mode`` of a capture's file, from its name and its folder's."""
    return f"{path.resolve().parent.name}/{path.name.removesuffix('.gz').removesuffix('.jsonl')}"


def settings_of(path: Path) -> dict[str, str]:
    """Return the properties next to a recorded capture (``mode.used.properties``), if they do."""
    used = path.with_name(f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}.used.properties")
    return read_properties(used) if used.exists() else {}


def judge(
    case: str, result: Result, entries: Sequence[Entry], settings: Mapping[str, str] | None = None
) -> tuple[list[Difference], Counter[Entry]]:
    """Return the differences that no entry names, and how often each entry was used."""
    unexplained, used = [], Counter[Entry]()
    applicable = [e for e in entries if e.applies_to(case, settings)]
    for difference in result.differences:
        entry = next((e for e in applicable if e.names(difference, settings)), None)
        if entry is None:
            unexplained.append(difference)
        else:
            used[entry] += 1
    return unexplained, used


def report(differences: Sequence[Difference]) -> list[str]:
    """Return one line for each difference; the same difference of several records of a topic is reported once."""
    groups: dict[tuple[str, str, str], list[Difference]] = {}
    for d in differences:
        groups.setdefault((d.topic, d.where, d.values()), []).append(d)
    lines = []
    for (topic, where, values), members in groups.items():
        keys = [f"{d.key}#{d.number}" for d in members[:_KEYS_SHOWN]]
        more = f" and {len(members) - _KEYS_SHOWN} more" if len(members) > _KEYS_SHOWN else ""
        lines.append(f"{topic} key={' '.join(keys)}{more} {where}: {values}")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Compare two captures; return 0, 1 when a difference is left that the list does not name, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="scripts/compare",
        description="Print every difference between a capture and a recorded one, by topic, key and JSON path.",
    )
    parser.add_argument("ours", type=Path, help="capture made by scripts/capture, .jsonl or .jsonl.gz")
    parser.add_argument("theirs", type=Path, help="recorded capture; its folder and name are the workload and mode")
    parser.add_argument("--differences", type=Path, default=LIST, help="list of explained differences")
    parser.add_argument("--case", help="workload/mode, if the recorded file's path does not say it")
    parser.add_argument(
        "--properties",
        type=Path,
        help="properties of the recorded connector, name=value lines, if they are not next to the recording",
    )
    parser.add_argument(
        "--server-zone",
        metavar="ZONE",
        default="UTC",
        help="time zone of the servers of both captures, as --server-zone=Europe/Berlin or =+02:00 (default UTC)",
    )
    parser.add_argument("--explained", action="store_true", help="print the explained differences as well")
    args = parser.parse_args(argv)
    # A text that column.truncate.to cuts may end with half of a character.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        ours, theirs = (parse_records(read_lines(p), str(p)) for p in (args.ours, args.theirs))
        entries = read_explained(args.differences)
        settings = read_properties(args.properties) if args.properties else settings_of(args.theirs)
        settings = {**settings, SERVER_ZONE: args.server_zone}
        result = compare(ours, theirs, session_zones(settings))
        case = args.case or case_of(args.theirs)
        unexplained, used = judge(case, result, entries, settings)
    except (ProofError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE
    for line in report(unexplained):
        print(line)
    if args.explained:
        for line in report([d for d in result.differences if d not in unexplained]):
            print(f"explained: {line}")
    for part in sorted(result.without_schemas):
        print(f"note: one of the captures has {part}s without schemas; their payloads are compared")
    if result.moved:
        print(f"note: {result.moved} transactions of sessions beside each other were committed in another order")
    for (recorded_file, begin), file, distance in result.shifted:
        print(f"note: binlog positions from {recorded_file}:{begin} on are shifted by {distance:+d} (in {file})")
    for entry, times in used.items():
        print(f"explained {times}x by {args.differences.name}:{entry.line}: {entry.reason}")
    print(
        f"{case}: {result.records} records, {result.equal} equal, {len(result.differences) - len(unexplained)} "
        "differences "
        f"explained, {len(unexplained)} left"
    )
    return DIFFERENT if unexplained else OK


if __name__ == "__main__":
    sys.exit(main())
