"""Define the errors and warnings of crowdshot, which carry their facts as fields.

Callers read the fields instead of parsing the sentence. The command line uses them to show its options' names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

LONGEST = 1000  # characters of a message; the file names and values that it quotes may be of any length


class Use:
    """Advise setting arguments, which Python and the command line spell differently.

    Parameters
    ----------
    purpose : str
        The end of the sentence, such as "to leave them out".
    **arguments
        The arguments and the values they should get.

    Examples
    --------
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
        """Return the advice as a sentence; ``written`` renders an argument and its value."""
        advice = (
            " and ".join(written(name, value) for name, value in use.arguments.items()) + f" {use.purpose}"
            for use in (self, *self.alternatives)
        )
        return f"Use {', or '.join(text.rstrip() for text in advice)}."

    def __str__(self) -> str:
        return self.text(lambda name, value: f"{name}={value!r}")


class Proposal(Use):
    """Advise arguments that together solve every problem; the command line shows the whole command."""


class _Message(Exception):  # noqa: N818  (the base of errors and warnings)
    """Hold the fields of an error or warning and build its text.

    A message that begins with a small letter is a predicate. Its subject is ``argument``, or else ``where``:
    ``CrowdshotError("is 0", argument="steps", expected="1 or more")`` reads "steps is 0, expected 1 or more."

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
        How to solve the problem, if the advice is sure to help.
    where : str or None
        The file, and the row or cell in it.
    among : tuple
        The accepted values, of which the text suggests the one that is most like ``found``.
    """

    message: str
    argument: str | None
    found: Any
    expected: str | None
    hint: str | Use | None
    where: str | None
    among: tuple[Any, ...]

    def __init__(
        self,
        message: str,
        *,
        argument: str | None = None,
        found: Any = None,
        expected: str | None = None,
        hint: str | Use | None = None,
        where: str | os.PathLike[str] | None = None,
        among: Iterable[Any] = (),
    ) -> None:
        self.message = message
        self.argument = argument
        self.found = found
        self.expected = expected
        self.hint = hint
        self.where = None if where is None else os.fspath(where)
        self.among = tuple(among)
        super().__init__(message)

    def text(self, name: Callable[[str], str] = str, written: Callable[[str, Any], str] = "{}={!r}".format) -> str:
        """Return the message and its hint as one line.

        Parameters
        ----------
        name : callable
            Renders the name of an argument.
        written : callable
            Renders an argument with a value, in a hint.
        """
        return one_line(" ".join([self.sentence(name), *self.advice(written)]))

    def sentence(self, name: Callable[[str], str] = str) -> str:
        """Return the message without its hint."""
        sentence = self.message.rstrip(".")
        if sentence[:1].islower() and self.argument is not None:
            sentence = f"{name(self.argument)} {sentence}"
        if self.where is not None:
            is_subject = self.argument is None and self.message[:1].islower()
            sentence = f"{self.where} {sentence}" if is_subject else f"{self.where}: {sentence}"
        if self.expected is not None:
            sentence += f", expected {self.expected.rstrip('.')}"
        return one_line(_ended(sentence))

    def advice(self, written: Callable[[str, Any], str] = "{}={!r}".format) -> list[str]:
        """Return the most similar accepted value and the hint, as a list of sentences."""
        close = closest(self.found, self.among)
        similar = [] if close is None else [f"Did you mean {close!r}?"]
        if self.hint is None:
            return similar
        return [*similar, one_line(_ended(self.hint.text(written) if isinstance(self.hint, Use) else self.hint))]

    def __str__(self) -> str:
        return self.text()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self._fields())

    def _fields(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in ("argument", "found", "expected", "hint", "where", "among")}


def _rebuild(kind: type, message: str, fields: Mapping[str, Any]) -> Any:
    return kind(message, **fields)


class CrowdshotError(_Message, ValueError):
    """Report bad input: any problem that a user of the library or the command line can cause.

    The command line prints the error and exits with code 2. Python callers may catch it as a ``ValueError`` and read
    its fields: ``message``, ``argument``, ``found``, ``expected``, ``hint`` and ``where``.

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
    """Report a valid file without labels, such as an export that nobody has labelled yet."""


class CrowdshotWarning(_Message, UserWarning):
    """Warn with the same fields as `CrowdshotError`.

    Raise it with ``warnings.warn(CrowdshotWarning("…", argument="names"), stacklevel=2)``.
    """


def closest(word: Any, among: Iterable[Any]) -> str | None:
    """Return the value that a misspelled word probably means, None if there is none."""
    known = {str(value).casefold(): str(value) for value in among} if isinstance(word, str) else {}
    if not known:
        return None
    import difflib  # here, as most runs have no error

    similar = difflib.get_close_matches(word.casefold(), known, 1, 0.7)
    return known[similar[0]] if similar else None


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def one_line(text: str) -> str:
    """Return the text without line breaks and control characters, shortened in the middle if it is very long."""
    line = escape_controls(" ".join(text.splitlines()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    return line


def escape_controls(text: str) -> str:
    r"""Escape the characters that move the cursor of a terminal or change its colours, except tabs and line breaks.

    >>> escape_controls("red\x1b[31m")
    'red\\x1b[31m'
    """
    return text if text.isprintable() else "".join(repr(c)[1:-1] if is_control(c) else c for c in text)


def is_control(character: str) -> bool:
    """Return whether a character controls a terminal; tabs and line breaks do not count."""
    return character not in "\t\n" and (character < " " or "\x7f" <= character < "\xa0")
