"""Metrics, for benchmarks and tests."""


def parse_metrics(text: str) -> dict[str, float]:
    """Return the samples of Prometheus' text format, by name with labels."""
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
    return {name: float(value) for name, value in samples}
