#!/usr/bin/env bash
# Measure the lowered programs of a folder in the order of their value, each by JAX and, where torch_step.py has it, by
# PyTorch, on a machine with a GPU and without TensorFlow. Results are packed after each program, so that a cut loses one.
#
#     tools/benchmarks/accelerator/session.sh FOLDER OUT [SECONDS]
set -uo pipefail
here="$(dirname "${BASH_SOURCE[0]}")"
folder="$1" out="$2" budget="${3:-540}"
results="$(mktemp -d)"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv >"$results/machine.txt" 2>&1 || true
while read -r name; do
    [ "$SECONDS" -lt "$budget" ] || { echo "no time for $name and the rest" | tee -a "$results/machine.txt"; break; }
    timeout 180 python3 "$here/run.py" "$folder" "$results" --programs="$name" --train=200
    case "$name" in
        adversarial_training-resnet18-* | adversarial_training-wide* | trades-resnet18-* | trades-wide* | bare_*)
            timeout 180 python3 "$here/torch_step.py" "$results" --folder="$folder" --programs="$name" ;;
    esac
    tar -czf "$out/results.tgz" -C "$results" .
done <"$folder/order.txt"
