"""Check at start that KV which is read from an engine and written back yields the same tokens.

config.json and an engine's own tables determine which models transfer KV correctly; this checks the
engine itself, with the operators, the data type and the settings that it is about to serve with.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from baton.engine.base import BlockGoneError, Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens, SequenceEnded
from baton.kv.cuts import cut_rules
from baton.request.stream_events import TokenLogprob
from baton.sampling import SamplingParams
from baton.settings import StartupError
from baton.telemetry.logs import get_logger

SECONDS = 2.0
"""Maximum seconds, if the engine is fast enough for its shortest prompt."""
PROMPT_BLOCKS = (2, 6)
"""Number of full blocks of its prompts. The longer one, if there is time for it, detects windows
that end within it.
"""
OUTPUT_TOKENS = 4
FEW_TOKENS = 2
"""Number of tokens that are compared on a slow engine."""
_ALTERNATIVES = 8
_CLOSE = {"float64": 1e-6, "float32": 1e-2}
_CLOSE_IN_HALF_PRECISION = 1.0
"""Log probabilities may differ by less than this, and tokens that are closer to each other may be
swapped: sums round differently as a prompt is cut, and KV of other bytes moves them by more.
"""
_ID = -2
_ROOT = b"baton.self-check"

log = get_logger(__name__)


def check_kv_moves(
    engine: Engine, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> None:
    """Compute a prompt, read its KV, evict it, write it back, and continue from it.

    The KV is written back in part, so that the rest is computed on it, and whole, in the middle of
    the output like a stream that another worker began. The engine has no other sequences, and keeps
    no state of these.

    Args:
        engine: warmed up; called on its own thread.
        seconds: a longer prompt follows the shortest if it is likely to finish in that time.
        clock: returns monotonic seconds.

    Raises:
        StartupError: other tokens resulted, or a block could not be read; the text gives the
            comparison and the remedy.
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
    """Results of one sequence."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    kv: dict[tuple[int, int], memoryview] = field(default_factory=dict)
    """KV of the cuts that were read, by group and block."""


def _prompt(engine: Engine, blocks: int) -> list[int] | None:
    """Return a prompt of that many full blocks and a partial one; None: the engine cannot hold it.

    Its second half repeats the first, so that models that copy predict it with confidence, and only
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
        Expected seconds of a repetition, without operations that are slow the first time.
    """
    began = clock()
    block = engine.info.layout.block_tokens
    half, whole = blocks // 2 * block, blocks * block
    expected = _run(engine, prompt, (), {}, 0, OUTPUT_TOKENS, read_cuts=(half, whole))
    computed = clock()
    slow = (computed - began) * 2.5 > seconds
    count = FEW_TOKENS if slow else OUTPUT_TOKENS
    _overwrite(engine, prompt)
    found = _run(engine, prompt, (), expected.kv, half, count)
    _check_equal(engine, expected, found, 0, f"{half} of {len(prompt)} prompt tokens")
    begun = tuple(expected.tokens[: count // 2])
    _overwrite(engine, prompt)
    found = _run(engine, prompt, begun, expected.kv, whole, count)
    of = f"{whole} of {len(prompt)} prompt tokens, {len(begun)} tokens into the output,"
    _check_equal(engine, expected, found, len(begun), of)
    return 2 * (clock() - computed)


def _run(
    engine: Engine,
    prompt: Sequence[int],
    output: tuple[int, ...],
    kv: Mapping[tuple[int, int], memoryview],
    cut: int,
    max_tokens: int,
    read_cuts: Sequence[int] = (),
) -> _Run:
    """Run one sequence on an empty prefix cache, with KV of its first blocks written back.

    Args:
        engine: has no other sequence.
        prompt: of the sequence.
        output: its output so far.
        kv: by group and block; has what `cut` needs.
        cut: tokens whose KV is written back.
        max_tokens: of the whole output.
        read_cuts: prefixes of the prompt whose KV is read at its end.

    Raises:
        BlockGoneError: the engine does not hold a block.
        StartupError: it does not report a block.
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
    cut_tokens = cut if engine.info.layout.groups else 0
    engine.add(
        SequenceRequest(_ID, _ROOT, tuple(prompt), sampling, output=output, cut_tokens=cut_tokens)
    )
    try:
        ended = False
        while not ended:
            for event in engine.step():
                match event:
                    case Admitted():
                        _write(engine, event, kv, cut)
                        engine.keep_cuts(_ID, read_cuts)
                        engine.start(_ID, cut)
                    case SampledTokens():
                        run.tokens.extend(event.token_ids)
                        run.logprobs.extend(event.logprobs)
                    case BlocksReady():
                        ready = max(ready, event.first_index + len(event.keys))
                    case SequenceEnded():
                        ended = True
        rules = cut_rules(engine.info.layout)
        wanted = max((rules.blocks(each) for each in read_cuts), default=0)
        if ready < wanted:
            raise _failed(f"{ready} of {wanted} blocks of a prompt were reported ready")
        for each in read_cuts:
            for group, blocks in enumerate(rules.needed(each)):
                size = engine.info.object_bytes[group]
                views = [memoryview(bytearray(size)) for _ in blocks]
                engine.read_blocks(_ID, blocks, views, group)
                run.kv.update(zip(((group, block) for block in blocks), views, strict=True))
    finally:
        engine.close(_ID)
    return run


def _write(
    engine: Engine, admitted: Admitted, kv: Mapping[tuple[int, int], memoryview], cut: int
) -> None:
    """Write back what a cut of an admitted sequence needs."""
    needed: Sequence[Sequence[int]] = admitted.missing
    if not engine.info.layout.groups:
        needed = cut_rules(engine.info.layout).needed(cut)
    for group, blocks in enumerate(needed):
        if blocks:
            data = memoryview(b"".join(kv[group, block] for block in blocks))
            engine.write_blocks(_ID, blocks, data, group)


def _overwrite(engine: Engine, prompt: Sequence[int]) -> None:
    """Leave the KV of other tokens in the pages that are used next, so that a block that is not
    written back cannot be found in its former page.
    """
    vocab = engine.info.vocab_tokens
    _run(engine, [(token + 1) % vocab for token in prompt], (), {}, 0, 1)


def _check_equal(engine: Engine, expected: _Run, found: _Run, first: int, of: str) -> None:
    """Raise if an output differs by more than rounding of sums.

    Args:
        engine: the engine that computed them.
        expected: computed from the prompt alone.
        found: its output from token `first` on.
        first: number of output tokens that it was given.
        of: the blocks whose KV was written back.
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
        if not apart < close:  # also if it is not a number
            raise _failed(
                f"with the KV of {of} written back, output token {first + at} is {got}, and {want} "
                f"where all is computed (log probabilities {apart:.3g} apart)"
            )
        if got != want:
            return  # later tokens have a different context


def _gap(entry: TokenLogprob, other: int) -> float:
    """Return a lower bound on how much less likely another token is than the sampled one."""
    known = dict(entry.top)
    return entry.logprob - known.get(other, min(known.values(), default=entry.logprob))


def _failed(what: str) -> StartupError:
    return StartupError(
        f"The engine does not export and import KV correctly, so it cannot serve requests: {what}. "
        "Serve the model with another engine (BATON_ENGINE_KIND), and report it with its "
        "config.json; BATON_ENGINE_SELF_CHECK=false starts it anyway, with wrong outputs."
    )


def _forget(engine: Engine) -> None:
    """Reset the engine to a state in which nothing has been computed."""
    engine.evict_blocks()
    while engine.has_work():
        engine.step()
    engine.reset_stats()
