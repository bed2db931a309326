"""Earlier names of `command_result`, for tests that still import them."""

from command_result import CommandResult as Said
from command_result import on_one_line as joined

__all__ = ["Said", "joined"]
