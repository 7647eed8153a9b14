"""Options of `baton plan`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer


@dataclass(frozen=True)
class PlanOptions:
    """A model, GPUs, and what requests are like."""

    model: Annotated[
        Path, typer.Argument(help="Directory of the model, complete.", metavar="MODEL_DIR")
    ]
    gpu: Annotated[str, typer.Option(help="Kind of GPU: h100, l40s, ...")]
    gpus: Annotated[
        int,
        typer.Option(help="GPUs that there are. Default: for two workers per role.", min=0),
    ] = 0
    tensor_parallel: Annotated[
        int, typer.Option(help="GPUs per worker. Default: the fewest that fit.", min=0, max=64)
    ] = 0
    context: Annotated[
        int, typer.Option(help="Longest sequence, in tokens. Default: the model's own.", min=0)
    ] = 0
    prompt: Annotated[int, typer.Option(help="Tokens of a mean prompt.", min=1)] = 2000
    output: Annotated[int, typer.Option(help="Tokens of a mean output.", min=1)] = 250
    dtype: Annotated[
        Literal["bfloat16", "float32"], typer.Option(help="Element type of weights and KV.")
    ] = "bfloat16"
    gpu_memory: Annotated[
        float, typer.Option(help="The GPU's memory in GB, as on its data sheet.", min=0)
    ] = 0.0
    gpu_bandwidth: Annotated[
        float, typer.Option(help="The bandwidth of its memory in GB/s.", min=0)
    ] = 0.0
    gpu_flops: Annotated[
        float, typer.Option(help="Its dense bfloat16 arithmetic in TFLOP/s.", min=0)
    ] = 0.0
    gpu_product: Annotated[
        str, typer.Option(help="Label nvidia.com/gpu.product of its nodes, for --write.")
    ] = ""
    write: Annotated[
        Path | None, typer.Option(help="Write an overlay for Kustomize to this directory.")
    ] = None
    claim: Annotated[
        bool, typer.Option("--claim", help="With --write: GPUs by a ResourceClaim.")
    ] = False
    namespace: Annotated[str, typer.Option(help="With --write: of the cluster.")] = "baton"
    manifests: Annotated[
        Path | None,
        typer.Option(help="With --write: Baton's k8s. Default: the nearest above the directory."),
    ] = None
