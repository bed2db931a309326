"""The version, where both the package and its build look for it."""

__version__ = "0.3.0"
