"""Durations of the steps of a request as text, for people."""


def duration(seconds: float) -> str:
    """Return seconds in about three digits: `0.8 ms`, `12 ms`, `1.25 s`, `12.5 s`, `1,250 s`."""
    if not seconds:
        return "0 s"
    milliseconds = seconds * 1e3
    if milliseconds < 9.95:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:,.0f} s"
