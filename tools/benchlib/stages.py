"""What a sampled frame belongs to: the stages of a job, as a picture of its CPU time shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

READ, WALK, DECODE, PRODUCE = "read from MySQL", "split and check events", "decode rows", "produce"
CLIENT, COMMIT, REST = "Kafka client's threads", "commit and ledger", "start and the rest"
STAGES: Mapping[str, str] = {
    READ: "socket, TLS, pieces of packets",
    WALK: "headers, lengths, checksums, positions, transactions, tables; rows of a snapshot found in what came",
    DECODE: "rows to keys and values, with the text around them",
    PRODUCE: "calls of the Kafka client, with the reports of what has arrived",
    CLIENT: "batches, compression, sending, answers: threads without Python",
    COMMIT: "transactions of Kafka, the ledger, messages between tasks and driver, the run's lock",
    REST: "imports, structures, plans, topics, and everything else",
}
"""The stages in the order of a bar, and what each holds."""

# A frame of Rust has a file's name without folders, one of Python its folders from the package on. Compiled parts of
# Python and of libraries name functions, and libraries without debug information only themselves.
_WAITS = re.compile(
    r"(pthread_cond_(timed)?wait|poll|ppoll|select|epoll_wait|sem_(timed|clock)?wait|accept4?|clock_nanosleep) \(libc"
    r"|PyThread_acquire_lock_timed\b"
)
_WAITING_FRAMES = 3
_WHOLE = (
    (REST, re.compile(r"<frozen importlib|/cdc/schema/|/cdc/binlog/(preflight|connect|login|grants)\.py|/sink/topics")),
    (
        COMMIT,
        re.compile(
            r"TransactionalWriter\.(commit|init|renew|abort|close|_begin|_client)\b|/cdc/commit/|/drain/(committer|drain_progress)\.py"
            r"|/job/(job_ledger|coordinator|run_lock|job_log)\.py|/sink/(topic_reader|consumer_cache|plain_writer)\.py"
        ),
    ),
)
"""The stage of everything below such a frame."""
_DECODERS = (
    r"\w+_renderer|row_\w+|text_row\w*|ticdc_\w+|python_records|json_text|mysql_text|binary_json|avro_\w+|java_floats"
    "|decimal|temporal_format|charset|spatial"
)
_TRANSACTIONS = "transaction|transaction_decoder|decoded_transactions|known_tables|binlog_events|text_packets"
_ROW_EVENT = r"(?:^(?:row_event|context|rows|ticdc_rows)|closure[^ ]*) \(transaction\.rs:"
"""Files of the native kernel, and the functions of one that decode the row events of a transaction."""
_INNERMOST = (
    (DECODE, re.compile(rf"\((?:{_DECODERS})\.rs:|{_ROW_EVENT}")),
    (WALK, re.compile(rf"\((?:{_TRANSACTIONS})\.rs:")),
    (READ, re.compile(r"\((?:ssl|socket)\.py:|_?ssl\.c|socketmodule\.c|\(lib(?:ssl|crypto)\.|/binlog/packets\.py")),
    (READ, re.compile(r"pymysql/|_receive \(\S*/snapshot/rows\.py")),
    (PRODUCE, re.compile(r"/cdc/sink/|/drain/record_output\.py|\(confluent_kafka/|\(librdkafka")),
    (WALK, re.compile(r"/cdc/binlog/|/decode/native_transactions\.py|/snapshot/(?:rows|row_spool)\.py")),
    (DECODE, re.compile(r"/cdc/(?:decode|avro|convert|emit|ticdc|formats)/|<decoder")),
    (DECODE, re.compile(r"/snapshot/row_emitter\.py")),
    (WALK, re.compile(r"/cdc/(?:drain|model|incremental)/|/cdc/snapshot/")),
)
"""What the innermost frame belongs to that anything is said of; a library's frame belongs to what called it."""
_THREAD = re.compile(r"thread \((\d+)\)")


@dataclass(frozen=True, slots=True)
class StackSamples:
    """Hold equal samples.

    Args:
        thread: The thread's id in the system.
        frames: Its frames, the outermost first.
        count: Number of samples.
    """

    thread: int
    frames: tuple[str, ...]
    count: int


def samples(text: str) -> Iterator[StackSamples]:
    """Yield what py-spy wrote with ``--format raw --threads``: frames by semicolons and a count, a line a stack.

    Types of Rust have semicolons of their own; a frame that is cut there keeps its file in one of the pieces.

    Args:
        text: The text.
    """
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        first, *frames = stack.split(";")
        if (thread := _THREAD.match(first)) and count.isdigit():
            yield StackSamples(int(thread[1]), tuple(frames), int(count))


def is_waiting(frames: Sequence[str]) -> bool:
    """Return whether a stack waits: a sampler stops a process, and threads that wait look busy as they go on.

    Args:
        frames: The frames, the outermost first.
    """
    return any(_WAITS.match(frame) for frame in frames[-_WAITING_FRAMES:])


def stage_of(frames: Sequence[str]) -> str:
    """Return the stage that a stack belongs to.

    Args:
        frames: The frames, the outermost first.
    """
    for stage, named in _WHOLE:
        if any(named.search(frame) for frame in frames):
            return stage
    for frame in reversed(frames):
        for stage, named in _INNERMOST:
            if named.search(frame):
                return stage
    return REST


def shares(found: Iterable[StackSamples], busy_s: Mapping[int, float]) -> dict[str, float]:
    """Return each stage's share of the CPU time of the threads that a sampler sees.

    Samples show how a thread's time is divided, and the system how much of it there is: a thread that mostly waits has
    as many samples as it has wake-ups.

    Args:
        found: The samples.
        busy_s: CPU seconds of threads by id.
    """
    by_thread: dict[int, Counter[str]] = {}
    for each in found:
        if not is_waiting(each.frames):
            by_thread.setdefault(each.thread, Counter())[stage_of(each.frames)] += each.count
    out = dict.fromkeys(STAGES, 0.0)
    for thread, seconds in busy_s.items():
        stages = by_thread.get(thread) or Counter({REST: 1})
        for stage, count in stages.items():
            out[stage] += seconds * count / stages.total()
    whole = sum(out.values())
    return {stage: seconds / whole for stage, seconds in out.items()} if whole else out
