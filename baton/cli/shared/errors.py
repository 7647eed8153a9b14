"""Failure of a command: a sentence and an exit code."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""As in shells: 128 plus the number of SIGINT."""


class CommandError(Exception):
    """Ends the command; the message is a sentence with the problem and how to fix it.

    Args:
        sentence: for standard error.
        code: 2 if the command or its settings must be changed, 1 for other failures, 130 after
            Ctrl-C.
    """

    def __init__(self, sentence: str, code: int = EXIT_USAGE) -> None:
        super().__init__(sentence)
        self.code = code
