"""How tests wait for other processes and threads: for what they are to do, never for a while.

How fast a machine is, and what else it does, is nothing that a test may depend on. `HANGS` is not a limit on speed: it
only ends a suite that would else stand still for ever, and is far beyond what the slowest test takes.
"""

import time
from collections.abc import Callable

HANGS = 600.0  # seconds


def until(condition: Callable[[], object]) -> None:
    """Returns as soon as the condition holds."""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
