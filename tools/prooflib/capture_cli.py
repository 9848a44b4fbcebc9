"""Command line of scripts/capture."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from stacklib import StackError

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from prooflib.capture import capture, say
from prooflib.scratch import scratch_stack
from prooflib.workload import ProofError, read_properties, read_workload

OK, STOPPED, UNUSABLE = 0, 1, 2


def main(argv: list[str] | None = None) -> int:
    """Run a capture; return 0, 1 when the pipeline stopped with an error, 2 when it could not begin."""
    parser = argparse.ArgumentParser(
        prog="scripts/capture",
        description="Run a workload through the pipeline on scratch servers and write every record as a JSON line. "
        "The scratch MySQL's databases are dropped and its binary logs reset.",
    )
    parser.add_argument("workload", type=Path, help="SQL in sections (-- @setup, @both, @change, @sessionX, ...)")
    parser.add_argument("mode", type=Path, help="connector properties in addition to the base ones, name=value lines")
    parser.add_argument("out", type=Path, help="file of records, .jsonl or .jsonl.gz")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="one more property")
    parser.add_argument("--registry", metavar="URL", help="the schema registry, for a mode that writes Avro")
    parser.add_argument("--dir", type=Path, help="folder of the scratch servers (default .stack/proof)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what the pipeline says")
    args = parser.parse_args(argv)
    try:
        workload, mode = read_workload(args.workload), read_properties(args.mode)
        mode |= {name: value for name, _, value in (text.partition("=") for text in args.set)}
        log = say if args.verbose else lambda _: None
        done = capture(workload, mode, scratch_stack(args.dir), log, registry=args.registry)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        done.write(args.out)
    except CdcError as error:
        say(f"error: {type(error).__name__}: {error}")
        return UNUSABLE
    except (ProofError, StackError, OSError) as error:
        say(f"error: {error}")
        return UNUSABLE
    for text in done.client_errors:
        say(text)
    if done.error is not None:
        say(f"error: the pipeline stopped: {type(done.error).__name__}: {done.error}")
    mode_name = args.mode.name.removesuffix(".properties")
    summary = {
        "workload": workload.name,
        "mode": mode_name,
        "records": len(done.lines),
        "topics": len(done.counts),
        "batches": done.batches,
        "error": type(done.error).__name__ if done.error else None,
    }
    print(json.dumps(summary), flush=True)
    return OK if done.error is None else STOPPED


if __name__ == "__main__":
    sys.exit(main())
