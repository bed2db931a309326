"""The one exception that bad input raises."""


class CrowdshotError(ValueError):
    """Bad input, told in one sentence: where it is, what was found, what was expected.

    The command line prints the sentence and exits with code 2; Python callers may catch it as a ``ValueError``.
    """
