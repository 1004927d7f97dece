#!/usr/bin/env bash
# Self-critical training on the drawn world: from a pre-trained model to captions that CIDEr prefers, and what that costs.
# Any line can be stopped and given again.
#
#   examples/scst.sh MODEL STORE [FOLDER]      such as demo/pretrain demo/store, after `diptych demo`
set -euo pipefail
model=$1 store=$2 out=${3:-runs/out}
recipes=unified-vlp/small  # tden/small for a TDEN

# Cross-entropy first: SCST improves a model that captions already.
diptych finetune caption --data "$store" --model "$model" --out "$out/caption" --set optimizer.lr=5e-4 \
    --set training.steps=400
diptych evaluate --model "$out/caption" --data "$store"

diptych finetune caption --data "$store" --model "$out/caption" --out "$out/scst" --recipe "$recipes/scst"
diptych evaluate --model "$out/scst" --data "$store"

# The same over 3 seeds, beside as many more steps of cross-entropy, with objects named that are not there.
python -m experiments.scst --model "$model" --data "$store" --out "$out/scst-seeds"

# Captions as data: two new ones for each training picture, and a captioner that learns from both.
diptych augment "$store" --out "$out/augmented" --model "$out/scst" --num-captions 2
diptych finetune caption --data "$out/augmented" --model "$model" --out "$out/caption-augmented"
