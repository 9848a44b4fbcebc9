"""A minute of the soak with a fixed seed, and its end by a signal; its servers are its own."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from demolib import family

ROOT = Path(__file__).resolve().parents[2]
KINDS = (
    "kill driver",
    "kill driver at a step",
    "cut connections",
    "second driver",
    "freeze driver",
    "kill Kafka",
    "kill mysqld",
    "lose the stored offset",
)
# On a machine that is busy with other things a single attempt may take half a minute.
LONGEST_S = 1500

pytestmark = [pytest.mark.exhaustive, pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(LONGEST_S + 60)]


def command(folder: Path, *more: str) -> list[str]:
    return [str(ROOT / "scripts" / "soak"), "--seed", "11", "--dir", str(folder), *more]


@pytest.mark.req("FAULT-01")
def test_a_minute_of_random_faults_leaves_every_event_exactly_once(tmp_path: Path) -> None:
    more = ("--minutes", "1", "--faults", ",".join(KINDS), "--ddl-late")
    done = subprocess.run(
        command(tmp_path, *more), capture_output=True, text=True, timeout=LONGEST_S, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    counts = dict(re.findall(r"^  ([\w ]+): (\d+) of \d+$", done.stdout, re.MULTILINE))
    assert set(counts) == set(KINDS), done.stdout
    assert sum(n != "0" for n in counts.values()) >= 2, done.stdout
    silent = re.search(r"^never fired: (.*)$", done.stdout, re.MULTILINE)
    assert silent is not None and {k for k, n in counts.items() if n == "0"} <= set(silent[1].split(", ")), done.stdout
    assert "VERDICT: every topic equals its table" in done.stdout
    found = re.search(r"events read: ([\d,]+) in", done.stdout)
    assert found is not None and int(found[1].replace(",", "")) > 1000, done.stdout


def test_a_soak_that_gets_a_signal_leaves_nothing_running(tmp_path: Path) -> None:
    soak = subprocess.Popen(command(tmp_path, "--minutes", "30"), stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert soak.stderr is not None
        for line in soak.stderr:
            # The first fault is under way: servers, load, proxy and a driver are running.
            if "soak   stream 1" in line:
                break
        limit = time.monotonic() + 60
        while not list(tmp_path.glob("attempts/*.log")) and time.monotonic() < limit:
            time.sleep(0.05)
        assert family.members(None, f"MYSQL_CDC_SOAK={soak.pid}")
        soak.send_signal(signal.SIGTERM)
        rest = soak.communicate(timeout=300)[1]
        assert soak.returncode == 130, rest
    finally:
        soak.kill()
        soak.wait()
    assert not family.members(None, f"MYSQL_CDC_SOAK={soak.pid}")
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in read(p)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
