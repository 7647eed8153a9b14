"""Decide once per start of a cluster whether its engines have compiled operators; compile them.

KV of compiled operators and of plain torch is not the same: had each worker taken what it found as
it started, one that died while they were being compiled would have come back apart from the others.
"""

from collections.abc import Collection

from baton.cli.cluster.local.compiling.background import Absent, begin
from baton.cli.cluster.local.compiling.parts import OPERATORS, operators
from baton.cli.cluster.local.output.report import Reporter
from baton.compiled.library import CompileError
from baton.engine.native.build import built
from baton.settings import EngineSettings

NATIVE_ENV = "BATON_ENGINE_NATIVE"
REASON_ENV = "BATON_ENGINE_NATIVE_REASON"
_WITHOUT = {
    "torch": "The engines use plain torch operators",
    "vllm": "Grammar masks of vLLM use plain torch operators",
}
"""What the kinds of engines that use operators do where there are none."""


class EngineOperators:
    """What the engines of one start compute with, decided when the first of them is asked for."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._reason: str | None = None

    def settings_for(self, engine: EngineSettings, given: Collection[str]) -> dict[str, str]:
        """Return settings that keep a worker to the decision, also when it is started again.

        Args:
            engine: the settings that it would have.
            given: the variables that were given for it: what they say is not changed.
        """
        if engine.native != "auto" or NATIVE_ENV in given:
            return {}
        if engine.device != "cpu" or engine.kind not in _WITHOUT:
            return {}
        if self._reason is None:
            self._reason = self._decide(_WITHOUT[engine.kind])
        # Masks of vLLM's are the same with them and without: each start takes what is there.
        if engine.kind != "torch" or not self._reason:
            return {}
        return {NATIVE_ENV: "off", REASON_ENV: self._reason}

    def _decide(self, without: str) -> str:
        """Return why there are no operators in this start; empty: there are."""
        if built() is not None:
            return ""
        absent = _begin()
        self._reporter.info(f"{without}, which is slower: {absent.sentence}")
        return absent.reason


def _begin() -> Absent:
    try:
        missing = operators()
    except CompileError as error:
        return Absent(str(error), f"{error}.")
    return begin(OPERATORS, missing)
