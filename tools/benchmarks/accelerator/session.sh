#!/usr/bin/env bash
# Measure the lowered programs of a folder on a machine with a GPU and without TensorFlow: first by JAX in the order of
# their value, then the same steps in PyTorch. Results are packed after each part, so that a cut loses one.
#
#     tools/benchmarks/accelerator/session.sh FOLDER OUT [SECONDS]
set -uo pipefail
here="$(dirname "${BASH_SOURCE[0]}")"
folder="$1" out="$2" budget="${3:-540}"
export XLA_PYTHON_CLIENT_PREALLOCATE=false TF_CPP_MIN_LOG_LEVEL=3 PYTHONUNBUFFERED=1
results="$(mktemp -d)"
mkdir -p "$out"
pack() { tar -czf "$out/results.tgz" -C "$results" . ; }
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv >"$results/machine.txt" 2>&1 || true
peers="$(grep -E '^(adversarial_training|trades|bare_[a-z]+)-(resnet18|wide_resnet28x10)-128-' "$folder/order.txt")"
python3 "$here/run.py" "$folder" "$results" --card
while read -r name; do
    [ "$SECONDS" -lt "$budget" ] || { echo "no time for $name and the rest"; break; }
    timeout 100 python3 "$here/run.py" "$folder" "$results" --programs="$name"
    pack
done <"$folder/order.txt"
# Compiled in processes side by side before anything is timed: their cache serves the process that times.
groups="$(cut -d- -f2- <<<"$peers" | sort -u)"
torch() {
    names="$(grep -F -- "-$1" <<<"$peers" | paste -sd,)"
    timeout 150 python3 "$here/torch_step.py" "$results" --folder="$folder" --programs="$names" "${@:2}"
}
for group in $groups; do torch "$group" --kinds=compiled --rounds=0 >"$results/compile-$group.log" 2>&1 & done
wait
echo "PyTorch's steps are compiled after $SECONDS s"
for group in $groups; do
    [ "$SECONDS" -lt "$budget" ] || { echo "no time for $group and the rest in PyTorch"; break; }
    torch "$group" 2>"$results/torch-$group.log"
    pack
done
