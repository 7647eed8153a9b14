"""How many replicas a HorizontalPodAutoscaler sets, and KEDA at zero."""

import math

TOLERANCE = 0.1
"""Kubernetes' default: ratios that are closer to 1 change nothing."""


def desired_replicas(value: float, target: float, replicas: int, least: int, most: int) -> int:
    """Return the replicas for an external metric with a target of type AverageValue.

    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details:
    ceil(replicas x ratio), where the ratio is that of value / replicas to the target, and nothing
    changes for ratios within 10 % of 1. At 0 replicas KEDA decides: more than 0 activates.

    Args:
        value: of the metric.
        target: value per replica.
        replicas: those there, or starting.
        least: of the scaler.
        most: of the scaler.
    """
    if replicas and 1 - TOLERANCE <= value / (target * replicas) <= 1 + TOLERANCE:
        wanted = replicas
    else:
        wanted = math.ceil(round(value / target, 9))
    return max(least, min(most, wanted))
