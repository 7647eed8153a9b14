"""The arithmetic of a plan: docs/plan.md derives it."""

from dataclasses import dataclass

from baton.planning.errors import PlanError
from baton.planning.gpus import Gpu
from baton.planning.model import ModelSize

GIB = 1024**3
BLOCK_TOKENS = 16
MEMORY_SHARE = 0.92
"""Of a GPU's memory, what an engine may use: vLLM's default gpu_memory_utilization."""
RUNTIME_BYTES = 2 * GIB
"""Per GPU: CUDA's context and graphs, and NCCL. An assumption."""
BANDWIDTH_SHARE = 0.7
"""Of the data sheet's bandwidth, what decode reaches. An assumption."""
FLOPS_SHARE = 0.5
"""Of the data sheet's operations, what matrices reach. An assumption."""
NODE_GPUS = 8
"""Of a node, at most: a worker is one pod."""


@dataclass(frozen=True, slots=True)
class Load:
    """What requests are like, and how they are batched."""

    context_tokens: int = 0
    """The longest sequence; 0: the model's own."""
    prompt_tokens: int = 2000
    output_tokens: int = 250
    chunk_tokens: int = 2048
    """Prompt tokens per step."""
    max_running: int = 64
    """Sequences per step."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Workers of a model on GPUs, and what to expect of one."""

    ranks: int
    """GPUs per worker: tensor parallel."""
    prefill_workers: int
    decode_workers: int
    context_tokens: int
    rank_weight_bytes: int
    rank_activation_bytes: int
    kv_token_bytes: int
    """Of a worker: on all of its GPUs together."""
    kv_bytes: int
    """Of a worker: engine.kv_bytes."""
    kv_tokens: int
    """For which that has room: vLLM keeps one block for itself."""
    batch: int
    """Sequences of the mean length that decode together."""
    prefill_tokens_per_second: float
    """Of a prefill worker."""
    decode_tokens_per_second: float
    """Of a decode worker, over its batch."""
    one_tokens_per_second: float
    """Of a decode worker with one sequence: the fastest stream."""

    @property
    def gpus(self) -> int:
        """GPUs of all workers."""
        return self.ranks * (self.prefill_workers + self.decode_workers)


def make_plan(
    model: ModelSize, gpu: Gpu, gpus: int = 0, ranks: int = 0, load: Load = Load()
) -> Plan:
    """Return the workers of a model on a number of GPUs.

    Args:
        model: its size.
        gpu: of which kind they are.
        gpus: how many there are; 0: two prefill and two decode workers.
        ranks: GPUs per worker; 0: the fewest on which weights and one sequence fit.
        load: what requests are like.

    Raises:
        PlanError: the model fits no number of GPUs, or not that many.
    """
    context = load.context_tokens or model.context_tokens
    if context > model.context_tokens:
        raise PlanError(
            f"The context of {context} tokens exceeds the model's own, {model.context_tokens}: "
            "lower --context."
        )
    if load.prompt_tokens + load.output_tokens > context:
        raise PlanError(
            f"A prompt of {load.prompt_tokens} and an output of {load.output_tokens} tokens exceed "
            f"the context of {context}: lower --prompt or --output, or raise --context."
        )
    ranks = ranks or _fewest_ranks(model, gpu, context, load)
    if not _divides(model, ranks):
        raise PlanError(
            f"The model's {model.heads} heads and {model.kv_heads} KV heads cannot be divided "
            f"among {ranks} GPUs: set --tensor-parallel to a divisor."
        )
    blocks = _kv_blocks(model, gpu, ranks, load)
    tokens = (blocks - 1) * BLOCK_TOKENS
    if tokens < context:
        raise PlanError(
            f"With {ranks} GPUs per worker, KV has room for {max(0, tokens)} tokens, and one "
            f"sequence may have {context}: raise --tensor-parallel or lower --context."
        )
    mean = load.prompt_tokens + load.output_tokens / 2
    batch = max(1, min(load.max_running, int(tokens // mean)))
    prefill = load.chunk_tokens / _seconds(
        model, gpu, ranks, load.chunk_tokens, 1, load.prompt_tokens / 2
    )
    decode = batch / _seconds(model, gpu, ranks, batch, batch, mean)
    work = load.prompt_tokens / prefill, load.output_tokens / decode
    prefills, decodes = _split(gpus, ranks, work)
    token_bytes = _rank_token_bytes(model, ranks) * ranks
    return Plan(
        ranks=ranks,
        prefill_workers=prefills,
        decode_workers=decodes,
        context_tokens=context,
        rank_weight_bytes=-(-model.weight_bytes // ranks),
        rank_activation_bytes=_activation_bytes(model, ranks, load),
        kv_token_bytes=token_bytes,
        kv_bytes=blocks * BLOCK_TOKENS * token_bytes,
        kv_tokens=tokens,
        batch=batch,
        prefill_tokens_per_second=prefill,
        decode_tokens_per_second=decode,
        one_tokens_per_second=1 / _seconds(model, gpu, ranks, 1, 1, mean),
    )


def _divides(model: ModelSize, ranks: int) -> bool:
    """Return whether vLLM can divide heads: KV heads that are too few are copied."""
    most, least = max(ranks, model.kv_heads), min(ranks, model.kv_heads)
    return model.heads % ranks == 0 and most % least == 0


def _rank_token_bytes(model: ModelSize, ranks: int) -> int:
    heads = max(1, model.kv_heads // ranks)
    return 2 * model.layers * heads * model.head_size * model.element_bytes


def _activation_bytes(model: ModelSize, ranks: int, load: Load) -> int:
    """Return the most that a step holds: inputs and MLP of a chunk, and logits of a batch.

    Logits are float32, and sampling keeps a sorted copy of them.
    """
    per_token = (4 * model.hidden_size + 3 * model.mlp_size // ranks) * model.element_bytes
    return load.chunk_tokens * per_token + load.max_running * model.vocab_tokens * 4 * 3


def _kv_blocks(model: ModelSize, gpu: Gpu, ranks: int, load: Load) -> int:
    """Return the blocks of KV that fit beside the weights; negative: not even these fit."""
    free = gpu.memory_bytes * MEMORY_SHARE - RUNTIME_BYTES - -(-model.weight_bytes // ranks)
    free -= _activation_bytes(model, ranks, load)
    return int(free // (_rank_token_bytes(model, ranks) * BLOCK_TOKENS))


def _fewest_ranks(model: ModelSize, gpu: Gpu, context: int, load: Load) -> int:
    tried = [ranks for ranks in range(1, NODE_GPUS + 1) if _divides(model, ranks)]
    for ranks in tried:
        if (_kv_blocks(model, gpu, ranks, load) - 1) * BLOCK_TOKENS >= context:
            return ranks
    gib = model.weight_bytes / GIB
    raise PlanError(
        f"The model fits no number of {gpu.name} of a node: its weights have {gib:.1f} GiB, a "
        f"sequence of {context} tokens {context * model.kv_token_bytes / GIB:.1f} GiB, a GPU "
        f"{gpu.memory_bytes / GIB:.1f} GiB, and its heads can be divided among at most "
        f"{max(tried)} of {NODE_GPUS}. Choose a larger GPU, a smaller --context, or a quantized "
        "checkpoint; or set --tensor-parallel, if nodes have more."
    )


def _seconds(
    model: ModelSize, gpu: Gpu, ranks: int, tokens: int, sequences: int, held: float
) -> float:
    """Return the time of a step: of its reads or of its arithmetic, whichever is longer.

    Args:
        model: its size.
        gpu: of each rank.
        ranks: which share both.
        tokens: in the step.
        sequences: that they belong to.
        held: tokens per sequence that each of its tokens attends to, on average.
    """
    read = model.read_bytes(tokens) + sequences * held * _rank_token_bytes(model, ranks) * ranks
    attention = 4 * model.layers * model.heads * model.head_size * held
    operations = tokens * (2 * model.active_parameters + attention)
    return max(
        read / (gpu.bandwidth * BANDWIDTH_SHARE), operations / (gpu.flops * FLOPS_SHARE)
    ) / ranks  # fmt: skip


def _split(gpus: int, ranks: int, work: tuple[float, float]) -> tuple[int, int]:
    """Return prefill and decode workers, as many of each as their share of a request's seconds."""
    if not gpus:
        return 2, 2
    workers = gpus // ranks
    if workers < 2:
        raise PlanError(
            f"{gpus} GPUs are one worker of {ranks} at most: a prefill and a decode worker need "
            f"{2 * ranks}."
        )
    least = 2 if workers >= 4 else 1
    prefills = round(workers * work[0] / sum(work))
    prefills = min(max(prefills, least), workers - least)
    return prefills, workers - prefills
