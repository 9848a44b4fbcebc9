"""``python -m benchlib``: the bench."""

from __future__ import annotations

import signal
import sys

from benchlib.cli import main

# A bench that is told to end ends its servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
sys.exit(main())
