"""Text that all records of one row event share."""

from __future__ import annotations

from typing import Any


class UnnumberedRow(int):
    """Count rows for a contract whose source block does not number them: an int whose text is empty."""

    __slots__ = ()

    def __add__(self, rows: int) -> UnnumberedRow:
        return UnnumberedRow(int(self) + rows)

    def __format__(self, spec: str) -> str:
        return ""


class EventContext:
    """Carry the text around a row's images; the caller fills it once per event.

    A value's payload is ``{"before":B,"after":A,"source":`` + src_head + row number + src_tail +
    ``,"transaction":`` + transaction + ``,"op":"c"`` + tail. The decoder closes the ``payload`` member itself.

    Args:
        src_head: The source block from its ``{`` up to and including ``"row":``.
        src_tail: The source block after the row number, with its closing ``}``; without ``row`` only that.
        tail: What follows the op, for example ``,"ts_ms":1,"ts_us":1000,"ts_ns":1000000}``, with the closing ``}``.
        first_row: Number of the event's first row in the source block, a ``UnnumberedRow`` where that has no ``row``.
        transaction: JSON text of the transaction block.
        where: Position of the event for error texts, ``binlog.000003:4711``.

    Texts that are not JSON have ``plain``: a function that fills a context with JSON, and its other arguments.
    Flat rows have the transaction's timestamp in ``stamp``, unwrapped ones what their ``headers`` are made of.
    """

    __slots__ = ("first_row", "headers", "plain", "src_head", "src_tail", "stamp", "tail", "transaction", "where")

    def __init__(
        self,
        src_head: str = '{"row":',
        src_tail: str = "}",
        tail: str = "}",
        *,
        first_row: int = 0,
        transaction: str = "null",
        where: str = "",
    ) -> None:
        self.src_head = src_head
        self.src_tail = src_tail
        self.tail = tail
        self.first_row = first_row
        self.transaction = transaction
        self.where = where
        self.plain: tuple[Any, ...] | None = None
        self.stamp = 0
        self.headers: tuple[Any, ...] = ()

    def as_json(self) -> EventContext:
        """Return a context of the same event whose texts are JSON."""
        if self.plain is None:
            return self
        context = EventContext(first_row=self.first_row, transaction=self.transaction)
        fill, *arguments = self.plain
        fill(context, *arguments)
        context.where = self.where
        return context
