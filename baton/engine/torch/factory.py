"""Creation of the torch engine: a checkpoint's model, its KV pages and its kernels."""

from dataclasses import replace

import torch

from baton.engine.base import Engine, EngineInfo
from baton.engine.checkpoint.model_config import read_config
from baton.engine.checkpoint.sizing import BLOCK_TOKENS, context_size, page_count, scheduler_limits
from baton.engine.grammars import GRAMMAR, read_grammars
from baton.engine.lora.limits import DEFAULT_SLOTS, limits_of
from baton.engine.paged.engine import PagedEngine
from baton.engine.torch.checkpoint import read_weights, weights_digest
from baton.engine.torch.kv.groups import ModelKv, group_windows, layout_groups
from baton.engine.torch.kv.pages import PagedKv
from baton.engine.torch.lora.linear import AdaptedMaps
from baton.engine.torch.model import element_type, make_model
from baton.engine.torch.operators import choose_kernels, why_inexact
from baton.engine.torch.runner import TorchRunner
from baton.host.cgroup import usable_threads
from baton.kv.layout import Layout
from baton.sampling import Engines, features_of
from baton.settings import EngineSettings, StartupError
from baton.structured.masks import Masks


def create_torch_engine(settings: EngineSettings) -> Engine:
    """Load a checkpoint into an engine; takes seconds.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        StartupError: a setting is incompatible with it, or with this machine.
    """
    if settings.model is None:
        raise StartupError(
            "The torch engine needs a checkpoint: set BATON_ENGINE_MODEL to its directory."
        )
    config = read_config(settings.model, settings.context_tokens)
    device = torch.device(settings.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise StartupError(
            f"BATON_ENGINE_DEVICE is {settings.device}, and torch finds no CUDA device: set cpu."
        )
    threads = settings.threads or usable_threads(torch.get_num_threads())
    torch.set_num_threads(threads)
    dtype = config.dtype if settings.dtype == "auto" else settings.dtype
    if dtype == "float16":
        # Half precision without bfloat16's range: computed in float32.
        dtype = "float32"
    kernels, operators = choose_kernels(settings, config, dtype, settings.native_threads or threads)
    features = features_of(Engines.TORCH)
    isa = ""
    if kernels.deterministic:
        features = (*features, "deterministic")
        # Their KV differs in bits from that of other sums, and is not sent to engines that expect
        # those.
        isa = kernels.arithmetic
    element = element_type(dtype)
    layer_bytes = 2 * BLOCK_TOKENS * config.kv_heads * config.head_size * element.itemsize
    windows = config.options.windows or (0,) * config.layers
    layout = Layout(
        engine=kernels.block_format,
        backend=device.type,
        isa=isa,
        dtype=dtype,
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_size=config.head_size,
        block_tokens=BLOCK_TOKENS,
        groups=layout_groups(windows, layer_bytes),
    )
    block_bytes = config.layers * layer_bytes
    pages = page_count(settings, block_bytes)
    context_tokens, context_limit = context_size(settings, config.context_tokens, pages)
    limits = scheduler_limits(settings)
    maps = AdaptedMaps(kernels.low_rank())
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
        name="torch",
        dtype=dtype,
        inexact_reason=why_inexact(settings, kernels, operators, dtype),
        max_running=limits.max_running,
        max_waiting=limits.max_waiting,
        chunk_tokens=limits.chunk_tokens,
        decode_chunk_tokens=limits.decode_chunk_tokens,
        operators=operators,
    )
    weights = read_weights(settings.model, config, element, device, kernels.make_linear, maps)
    model = make_model(config, weights)
    slots = settings.adapter_slots or DEFAULT_SLOTS
    taken = limits_of(maps.module_shapes(), settings.max_adapter_rank, slots)
    info = replace(info, adapter_limits=taken)
    pools = [
        PagedKv(
            pages,
            windows.count(window),
            BLOCK_TOKENS,
            config.heads,
            config.kv_heads,
            config.head_size,
            element,
            device,
            kernels,
            window,
        )
        for window in group_windows(windows)
    ]
    kv = ModelKv(pools, windows)
    runner = TorchRunner(model, kv, Masks(grammars.vocabulary) if grammars else None)
    return PagedEngine(info, runner, pages, scheduler_limits(settings), grammars=grammars)
