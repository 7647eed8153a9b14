"""How a command fails: a sentence and an exit code."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""As a shell says it: 128 and SIGINT's number."""


class CommandError(Exception):
    """Ends the command; the text is a sentence that says what is wrong and how to fix it.

    Args:
        sentence: for standard error.
        code: 2 where the command or its settings have to change, 1 where something failed, 130
            where Ctrl-C ended it.
    """

    def __init__(self, sentence: str, code: int = EXIT_USAGE) -> None:
        super().__init__(sentence)
        self.code = code
