"""Errors of rejected requests that are the same on HTTP and gRPC."""

from baton.errors import BatonError, Reason, invalid_field


def unsupported(name: str, feature: str = "", why: str = "") -> BatonError:
    """Return the error of a parameter that is not supported, whatever the model.

    Args:
        name: the client's name for the parameter.
        feature: what it requests, if that has another name.
        why: the reason and the remedy, if the remedy is not just to omit it.
    """
    what = f"{name}: {feature}" if feature else name
    return BatonError(
        Reason.UNSUPPORTED_PARAMETER,
        f"{what} is not supported: {why}" if why else f"{what} is not supported; omit it",
        field=name,
    )


def check_count(field: str, count: int, most: int) -> None:
    """Check the number of elements of a list, before any element is parsed.

    Raises:
        BatonError: INVALID_FIELD: the list has more than `most` elements.
    """
    if count > most:
        raise invalid_field(field, f"{count} {field} exceed the limit of {most}")


def out_of_range(field: str, value: float, low: float, high: float) -> BatonError:
    """Return the error of a number below `low` or above `high`."""
    return invalid_field(field, f"{value} is out of range: {low} to {high}")
