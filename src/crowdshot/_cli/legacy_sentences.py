"""Translate arguments to options inside sentences of errors that have no fields yet.

Delete this module, its import in `console` and tests/commands/test_legacy_sentences.py once every `CrowdshotError`
and every warning has fields.
"""

import ast
import re
import shlex
from collections.abc import Mapping

# An argument starts a sentence ("steps is 0, …") or is written as in Python (`overwrite=True`).
_ARGUMENT = re.compile(
    r"^(?P<head>\w+)(?= (?:is|has|holds|names|lists) )"
    r"|(?<!\S)(?P<name>\w+)=(?:(?P<value>True|'[^']*'|\{.*?\})|(?=[\s.,;]))"
)


def in_options(sentence: str, options: Mapping[str, str]) -> str:
    """Return the sentence with options in place of arguments: ``columns={'item': …}`` becomes ``--columns item=…``."""

    def option(match: re.Match[str]) -> str:
        name, value = match["head"] or match["name"], match["value"] or ""
        if name not in options:
            return match[0]
        typed = "" if value == "True" else _as_pairs(value)
        return f"{options[name]} {typed}".rstrip()

    return _ARGUMENT.sub(option, sentence)


def _as_pairs(text: str) -> str:
    """Return a Python dictionary as typed in a shell: {'a': 'b c'} becomes 'a=b c'."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = None
    if isinstance(value, dict):
        return shlex.quote(",".join(f"{key}={each}" for key, each in value.items()))
    return re.sub(r"[{}']", "", text).replace(": ", "=")
