"""An overlay for Kustomize that has what a plan says."""

import json
import os
import re
from pathlib import Path

import baton
from baton.cli.plan.options import PlanOptions
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.manifests import find_manifests
from baton.engine.checkpoint.record import read_record
from baton.planning.plan import Load, Plan

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PRODUCT = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SHM_GIB = 2
"""Per rank: NCCL and vLLM's processes pass tensors in it."""
_HOST_GIB = 8
"""Of a worker, besides that and the store: the processes, and pinned memory."""
_STORE_GIB = 1

_TEXT = """\
# {model} on {gpus} GPUs ({gpu}), {ranks} per worker. `baton plan` wrote it; change it as you like.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
transformers: [{transformers}]
resources: [{base}]
components:
{components}
images:
  # With vLLM for CUDA, in your registry.
  - {{name: localhost/baton, newTag: {version}-cuda}}
configMapGenerator:
  - name: model
    behavior: merge
    literals:
{literals}
replicas:
  - {{name: prefill, count: {prefill}}}
  - {{name: decode, count: {decode}}}
"""


def write_overlay(options: PlanOptions, made: Plan, load: Load, product: str) -> None:
    """Write an overlay.

    Args:
        options: of the command; `write` is the directory, which is created.
        made: the plan.
        load: for which it is made.
        product: label of the GPU's nodes, unless an option says another; empty: not known.

    Raises:
        CommandError: an option cannot be used, or the directory exists or cannot be written.
    """
    directory = options.write
    assert directory is not None
    product = options.gpu_product or product
    if not _PRODUCT.fullmatch(product):
        raise CommandError(
            f"Nodes with {options.gpu} are chosen by their label nvidia.com/gpu.product: set it "
            "with --gpu-product, as `kubectl get nodes -L nvidia.com/gpu.product` shows it."
        )
    if not _LABEL.fullmatch(options.namespace):
        raise CommandError(f"{options.namespace!r} is no name of a namespace: check --namespace.")
    if directory.exists():
        raise CommandError(f"{directory} exists: choose another directory, or remove it.")
    root = find_manifests(directory, options.manifests)
    record = read_record(options.model)
    source = f"{record.source}@{record.revision}" if record and "://" in record.source else ""
    source = source if source.startswith("hf://") else ""
    literals = {
        **({"MODEL_SOURCE": source} if source else {}),
        "BATON_ENGINE_MODEL_NAME": options.model.resolve().name,
        "BATON_ENGINE_DTYPE": options.dtype,
        "BATON_ENGINE_CONTEXT_TOKENS": made.context_tokens,
        "BATON_ENGINE_CHUNK_TOKENS": load.chunk_tokens,
        "BATON_ENGINE_MAX_RUNNING": load.max_running,
        "BATON_ENGINE_TENSOR_PARALLEL": made.ranks,
        "BATON_ENGINE_KV_BYTES": made.kv_bytes,
        "GPU_PRODUCT": product,
        "SHM_MEMORY": f"{_SHM_GIB * made.ranks}Gi",
        "WORKER_MEMORY": f"{_HOST_GIB + _STORE_GIB + _SHM_GIB * made.ranks}Gi",
    }
    used = (
        "vllm",
        "gpu-claim" if options.claim else "gpu",
        "model-pull" if source else "model-volume",
    )
    up = os.path.relpath(root.resolve(), directory.resolve())
    text = _TEXT.format(
        model=options.model.resolve().name,
        gpus=made.gpus,
        gpu=options.gpu,
        ranks=made.ranks,
        namespace=options.namespace,
        base=json.dumps(f"{up}/base"),
        transformers=json.dumps(f"{up}/parts/namespace"),
        components="\n".join(f"  - {json.dumps(f'{up}/components/{one}')}" for one in used),
        version=baton.__version__,
        literals="\n".join(
            f"      - {json.dumps(f'{key}={value}')}" for key, value in literals.items()
        ),
        prefill=made.prefill_workers,
        decode=made.decode_workers,
    )
    _write(directory, text)


def _write(directory: Path, text: str) -> None:
    try:
        directory.mkdir(parents=True)
        (directory / "kustomization.yaml").write_text(text)
    except OSError as error:
        raise CommandError(
            f"{directory} cannot be written: {error.strerror}.", EXIT_FAILED
        ) from error
