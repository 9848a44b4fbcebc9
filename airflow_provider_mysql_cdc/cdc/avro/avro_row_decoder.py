"""The decoder that writes records as Avro at once, in Python."""

from __future__ import annotations

from typing import NoReturn

from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer


class FallbackToJson(Exception):
    """Say that an event goes by way of JSON.

    Args:
        error: What a value raised; None for rows that are written so by intent.
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
