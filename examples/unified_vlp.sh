#!/usr/bin/env bash
# Unified VLP on the drawn world, the whole path: pictures -> regions -> pre-train -> fine-tune -> score -> use.
# Any line can be stopped and given again.
#
#   examples/unified_vlp.sh [FOLDER]
set -euo pipefail
out=${1:-runs/out}

# The world: 10,000 pictures with one careless caption each, 1,000 with all words, and those to choose and score by.
diptych storybook write --out "$out/world"

# Detector: a small detector, trained on scenes of its own, then one look at every picture.
diptych storybook detector --out "$out/detector"
diptych extract "$out/world" --out "$out/store" --detector "$out/detector"
diptych check "$out/store"

# A point of the paper's lambda grid is --set objectives.seq2seq=0.25; its 15% masks are unified-vlp/small/pretrain.
diptych pretrain unified-vlp/small/pretrain/queries --data "$out/store" --out "$out/pretrain" --set data.split=web

diptych finetune caption --data "$out/store" --model "$out/pretrain" --out "$out/caption"
diptych finetune vqa --data "$out/store" --model "$out/pretrain" --out "$out/vqa"

diptych evaluate --model "$out/caption" --data "$out/store"
diptych evaluate --model "$out/vqa" --data "$out/store"

diptych caption "$out/world/pictures/test/000000.png" --model "$out/caption"
diptych ask "$out/world/pictures/test/000000.png" "what place is this?" --model "$out/vqa"
