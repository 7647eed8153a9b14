"""What is wrong with a grammar."""


class GrammarError(ValueError):
    """A grammar cannot be kept: it is malformed, asks for what is not supported, or costs too much.

    The text begins with where, in a JSON Schema its JSON path and keyword, and says what to do.
    """


class GrammarsBusyError(Exception):
    """More grammars wait to be compiled than may."""
