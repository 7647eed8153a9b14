"""How long a step may take because of what lower classes have in it. Pure."""

BESIDE_STREAMS = 2.0
"""Duration of a step with streams of a higher class, compared with what it would take without lower
classes: no more than the streams' target."""
OF_LONG_STEPS = 1.1
"""The same, compared with the long ones among recent steps without lower classes: streams whose
steps are all alike notice when they are not."""
LONG_PERCENT = 98
"""Percentile of recent steps that is a long one."""
BESIDE_PROMPTS = 1.05
"""The same for a step with a prompt of the higher class, or one that takes longer than the target
anyway."""
ALONE = 1.5
"""Duration of a step in which class batch alone has prompts, compared with what its decoding
sequences take: no less than the target."""
HOLD_SECONDS = 0.005
"""How long a step with lower classes is put off for a sequence of a higher class that was admitted,
and whose start is awaited."""


def beside(own: float, target: float, long: float, *, prompts: bool) -> float:
    """Return the duration of a step with work of lower classes.

    Args:
        own: duration without it.
        target: of the streams' time between tokens.
        long: duration of a long step without it.
        prompts: whether the higher class has prompts in it.
    """
    least = BESIDE_PROMPTS * own
    if prompts:
        return least
    return max(least, min(target, BESIDE_STREAMS * own, OF_LONG_STEPS * long))


def alone(decoding: float, target: float) -> float:
    """Return the duration of a step with prompts of class batch, whoever comes waits for which.

    Args:
        decoding: duration with its decoding sequences only.
        target: of the class's time between tokens.
    """
    return max(target, ALONE * decoding)
