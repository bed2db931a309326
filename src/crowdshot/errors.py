"""What bad input raises."""

LONGEST = 4000  # characters of a sentence: what it quotes may have any number


class CrowdshotError(ValueError):
    """Bad input, told in one sentence: where it is, what was found, what was expected.

    The command line prints the sentence and exits with code 2; Python callers may catch it as a ``ValueError``. It
    stays one line that can be read, whatever it quotes.

    >>> from crowdshot import CrowdClassifier, CrowdshotError
    >>> try:
    ...     CrowdClassifier().fit([[1.0], [2.0]], [["cat"]])
    ... except CrowdshotError as error:
    ...     print(error)
    labels has 1 rows, expected 2 rows as in X.
    """

    def __init__(self, sentence: str) -> None:
        line = " ".join(sentence.splitlines())
        if len(line) > LONGEST:
            line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
        super().__init__(line)


class NoLabelError(CrowdshotError):
    """A file that is sound but holds no label, as the export of questions that nobody has answered yet."""
