"""Failure of a plan."""


class PlanError(Exception):
    """No plan can be made. The text is a sentence with the remedy."""
