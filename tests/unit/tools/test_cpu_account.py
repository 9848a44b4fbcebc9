"""The suite's own account of CPU seconds counts each process once, by what it is."""

from __future__ import annotations

import pytest
from demolib import family
from demolib.family import Process
from kit.cases import case
from kit.cpu_account import Sampler, _kind, _Seen

# No process has such an id (proc(5): at most 2^22).
PARENT, CHILD = Process(2**23, 1), Process(2**23 + 1, 2)


def test_a_process_is_known_by_its_command() -> None:
    for command, kind in [
        ("java -cp x kafka.Kafka server.properties", "Kafka, broker"),
        ("/c/ld-linux-x86-64.so.2 --library-path l /c/usr/sbin/mysqld --defaults-file=f", "mysqld"),
        ("/v/bin/python /v/bin/airflow scheduler", "Airflow, scheduler"),
        ("airflow api_server -- host:127.0.0.1 port:1", "Airflow, api-server"),
        ("/v/bin/python -m airflow_provider_mysql_cdc.environment", "other Python processes"),
        ("sleep 1", "others"),
    ]:
        with case(command, kind):
            assert _kind(command) == kind


@pytest.mark.parametrize("seen", [True, False])
def test_a_child_counts_once_whether_it_was_seen_or_not(seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler("TAG=x")
    now: dict[Process, _Seen] = {}
    monkeypatch.setattr(family, "members", lambda *_: set(now))
    monkeypatch.setattr(family, "started", lambda _: None)
    monkeypatch.setattr(sampler, "_read", now.get)
    now[PARENT] = _Seen("parent", 1, 5.0, 0.0)
    if seen:
        now[CHILD] = _Seen("child", PARENT.pid, 2.0, 0.0)
    sampler._sample()
    # The child used another second, and its parent has waited for it.
    now.pop(CHILD, None)
    now[PARENT] = _Seen("parent", 1, 6.0, 3.0)
    sampler.start()
    kinds = sampler.end()
    unseen = kinds["  too short to be seen, started by: parent"][1]
    assert kinds["parent"] == (1, 6.0)
    assert (kinds.get("child"), unseen) == (((1, 2.0), 1.0) if seen else (None, 3.0))
    assert sum(seconds for _, seconds in kinds.values()) == 9.0
