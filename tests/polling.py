"""Wait for other processes and threads until a condition holds, never for a fixed time.

Tests must not depend on the speed or load of a machine. `TIMEOUT` is not a limit on speed: it only stops a suite that
would otherwise wait forever, and is far longer than the slowest test takes.
"""

import time
from collections.abc import Callable

TIMEOUT = 600.0  # seconds


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
