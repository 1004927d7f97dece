"""The group `import`: convert official checkpoints and detectors to folders of Diptych."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from diptych.cli.app import DetectorBackbone, DetectorSettings, DetectorWeights, Verbs, hold
from diptych.cli.outputs import OutFolder

SYSTEM = "SYSTEM"


class Imports(TyperGroup):
    """The commands of `import`: `detector`, or the name of a system, such as `tden`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, SYSTEM)


imports = Verbs(cls=Imports, help="Turn an official checkpoint, or a detector's file, into a folder of Diptych.")


@imports.command("detector")
def import_detector(
    *,
    file: str = Argument(help="Weights: FILE, hub:NAME@COMMIT, grid:NAME, hf:NAME, onnx:FILE or tfjs:FILE#nanodet."),
    out: Annotated[Path, OutFolder(None)] = Option(..., help="Detector folder to write."),
    class_names: Path | None = Option(None, help="Class names of the detector, one a line (objects_vocab.txt)."),
    settings: DetectorSettings = None,
    weights: DetectorWeights = None,
    backbone: DetectorBackbone = None,
    images: Path | None = Option(None, help="Photographs: draw regions of up to 12 of them in OUT/regions.png."),
) -> None:
    """Turn a detector's file into a detector folder."""
    from diptych.vision.detectors.open import keep_detector

    hold(out, "detector", temporary=False)
    lines = keep_detector(file, out, weights, backbone, settings or (), class_names, images)
    if images is not None:
        lines.append(f"look at the regions of {images} in {out / 'regions.png'}")
    print(*lines, f"detector folder: {out}", sep="\n")


@imports.command(SYSTEM)
def import_model(
    *,
    context: typer.Context,
    file: Path = Argument(metavar="CHECKPOINT", help="Official checkpoint that the code of SYSTEM wrote."),
    out: Annotated[Path, OutFolder(None)] = Option(..., help="Model folder to write."),
    vocab: Path = Option(..., help="Vocabulary file of the BERT that the model started from (vocab.txt)."),
    uncased: bool | None = Option(
        None, "--uncased/--cased", help="Lower-case texts or not; default: as the system did."
    ),
    detector: str | None = Option(None, help="Folder of the detector that makes the model's features."),
    any_detector: bool = Option(False, "--any-detector", help="Accept a --detector other than the released models'."),
    answers: Path | None = Option(None, help="For a model that answers: its answers, one a line, .json or .pkl."),
) -> None:
    """Turn an official checkpoint into a model folder, as in `import vl-bert FILE`.

    An unknown SYSTEM prints the list of all.
    """
    from diptych.runs.importing import import_checkpoint

    assert context.info_name is not None
    hold(out, "model", temporary=False)
    lines = import_checkpoint(context.info_name, file, out, vocab, uncased, detector, answers, any_detector)
    print(*lines, f"model folder: {out}", sep="\n")
