"""Creates the torch engine: a checkpoint's model, its KV pages and the kernels that compute it."""

from pathlib import Path

import torch

from baton.cgroup import usable_threads
from baton.engine.base import Engine, EngineInfo
from baton.engine.grammars import GRAMMAR, read_grammars
from baton.engine.model_config import ModelConfig, read_config
from baton.engine.native.build import build, built_library
from baton.engine.native.kernels import NativeKernels
from baton.engine.native.variants import cpu_features
from baton.engine.paged.engine import PagedEngine
from baton.engine.sizing import BLOCK_TOKENS, context_size, page_count, scheduler_limits
from baton.engine.torch.attention import PagedKv
from baton.engine.torch.checkpoint import read_weights, weights_digest
from baton.engine.torch.kernels import Kernels, PlainKernels
from baton.engine.torch.model import element_type, make_model
from baton.engine.torch.runner import TorchRunner
from baton.kv.layout import Layout
from baton.settings import EngineSettings, StartupError
from baton.structured.masks import Masks
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

FEATURES = ("logprobs", "penalties", "logit_bias", "min_p", "bad_words", "prompt_logprobs")


def create_torch_engine(settings: EngineSettings) -> Engine:
    """Load a checkpoint into an engine; takes seconds.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        StartupError: a setting does not go with it, or with this machine.
    """
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
    torch.set_num_threads(settings.threads or usable_threads(torch.get_num_threads()))
    dtype = config.dtype if settings.dtype == "auto" else settings.dtype
    if dtype == "float16":
        # Half precision without bfloat16's range: computed in full.
        dtype = "float32"
    kernels = _choose_kernels(settings, config, dtype)
    features: tuple[str, ...] = FEATURES
    isa = ""
    if isinstance(kernels, NativeKernels) and kernels.deterministic:
        features = (*FEATURES, "deterministic")
        # Their KV has other bits than that of other sums, and goes to none that expects those.
        isa = kernels.arithmetic
    layout = Layout(
        engine="torch/1",
        backend=device.type,
        isa=isa,
        dtype=dtype,
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_size=config.head_size,
        block_tokens=BLOCK_TOKENS,
    )
    element = element_type(dtype)
    values = 2 * config.layers * BLOCK_TOKENS * config.kv_heads * config.head_size
    block_bytes = values * element.itemsize
    pages = page_count(settings, block_bytes)
    context_tokens, context_limit = context_size(settings, config.context_tokens, pages)
    limits = scheduler_limits(settings)
    grammars = read_grammars(settings.model, config.vocab_tokens, config.eos_token_ids)
    info = EngineInfo(
        layout=layout,
        block_bytes=block_bytes,
        weights_digest=weights_digest(settings.model, config),
        context_tokens=context_tokens,
        context_limit=context_limit,
        checkpoint_context_tokens=config.context_tokens,
        vocab_tokens=config.vocab_tokens,
        eos_token_ids=config.eos_token_ids,
        features=(*features, *([GRAMMAR] if grammars else [])),
        max_waiting=limits.max_waiting,
        chunk_tokens=limits.chunk_tokens,
        decode_chunk_tokens=limits.decode_chunk_tokens,
    )
    model = make_model(
        config, read_weights(settings.model, config, element, device, kernels.make_linear)
    )
    kv = PagedKv(
        pages,
        config.layers,
        BLOCK_TOKENS,
        config.heads,
        config.kv_heads,
        config.head_size,
        element,
        device,
        kernels,
    )
    runner = TorchRunner(model, kv, Masks(grammars.vocabulary) if grammars else None)
    return PagedEngine(info, runner, pages, scheduler_limits(settings), grammars=grammars)


def _choose_kernels(settings: EngineSettings, config: ModelConfig, dtype: str) -> Kernels:
    """Return the compiled kernels where they are wanted and available, else the plain ones.

    Raises:
        StartupError: they are required and not available, or cannot be deterministic.
    """
    library = _native_library(settings, config)
    deterministic = settings.deterministic == "required"
    if deterministic and (library is None or dtype != "bfloat16"):
        why = "there are no compiled operators" if library is None else f"the dtype is {dtype}"
        raise StartupError(
            f"BATON_ENGINE_DETERMINISTIC is required and {why}: run `make native` on a CPU and "
            "serve in bfloat16, or set auto. Sums in float32 and float64 are rounded so finely "
            "that tokens were never, or hardly ever, seen to depend on them."
        )
    if library is None:
        return PlainKernels()
    if settings.deterministic == "auto":
        # oneDNN's products on AMX are several times as fast as those of AVX-512.
        deterministic = dtype == "bfloat16" and "amx_bf16" not in cpu_features()
    return NativeKernels(library, deterministic=deterministic)


def _native_library(settings: EngineSettings, config: ModelConfig) -> Path | None:
    """Return the path of the compiled operators, or None where they are not wanted or not there.

    Raises:
        StartupError: they are required and not available.
    """
    required = settings.native == "required"
    problem = ""
    if settings.device != "cpu":
        problem = f"there are none for {settings.device}"
    elif not NativeKernels.can_run(config.heads, config.kv_heads, config.head_size):
        problem = "there are none for heads of this model's shape"
    elif required:
        try:
            return build()
        except (RuntimeError, OSError) as error:
            problem = f"they could not be built: {error}"
    elif settings.native == "auto":
        library = built_library()
        if library is None:
            log.info("engine.native.absent", build="python -m baton.engine.native.build")
        return library
    if required:
        raise StartupError(
            f"BATON_ENGINE_NATIVE is required and there are no compiled operators: {problem}. "
            "Install a C++ compiler, or set auto."
        )
    return None
