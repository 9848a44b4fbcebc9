"""The log of one stream in the log of a task that has several."""

from __future__ import annotations

import logging
from typing import Any


class StreamLog(logging.LoggerAdapter[logging.Logger]):
    """Write lines of a stream behind its name.

    Args:
        logger: The task's logger.
        stream: What the stream is called.
    """

    def __init__(self, logger: Any, stream: str) -> None:
        super().__init__(logger)
        self._stream = stream

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line.

        Args:
            level: Its level.
            msg: The line, or its format if there are arguments.
            args: The arguments.
            kwargs: As for ``logging.Logger.log``.
        """
        line = str(msg) % args if args else str(msg)
        self.logger.log(level, "%s: %s", self._stream, line, **kwargs)
