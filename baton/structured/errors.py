"""What is wrong with a grammar."""

Path = tuple[str | int, ...]
"""Of names and positions, from a schema's root."""


class GrammarError(ValueError):
    """A grammar cannot be kept: it is malformed, asks for what is not supported, or costs too much.

    The text begins with where, in a JSON Schema its JSON path and keyword, and says what to do.
    """

    def __init__(self, message: str, keyword: Path = ()) -> None:
        super().__init__(message)
        self.keyword = keyword
        """The one keyword of a JSON Schema that cannot be kept, by its path; empty: it is another
        error, or several keywords together."""


class GrammarsBusyError(Exception):
    """More grammars wait to be compiled than may."""
