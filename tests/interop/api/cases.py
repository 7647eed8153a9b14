"""What the scripts share that are run with other environments: imports nothing."""

from collections.abc import Callable


def run(*cases: Callable[[], str]) -> int:
    """Run cases, print a line for each, and return how many failed."""
    failures = 0
    for case in cases:
        name = case.__name__.replace("_", " ")
        try:
            print(f"ok      {name}: {case()}"[:400], flush=True)
        except Exception as error:  # noqa: BLE001 - the other cases are of interest, too
            failures += 1
            print(f"FAILED  {name}: {type(error).__name__}: {error}"[:600], flush=True)
    return failures
