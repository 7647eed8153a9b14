"""Creation of the vllm engine: an EngineCore with a checkpoint and Baton's connector."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import torch
from vllm.config import VllmConfig

from baton.engine.base import PICTURES, ContextLimit, Engine, EngineInfo
from baton.engine.checkpoint.files import files_digest, weight_files
from baton.engine.checkpoint.model_config import read_eos_token_ids
from baton.engine.grammars import GRAMMAR
from baton.engine.lora.adapter import Adapter, read_adapters
from baton.engine.vllm.adapters.create import create_table
from baton.engine.vllm.config import draws_exactly, make_config, refused
from baton.engine.vllm.core import VllmCore
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.executors import LocalExecutor, RanksExecutor
from baton.engine.vllm.groups.kinds import check_groups, kv_groups, order_of
from baton.engine.vllm.layout import vllm_layout
from baton.engine.vllm.pages import KvPages
from baton.engine.vllm.pictures import VllmPictures
from baton.engine.vllm.ranks.pages import RankListener, RankPages
from baton.engine.vllm.registry import ADMISSIONS, REGISTERED
from baton.engine.vllm.sampler import LocalDraws, shared_grammars
from baton.engine.vllm.sequences.held import HeldSequences
from baton.engine.vllm.sequences.sampled import Draws
from baton.kv.cuts import cut_rules
from baton.kv.layout import Layout
from baton.sampling import Engines, features_of
from baton.settings import EngineSettings

_engines = count()


def create_vllm_engine(settings: EngineSettings) -> Engine:
    """Load a checkpoint into vLLM; takes seconds, and imports vLLM.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        StartupError: a setting is incompatible with it, or with this machine.
    """
    # First, because its errors name the missing file.
    ends = read_eos_token_ids(settings.model) if settings.model else ()
    engine_id = f"baton-{os.getpid()}-{next(_engines)}"
    adapters = _read_adapters(settings)
    with ExitStack() as stack:
        listener = None
        if settings.tensor_parallel > 1:
            listener = RankListener(settings.tensor_parallel)
            stack.callback(listener.close)
        config = make_config(settings, engine_id, adapters, listener.address if listener else "")
        assert settings.model is not None  # make_config rejects it
        pictures = None
        if config.model_config.is_multimodal_model:
            pictures = _make_pictures(config, settings.model)
        digest = files_digest(_configuration(settings), weight_files(settings.model))
        held = HeldSequences(settings.max_running)
        undo = stack.enter_context(ExitStack())
        ADMISSIONS[engine_id] = held
        undo.callback(ADMISSIONS.pop, engine_id)
        try:
            core = _make_core(config, listener is not None)
            undo.callback(core.close)
            table = None
            if config.lora_config is not None:
                table = create_table(settings, core.call_ranks, adapters)
            check_groups(config, core.kv_cache_specs, settings.model)
        except (ValueError, RuntimeError, NotImplementedError, OSError, AssertionError) as error:
            raise refused(settings.model, error) from error
        pages: KvPages
        draws: Draws
        if listener is None:
            registered = REGISTERED.pop(engine_id)
            backend, isa = registered.backend, registered.isa
            pages, draws = registered.pages, LocalDraws()
        else:
            pages = draws = ranks = RankPages(listener)
            backend, isa = ranks.backend, ranks.isa
        specs = core.kv_cache_specs
        order = order_of(specs)
        block_bytes = [group.block_bytes for group in pages.groups]
        groups = kv_groups([specs[group] for group in order], block_bytes)
        layout = vllm_layout(config, backend, isa, groups)
        core.use_groups(order, cut_rules(layout))
        info = _info(settings, config, core, layout, sum(block_bytes), digest, adapters, ends)
        grammars = None
        if draws_exactly(settings):
            grammars = shared_grammars(settings.model, info.vocab_tokens)
        if grammars is not None:
            info = replace(info, features=(*info.features, GRAMMAR))
        if pictures is not None:
            features = (*info.features, PICTURES)
            info = replace(info, features=features, pictures=pictures.tokens)
        if table is not None:
            info = replace(info, adapter_limits=table.limits)
        engine = VllmEngine(info, core, pages, held, engine_id, draws, table, grammars, pictures)
        undo.pop_all()
        return engine


def _make_core(config: VllmConfig, has_ranks: bool) -> VllmCore:
    # vLLM replaces it on CPU, for the whole process.
    set_num_threads = torch.set_num_threads
    try:
        return VllmCore(config, RanksExecutor if has_ranks else LocalExecutor)
    finally:
        torch.set_num_threads = set_num_threads


def _make_pictures(config: VllmConfig, model: Path) -> VllmPictures:
    try:
        return VllmPictures(config, model)
    except (ValueError, RuntimeError, OSError, ImportError, TypeError) as error:
        raise refused(model, error) from error


def _read_adapters(settings: EngineSettings) -> tuple[Adapter, ...]:
    if settings.model is None:
        return ()
    return read_adapters(settings.adapters, settings.model, settings.max_adapter_rank)


def _configuration(settings: EngineSettings) -> bytes:
    """Return what determines the numbers besides weights: config.json, how pictures are processed,
    and vLLM's own arguments.
    """
    assert settings.model is not None
    document = msgspec.json.decode((settings.model / "config.json").read_bytes())
    known = {"config": document, "vllm_args": settings.vllm_args}
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = settings.model / name
        if "vision_config" in document and path.exists():
            known[name] = msgspec.json.decode(path.read_bytes())
    return b"baton.weights.vllm.1\0" + msgspec.json.encode(known, order="sorted")


def _info(
    settings: EngineSettings,
    config: VllmConfig,
    core: VllmCore,
    layout: Layout,
    block_bytes: int,
    digest: bytes,
    adapters: Sequence[Adapter],
    eos_token_ids: tuple[int, ...],
) -> EngineInfo:
    assert settings.model is not None
    model = config.model_config
    own_context = int(model.hf_text_config.max_position_embeddings)
    context = int(model.max_model_len)
    if not layout.groups:  # otherwise vLLM knows how many pages windows and states need
        context = min(context, core.total_pages * layout.block_tokens)
    if settings.context_tokens:
        limit = ContextLimit.SETTING
    elif context < own_context:
        limit = ContextLimit.KV_MEMORY
    else:
        limit = ContextLimit.CHECKPOINT
    return EngineInfo(
        layout=layout,
        block_bytes=block_bytes,
        weights_digest=digest,
        context_tokens=context,
        context_limit=limit,
        checkpoint_context_tokens=own_context,
        vocab_tokens=model.get_vocab_size(),
        eos_token_ids=eos_token_ids,
        features=_features(settings, config),
        name="vllm",
        dtype=str(model.dtype).removeprefix("torch."),
        inexact_reason="vLLM's sums depend on the batch",
        max_running=settings.max_running,
        max_waiting=max(1, settings.max_waiting),
        adapters={each.name: each.digest for each in adapters},
        exact_continuation=draws_exactly(settings),
        chunk_tokens=settings.chunk_tokens,
        decode_chunk_tokens=min(
            settings.decode_chunk_tokens or settings.chunk_tokens, settings.chunk_tokens
        ),
    )


def _features(settings: EngineSettings, config: VllmConfig) -> tuple[str, ...]:
    speculating = Engines.VLLM_SPECULATING if settings.speculative_tokens else Engines.VLLM
    found = features_of(speculating)
    no_prompt_logprobs = (
        # vLLM then computes logits only for sampled rows, and its engine fails if others are
        # needed.
        config.lora_config is not None
        or config.cache_config.kv_sharing_fast_prefill
        or config.model_config.logprobs_mode.endswith("_logits")
    )
    return found if no_prompt_logprobs else (*found, "prompt_logprobs")
