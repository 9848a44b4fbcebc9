"""The audit of the locked packages: what it fails for, and what it only says."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from auditlib.__main__ import LOCK, judge, run_audit

CLEAN = {"name": "one", "version": "1", "vulns": []}
UNKNOWN = {"name": "two", "skip_reason": "Dependency not found on PyPI"}
HOLE = {"name": "three", "version": "3", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["3.1"]}]}


def printing(text: str, *, error: str = "") -> list[str]:
    """Return a command that prints a text."""
    return [sys.executable, "-c", f"import sys; sys.stdout.write({text!r}); sys.exit({error!r} or 0)"]


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages})


def test_a_known_vulnerability_fails_and_names_package_and_remedy() -> None:
    code, lines = run_audit(printing(report(CLEAN, HOLE, UNKNOWN), error="found 1"))
    assert code == 1
    assert lines == [
        "three 3: CVE-2026-1 (fixed in 3.1)",
        "dependency audit: 2 packages, 1 known vulnerabilities, 1 packages not known to the index",
    ]


def test_without_one_it_passes() -> None:
    assert judge(json.loads(report(CLEAN))) == (0, ["dependency audit: 1 packages, 0 known vulnerabilities"])


def test_without_a_network_or_an_index_with_advisories_it_is_one_line_and_passes() -> None:
    cases = {
        "no advisories": run_audit(printing(report(UNKNOWN, UNKNOWN))),
        "connection refused": run_audit(printing("", error="a trace\nconnection refused")),
        "did not answer": run_audit([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.5),
    }
    for said, (code, lines) in cases.items():
        assert code == 0
        (line,) = lines
        assert line.startswith("dependency audit skipped: ") and said in line


def test_every_locked_package_has_hashes_and_no_host() -> None:
    text = LOCK.read_text("utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 150
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text
