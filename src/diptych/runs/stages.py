"""Multi-stage pre-training (ImageBERT, section 4.2).

Each stage has its own data, schedule and optimizer, and starts from the model of the stage before.

    OUT/stage-1/   OUT/stage-2/   ...   folders of runs       OUT/model/   the model of the last stage

A stage trains on splits of one store or of several named stores (`--data lait=STORE1 --data cc=STORE2`). The training
split of a named store has the store's name. `data.split=cc+sbu` selects two.
"""

from collections.abc import Sequence

from rich.console import Console

from diptych.core.folders import INNER
from diptych.data.store.store import Store
from diptych.runs.folder import CONFIG, ModelFolder, open_model
from diptych.runs.inputs import checked_inputs
from diptych.runs.run import FinishedRun, run_in
from diptych.runs.run_folder import RunFolder
from diptych.runs.start import Start, Trained
from diptych.runtime.devices import choose_device
from diptych.runtime.files import write_atomically
from diptych.runtime.outputs import refuse_replaced
from diptych.runtime.progress import tell
from diptych.runtime.terminal import make_console
from diptych.systems.recipe import Recipe
from diptych.systems.stages import Stages
from diptych.training.ranks import join_ranks
from diptych.training.trainer import OnLog

ON_LOG = "ended-by-on_log"  # a file in the folder of a stage that on_log ended


def fit_stages(stages: Stages, start: Start) -> tuple[Stages, str]:
    """Adapt the stages' recipes to the model that they start from.

    Also return a line about settings that are dropped ("": none).
    """
    fitted = [start.fit(recipe) for recipe in stages.recipes]
    return Stages(stages.name, tuple(recipe for recipe, _ in fitted)), fitted[0][1]


def run_stages(
    folders: Sequence[RunFolder], store: Store, start: Start, console: Console | None = None,
    on_log: OnLog | None = None,
) -> ModelFolder:  # fmt: skip
    """Train all stages in their folders and return the last model. A stopped stage resumes.

    The process group of the ranks is kept over all stages. The first rank writes the model. If
    `on_log` ends a stage, the stages after it are not trained.
    """
    console = console or make_console()
    if len(folders) == 1:
        made = run_in(folders[0], store, start, console, on_log)
        _mark(folders[0], made)
        return made.model
    refuse_replaced(folders[-1].path.parent / INNER, "model")
    with join_ranks(choose_device(folders[0].recipe.training.device)) as ranks:
        for number, folder in enumerate(folders, start=1):
            ended = folder.resumes and _ended(folder)
            before = ", ended before" if ended else ""
            tell(console, f"stage {number} of {len(folders)}: {folder.recipe.data.split}{before}")
            if ended:
                checked_inputs(folder.path, folder.recipe, store)
            trained = None if ended else run_in(folder, store, start, console, on_log)
            model = open_model(folder.path) if trained is None else trained.model
            start = Trained(model)
            if trained is not None and _mark(folder, trained, ranks.first):
                break
        return model.save(folders[-1].path.parent / INNER) if ranks.first else model


def _mark(folder: RunFolder, made: FinishedRun, first: bool = True) -> bool:
    """Return True if `on_log` ended the stage. The first rank notes it in the folder, or removes an earlier note."""
    if made.result.ended and first:
        write_atomically(folder.path / ON_LOG, b"")
    elif first:
        (folder.path / ON_LOG).unlink(missing_ok=True)
    return made.result.ended


def _ended(folder: RunFolder) -> bool:
    """Return True if the stage is complete: its folder has a model that was trained for at least the recipe's steps.

    A stage that `on_log` ended is not complete.
    """
    inner = folder.path / INNER
    if (folder.path / ON_LOG).exists():
        return False
    return (inner / CONFIG).is_file() and Recipe.load(inner).training.steps >= folder.recipe.training.steps
