"""Records that a worker registers: its instance record and its model's card."""

import time
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from baton.engine.base import ContextLimit, EngineInfo
from baton.internal.v1 import cluster_pb2
from baton.kv.layout import Layout
from baton.kv.wire.groups import group_message
from baton.sampling import SamplingParams, needed_features
from baton.settings import StartupError
from baton.worker.adapters.known import KnownAdapter

NO_DEFAULTS = SamplingParams()
"""Defaults of a model that recommends none."""
_CONTEXT_LIMITS = {
    ContextLimit.CHECKPOINT: cluster_pb2.CONTEXT_LIMIT_CHECKPOINT,
    ContextLimit.SETTING: cluster_pb2.CONTEXT_LIMIT_SETTING,
    ContextLimit.KV_MEMORY: cluster_pb2.CONTEXT_LIMIT_KV_MEMORY,
}


def model_card(
    info: EngineInfo, model: str, defaults: SamplingParams = NO_DEFAULTS
) -> cluster_pb2.ModelCard:
    """Return the card of a model, without its tokenizer.

    Args:
        info: of the engine.
        model: its name.
        defaults: default parameters of requests; those that the engine does not support are
            omitted.
    """
    unsupported = {
        name: getattr(NO_DEFAULTS, name)
        for name, feature in needed_features(defaults)
        if feature not in info.features
    }
    return cluster_pb2.ModelCard(
        name=model,
        weights_digest=info.weights_digest,
        layout_id=info.layout.layout_id,
        block_tokens=info.layout.block_tokens,
        block_bytes=info.block_bytes,
        context_tokens=info.context_tokens,
        context_limit=_CONTEXT_LIMITS[info.context_limit],
        checkpoint_context_tokens=info.checkpoint_context_tokens,
        vocab_tokens=info.vocab_tokens,
        eos_token_ids=info.eos_token_ids,
        features=info.features,
        engine=info.name,
        dtype=info.dtype,
        inexact_reason=info.inexact_reason,
        created_seconds=int(time.time()),
        groups=group_records(info.layout),
        pictures=_picture_tokens(info),
        adapter_limits=_limits_record(info),
        sampling_defaults=replace(defaults, **unsupported).to_proto(),
    )


def _picture_tokens(info: EngineInfo) -> cluster_pb2.PictureTokens | None:
    if info.pictures is None:
        return None
    placeholder, tokens = info.pictures
    return cluster_pb2.PictureTokens(placeholder=placeholder, tokens=tokens)


def group_records(layout: Layout) -> list[cluster_pb2.KvGroup]:
    """Return a layout's groups in the form of a model's card."""
    return [group_message(group) for group in layout.groups]


def adapter_records(adapters: Mapping[str, KnownAdapter]) -> list[cluster_pb2.Adapter]:
    """Return a worker's adapters, by name, in the form of an instance record."""
    return [
        cluster_pb2.Adapter(name=name, digest=known.digest)
        for name, known in sorted(adapters.items())
    ]


def _limits_record(info: EngineInfo) -> cluster_pb2.AdapterLimits | None:
    limits = info.adapter_limits
    if limits is None:
        return None
    return cluster_pb2.AdapterLimits(
        max_rank=limits.max_rank,
        slots=limits.slots,
        modules=[
            cluster_pb2.LinearModules(names=names, outputs=outputs, inputs=inputs)
            for names, (outputs, inputs) in limits.modules.items()
        ],
    )


def operators_record(info: EngineInfo) -> cluster_pb2.Operators | None:
    """Return an engine's operators in the form of an instance record; None if it reports none."""
    if info.operators is None:
        return None
    return cluster_pb2.Operators(variant=info.operators.variant, reason=info.operators.reason)


def check_names(model: str, info: EngineInfo, others: Iterable[cluster_pb2.Instance]) -> None:
    """Check that each name of a model or adapter is unique: clients request both by name.

    Args:
        model: the name of this worker's model.
        info: info of the engine, with its adapters.
        others: the instances in view. Later ones are checked when they start.

    Raises:
        StartupError: a name is taken; the text names the conflict and the remedy.
    """
    if model in info.adapters:
        raise StartupError(
            f"The model and one of its adapters have the same name {model!r}: rename one with "
            "BATON_ENGINE_MODEL_NAME or BATON_ENGINE_ADAPTERS."
        )
    for other in others:
        if not other.model or other.model == model:
            continue
        theirs = {other.model: "model", **{one.name: "adapter" for one in other.adapters}}
        mine = {model: "model"} if theirs.get(model) == "adapter" else {}
        mine |= {name: "adapter" for name in info.adapters if name in theirs}
        for name, kind in mine.items():
            variable = "MODEL_NAME" if kind == "model" else "ADAPTERS"
            raise StartupError(
                f"The {kind} {name!r} has the same name as the {theirs[name]} that {other.id} "
                "serves: "
                f"set another name with BATON_ENGINE_{variable}."
            )
