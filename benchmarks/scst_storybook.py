"""Self-critical training on Storybook: CIDEr, and what it costs, over the cross-entropy model that it starts from.

    uv run python -m benchmarks.scst_storybook --model demo/pretrain --data demo/store --out runs/out/scst

Stopped at any moment, the same command goes on. Models of any system that writes can be compared so: its recipes
SYSTEM/small/caption and SYSTEM/small/scst are used.
"""

import argparse
import json
import os
from pathlib import Path

from benchmarks.machine import save_result
from diptych.recipes.rewarded import Study, study
from diptych.runs.folder import open_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a pre-trained model folder, or the folder of its run")
    parser.add_argument("--data", required=True, help="a store of Storybook, with its true objects")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=Study.seeds)
    parser.add_argument("--taught-steps", type=int, default=Study.taught_steps)
    parser.add_argument("--steps", type=int, default=Study.steps)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all arms")
    parser.add_argument("--set-rewarded", action="append", default=[], metavar="KEY=VALUE", help="for SCST alone")
    given = parser.parse_args()
    plan = Study(
        model=given.model, store=given.data, out=given.out, seeds=given.seeds, taught_steps=given.taught_steps,
        steps=given.steps, settings=(*Study.settings, *given.set), rewarded_settings=tuple(given.set_rewarded),
    )  # fmt: skip
    told = study(plan, os.cpu_count() or 1, lambda row: print(json.dumps(row), flush=True))
    system = open_model(Path(given.model)).architecture.system
    asked = {"system": system, "taught_steps": plan.taught_steps, "steps": plan.steps, "seeds": plan.seeds}
    command = "uv run python -m benchmarks.scst_storybook --model PRETRAINED --data STORE --out OUT"
    print(save_result(f"scst_storybook_{system.replace('-', '_')}", command, asked | told))


if __name__ == "__main__":
    main()
