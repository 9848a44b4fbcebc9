"""The local stack: MySQL and Kafka without containers, for development, the tests and the demo."""

from __future__ import annotations

from stacklib.errors import StackError
from stacklib.stack import StackInfo, ensure_stack, stop_stack

__all__ = ["StackError", "StackInfo", "ensure_stack", "stop_stack"]
