"""Creation of the engine that the settings select."""

from hashlib import sha256

from baton.engine.base import Engine, EngineInfo
from baton.engine.checkpoint.model_config import digest_input, read_config
from baton.engine.checkpoint.sizing import (
    BLOCK_TOKENS,
    check_memory,
    context_size,
    page_count,
    scheduler_limits,
)
from baton.engine.grammars import GRAMMAR, read_grammars
from baton.engine.paged.engine import PagedEngine
from baton.engine.sim.grouped import GroupedSimRunner
from baton.engine.sim.groups import parse_groups
from baton.engine.sim.pages import TOKEN_BYTES
from baton.engine.sim.runner import SimCosts, SimRunner
from baton.engine.support.documents import CheckpointError
from baton.engine.support.preflight import check_engine
from baton.engine.vllm.environment import is_cpu_build, prepare
from baton.kv.layout import Layout
from baton.settings import EngineSettings, StartupError
from baton.structured.masks import Masks

_SIM_VOCAB_TOKENS = 32_000
_SIM_CONTEXT_TOKENS = 32_768
_VLLM_ONLY = ("adapters", "exact_draws", "speculative_tokens", "tensor_parallel", "vllm_args")
_IGNORED = {
    "sim": ("adapter_slots", *_VLLM_ONLY),
    "torch": ("block_tokens", *_VLLM_ONLY),
    "vllm": (),
}
"""Settings that an engine would ignore, by kind of engine."""


def create_engine(settings: EngineSettings) -> Engine:
    """Create an engine; loading a checkpoint takes seconds.

    Raises:
        StartupError: the checkpoint cannot be used, or a setting is incompatible with it.
    """
    _check_no_ignored(settings)
    check_engine(settings)
    if settings.device == "cpu" and (settings.kind != "vllm" or is_cpu_build()):
        check_memory(settings)
    try:
        if settings.kind == "sim":
            return _create_sim(settings)
        if settings.kind == "vllm":
            prepare(settings)  # before any part of vLLM is imported
            from baton.engine.vllm.factory import create_vllm_engine

            return create_vllm_engine(settings)
        # torch takes a second to import, and the simulator does not need it.
        from baton.engine.torch.factory import create_torch_engine

        return create_torch_engine(settings)
    except CheckpointError as error:
        raise StartupError(str(error)) from error


def _check_no_ignored(settings: EngineSettings) -> None:
    fields = EngineSettings.model_fields
    for name in _IGNORED[settings.kind]:
        value = getattr(settings, name)
        if value != fields[name].get_default(call_default_factory=True):
            raise StartupError(
                f"The engine {settings.kind} does not support {name}: unset "
                f"BATON_ENGINE_{name.upper()}, or set BATON_ENGINE_KIND to vllm."
            )


def _create_sim(settings: EngineSettings) -> Engine:
    config = None
    if settings.model is not None:
        config = read_config(settings.model, settings.context_tokens, settings.kind)
    vocab = config.vocab_tokens if config else _SIM_VOCAB_TOKENS
    eos = config.eos_token_ids if config else ()
    if vocab <= len(eos):
        raise StartupError(f"{settings.model} has only end-of-sequence tokens.")
    digest = sha256(b"baton.sim.1\0" + digest_input(config)).digest()[:16]
    block_tokens = settings.block_tokens or BLOCK_TOKENS
    groups = parse_groups(settings.sim_groups, block_tokens)
    block_bytes = sum(group.block_bytes for group in groups) or block_tokens * TOKEN_BYTES
    pages = page_count(settings, block_bytes)
    own_context = config.context_tokens if config else _SIM_CONTEXT_TOKENS
    context_tokens, context_limit = context_size(settings, own_context, pages)
    limits = scheduler_limits(settings)
    grammars = read_grammars(settings.model, vocab, eos)
    info = EngineInfo(
        layout=Layout(
            engine="sim/1",
            backend="cpu",
            isa="",
            dtype="uint8",
            layers=1,
            kv_heads=1,
            head_size=TOKEN_BYTES,
            block_tokens=block_tokens,
            groups=groups,
        ),
        block_bytes=block_bytes,
        weights_digest=digest,
        context_tokens=context_tokens,
        context_limit=context_limit,
        checkpoint_context_tokens=own_context,
        vocab_tokens=vocab,
        eos_token_ids=eos,
        features=(GRAMMAR,) if grammars else (),
        name="sim",
        max_running=limits.max_running,
        max_waiting=limits.max_waiting,
        chunk_tokens=limits.chunk_tokens,
        decode_chunk_tokens=limits.decode_chunk_tokens,
    )
    scale = settings.sim_time_scale
    costs = SimCosts(
        prefill_token=scale / settings.sim_prefill_tokens_per_second,
        decode_step=scale * settings.sim_decode_step_seconds,
        decode_sequence=scale * settings.sim_decode_sequence_seconds,
    )
    weights = int.from_bytes(digest[:8], "little")
    kill_token = settings.sim_kill_token
    masks = Masks(grammars.vocabulary) if grammars else None
    shape = (pages, block_tokens, vocab, eos, weights, costs, kill_token, masks)
    runner = GroupedSimRunner(groups, *shape) if groups else SimRunner(*shape)
    return PagedEngine(info, runner, pages, scheduler_limits(settings), grammars=grammars)
