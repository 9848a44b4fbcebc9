"""Read Avro in Confluent's wire format without the provider's own code: for the demo's verifier and for captures."""

from __future__ import annotations
