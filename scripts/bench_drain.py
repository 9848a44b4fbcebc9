"""Measure a drain on Spark: records, seconds, CPU seconds of the whole process tree, memory of each process.

    .venv/bin/python scripts/bench_drain.py --mysql HOST:PORT --user root --kafka HOST:PORT --tables bench.orders

drains the server's whole binlog (snapshot.mode=never) into a fresh topic.prefix. docs/performance.md tells how it is
compared with Debezium on the same binlog.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from kit import Pipeline, submit_command, submit_env  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return a process and all its descendants that are alive."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                queue += [int(c) for c in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def usage(pid: int) -> tuple[float, float, str] | None:
    """Return CPU seconds, resident MB and name of a process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return (int(stat[11]) + int(stat[12])) / TICK, peak / 1024, command


def watch(process: subprocess.Popen[str]) -> tuple[float, dict[str, float]]:
    """Sample the process tree until it ends; return CPU seconds in all and peak MB of each kind of process."""
    cpu: dict[int, float] = {}
    peak: dict[str, float] = {}
    while process.poll() is None:
        for pid in children(process.pid):
            sample = usage(pid)
            if sample is None:
                continue
            cpu[pid] = max(cpu.get(pid, 0.0), sample[0])
            kind = next((k for k in ("pyspark.daemon", "java", "python") if k in sample[2]), "other")
            peak[kind] = max(peak.get(kind, 0.0), sample[1])
        time.sleep(0.1)
    return sum(cpu.values()), peak


def main() -> None:
    """Run one measurement and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mysql", required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--tables", required=True)
    parser.add_argument("--schemas", default="false")
    parser.add_argument("--writers", default="1")
    parser.add_argument("--property", action="append", default=[])
    options = parser.parse_args()
    host, port = options.mysql.split(":")
    properties = {
        "topic.prefix": f"bench{int(time.time())}",
        "database.hostname": host,
        "database.port": port,
        "database.user": options.user,
        "database.password": options.password,
        "table.include.list": options.tables,
        "kafka.bootstrap.servers": options.kafka,
        "topic.creation.default.replication.factor": "1",
        "snapshot.mode": "never",
        "drain.writers": options.writers,
        "key.converter.schemas.enable": options.schemas,
        "value.converter.schemas.enable": options.schemas,
        **dict(p.split("=", 1) for p in options.property),
    }
    pipeline = Pipeline(properties)
    job = pipeline.prepare("drain")
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        process = subprocess.Popen(
            submit_command(job.spec, Path(folder), cores=max(2, int(options.writers))),
            env=submit_env(),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        cpu, peak = watch(process)
        wall = time.monotonic() - began
        output = process.stdout.read() if process.stdout else ""
    outcome = pipeline.settle()
    records = sum(outcome.counts.values())
    if process.returncode or not outcome.complete:
        sys.exit(output)
    print(
        json.dumps(
            {
                "records": records,
                "wall_s": round(wall, 1),
                "cpu_s": round(cpu, 2),
                "cpu_s_per_million": round(cpu / records * 1e6, 2),
                "peak_mb": {k: round(v) for k, v in peak.items()},
                "load1": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
