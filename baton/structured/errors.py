"""Errors in a grammar."""

Path = tuple[str | int, ...]
"""Names and positions, from a schema's root."""


class GrammarError(ValueError):
    """A grammar is not supported: it is malformed, uses an unsupported feature, or costs too much.

    The text begins with the position, in a JSON Schema its JSON path and keyword, and says how to
    fix the grammar.
    """

    def __init__(self, message: str, keyword: Path = ()) -> None:
        super().__init__(message)
        self.keyword = keyword
        """Path of the one unsupported keyword of a JSON Schema; empty: another error, or several
        keywords together.
        """


class GrammarsBusyError(Exception):
    """More grammars wait to be compiled than the limit allows, or one waited too long."""
