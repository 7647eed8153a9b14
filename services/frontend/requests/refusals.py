"""Errors that requests are refused with on HTTP and gRPC alike, wherever a surface finds them."""

from baton.errors import BatonError, Reason, invalid_field


def unsupported(name: str, feature: str = "", why: str = "") -> BatonError:
    """Return the error of a parameter that is not served, whichever model is asked.

    Args:
        name: the parameter, in the caller's words.
        feature: what it asks for, where that has another name.
        why: and what to do, where there is more to say than to leave it out.
    """
    what = f"{name}: {feature}" if feature else name
    return BatonError(
        Reason.UNSUPPORTED_PARAMETER,
        f"{what} is not supported: {why}" if why else f"{what} is not supported; omit it",
        field=name,
    )


def check_count(field: str, count: int, most: int) -> None:
    """Check how many elements a list has; it can be done before any of them is read.

    Raises:
        BatonError: INVALID_FIELD, it has more than `most`.
    """
    if count > most:
        raise invalid_field(field, f"{count} {field} exceed the limit of {most}")


def out_of_range(field: str, value: float, low: float, high: float) -> BatonError:
    """Return the error of a number that is less than `low` or more than `high`."""
    return invalid_field(field, f"{value} is out of range: {low} to {high}")
