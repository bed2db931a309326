"""Earlier names of `polling`, for tests that still import them."""

from polling import TIMEOUT as HANGS
from polling import wait_until as until

__all__ = ["HANGS", "until"]
