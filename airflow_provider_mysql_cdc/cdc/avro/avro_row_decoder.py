"""The decoder in Python that writes records as Avro directly."""

from __future__ import annotations

from typing import NoReturn

from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer


class FallbackToJson(Exception):
    """Report that an event has to be converted by way of JSON.

    Args:
        error: The error of a value; None for rows that are always converted so.
    """

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(repr(error))
        self.error = error


class AvroRowDecoder(RowDecoder):
    """Decode complete row images whose keys stay the same; others raise ``FallbackToJson``."""

    def _image_decoder(self, op: str, buf: Buffer, pos: int, images: int) -> NoReturn:
        raise FallbackToJson

    def _key_change(self, *given: object) -> NoReturn:
        raise FallbackToJson

    def _failure(self, error: Exception, *given: object) -> Exception:
        return FallbackToJson(error)
