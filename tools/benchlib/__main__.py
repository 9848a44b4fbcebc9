"""``python -m benchlib``: the bench."""

from __future__ import annotations

import signal
import sys

from benchlib.cli import main

# A bench that gets a signal ends its servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
try:
    sys.exit(main())
except KeyboardInterrupt:
    print("interrupted; what was measured before is in the result file, where one was named", file=sys.stderr)
    sys.exit(128 + signal.SIGINT)
