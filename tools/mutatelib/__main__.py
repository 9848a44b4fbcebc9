"""``python -m mutatelib``: the mutation run."""

from __future__ import annotations

import signal
import sys

from mutatelib.cli import main

signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(main())
