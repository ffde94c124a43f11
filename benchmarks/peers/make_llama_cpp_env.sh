#!/bin/sh
# Create an environment with llama-cpp-python, compiled for this machine: sh benchmarks/peers/make_llama_cpp_env.sh ENV_DIR
# PYTHON chooses the interpreter (3.9 or newer), LLAMA_CPP_VERSION the version, JOBS how many files are compiled at once.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 ENV_DIR" >&2
    exit 2
fi
version=${LLAMA_CPP_VERSION:-0.3.36}
"${PYTHON:-python3}" -m venv "$1"
# There are no wheels: the source package is compiled with this machine's instructions, without its image part. What pip has
# kept may be of another machine, and ends with an illegal instruction here.
CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-1} CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" \
    "$1/bin/pip" install --quiet --no-cache-dir "llama-cpp-python==$version"
"$1/bin/python" -c "import llama_cpp; print('llama-cpp-python', llama_cpp.__version__)"
