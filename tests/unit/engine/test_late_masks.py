"""A mask that is late costs its own sequence steps, and nobody tokens."""

import itertools
import random
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.engine.paged import guided
from baton.engine.paged.scheduler import Scheduler
from baton.engine.paged.sequence import LiveSequence
from baton.request.grammar import Grammar
from baton.structured.masks import SLOW_SECONDS, MaskRequest, Masks, Words
from baton.structured.state import GrammarState
from tests.support.engine.contract import params, prompt, request

MakeEngine = Callable[..., Engine]
WORDS = Grammar.of("regex", "([a-z]{1,3} )*")
VERY_SLOW = 1.0
DIGITS = Grammar.of("regex", "[0-9]+")


def asked(number: int, grammar: Grammar | None = None, tokens: int = 12) -> SequenceRequest:
    sampling = params(seed=number, temperature=1.0, max_tokens=tokens, grammar=grammar)
    return request(number, prompt(20, seed=number), sampling=sampling)


class Gate:
    """Holds the masks of sequences back that are very slow."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.steps: Iterator[int] = itertools.repeat(0)
        """For how many steps each is held back, once the gate is open."""
        self.threads = ThreadPoolExecutor(16)
        self._held: dict[Future[Words], tuple[int, threading.Event]] = {}
        """With the steps that are left."""

    def begin_apart(self, masks: Masks, row: MaskRequest) -> "Future[Words]":
        slow = row.state.cost == VERY_SLOW
        steps = next(self.steps) if slow else 0
        free = threading.Event()

        def compute() -> Words:
            if slow:
                assert self.open.wait(20)
                assert free.wait(20)
            return masks.compute([row])

        computed = self.threads.submit(compute)
        self._held[computed] = steps, free
        if not steps:
            self._free(computed)
        return computed

    def step(self) -> None:
        """Let masks go that were held back for as long as they are to be."""
        for computed, (steps, free) in list(self._held.items()):
            self._held[computed] = steps - 1, free
            if steps == 1:
                self._free(computed)

    def wait(
        self,
        masks: Collection["Future[Words]"],
        timeout: float | None = None,
        return_when: str = "ALL_COMPLETED",
    ) -> None:
        """Wait as the engine does; one that waits for nothing but held masks has the next one."""
        if return_when == FIRST_COMPLETED and masks and all(one in self._held for one in masks):
            self._free(min(masks, key=lambda one: self._held[one][0]))
        wait(masks, timeout, return_when)

    def _free(self, computed: "Future[Words]") -> None:
        self._held.pop(computed)[1].set()

    def close(self) -> None:
        """Let all go."""
        self.open.set()
        for computed in list(self._held):
            self._free(computed)
        self.threads.shutdown()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(Masks, "begin_apart", lambda masks, row: made.begin_apart(masks, row))
    monkeypatch.setattr(guided, "wait", made.wait)
    yield made
    made.close()


def run(
    engine: Engine,
    requests: list[SequenceRequest],
    before_step: Callable[[dict[int, list[int]]], None],
) -> dict[int, list[int]]:
    """Run requests as `run_local` does, but those of `WORDS` with masks that are slow."""
    outputs: dict[int, list[int]] = {each.id: [] for each in requests}
    slow = {each.id for each in requests if each.sampling.grammar == WORDS}
    for each in requests:
        engine.add(each)
    unfinished = len(requests)
    while unfinished:
        before_step(outputs)
        for event in engine.step():
            match event:
                case Admitted():
                    if event.id in slow:
                        state = engine._sequences[event.id].grammar  # type: ignore[attr-defined]
                        assert isinstance(state, GrammarState)
                        state.cost = VERY_SLOW
                    engine.start(event.id, event.cached_tokens)
                case SampledTokens():
                    assert event.position == len(outputs[event.id])
                    outputs[event.id].extend(event.token_ids)
                case SequenceEnded():
                    assert not event.error
                    engine.close(event.id)
                    unfinished -= 1
    return outputs


@pytest.mark.parametrize("kind", ["torch", "bf16"])
def test_others_have_their_tokens_while_a_mask_is_late(
    make_engine: MakeEngine, gate: Gate, kind: str
) -> None:
    engine = make_engine(kind)
    requests = [asked(0), asked(1, DIGITS), asked(2, WORDS), asked(3, tokens=40)]
    alone = {each.id: run_local(engine, [each])[0].tokens[0] for each in requests}
    steps = 0

    def count(outputs: dict[int, list[int]]) -> None:
        nonlocal steps
        steps += 1
        if len(outputs[3]) < 39:
            assert not outputs[2]
        else:
            gate.open.set()

    assert run(engine, requests, count) == alone
    assert steps >= 38 + len(alone[2])
    assert engine.stats().late_masks >= 1
    # What was late was computed a second time, once, and not in every step that it sat out.
    computed = sum(20 + len(tokens) - 1 for tokens in alone.values())
    assert engine.stats().computed_tokens <= 2 * computed + len(alone[1]) + len(alone[2])


def test_masks_that_are_computed_together_are_late_together(
    make_engine: MakeEngine, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("torch")
    requests = [asked(0, DIGITS), asked(1, DIGITS), asked(2, tokens=40)]
    alone = {each.id: run_local(engine, [each])[0].tokens[0] for each in requests}

    def begin(masks: Masks, rows: list[MaskRequest]) -> "Future[Words]":
        return gate.threads.submit(lambda: (gate.open.wait(20), masks.compute(rows))[1])

    monkeypatch.setattr(Masks, "begin", begin)

    def open_when_alone(outputs: dict[int, list[int]]) -> None:
        if len(outputs[2]) < 39:
            assert not outputs[0] and not outputs[1]
        else:
            gate.open.set()

    assert run(engine, requests, open_when_alone) == alone


@pytest.fixture(scope="module")
def known() -> dict[str, dict[int, list[int]]]:
    """By kind of engine, the tokens of requests that had it for themselves."""
    return {}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["torch", "bf16"])
def test_tokens_are_the_same_whichever_masks_are_late(
    make_engine: MakeEngine,
    known: dict[str, dict[int, list[int]]],
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    seed: int,
) -> None:
    # Pages for less than all sequences: some are preempted, mostly a late one too.
    size = {"torch": 1024, "bf16": 256}[kind]
    engine = make_engine(kind, context_tokens=128, kv_bytes=256 * size, max_running=6)
    assert engine.stats().total_pages == 16
    numbers = random.Random(seed)
    gate.open.set()
    gate.steps = iter(lambda: numbers.choice([0, 1, 4]), None)
    preempt = Scheduler._preempt
    preempted = 0

    def count(scheduler: Scheduler, sequence: LiveSequence, now: float) -> None:
        nonlocal preempted
        preempted += 1
        preempt(scheduler, sequence, now)

    monkeypatch.setattr(Scheduler, "_preempt", count)
    grammars = [None, WORDS, DIGITS, WORDS, None, WORDS]
    requests = [asked(n, grammar, 80) for n, grammar in enumerate(grammars)]
    if kind not in known:
        known[kind] = {each.id: run_local(engine, [each])[0].tokens[0] for each in requests}
    assert not preempted

    assert run(engine, requests, lambda outputs: gate.step()) == known[kind]
    assert preempted
    assert engine.stats().late_masks >= 20


def test_a_slow_mask_is_measured_and_forgotten(make_engine: MakeEngine) -> None:
    engine = make_engine("torch")
    made = engine.grammars
    assert made is not None
    masks = Masks(made.vocabulary)
    state = made.begin(WORDS)
    masks.begin_apart(MaskRequest(state, [], 0, frozenset())).result()
    assert state.cost > 0
    state.took(20 * SLOW_SECONDS)
    for _ in range(99):
        assert state.cost > SLOW_SECONDS
        state.took(0)
    assert state.cost < SLOW_SECONDS
    masks.close()


def test_what_is_shown_an_output_late_is_computed_apart(make_engine: MakeEngine) -> None:
    made = make_engine("torch").grammars
    assert made is not None
    state = made.begin(WORDS)
    assert not state.behind([5] * 64, 0)
    assert state.behind([5] * 65, 0)
    assert not state.behind([5] * 65, 1)
