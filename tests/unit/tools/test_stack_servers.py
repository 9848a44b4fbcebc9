"""The servers of the local stack: settings, choice of program and port, and what the environment overrides."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.cases import case
from stacklib import cli, java, kafka, mysql, ports, stack
from stacklib.errors import StackError

GIVEN = ("MYSQL_CDC_MYSQL_HOST", "MYSQL_CDC_MYSQL_PORT", "MYSQL_CDC_KAFKA", "MYSQL_CDC_STACK_DIR")
GREETING = b"\x4a\0\0\0\x0a8.4.2-test\0" + b"\1\0\0\0"
API_VERSIONS_REPLY = struct.pack(">iih", 6, 1, 0)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*GIVEN, "MYSQL_CDC_MYSQL_USER", "MYSQL_CDC_MYSQL_PASSWORD", "MYSQL_CDC_MYSQL_ROOT_USER"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen on a free port and let ``answer`` deal with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def greet(connection: socket.socket) -> None:
    connection.sendall(GREETING)


def reply(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(API_VERSIONS_REPLY)


def program(version: str = "9.7.4") -> mysql.Program:
    return mysql.Program(("/x/mysqld",), {"basedir": "/x"}, {}, version, "test")


def fake_mysqld(folder: Path, printed: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "mysqld").write_text(f"#!/bin/sh\necho '{printed}'\n")
    (folder / "mysqld").chmod(0o755)


class TestMySqlSettings:
    def options(self) -> dict[str, str]:
        lines = mysql.option_file(program(), Path("/run"), 3307).splitlines()
        assert lines[0] == "[mysqld]"
        return dict(line.split("=", 1) for line in lines[1:])

    def test_capture_settings_are_in_the_option_file(self) -> None:
        options = self.options()
        expected = {
            "binlog_format": "ROW",
            "binlog_row_image": "FULL",
            "gtid_mode": "ON",
            "enforce_gtid_consistency": "ON",
            "loose_mysqlx": "OFF",
            "bind_address": "127.0.0.1",
            "port": "3307",
        }
        assert {name: options[name] for name in expected} == expected
        assert "server_id" in options and "log_bin" in options
        assert options["tmpdir"] == "/run/tmp"
        assert "binlog_row_metadata" not in options

    def test_the_capture_account_gets_exactly_its_grants_and_leaves_the_binlog_clean(self) -> None:
        statements = mysql.accounts("s3cret", "9.7.4").splitlines()
        assert statements[0] == "SET SESSION sql_log_bin=0;"
        grants = [line for line in statements if line.startswith("GRANT") and "'cdc'" in line]
        assert grants == [
            "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES "
            "ON *.* TO 'cdc'@'%';"
        ]
        assert all(line.endswith(";") for line in statements)
        assert "caching_sha2_password BY" in statements[3]
        assert "mysql_native_password BY" in mysql.accounts("s3cret", "5.7.22").splitlines()[3]


class TestProbes:
    def test_a_mysql_greeting_has_the_version(self) -> None:
        with server(greet) as port:
            assert mysql.handshake_version(port) == "8.4.2-test"

    def test_something_else_is_not_mysql(self) -> None:
        with server(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad\r\n")) as port:
            assert mysql.handshake_version(port) is None
            assert not kafka.answers(port)


class TestPorts:
    def test_a_wanted_port_in_use_is_one_clear_line(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(StackError) as caught:
                ports.choose("mysql", port, None)
        text = str(caught.value)
        assert str(port) in text and "another program" in text and "--mysql-port" in text and "\n" not in text


class TestProgramOnPath:
    def test_which_version_serves(self) -> None:
        for version, wanted, serves in [
            ("8.0.36", None, True),
            ("9.7.4", None, True),
            ("5.7.44", None, False),
            ("9.7.4", "9.7", True),
            ("9.70.1", "9.7", False),
            ("8.0.36", "8.0.15", False),
            ("8.0.15", "8.0.15", True),
            ("5.7.22", "5.7.22", True),
        ]:
            with case(version, wanted, serves):
                assert mysql.is_usable_version(version, wanted) is serves

    def test_a_mysqld_on_path_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake_mysqld(tmp_path, "mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        found = mysql.find_program(None)
        assert (found.command, found.version) == ((str(tmp_path / "mysqld"),), "8.4.3")

    def test_mariadb_and_old_servers_are_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for printed in ["mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu", "mysqld  Ver 5.7.44 for Linux"]:
            with case(printed):
                fake_mysqld(tmp_path, printed)
                monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
                monkeypatch.setitem(mysql._BUILDERS, "9.7", program)
                assert mysql.find_program(None).origin == "test"


class TestGivenServers:
    def test_given_servers_are_used_and_left_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with server(greet) as mysql_port, server(reply) as kafka_port:
            monkeypatch.setenv("MYSQL_CDC_MYSQL_HOST", "127.0.0.1")
            monkeypatch.setenv("MYSQL_CDC_MYSQL_PORT", str(mysql_port))
            monkeypatch.setenv("MYSQL_CDC_MYSQL_USER", "capture")
            monkeypatch.setenv("MYSQL_CDC_MYSQL_PASSWORD", "s3cret")
            monkeypatch.setenv("MYSQL_CDC_KAFKA", f"127.0.0.1:{kafka_port}")
            monkeypatch.setattr(stack, "find_java", lambda: java.Java(Path("/j"), 17, "test"))
            info = stack.ensure_stack(tmp_path)
            assert (info.mysql_port, info.mysql_version, info.cdc_user) == (mysql_port, "8.4.2-test", "capture")
            assert "s3cret" not in repr(info)
            stack.stop_stack(tmp_path)
            assert mysql.handshake_version(mysql_port) and kafka.answers(kafka_port)
            assert cli.main(["status", "--dir", str(tmp_path)]) == 0
        assert "environment" in capsys.readouterr().out

    def test_a_given_server_that_is_down_is_named_with_its_variable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MYSQL_CDC_MYSQL_HOST", "127.0.0.1")
        monkeypatch.setenv("MYSQL_CDC_MYSQL_PORT", str(ports.any_free()))
        monkeypatch.setenv("MYSQL_CDC_KAFKA", f"127.0.0.1:{ports.any_free()}")
        with pytest.raises(StackError, match="MYSQL_CDC_MYSQL_HOST names it"):
            stack.ensure_stack(tmp_path)


class TestFolder:
    def info(self, folder: Path) -> stack.StackInfo:
        return stack.StackInfo(
            dir=str(folder),
            mysql_host="127.0.0.1",
            mysql_port=ports.any_free(),
            mysql_version="9.7.4",
            mysql_origin="stack",
            root_user="root",
            root_password="",
            cdc_user="cdc",
            cdc_password="it's",
            kafka=f"127.0.0.1:{ports.any_free()}",
            kafka_controller_port=1,
            kafka_origin="stack",
            java_home="/j",
        )

    def write(self, folder: Path) -> None:
        info = self.info(folder)
        (folder / "stack.json").write_text(
            json.dumps({name: getattr(info, name) for name in stack.StackInfo.__dataclass_fields__})
        )

    def test_data_of_another_version_is_not_opened(self, tmp_path: Path) -> None:
        (tmp_path / "mysql").mkdir()
        (tmp_path / "mysql" / "version").write_text("8.0.15\n")
        with pytest.raises(StackError, match=r"belongs to MySQL 8\.0\.15; choose another folder"):
            stack.ensure_stack(tmp_path, "9.7")

    def test_a_folder_that_cannot_be_used_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StackError, match="--dir"):
            stack.ensure_stack(tmp_path / "file" / "run")

    def test_env_prints_exports_a_shell_can_read(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.write(tmp_path)
        assert cli.main(["env", "--dir", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "export MYSQL_CDC_MYSQL_HOST=127.0.0.1" in lines
        assert "export MYSQL_CDC_MYSQL_PASSWORD='it'\"'\"'s'" in lines
        assert "export JAVA_HOME=/j" in lines

    def test_wipe_removes_the_data(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        (tmp_path / "mysql" / "data").mkdir(parents=True)
        assert cli.main(["down", "--wipe", "--dir", str(tmp_path)]) == 0
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_copied_data_folder_brings_no_uuid_and_no_binlog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(program: mysql.Program, folder: Path, options: Path) -> None:
        assert options.is_file()
        (folder / "data").mkdir()
        for name in ("auto.cnf", "binlog.000001", "binlog.index", "ibdata1", "ca.pem"):
            (folder / "data" / name).write_text("x")

    monkeypatch.setattr(mysql, "_make_data", made)
    mysql._make_template(mysql.Program(("mysqld",), {}, {}, "9.7.4", "test"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["ca.pem", "ibdata1"]
