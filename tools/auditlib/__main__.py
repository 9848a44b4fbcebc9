"""Look the locked packages up among the known vulnerabilities, with pip-audit; without a network this is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
TIMEOUT_S = 300
"""Longest wait for the index; pip-audit asks it about one package after another."""


def judge(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Return the exit code, and what to print."""
    packages = report["dependencies"]
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return 0, [f"dependency audit skipped: the package index knows no advisories ({len(packages)} packages)"]
    lines = [_vulnerability_line(package, found) for package in audited for found in package["vulns"]]
    unknown = len(packages) - len(audited)
    summary = f"dependency audit: {len(audited)} packages, {len(lines)} known vulnerabilities"
    return int(bool(lines)), [*lines, summary + (f", {unknown} packages not known to the index" if unknown else "")]


def _vulnerability_line(package: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    fixed = ", ".join(found["fix_versions"]) or "no version"
    return f"{package['name']} {package['version']}: {found['id']} (fixed in {fixed})"


def run_audit(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> tuple[int, list[str]]:
    """Run pip-audit and return the exit code and what to print; no answer from the index counts as skipped."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        report = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return 0, [f"dependency audit skipped: the package index did not answer within {timeout_s:g} s"]
    except ValueError:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return 0, [f"dependency audit skipped: {reason[:200]}"]
    return judge(report)


def main() -> int:
    """Audit requirements.lock; return 1 where a locked package has a known vulnerability."""
    options = ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    code, lines = run_audit([sys.executable, "-m", "pip_audit", "-r", str(LOCK), *options])
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
