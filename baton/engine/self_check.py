"""A check at start: KV that leaves an engine and comes back gives the tokens that it gave before.

config.json and an engine's own tables say which models move rightly; this asks the engine itself,
with the operators, the dtype and the settings that it is about to serve with.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from baton.engine.base import BlockGoneError, Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens, SequenceEnded
from baton.request.stream_events import TokenLogprob
from baton.sampling import SamplingParams
from baton.settings import StartupError
from baton.telemetry.logs import get_logger

SECONDS = 2.0
"""What it may take where the engine is fast enough for its shortest prompt."""
PROMPT_BLOCKS = (2, 6)
"""Full blocks of its prompts. The longer one, where there is time for it, shows windows that end
within it."""
OUTPUT_TOKENS = 4
FEW_TOKENS = 2
"""Compared where the engine is slow."""
_ALTERNATIVES = 8
_CLOSE = {"float64": 1e-6, "float32": 1e-2}
_CLOSE_IN_HALF_PRECISION = 1.0
"""Log probabilities may differ by less than this, and tokens that are nearer to each other may
change places: sums round as a prompt is cut, and KV of other bytes moves them by more."""
_ID = -2
_ROOT = b"baton.self-check"

log = get_logger(__name__)


def check_kv_moves(
    engine: Engine, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> None:
    """Compute a prompt, read its KV out, evict it, write it back, and go on with it.

    In part, so that the rest is computed on it, and whole, in the middle of the output as a stream
    that another worker began. The engine has no other sequences, and remembers nothing of these.

    Args:
        engine: warmed up; called on its own thread.
        seconds: a longer prompt follows the shortest if it is likely to be through by then.
        clock: returns monotonic seconds.

    Raises:
        StartupError: other tokens came, or a block could not be read; the text says what was
            compared, and what to do.
    """
    began = clock()
    tokens, likely = 0, 0.0
    try:
        for blocks in PROMPT_BLOCKS:
            left = seconds - (clock() - began)
            prompt = _prompt(engine, blocks)
            if prompt is None or likely * blocks > left:
                break
            likely = _compare(engine, prompt, blocks, left, clock) / blocks
            tokens = len(prompt)
    except BlockGoneError as error:
        raise _failed(f"the KV of a prompt cannot be read or written: {error}") from error
    finally:
        _forget(engine)
    log.info("engine.self_check.passed", prompt_tokens=tokens, seconds=round(clock() - began, 3))


@dataclass(slots=True)
class _Run:
    """What one sequence brought."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    blocks: list[memoryview] = field(default_factory=list)
    """KV of the prompt's full blocks."""


def _prompt(engine: Engine, blocks: int) -> list[int] | None:
    """Return a prompt of so many full blocks and a part; None: the engine cannot hold it.

    Its second half repeats the first, so that models that copy know well what comes next, and only
    from the KV of the first half.
    """
    info = engine.info
    length = blocks * info.layout.block_tokens + info.layout.block_tokens // 4 + 1
    held = min(info.context_tokens, engine.stats().total_pages * info.layout.block_tokens)
    if length + OUTPUT_TOKENS > held:
        return None
    draw = random.Random(0)
    half = [draw.randrange(info.vocab_tokens) for _ in range((length + 1) // 2)]
    return (half + half)[:length]


def _compare(
    engine: Engine,
    prompt: Sequence[int],
    blocks: int,
    seconds: float,
    clock: Callable[[], float],
) -> float:
    """Raise unless tokens with KV that was written back are those of the prompt alone.

    Returns:
        How long that is likely to take again, without what is slow the first time.
    """
    began = clock()
    block = engine.info.layout.block_tokens
    expected = _run(engine, prompt, (), [], OUTPUT_TOKENS, read_blocks=blocks)
    computed = clock()
    slow = (computed - began) * 2.5 > seconds
    count = FEW_TOKENS if slow else OUTPUT_TOKENS
    part = expected.blocks[: blocks // 2]
    _overwrite(engine, prompt)
    found = _run(engine, prompt, (), part, count)
    _check_equal(engine, expected, found, 0, f"{len(part) * block} of {len(prompt)} prompt tokens")
    begun = tuple(expected.tokens[: count // 2])
    _overwrite(engine, prompt)
    found = _run(engine, prompt, begun, expected.blocks, count)
    of = f"{blocks * block} of {len(prompt)} prompt tokens, {len(begun)} tokens into the output,"
    _check_equal(engine, expected, found, len(begun), of)
    return 2 * (clock() - computed)


def _run(
    engine: Engine,
    prompt: Sequence[int],
    output: tuple[int, ...],
    written: Sequence[memoryview],
    max_tokens: int,
    read_blocks: int = 0,
) -> _Run:
    """Run one sequence on an empty prefix cache, with KV of its first blocks written back.

    Args:
        engine: has no other sequence.
        prompt: of the sequence.
        output: its output so far.
        written: KV of its first blocks.
        max_tokens: of the whole output.
        read_blocks: how many blocks to read out at its end.

    Raises:
        BlockGoneError: the engine does not hold a block.
        StartupError: it does not report so many.
    """
    engine.evict_blocks()
    with_logprobs = "logprobs" in engine.info.features
    sampling = SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        logprobs=min(_ALTERNATIVES, engine.info.vocab_tokens) if with_logprobs else None,
    )
    run = _Run()
    ready = 0
    engine.add(SequenceRequest(_ID, _ROOT, tuple(prompt), sampling, output=output))
    try:
        ended = False
        while not ended:
            for event in engine.step():
                match event:
                    case Admitted():
                        if written:
                            data = memoryview(b"".join(written))
                            engine.write_blocks(_ID, range(len(written)), data)
                        engine.start(_ID, len(written) * engine.info.layout.block_tokens)
                    case SampledTokens():
                        run.tokens.extend(event.token_ids)
                        run.logprobs.extend(event.logprobs)
                    case BlocksReady():
                        ready = max(ready, event.first_index + len(event.keys))
                    case SequenceEnded():
                        ended = True
        if ready < read_blocks:
            raise _failed(f"{ready} of {read_blocks} blocks of a prompt were reported ready")
        size = engine.info.block_bytes
        run.blocks = [memoryview(bytearray(size)) for _ in range(read_blocks)]
        engine.read_blocks(_ID, range(read_blocks), run.blocks)
    finally:
        engine.close(_ID)
    return run


def _overwrite(engine: Engine, prompt: Sequence[int]) -> None:
    """Leave the KV of other tokens in the pages that are used next: a block that does not come back
    must not be found in the page that it had."""
    vocab = engine.info.vocab_tokens
    _run(engine, [(token + 1) % vocab for token in prompt], (), [], 1)


def _check_equal(engine: Engine, expected: _Run, found: _Run, first: int, of: str) -> None:
    """Raise if an output is another one by more than sums round.

    Args:
        engine: what computed them.
        expected: computed from the prompt alone.
        found: its output from token `first` on.
        first: output tokens that it was given.
        of: whose KV was written back.
    """
    close = _CLOSE.get(engine.info.layout.dtype, _CLOSE_IN_HALF_PRECISION)
    for at, got in enumerate(found.tokens):
        want = expected.tokens[first + at]
        entry = expected.logprobs[first + at] if expected.logprobs else None
        if entry is None:
            apart = 0.0 if got == want else inf
        elif got == want:
            apart = abs(found.logprobs[at].logprob - entry.logprob)
        else:
            apart = _gap(entry, got)
        if not apart < close:  # also where it is no number
            raise _failed(
                f"with the KV of {of} written back, output token {first + at} is {got}, and {want} "
                f"where all is computed (log probabilities {apart:.3g} apart)"
            )
        if got != want:
            return  # what follows is of another context


def _gap(entry: TokenLogprob, other: int) -> float:
    """Return by how much less likely another token is, at least, than the one that was sampled."""
    known = dict(entry.top)
    return entry.logprob - known.get(other, min(known.values(), default=entry.logprob))


def _failed(what: str) -> StartupError:
    return StartupError(
        f"The engine does not export and import KV correctly, so it cannot serve requests: {what}. "
        "Serve the model with another engine (BATON_ENGINE_KIND), and report it with its "
        "config.json; BATON_ENGINE_SELF_CHECK=false starts it anyway, with wrong outputs."
    )


def _forget(engine: Engine) -> None:
    """Leave the engine as if nothing had been computed."""
    engine.evict_blocks()
    while engine.has_work():
        engine.step()
    engine.reset_stats()
