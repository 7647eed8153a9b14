"""Moving averages of an engine's speed."""

_KEEP = 0.95
"""Weight of the past compared with a new step."""


class EngineRates:
    """Averages over steps; 0 while unknown. Owned by the engine, on its thread."""

    def __init__(self) -> None:
        self._prompt_tokens = 0.0
        self._prompt_seconds = 0.0
        self.decode_step_seconds = 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Return the prompt tokens computed per second of steps."""
        if self._prompt_seconds <= 0:
            return 0.0
        return self._prompt_tokens / self._prompt_seconds

    def observe(self, prompt_tokens: int, decoding: int, seconds: float) -> None:
        """Count one step.

        Args:
            prompt_tokens: tokens computed in chunks.
            decoding: sequences with one computed token.
            seconds: duration of the step.
        """
        if prompt_tokens == 0:
            old = self.decode_step_seconds
            self.decode_step_seconds = seconds if old == 0 else _KEEP * old + (1 - _KEEP) * seconds
            return
        if decoding:
            # The time that the step would have taken without the prompt is not counted for the
            # prompt.
            seconds = max(seconds - self.decode_step_seconds, seconds / (1 + decoding))
        self._prompt_tokens = _KEEP * self._prompt_tokens + prompt_tokens
        self._prompt_seconds = _KEEP * self._prompt_seconds + seconds
