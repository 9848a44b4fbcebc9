"""A client of a Spark Connect server with what the driver of a job needs; retries and reattaching are pyspark's own."""

from __future__ import annotations

import concurrent.futures
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.spark.connect_channel import ConnectParts, ServerAddress, is_closed, is_unknown_session
from airflow_provider_mysql_cdc.spark.connect_plans import PlanMessages

OperationProgress = Callable[[bool, int], None]
"""Takes whether Spark has begun a stage of the operation, and the number of running tasks."""
_CALL_S = 600.0
"""Seconds after which a call without an answer fails, as in pyspark's client."""
_CLOSE_S = 10.0
"""Seconds in which the server is told that the results have arrived."""
# A connection that is cut is tried again for 45 s; pyspark's client would do so for ten minutes.
RETRIES = {"max_retries": 11, "backoff_multiplier": 4.0, "initial_backoff": 50, "max_backoff": 5000}
# A server at a wrong address, or with TLS where none is expected, is named after 10 s.
OPENING_RETRIES = {**RETRIES, "max_retries": 5}
_LAST_CALLS_RETRIES = {"max_retries": 1, "backoff_multiplier": 4.0, "initial_backoff": 50, "max_backoff": 50}


class ServerError(Exception):
    """What a server has answered, or why it has not.

    Args:
        message: The whole message.
        status: Name of gRPC's status code.
        condition: Name of Spark's error condition; empty without one.
    """

    def __init__(self, message: str, status: str, condition: str = "") -> None:
        super().__init__(message)
        self.grpc_status_code, self._condition = status, condition

    def getCondition(self) -> str:
        """Return Spark's error condition."""
        return self._condition


class ConnectClient:
    """Call a Spark Connect server in one session; several threads may.

    Args:
        parts: pyspark's modules.
        address: The server.
        session_id: Id of the session, which its first call opens.
    """

    def __init__(self, parts: ConnectParts, address: ServerAddress, session_id: str) -> None:
        self.session_id, self._parts, self._address = session_id, parts, address
        self._messages, self.plans = parts.messages, PlanMessages(parts.messages)
        self._channel = address.channel(parts.grpc)
        self._stub = parts.messages.SparkConnectServiceStub(self._channel)
        self._headers = address.headers()
        self._server_session = ""
        self._lock, self._releases = threading.Lock(), list[Any]()
        agent = address.parameters.get("user_agent") or "airflow-provider-mysql-cdc"
        self._client_type = f"{agent}/{__version__}"

    def settings(self, *names: str, opening: bool = False) -> dict[str, str]:
        """Return those of some settings that have a value.

        Args:
            names: Their names.
            opening: Whether this is the first call to the server, which is tried for a shorter time.

        Raises:
            ServerError: The server refuses it, or cannot be reached.
        """
        # As options: Spark fails for one without a value, and for a default that the setting could not have.
        request = self._messages.ConfigRequest
        operation = request.Operation(get_option=request.GetOption(keys=names))
        answer = self._call("Config", request, OPENING_RETRIES if opening else None, operation=operation)
        return {pair.key: pair.value for pair in answer.pairs if pair.value}

    def set_setting(self, name: str, value: str) -> None:
        """Set a setting of the session.

        Args:
            name: Its name.
            value: Its value.

        Raises:
            ServerError: As for ``settings``.
        """
        request = self._messages.ConfigRequest
        pairs = [self._messages.KeyValue(key=name, value=value)]
        self._call("Config", request, operation=request.Operation(set=request.Set(pairs=pairs)))

    def add_artifacts(self, paths: Sequence[str], *, archives: bool) -> None:
        """Send files to the session.

        Args:
            paths: Archives as ``path#alias``, or Python files.
            archives: Whether they are archives, which executors unpack.

        Raises:
            ServerError: As for ``settings``.
        """
        if not paths:
            return
        user = self._address.user or None
        manager = self._parts.artifact.ArtifactManager(user, self.session_id, self._channel, self._headers)
        try:
            manager.add_artifacts(*paths, pyfile=not archives, archive=archives, file=False)
        except self._parts.grpc.RpcError as error:
            raise self._failure(error) from None

    def explain(self, relation: Any) -> str:
        """Return how Spark would execute a relation.

        Args:
            relation: The relation.

        Raises:
            ServerError: As for ``settings``.
        """
        request = self._messages.AnalyzePlanRequest
        explain = request.Explain(plan=self.plans.plan(relation), explain_mode=request.Explain.EXPLAIN_MODE_SIMPLE)
        return str(self._call("AnalyzePlan", request, explain=explain).explain.explain_string)

    def server_version(self) -> tuple[int, ...]:
        """Return the first two numbers of the server's version of Spark, which may not be the client's.

        Raises:
            ServerError: As for ``settings``.
        """
        request = self._messages.AnalyzePlanRequest
        answer = self._call("AnalyzePlan", request, spark_version=request.SparkVersion())
        return tuple(int(number) for number in re.findall(r"\d+", answer.spark_version.version)[:2])

    def execute(self, relation: Any, tag: str, on_progress: OperationProgress) -> list[tuple[int, bytes]]:
        """Execute an operation; return its rows, a number and bytes each.

        Args:
            relation: What is wanted.
            tag: By which it can be interrupted.
            on_progress: Called by this thread when the server reports progress.

        Raises:
            ServerError: The operation has failed, or the server cannot be reached any more.
        """
        kind = self._messages.ExecutePlanRequest
        request = kind(
            **self._context(kind),
            plan=self.plans.plan(relation),
            tags=[tag],
            operation_id=str(uuid.uuid4()),
        )
        iterate = self._parts.reattach.ExecutePlanResponseReattachableIterator
        responses = iterate(request, self._stub, self._retrying, self._headers)
        try:
            rows = [row for response in responses for row in self._rows(response, on_progress)]
        except self._parts.grpc.RpcError as error:
            raise self._failure(error) from None
        finally:
            with self._lock:
                self._releases += getattr(responses, "release_futures", ())
        return rows

    def interrupt(self, tag: str) -> None:
        """End the operations with a tag; tried twice.

        Args:
            tag: Their tag.

        Raises:
            ServerError: As for ``settings``.
        """
        request = self._messages.InterruptRequest
        by_tag = request.INTERRUPT_TYPE_TAG
        self._call("Interrupt", request, _LAST_CALLS_RETRIES, interrupt_type=by_tag, operation_tag=tag)

    def has_ended(self, session_id: str) -> bool:
        """Return whether the server remembers that a session has ended; no session is opened by this call.

        Args:
            session_id: The session's id.

        Raises:
            ServerError: As for ``settings``.
        """
        # Source: SparkConnectReleaseExecuteHandler and SparkConnectSessionManager.getIsolatedSession (4.0 to 4.3).
        request = self._messages.ReleaseExecuteRequest
        nothing = {"operation_id": str(uuid.uuid4()), "release_all": request.ReleaseAll()}
        try:
            self._call("ReleaseExecute", request, OPENING_RETRIES, session_id=session_id, **nothing)
        except ServerError as error:
            if not is_closed(error) and not is_unknown_session(error):
                raise
            return is_closed(error)
        return False

    def release_session(self) -> None:
        """End the session; tried twice.

        Raises:
            ServerError: As for ``settings``.
        """
        self._call("ReleaseSession", self._messages.ReleaseSessionRequest, _LAST_CALLS_RETRIES)

    def close(self) -> None:
        """Close the connection."""
        concurrent.futures.wait(self._releases, _CLOSE_S)
        self._channel.close()

    def _call(self, name: str, request: Any, retries: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Call a method of the server and return its answer."""
        method, asked = getattr(self._stub, name), request(**{**self._context(request), **fields})
        try:
            for attempt in self._retrying(retries):
                with attempt:
                    answer = method(asked, metadata=self._headers, timeout=_CALL_S)
        except self._parts.grpc.RpcError as error:
            raise self._failure(error) from None
        self._remember(answer)
        return answer

    def _context(self, request: Any) -> dict[str, Any]:
        """Return what requests have in common: a server that was restarted refuses another one's session."""
        context: dict[str, Any] = {
            "session_id": self.session_id,
            "client_type": self._client_type,
            "user_context": self._messages.UserContext(user_id=self._address.user),
        }
        observed = "client_observed_server_side_session_id"
        if self._server_session and observed in request.DESCRIPTOR.fields_by_name:
            context[observed] = self._server_session
        return context

    def _remember(self, response: Any) -> None:
        if not self._server_session:
            self._server_session = response.server_side_session_id

    def _retrying(self, retries: Mapping[str, Any] | None = None) -> Any:
        found = self._parts.retries
        return found.Retrying([found.DefaultPolicy(**(RETRIES if retries is None else retries))])

    def _rows(self, response: Any, on_progress: OperationProgress) -> Iterator[tuple[int, bytes]]:
        self._remember(response)
        if response.HasField("execution_progress"):
            progress = response.execution_progress
            on_progress(bool(progress.stages), progress.num_inflight_tasks)
        if response.HasField("arrow_batch"):
            import pyarrow.ipc

            with pyarrow.ipc.open_stream(response.arrow_batch.data) as batches:
                for batch in batches:
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def _failure(self, error: Any) -> ServerError:
        """Return an error of gRPC with Spark's whole message, which it shortens to 2,000 letters or so."""
        code = error.code().name
        status = self._parts.rpc_status.from_call(error)
        if status is None:
            return ServerError(f"{code}: {error.details()}", code)
        for detail in status.details:
            info = self._parts.error_details.ErrorInfo()
            if detail.Is(info.DESCRIPTOR):
                detail.Unpack(info)
                message = self._whole_message(info.metadata.get("errorId", "")) or status.message
                return ServerError(message, code, info.metadata.get("errorClass", ""))
        return ServerError(status.message, code)

    def _whole_message(self, error_id: str) -> str:
        if not error_id:
            return ""
        kind = self._messages.FetchErrorDetailsRequest
        request = kind(**self._context(kind), error_id=error_id)
        try:
            found = self._stub.FetchErrorDetails(request, metadata=self._headers, timeout=_CALL_S)
        except self._parts.grpc.RpcError:
            return ""
        return str(found.errors[found.root_error_idx].message) if found.HasField("root_error_idx") else ""
