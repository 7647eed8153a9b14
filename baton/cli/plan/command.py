"""`baton plan`: print a plan, and write it as an overlay."""

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from baton.cli.plan.options import PlanOptions
from baton.cli.plan.overlay import write_overlay
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.render import size
from baton.engine.support.documents import CheckpointError
from baton.planning.errors import PlanError
from baton.planning.gpus import Gpu, find_gpu
from baton.planning.model import ModelSize, read_model
from baton.planning.plan import BANDWIDTH_SHARE, FLOPS_SHARE, Load, Plan, make_plan

_GB, _TERA = 1e9, 1e12


def plan(options: PlanOptions, console: Console, as_json: bool) -> None:
    """Print how many GPUs a model needs, and what to expect of them.

    Raises:
        CommandError: there is no such plan, or the overlay cannot be written.
    """
    load = Load(options.context, options.prompt, options.output)
    try:
        gpu = find_gpu(
            options.gpu,
            options.gpu_memory * _GB,
            options.gpu_bandwidth * _GB,
            options.gpu_flops * _TERA,
        )
        model = read_model(options.model, options.dtype)
        made = make_plan(model, gpu, options.gpus, options.tensor_parallel, load)
    except CheckpointError as error:
        raise CommandError(str(error), EXIT_FAILED) from error
    except PlanError as error:
        raise CommandError(str(error)) from error
    if options.write is not None:
        write_overlay(options, made, load, gpu.product)
    if as_json:
        document = {"gpu": asdict(gpu), "model": asdict(model), "plan": asdict(made)}
        console.print_json(json.dumps(document))
        return
    console.print(_table(model, gpu, made))
    console.print(
        f"Tokens per second assume {BANDWIDTH_SHARE:.0%} of the memory's bandwidth and "
        f"{FLOPS_SHARE:.0%} of the arithmetic of {gpu.name} ({gpu.source}): not measured.",
        highlight=False,
    )
    if options.write is not None:
        console.print(
            f"{options.write} is the overlay: set your image in it, then kubectl apply -k.",
            highlight=False,
            markup=False,
        )


def _table(model: ModelSize, gpu: Gpu, made: Plan) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in (
        ("GPUs", f"{made.gpus} {gpu.name}, {made.ranks} per worker (tensor parallel)"),
        ("workers", f"{made.prefill_workers} prefill, {made.decode_workers} decode"),
        ("weights", f"{size(model.weight_bytes)}, {model.parameters / 1e9:.2f} billion parameters"),
        ("KV of a token", size(made.kv_token_bytes)),
        ("KV of a worker", f"{size(made.kv_bytes)}, {made.kv_tokens} tokens"),
        ("longest sequence", f"{made.context_tokens} tokens"),
        ("prefill", f"{made.prefill_tokens_per_second:.0f} tokens/s per worker"),
        (
            "decode",
            f"{made.decode_tokens_per_second:.0f} tokens/s per worker with {made.batch} sequences, "
            f"{made.one_tokens_per_second:.0f} with one",
        ),
    ):
        table.add_row(name, value)
    return table
