"""Run jobs with an earlier commit of this provider, in whose tree this process works.

Planning, settling and the job are that commit's. It reads lines of JSON and answers each with one: first the kind and
the properties (``{"kind": "drain", "properties": {...}}``), and the stream stores its start position; then the number
of cores, and a job runs, and the answer has what it used.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kit import Pipeline, submit_command, submit_env  # of the earlier commit's tests

import airflow_provider_mysql_cdc
from benchlib.process_tree import kill_tree, sample_tree, usage


def main() -> None:
    """Answer requests until there are none."""
    tree = Path(sys.argv[1]).resolve()
    used = Path(airflow_provider_mysql_cdc.__file__).resolve()
    if tree not in used.parents:
        sys.exit(f"the earlier commit is in {tree}, and Python took the provider from {used.parent}")
    request = json.loads(sys.stdin.readline())
    pipeline = Pipeline(request["properties"])
    if request["kind"] == "drain":
        pipeline.snapshot()
    _print_result({})
    for line in sys.stdin:
        _print_result(_run(pipeline, request["kind"], json.loads(line)["cores"]))


def _run(pipeline: Any, kind: str, cores: int) -> dict[str, Any]:
    begun = time.process_time()
    job = pipeline.prepare(kind)
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        command = submit_command(job.spec, Path(folder), cores)
        beside_s = time.process_time() - begun
        with subprocess.Popen(command, env=submit_env(), cwd=folder, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                samples = sample_tree(process.pid, lambda: process.poll() is not None)
            except BaseException:
                kill_tree(process.pid)
                raise
        if process.returncode:
            log.seek(0)
            sys.exit(f"the job of the earlier commit ended with code {process.returncode}:\n{log.read()}")
    begun = time.process_time()
    outcome = pipeline.settle()
    if not outcome.complete:
        sys.exit(f"the job of the earlier commit did not finish: {outcome.error}")
    beside_s += time.process_time() - begun
    return {"counts": outcome.counts, "beside_s": beside_s, "used": asdict(usage(samples))}


def _print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


main()
