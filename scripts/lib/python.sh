# Shell functions that find a Python; sourced by the scripts beside this folder.

# Print the path of a Python 3.11 or newer that is not the virtual environment's, or explain and fail. MYSQL_CDC_PYTHON
# names another one than the first on PATH.
system_python() {
  local name
  for name in ${MYSQL_CDC_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "error: Python: no Python 3.11 or newer on PATH; install it (Debian: apt-get install python3)" >&2
  return 1
}

# Print the virtual environment's Python when it is there, else the system's.
any_python() {
  local root
  root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
  if [ -x "$root/.venv/bin/python" ]; then
    echo "$root/.venv/bin/python"
  else
    system_python
  fi
}
