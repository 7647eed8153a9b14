#!/bin/bash
# Run bench.gpu in this checkout's environment; where there is none, with the python3 that has torch for CUDA
# and the packages that `make gpu-wheels` put into build/gpu-wheels.
set -eu
cd "$(dirname "$0")/.."
if [ -x .venv/bin/python ]; then
    exec .venv/bin/python -m bench.gpu "$@"
fi
python=${PYTHON:-python3}
wheels=(build/gpu-wheels/*.whl)
if [ ! -e "${wheels[0]}" ]; then
    echo "gpu-check needs an environment: install Baton (docs/install.md), or bring what make gpu-wheels downloads." >&2
    exit 2
fi
site=$PWD/build/gpu-site
"$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --disable-pip-version-check \
    --root-user-action ignore --target "$site" "${wheels[@]}"
PYTHONPATH=$site exec "$python" -m bench.gpu "$@"
