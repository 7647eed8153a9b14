"""Makes the engine that the settings ask for."""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from baton.engine.base import Engine, EngineInfo
from baton.engine.model_config import CheckpointError, ModelConfig, read_config
from baton.engine.paged.engine import PagedEngine
from baton.engine.paged.scheduler import SchedulerLimits
from baton.engine.sim import TOKEN_BYTES, SimCosts, SimRunner
from baton.kv.layout import Layout
from baton.settings import EngineSettings, StartupError
from baton.telemetry.logs import get_logger

if TYPE_CHECKING:
    from baton.engine.torch.kernels import Kernels

log = get_logger(__name__)

BLOCK_TOKENS = 16
_SIM_VOCAB_TOKENS = 32_000
_SIM_CONTEXT_TOKENS = 32_768


def create_engine(settings: EngineSettings) -> Engine:
    """Make an engine; loading a checkpoint takes seconds.

    Raises:
        StartupError: the checkpoint cannot be used, or a setting does not go with it.
    """
    try:
        return _sim(settings) if settings.kind == "sim" else _torch(settings)
    except CheckpointError as error:
        raise StartupError(str(error)) from error


def _torch(settings: EngineSettings) -> Engine:
    # torch takes a second to import, and the simulator does without.
    import torch

    from baton.engine.torch.attention import PagedKv
    from baton.engine.torch.checkpoint import read_weights, weights_digest
    from baton.engine.torch.model import element_type, make_model
    from baton.engine.torch.runner import TorchRunner

    if settings.model is None:
        raise StartupError(
            "The torch engine needs a checkpoint: set BATON_ENGINE_MODEL to its directory."
        )
    config = read_config(settings.model)
    device = torch.device(settings.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise StartupError(
            f"BATON_ENGINE_DEVICE is {settings.device} and torch finds no CUDA device: set cpu."
        )
    if settings.threads:
        torch.set_num_threads(settings.threads)
    dtype = config.dtype if settings.dtype == "auto" else settings.dtype
    if dtype == "float16":
        # Half precision without bfloat16's range: computed in full.
        dtype = "float32"
    layout = Layout(
        engine="torch/1",
        backend=device.type,
        isa="",
        dtype=dtype,
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_size=config.head_size,
        block_tokens=BLOCK_TOKENS,
    )
    element = element_type(dtype)
    values = 2 * config.layers * BLOCK_TOKENS * config.kv_heads * config.head_size
    block_bytes = values * element.itemsize
    pages = _pages(settings, block_bytes)
    info = EngineInfo(
        layout=layout,
        block_bytes=block_bytes,
        weights_digest=weights_digest(settings.model, config),
        context_tokens=_context_tokens(settings, config.context_tokens, pages),
        vocab_tokens=config.vocab_tokens,
        eos_token_ids=config.eos_token_ids,
        features=("logprobs", "penalties", "logit_bias", "min_p"),
        max_waiting=_limits(settings).max_waiting,
    )
    model = make_model(config, read_weights(settings.model, config, element, device))
    kv = PagedKv(
        pages,
        config.layers,
        BLOCK_TOKENS,
        config.heads,
        config.kv_heads,
        config.head_size,
        element,
        device,
        _kernels(settings, config),
    )
    return PagedEngine(info, TorchRunner(model, kv), pages, _limits(settings))


def _kernels(settings: EngineSettings, config: ModelConfig) -> "Kernels":
    """The compiled kernels where they are asked for and can be had, else the plain ones.

    Raises:
        StartupError: they are required and cannot be had.
    """
    from baton.engine.native.build import build
    from baton.engine.native.kernels import NativeKernels, built_kernels
    from baton.engine.torch.kernels import PlainKernels

    required = settings.native == "required"
    problem = ""
    if settings.device != "cpu":
        problem = f"there are none for {settings.device}"
    elif not NativeKernels.can_run(config.heads, config.kv_heads, config.head_size):
        problem = "there are none for heads of this model's shape"
    elif required:
        try:
            return NativeKernels(build())
        except (RuntimeError, OSError) as error:
            problem = f"they could not be built: {error}"
    elif settings.native == "auto":
        kernels = built_kernels()
        if kernels is not None:
            return kernels
        log.info("engine_native_absent", build="python -m baton.engine.native.build")
    if required:
        raise StartupError(
            f"BATON_ENGINE_NATIVE is required and there are no compiled operators: {problem}. "
            "Install a C++ compiler and ninja, or set auto."
        )
    return PlainKernels()


def _sim(settings: EngineSettings) -> Engine:
    config = _sim_config(settings.model)
    vocab = config.vocab_tokens if config else _SIM_VOCAB_TOKENS
    eos = config.eos_token_ids if config else ()
    if vocab <= len(eos):
        raise StartupError(f"{settings.model} has no tokens besides those that end a text.")
    digest = sha256(b"baton.sim.1\0" + msgspec.json.encode(config)).digest()[:16]
    block_bytes = BLOCK_TOKENS * TOKEN_BYTES
    pages = _pages(settings, block_bytes)
    own_context = config.context_tokens if config else _SIM_CONTEXT_TOKENS
    info = EngineInfo(
        layout=Layout(
            engine="sim/1",
            backend="cpu",
            isa="",
            dtype="uint8",
            layers=1,
            kv_heads=1,
            head_size=TOKEN_BYTES,
            block_tokens=BLOCK_TOKENS,
        ),
        block_bytes=block_bytes,
        weights_digest=digest,
        context_tokens=_context_tokens(settings, own_context, pages),
        vocab_tokens=vocab,
        eos_token_ids=eos,
        features=(),
        max_waiting=_limits(settings).max_waiting,
    )
    scale = settings.sim_time_scale
    costs = SimCosts(
        prefill_token=scale / settings.sim_prefill_tokens_per_second,
        decode_step=scale * settings.sim_decode_step_seconds,
        decode_sequence=scale * settings.sim_decode_sequence_seconds,
    )
    weights = int.from_bytes(digest[:8], "little")
    runner = SimRunner(pages, BLOCK_TOKENS, vocab, eos, weights, costs)
    return PagedEngine(info, runner, pages, _limits(settings))


def _sim_config(directory: Path | None) -> ModelConfig | None:
    return None if directory is None else read_config(directory)


def _limits(settings: EngineSettings) -> SchedulerLimits:
    return SchedulerLimits(
        block_tokens=BLOCK_TOKENS,
        max_running=settings.max_running,
        # A sequence waits at least until the next step.
        max_waiting=max(1, settings.max_waiting),
        chunk_tokens=settings.chunk_tokens,
        decode_chunk_tokens=settings.decode_chunk_tokens or settings.chunk_tokens,
    )


def _pages(settings: EngineSettings, block_bytes: int) -> int:
    pages = settings.kv_bytes // block_bytes
    if pages == 0:
        raise StartupError(
            f"BATON_ENGINE_KV_BYTES is {settings.kv_bytes} and one block of this model's KV takes "
            f"{block_bytes}: give it room for a few hundred blocks."
        )
    return pages


def _context_tokens(settings: EngineSettings, model_tokens: int, pages: int) -> int:
    """The longest sequence: what was asked for, or what the model can and the pages hold."""
    asked = settings.context_tokens
    held = pages * BLOCK_TOKENS
    if asked > model_tokens:
        raise StartupError(
            f"BATON_ENGINE_CONTEXT_TOKENS is {asked} and the model's context is {model_tokens}."
        )
    if asked > held:
        raise StartupError(
            f"BATON_ENGINE_CONTEXT_TOKENS is {asked} and BATON_ENGINE_KV_BYTES holds the KV of "
            f"{held} tokens: raise one or lower the other."
        )
    return asked or min(model_tokens, held)
