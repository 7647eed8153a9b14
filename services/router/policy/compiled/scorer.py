"""Choose what computes scores."""

from baton.compiled.choice import CompiledChoice, choose
from services.router.policy.compiled.build import library
from services.router.policy.compiled.native_scores import NativeScorer
from services.router.policy.pick import score_arrays
from services.router.policy.scores import Scorer


def choose_scorer() -> CompiledChoice[Scorer]:
    """Return the compiled scorer if it was built for this machine, otherwise array operations."""
    return choose(library(), NativeScorer, lambda: score_arrays)
