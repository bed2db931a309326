"""What bad input raises."""


class CrowdshotError(ValueError):
    """Bad input, told in one sentence: where it is, what was found, what was expected.

    The command line prints the sentence and exits with code 2; Python callers may catch it as a ``ValueError``.
    """


class NoLabelError(CrowdshotError):
    """A file that is sound but holds no label, as the export of questions that nobody has answered yet."""
