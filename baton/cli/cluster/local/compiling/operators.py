"""Decide once per start of a cluster whether its engines use compiled operators; compile them.

KV of compiled operators and of plain torch differs: if each worker chose at its start, one that
restarted after the compilation would be incompatible with the others.
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
"""Effect of missing operators, by kind of engine."""


class EngineOperators:
    """The operators that the engines of one start use, decided at the first request."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._reason: str | None = None

    def settings_for(self, engine: EngineSettings, given: Collection[str]) -> dict[str, str]:
        """Return settings that make a worker follow the decision, also after a restart.

        Args:
            engine: the settings that it would have.
            given: variables given for it, which are not overridden.
        """
        if engine.native != "auto" or NATIVE_ENV in given:
            return {}
        if engine.device != "cpu" or engine.kind not in _WITHOUT:
            return {}
        if self._reason is None:
            self._reason = self._decide(_WITHOUT[engine.kind])
        # vLLM's masks are the same with and without them: each start uses what exists.
        if engine.kind != "torch" or not self._reason:
            return {}
        return {NATIVE_ENV: "off", REASON_ENV: self._reason}

    def _decide(self, without: str) -> str:
        """Return why this start uses no operators; empty: it does."""
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
