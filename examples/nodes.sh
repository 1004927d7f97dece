#!/usr/bin/env bash
# Pre-training of a system at its published size on several machines: the same line on each of them, with the store and OUT on a
# disk that all see. torchrun brings the processes together, FSDP2 cuts weights and optimizer into slices.
#
#   NODES=2 MASTER=first-machine examples/nodes.sh SYSTEM STORE OUT [MORE...]
#   SYSTEM: unified-vlp, vl-bert, image-bert, tden or xgpt; MORE: what else its recipe wants (`diptych recipes SYSTEM/pretrain`),
#   such as --set init=bert.safetensors --set data.vocabulary=vocab.txt
set -euo pipefail
system=$1 store=$2 out=$3
shift 3

# Weights that fit on a GPU train as fast with training.distributed=ddp, which sends less.
torchrun --nnodes "${NODES:-1}" --nproc-per-node "${GPUS:-8}" --rdzv-backend c10d --rdzv-id "diptych-$system" \
    --rdzv-endpoint "${MASTER:-localhost}:${PORT:-29500}" -m diptych.cli \
    pretrain "$system/pretrain" --data "$store" --out "$out" --set training.distributed=fsdp "$@"
