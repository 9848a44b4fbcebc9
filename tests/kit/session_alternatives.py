"""Every session variable of a server, with a value that it does not have."""

from __future__ import annotations

from typing import Any

from kit.sql import rows

# Variables that decide nothing that a job reads, and whose other values are refused, slow or dangerous to set.
NOT_TRIED = {
    "debug", "debug_sync", "pseudo_slave_mode", "pseudo_replica_mode", "pseudo_thread_id", "rand_seed1", "rand_seed2",
    "max_allowed_packet", "net_buffer_length", "max_heap_table_size", "tmp_table_size", "thread_stack",
    "net_read_timeout", "net_write_timeout", "wait_timeout", "interactive_timeout",  # ends idle sessions, by name
    "max_user_connections", "gtid_next", "timestamp", "insert_id", "last_insert_id", "identity", "net_retry_count",
    "max_error_count", "parser_max_mem_size", "connection_memory_limit", "connection_memory_chunk_size",
    "global_connection_memory_tracking", "transaction_alloc_block_size", "query_alloc_block_size",
}  # fmt: skip


def alternatives(conn: Any) -> list[tuple[str, str]]:
    """Return every session variable with a value that differs from the current one, as SQL."""
    found = []
    values = dict(rows(conn, "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.session_variables"))
    limits = {n: (low, high) for n, low, high in rows(
        conn, "SELECT VARIABLE_NAME, MIN_VALUE, MAX_VALUE FROM performance_schema.variables_info")}  # fmt: skip
    special = {
        "time_zone": "'+09:00'", "sql_mode": "'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE'",
        "character_set_client": "latin1", "character_set_results": "latin1", "character_set_connection": "latin1",
        "collation_connection": "latin1_bin", "transaction_isolation": "'READ-UNCOMMITTED'", "lc_time_names": "'ja_JP'",
        "completion_type": "'CHAIN'", "resultset_metadata": "'NONE'", "max_join_size": "1", "sql_select_limit": "3",
        "max_execution_time": "1", "max_sort_length": "4", "group_concat_max_len": "4", "div_precision_increment": "0",
    }  # fmt: skip
    for name, value in sorted(values.items()):
        low, high = limits.get(name, ("0", "0"))
        if name in NOT_TRIED or name.startswith(("ssl", "performance", "mysqlx")):
            continue
        if name in special:
            found.append((name, special[name]))
        elif value in ("ON", "OFF"):
            found.append((name, "OFF" if value == "ON" else "ON"))
        elif value.isdigit() and high.isdigit() and int(high):
            found.append((name, low if low != value else high))
    return found
