"""Spark tasks that carry out the tasks of one stream of a fleet after the other.

A Spark job for the writer of each stream costs more CPU than the few rows of a quiet stream. So a fleet starts one
Spark task for each slot, which asks the driver for a call, carries it out, and asks for the next one. A call is the
task of a stream as its driver would have given it to Spark.

A named error is the answer to its call. With any other exception, or when its worker or executor is lost, the Spark
task ends as it would without calls; the call that it had ends with that, and others carry out the next calls.
"""

from __future__ import annotations

import base64
import hmac
import pickle
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.fleet.shared_slots import SharedSlots
from airflow_provider_mysql_cdc.cdc.job.coordinator import MAX_LINE_BYTES, Coordinator, CoordinatorClient, Endpoint
from airflow_provider_mysql_cdc.cdc.job.task_barrier import lost_task_error
from airflow_provider_mysql_cdc.cdc.job.task_operation import TaskOperation
from airflow_provider_mysql_cdc.cdc.job.task_runner import ArgumentsT, TaskResultT, TaskRunner
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record

LINGER_S = 0.5
"""Seconds for which a slot waits for the next call before it is given back."""
CLOSE_S = 5.0
"""Seconds in which the Spark tasks may end by themselves."""
MAX_CALL_BYTES = MAX_LINE_BYTES // 2
"""Longest call and longest result in a message; a longer call, with the structures of very many tables, is a Spark job
of its own, and a longer result is that of its Spark task."""


@dataclass(frozen=True, slots=True)
class SlotArguments:
    """Hold what the Spark task of a slot is started with.

    Args:
        address: Host and port of the driver.
        token: Its secret.
        key: Signs calls and results; it never travels over the connection that they do.
        slot: The task's number, different for each that the driver has started.
    """

    address: tuple[str, int]
    token: str
    key: bytes
    slot: int


@dataclass(frozen=True, slots=True)
class CallRequest(Record):
    """Ask for the next call.

    Args:
        done: Number of the call that was carried out; 0 for none.
        result: Its result, signed; empty where it has failed.
        error: The named error that it ended with.
    """

    done: int = 0
    result: str = ""
    error: CdcError | None = None


@dataclass(frozen=True, slots=True)
class NextCall(Record):
    """Hold a call to carry out.

    Args:
        number: Its number; 0 where there is none, and the task ends.
        call: Function, index and arguments, signed.
    """

    number: int = 0
    call: str = ""


NEXT_CALL = TaskOperation("fleet_call", CallRequest, NextCall)


def sign(value: object, key: bytes) -> str:
    """Return a value as text with its signature.

    Args:
        value: It can be pickled.
        key: The key.
    """
    data = pickle.dumps(value)
    return base64.b64encode(hmac.digest(key, data, "sha256") + data).decode()


def open_signed(text: str, key: bytes) -> Any:
    """Return the value of a text that has the right signature.

    Args:
        text: From ``sign``.
        key: The key.

    Raises:
        StateError: It was written by somebody else.
    """
    data = base64.b64decode(text)
    signature, data = data[:32], data[32:]
    if not hmac.compare_digest(signature, hmac.digest(key, data, "sha256")):
        raise StateError(
            "a message between the driver of a fleet and a task has a wrong signature",
            remedy="find out what answers in the place of the driver or the task on this network; a retry can help",
            retriable=True,
        )
    return pickle.loads(data)


@dataclass(frozen=True, slots=True)
class LargeResult:
    """Hold the result of a call that is too large for a message; it ends the Spark task, whose result it is.

    Args:
        number: Number of the call.
        result: Its result.
    """

    number: int
    result: Any


def slot_task(index: int, arguments: SlotArguments) -> LargeResult | None:
    """Carry out one call after another; called in a Spark task.

    Args:
        index: Index of the task, always 0.
        arguments: What it was started with.

    Returns:
        The result of the last call where it is too large for a message.
    """
    request, key = CallRequest(), arguments.key
    with CoordinatorClient(arguments.address, arguments.token, arguments.slot) as channel:
        while (call := channel.call(NEXT_CALL, request)).number:
            task, task_index, task_arguments = open_signed(call.call, key)
            try:
                result = task(task_index, task_arguments)
            except CdcError as error:
                request = CallRequest(call.number, error=error)
                continue
            signed = sign(result, key)
            if len(signed) > MAX_CALL_BYTES:
                return LargeResult(call.number, result)
            request = CallRequest(call.number, signed)
    return None


@dataclass(slots=True, eq=False)
class _Call:
    """Hold a call on the driver.

    Args:
        number: Its number, from 1 on.
        signed: Function, index and arguments.
        ended: Whether it has a result or an error.
        result: Its result.
        error: What it ended with.
    """

    number: int
    signed: str
    ended: bool = False
    result: Any = None
    error: BaseException | None = None


class SlotTasks:
    """Carry out calls on the slots of a fleet, first come, first served.

    Args:
        runner: Runs the Spark tasks of the slots.
        slots: The slots of that runner.
        endpoint: Where the drivers of the streams, and these tasks, listen.
    """

    def __init__(self, runner: TaskRunner, slots: SharedSlots, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._runner, self._slots, self._key = runner, slots, secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._running: dict[int, _Call] = {}
        self._numbers = self._started = 0
        self._closed = False
        self._live: set[int] = set()
        self._asked: set[int] = set()
        self._coordinator = Coordinator([NEXT_CALL.handled_by(self._next)], endpoint)

    def close(self) -> None:
        """Take no more calls, and let the Spark tasks end; every call has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._live, CLOSE_S)
        self._coordinator.close()

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT
    ) -> list[TaskResultT] | None:
        """Carry out the tasks of a stage; return their results in order, or None where they are too large for calls.

        Args:
            task: A module-level function.
            count: Number of tasks.
            arguments: Values that can be pickled.

        Raises:
            CdcError: A task ended with it, or the executors cannot run tasks.
        """
        signed = [sign((task, index, arguments), self._key) for index in range(count)]
        if signed and max(map(len, signed)) > MAX_CALL_BYTES:
            return None
        with self._changed:
            calls = [_Call(self._numbers + n, text) for n, text in enumerate(signed, 1)]
            self._numbers += count
            self._waiting += calls
            self._changed.notify_all()
            self._start_slots()
            self._changed.wait_for(lambda: all(call.ended for call in calls))
        for call in calls:
            if call.error is not None:
                raise call.error
        return [call.result for call in calls]

    def _start_slots(self) -> None:
        """Start tasks for calls that no task is about to take; the lock is held."""
        while len(self._live) < self._slots.total and len(self._live) - len(self._running) < len(self._waiting):
            self._started += 1
            self._live.add(self._started)
            thread = partial(self._run_slot, self._started)
            threading.Thread(target=thread, name=f"cdc-slot-{self._started}", daemon=True).start()

    def _run_slot(self, slot: int) -> None:
        failure: BaseException = lost_task_error(-1)
        large: LargeResult | None = None
        try:
            with self._slots.lend(1, barrier=False):
                coordinator = self._coordinator
                arguments = SlotArguments(coordinator.address, coordinator.token, self._key, slot)
                (large,) = self._runner.run(slot_task, 1, arguments, barrier=False)
        except BaseException as error:  # raised in the thread of the stream that has made the call
            failure = error
        with self._changed:
            self._live.discard(slot)
            call = self._running.pop(slot, None)
            if call is None and slot not in self._asked and self._waiting:
                # Spark cannot run the task at all; without an error for a call it would be tried for ever.
                call = self._waiting.popleft()
            if call is not None and large is not None and large.number == call.number:
                call.ended, call.result = True, large.result
            elif call is not None:
                call.ended, call.error = True, failure
            self._changed.notify_all()
            self._start_slots()

    def _next(self, slot: int, request: CallRequest) -> NextCall:
        """Take the result of a call, and wait a little for the next one.

        A task that Spark has started again asks without a result, and gets the call that its first copy had; a copy
        with the result of an earlier call ends.
        """
        with self._changed:
            self._asked.add(slot)
            call = self._running.get(slot)
            if request.done:
                if call is None or call.number != request.done:
                    return NextCall()
                self._end(call, request)
                del self._running[slot]
                call = None
            if call is None and (call := self._take(slot)) is not None:
                self._running[slot] = call
            return NextCall() if call is None else NextCall(call.number, call.signed)

    def _take(self, slot: int) -> _Call | None:
        # A snapshot that waits for free slots gets this one.
        if not self._slots.barrier_waits:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed, LINGER_S)
        may_take = slot in self._live and not self._slots.barrier_waits
        return self._waiting.popleft() if may_take and self._waiting else None

    def _end(self, call: _Call, request: CallRequest) -> None:
        try:
            if request.error is None:
                call.result = open_signed(request.result, self._key)
            else:
                call.error = request.error
        except Exception as error:
            call.error = error
        call.ended = True
        self._changed.notify_all()
