"""Errors of a batch's input, as many as are listed."""

from typing import NamedTuple

MOST_ERRORS = 1000
"""Errors that are listed; further ones are counted."""


class InputError(NamedTuple):
    """An error of the input."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class InputErrors:
    """Errors of one thread."""

    def __init__(self) -> None:
        self.first: list[InputError] = []
        self.more = 0
        """Errors beyond the first ones."""

    def __bool__(self) -> bool:
        return bool(self.first)

    def add(self, error: InputError) -> None:
        """Add an error."""
        if len(self.first) < MOST_ERRORS:
            self.first.append(error)
        else:
            self.more += 1


def listed(*several: InputErrors) -> list[InputError]:
    """Return the first errors, by line, and how many more there are."""
    errors = sorted((one for each in several for one in each.first), key=lambda one: one.line or 0)
    more = sum(each.more for each in several) + len(errors[MOST_ERRORS:])
    if more:
        what = f"{more} more errors are not listed"
        return [*errors[:MOST_ERRORS], InputError("too_many_errors", what)]
    return errors
