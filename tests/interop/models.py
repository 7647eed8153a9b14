"""What the cases of Python's clients share."""

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel


class Weather(BaseModel):
    """The weather somewhere."""

    city: Literal["Rome", "Paris", "Oslo"]
    days: Literal[1, 2, 3]
    unit: Literal["C", "F"]


class Clock(BaseModel):
    """What time it is."""

    zone: Literal["UTC", "CET"]


def run(*cases: Callable[[], str]) -> int:
    """Run cases, print a line for each, and return how many failed."""
    failures = 0
    for case in cases:
        name = case.__name__.replace("_", " ")
        try:
            print(f"ok      {name}: {case()}", flush=True)
        except Exception as error:  # noqa: BLE001 - the other cases are of interest, too
            failures += 1
            print(f"FAILED  {name}: {type(error).__name__}: {error}"[:600], flush=True)
    return failures
