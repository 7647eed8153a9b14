"""Check that the packages of requirements-vllm.txt fit together, and that vLLM can run here."""

import logging
import subprocess
import sys
import warnings

# Requirements of vLLM that an engine in a worker does not need. torch's companions and triton have
# no builds that fit torch's for CPUs; the others serve vLLM's own HTTP server, images, audio,
# Mistral's own tokenizer files, and a preloaded OpenMP.
LEFT_OUT = {
    *("torchaudio", "torchcodec", "torchvision", "triton"),
    *("mistral-common", "opencv-python-headless"),
    *("anthropic", "mcp", "model-hosting-container-standards", "ijson", "watchfiles"),
    *("opentelemetry-exporter-otlp", "opentelemetry-semantic-conventions-ai"),
    *("prometheus-fastapi-instrumentator", "intel-openmp"),
}


def conflicts() -> list[str]:
    """Return the conflicts that `pip check` reports, except expected ones."""
    check = (sys.executable, "-m", "pip", "--disable-pip-version-check", "check")
    said = subprocess.run(check, capture_output=True, text=True, check=False)
    expected = tuple(f" requires {name}, which is not installed." for name in LEFT_OUT)
    found = [line for line in said.stdout.splitlines() if not line.endswith(expected)]
    return [] if found == ["No broken requirements found."] else found


def main() -> None:
    wrong = conflicts()
    if wrong:
        sys.exit("\n".join(["these do not go with vLLM:", *wrong]))
    warnings.simplefilter("ignore")
    # Also writes the bytecode of the modules that an engine imports.
    from vllm.platforms import current_platform

    logging.getLogger("vllm").setLevel(logging.ERROR)
    if current_platform.is_cpu():
        import torch

        current_platform.import_kernels()
        if not hasattr(torch.ops._C, "cpu_attention_with_kv_cache"):
            sys.exit("vLLM cannot load its operators: is libnuma there (apt-get install libnuma1)?")


if __name__ == "__main__":
    main()
