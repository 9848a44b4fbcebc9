"""The direction of the layers: cdc <- spark <- spark_jobs, cdc <- the Airflow layer (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

from kit.cases import for_each

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "airflow_provider_mysql_cdc"
# what a core folder may import: itself, what stands in its row, and the modules directly under cdc/
CORE_MAY = {
    "model": {"model"},
    "metrics": {"model", "metrics"},
    "transforms": {"model", "transforms"},
    "config": {"model", "transforms", "config"},
    "binlog": {"model", "config", "binlog"},
    "ddl": {"model", "config", "ddl"},
    "decode": {"model", "config", "ddl", "binlog", "decode"},
    "convert": {"model", "config", "ddl", "decode", "convert"},
    "avro": {"model", "decode", "convert", "binlog", "emit", "avro"},
    "ticdc": {"model", "decode", "convert", "binlog", "emit", "avro", "ticdc"},
    "emit": {"model", "config", "ddl", "binlog", "decode", "convert", "emit"},
    "sink": {"model", "config", "sink"},
    "schema": {"model", "config", "ddl", "binlog", "decode", "convert", "emit", "sink", "schema"},
    "commit": {"model", "config", "sink", "metrics", "commit"},
}
CORE_MAY["formats"] = set(CORE_MAY) - {"schema"} | {"formats"}
BELOW_JOBS = set(CORE_MAY)
CORE_MAY["job"] = BELOW_JOBS | {"job"}
CORE_MAY["signals"] = BELOW_JOBS | {"job", "signals"}
CORE_MAY["snapshot"] = BELOW_JOBS | {"job", "signals", "snapshot"}
CORE_MAY["drain"] = BELOW_JOBS | {"job", "signals", "snapshot", "drain"}
CORE_MAY["incremental"] = BELOW_JOBS | {"job", "signals", "snapshot", "drain", "incremental"}
CORE_MAY["fleet"] = BELOW_JOBS | {"job", "signals", "snapshot", "drain", "incremental", "fleet"}
CORE_MAY["verify"] = BELOW_JOBS | {"job", "signals", "snapshot", "drain", "incremental", "verify"}
CORE_MAY["operate"] = BELOW_JOBS | {"job", "signals", "snapshot", "drain", "incremental", "verify", "operate"}
CORE_MAY["debezium"] = CORE_MAY["operate"] | {"debezium"}


def picture() -> str:
    """Return the table as CONTRIBUTING shows it: each folder and the highest ones that it may import."""
    lines = []
    for folder in reversed(CORE_MAY):
        below = CORE_MAY[folder] - {folder}
        highest = [name for name in CORE_MAY if name in below and not any(name in CORE_MAY[o] - {o} for o in below)]
        lines.append(f"    {folder:<12}{' -> ' if highest else ''}{', '.join(highest)}".rstrip())
    return "\n".join(lines)


parsed = functools.cache(lambda path: ast.parse(path.read_text()))


@functools.cache
def imports(path: Path) -> set[str]:
    """Return every module a file imports, wherever the statement stands."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files(*parts: str) -> list[Path]:
    return sorted((ROOT / Path(*parts)).rglob("*.py"))


def top(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_the_tools_and_commands_use_nothing_of_the_tests() -> None:
    helpers = {"tests", "conftest", "kit"}
    commands = [path for path in (ROOT / "scripts").iterdir() if path.suffix == ".py"]
    users = {path.name: sorted(top(imports(path)) & helpers) for path in [*files("tools"), *commands]}
    assert {name: found for name, found in users.items() if found} == {}


def test_the_picture_in_contributing_is_the_table() -> None:
    assert f"\n{picture()}\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_core_folder_has_its_row() -> None:
    folders = {path.name for path in (ROOT / PACKAGE / "cdc").iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(CORE_MAY)


def test_no_two_files_of_the_core_share_a_name() -> None:
    """What stands in each job's folder may be called by its role there."""
    roles = {"__init__.py", "driver.py", "task.py", "writer.py", "records.py"}
    names = [path.name for path in files(PACKAGE, "cdc") if path.name not in roles]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def type_names(path: Path) -> set[str]:
    """Return the classes and type aliases of a file, without the underscore of private ones."""
    names: set[str] = set()
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name.lstrip("_"))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            aliases = {t.id.lstrip("_") for t in node.targets if isinstance(t, ast.Name)}
            names |= {name for name in aliases if name[:1].isupper() and not name.isupper()}
    return names


def test_no_two_types_of_the_package_share_a_name() -> None:
    at: dict[str, list[Path]] = {}
    for path in files(PACKAGE):
        for name in type_names(path):
            at.setdefault(name, []).append(path.relative_to(ROOT / PACKAGE))
    assert {name: paths for name, paths in at.items() if len(paths) > 1} == {}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            start = stack.index(node)
            group = sorted(stack[start:])
            del stack[start:]
            if len(group) > 1:
                result.append(group)

    for node in graph:
        if node not in order:
            visit(node)
    return result


def module_graph() -> dict[str, set[str]]:
    """Return which modules of the package each imports, late imports and those for types only included."""
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in files(PACKAGE)}
    return {name: (imports(path) & names.keys()) - {name} for name, path in names.items()}


def test_no_files_or_folders_import_each_other() -> None:
    graph = module_graph()
    folders: dict[str, set[str]] = {}
    for name, targets in graph.items():
        folder = name.rpartition(".")[0]
        folders.setdefault(folder, set()).update({t.rpartition(".")[0] for t in targets} - {folder})
    assert circles(graph) == []
    assert circles(folders) == []


def test_no_files_of_the_kernel_use_each_other() -> None:
    sources = {path.stem: path.read_text() for path in (ROOT / "native" / "src").glob("*.rs")}
    graph = {}
    for name, text in sources.items():
        plain = re.sub(r"//[^\n]*", "", text)
        uses = set(re.findall(r"\bcrate::(\w+)", plain))
        for group in re.findall(r"\bcrate::\{([^}]*)\}", plain):
            uses |= set(re.findall(r"\w+", group))
        # A name that is no file is one of the crate's root.
        graph[name] = {use if use in sources else "lib" for use in uses} - {name}
        graph[name] |= {use for use in re.findall(r"(?m)^(?:pub )?mod (\w+);", plain) if use in sources}
    assert circles(graph) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_core_imports_neither_airflow_nor_spark() -> None:
    for path in files(PACKAGE, "cdc"):
        found = imports(path)
        assert not top(found) & {"airflow", "pyspark", "pandas"}, path
        # Its filters belong to the process: of two threads that change them one leaves its own behind.
        assert "warnings" not in found, path
        inner = {n for n in found if n.startswith(PACKAGE + ".")}
        assert all(n.startswith(f"{PACKAGE}.cdc") for n in inner), (path, inner)


@for_each("folder", sorted(CORE_MAY))
def test_core_folders_point_one_way(folder: str) -> None:
    for path in files(PACKAGE, "cdc", folder):
        for name in imports(path):
            if name.startswith(f"{PACKAGE}.cdc."):
                target = name.split(".")[2]
                if (ROOT / PACKAGE / "cdc" / target).is_dir():
                    assert target in CORE_MAY[folder], f"{path} imports {name}"


def test_spark_layer_never_imports_airflow() -> None:
    for path in files(PACKAGE, "spark") + files("spark_jobs"):
        assert "airflow" not in top(imports(path)), path


def test_airflow_layer_imports_neither_pyspark_nor_the_spark_layer() -> None:
    layer = [p for p in files(PACKAGE) if p.relative_to(ROOT / PACKAGE).parts[0] not in ("cdc", "spark")]
    for path in layer + files("dags"):
        found = imports(path)
        assert not top(found) & {"pyspark", "pandas"}, path
        assert not any(n.startswith(f"{PACKAGE}.spark") for n in found), path


def test_package_itself_imports_nothing() -> None:
    code = f"import sys, {PACKAGE}; print(sorted(m for m in sys.modules if m.startswith(('airflow.', 'pyspark'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
