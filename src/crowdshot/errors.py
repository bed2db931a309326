"""Errors and warnings that carry their facts as fields, so that callers need not read the sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 1000  # characters of a message: the file names and values that it quotes have no limit of their own


class Use:
    """Advice to set arguments, which Python and the command line write differently.

    >>> str(Use("to leave them out", skip_bad=True))
    'Use skip_bad=True to leave them out.'
    >>> Use(columns={"annotator": "animal"}).text(lambda name, value: f"--{name} ...")
    'Use --columns ....'
    >>> str(Use("to read one label", categories=True) | Use("to read several", multi_label=True))
    'Use categories=True to read one label, or multi_label=True to read several.'
    """

    def __init__(self, purpose: str = "", /, **arguments: Any) -> None:
        self.purpose = purpose
        self.arguments = arguments
        self.alternatives: tuple[Use, ...] = ()

    def __or__(self, other: Use) -> Use:
        """Return advice that offers both."""
        both = Use(self.purpose, **self.arguments)
        both.alternatives = (*self.alternatives, other)
        return both

    def text(self, written: Callable[[str, Any], str]) -> str:
        """Return the sentence; ``written`` renders an argument and its value."""
        advice = (
            " and ".join(written(name, value) for name, value in use.arguments.items()) + f" {use.purpose}"
            for use in (self, *self.alternatives)
        )
        return f"Use {', or '.join(text.rstrip() for text in advice)}."

    def __str__(self) -> str:
        return self.text(lambda name, value: f"{name}={value!r}")


class _Message(Exception):  # noqa: N818  (the base of errors and warnings)
    """The fields of an error or warning, and the sentences made of them.

    A message that begins with a small letter is about ``argument`` (or else ``where``), whose name is put in front of
    it: ``CrowdshotError("is 0", argument="steps", expected="1 or more")`` is "steps is 0, expected 1 or more."

    Attributes
    ----------
    message : str
        What is wrong, without a full stop at the end.
    argument : str or None
        The argument that has to change, by its Python name. The command line shows the option of that name.
    found : Any
        The offending value.
    expected : str or None
        What is accepted instead.
    hint : str, Use or None
        What to do about it, if that is sure to help.
    where : str or None
        The file, and the row or cell in it.
    """

    message: str
    argument: str | None
    found: Any
    expected: str | None
    hint: str | Use | None
    where: str | None

    def __init__(
        self,
        message: str,
        *,
        argument: str | None = None,
        found: Any = None,
        expected: str | None = None,
        hint: str | Use | None = None,
        where: str | os.PathLike[str] | None = None,
    ) -> None:
        self.message = message
        self.argument = argument
        self.found = found
        self.expected = expected
        self.hint = hint
        self.where = None if where is None else os.fspath(where)
        super().__init__(message)

    def text(
        self,
        name: Callable[[str], str] = str,
        written: Callable[[str, Any], str] = "{}={!r}".format,
    ) -> str:
        """Return the message as one line.

        Parameters
        ----------
        name : callable
            Renders the name of an argument.
        written : callable
            Renders an argument with a value, in a hint.
        """
        argument = None if self.argument is None else name(self.argument)
        sentence = self.message.rstrip(".")
        if sentence[:1].islower() and argument is not None:
            sentence = f"{argument} {sentence}"
            argument = None
        if self.where is not None:
            about_place = self.argument is None and self.message[:1].islower()
            sentence = f"{self.where} {sentence}" if about_place else f"{self.where}: {sentence}"
        if self.expected is not None:
            sentence += f", expected {self.expected.rstrip('.')}"
        sentence = _ended(sentence)
        if self.hint is not None:
            sentence += " " + _ended(self.hint.text(written) if isinstance(self.hint, Use) else self.hint)
        return one_line(sentence)

    def __str__(self) -> str:
        return self.text()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self._fields())

    def _fields(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in ("argument", "found", "expected", "hint", "where")}


def _rebuild(kind: type, message: str, fields: Mapping[str, Any]) -> Any:
    return kind(message, **fields)


class CrowdshotError(_Message, ValueError):
    """Bad input: anything that a user of the library or the command line can cause.

    The command line prints it and exits with code 2. Python callers may catch it as a ``ValueError`` and read its
    fields: ``message``, ``argument``, ``found``, ``expected``, ``hint`` and ``where``.

    Examples
    --------
    >>> from crowdshot import CrowdClassifier, CrowdshotError
    >>> try:
    ...     CrowdClassifier().fit([[1.0], [2.0]], [["cat"]])
    ... except CrowdshotError as error:
    ...     print(error)
    labels has 1 rows, expected 2 rows as in X.
    """


class NoLabelError(CrowdshotError):
    """A sound file without a single label, such as an export in which nobody has answered yet."""


class CrowdshotWarning(_Message, UserWarning):
    """A warning with the same fields: ``warnings.warn(CrowdshotWarning("…", argument="names"), stacklevel=2)``."""


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def one_line(text: str) -> str:
    """Return the text without line breaks, shortened in the middle where it is very long."""
    line = " ".join(text.splitlines())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    return line
