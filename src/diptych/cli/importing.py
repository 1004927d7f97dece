"""The verb `import`: official checkpoints and detectors as folders of Diptych."""

from pathlib import Path

from typer import Argument, Option

from diptych.cli.app import DetectorBackbone, DetectorSettings, DetectorWeights, app, hold
from diptych.runtime.errors import RecipeError

DETECTOR = "detector"


@app.command("import")
def import_(
    system: str = Argument(help="System whose code wrote the checkpoint, or `detector`; an unknown name lists them."),
    file: Path = Argument(
        help="Official checkpoint; of a detector FILE, hub:NAME@COMMIT, grid:NAME, hf:NAME, onnx:FILE."
    ),
    out: Path = Argument(help="Model folder or detector folder to write."),
    vocab: Path | None = Option(None, help="Vocabulary file of the BERT that the model started from (vocab.txt)."),
    uncased: bool | None = Option(
        None, "--uncased/--cased", help="Lower-case texts or not; default: as the system did."
    ),
    class_names: Path | None = Option(None, help="Class names of a detector, one a line (objects_vocab.txt)."),
    detector: str | None = Option(None, help="For a model: folder of the detector that makes its features."),
    any_detector: bool = Option(False, "--any-detector", help="Accept a --detector other than the released models'."),
    answers: Path | None = Option(None, help="For a model that answers: its answers, one a line, .json or .pkl."),
    settings: DetectorSettings = None,
    weights: DetectorWeights = None,
    backbone: DetectorBackbone = None,
) -> None:
    """Turn an official checkpoint into a model folder, or a detector's file into a detector folder."""
    model_options = vocab or detector or answers or any_detector or uncased is not None
    detector_options = class_names or settings or weights or backbone
    if system == DETECTOR and model_options:
        raise RecipeError("--vocab, --cased, --detector and --answers are a model's, not a detector's; leave them out")
    if system != DETECTOR and vocab is None:
        raise RecipeError(f"Missing --vocab: a checkpoint of {system} has no vocabulary; give --vocab vocab.txt")
    if system != DETECTOR and detector_options:
        raise RecipeError("--class-names, --set, --weights and --backbone are for `import detector`; leave them out")
    hold(out, temporary=False)
    if vocab is None:
        from diptych.runs.detectors import keep_detector

        lines = keep_detector(str(file), out, weights, backbone, settings or (), class_names)
    else:
        from diptych.runs.importing import import_checkpoint

        lines = import_checkpoint(system, file, out, vocab, uncased, detector, answers, any_detector)
    print(*lines, f"{'detector' if vocab is None else 'model'} folder: {out}", sep="\n")
