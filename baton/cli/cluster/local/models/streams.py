"""The requests that run on workers, according to their metrics."""


def streams_of(exposition: str) -> float:
    """Return the open streams in a worker's metrics."""
    lines = (line.split() for line in exposition.splitlines())
    return sum(float(words[1]) for words in lines if words[:1] == ["baton_worker_streams"])
