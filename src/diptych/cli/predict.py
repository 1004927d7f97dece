"""The verbs that apply a model to images, such as caption and ask, made from the interface of each task."""

from __future__ import annotations

import ast
import glob
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from diptych.cli.app import AsJson, Device, Features, MaybeModel, Precise, Verbs
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.files import refuse_unwritable, text_of, write_atomically
from diptych.runtime.plugins import load_plugins
from diptych.runtime.terminal import printable

if TYPE_CHECKING:
    from diptych.serving import Predictor
    from diptych.tasks import TaskSpec
    from diptych.tasks.interface import Form, Prediction, TaskAnswer, TaskInterface

IN_FLIGHT = 16  # concurrent requests to a service, and images in a batch
Pictures = Annotated[list[str], Argument(help="Image files, folders, or patterns such as 'photos/*.jpg'.")]
OnePicture = Annotated[Path, Argument(help="Image file to read.")]
Server = Annotated[str | None, Option(metavar="URL", help="Address of a service (diptych serve) to ask instead.")]
Show = Annotated[Path | None, Option(help="Folder to write each image to, with its regions and their weights drawn.")]
Lines = Annotated[Path | None, Option(help="File to write the answers to; default: print them.")]
Boxed = Annotated[Path | None, Option(help="PNG file to write the image with the box to; default: PICTURE-found.png.")]
USUAL = {"as_json": False, "device": "auto", "precision": "auto"}
Refuse = Callable[[object, DataError], object]


class TaskVerbs(TyperGroup):
    """The group of all verbs; those of tasks are built when they are first used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *written_verbs()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        if cmd_name in written_verbs():
            return TaskVerb(cmd_name, help=written_verbs()[cmd_name])
        load_plugins()
        return make_verb(cmd_name) if "diptych.tasks" in sys.modules else None


class TaskVerb(TyperCommand):
    """A placeholder with one sentence of help, replaced by the full verb when it is used."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        made = make_verb(self.name)
        assert made is not None
        return made.make_context(info_name, args, parent, **extra)


@cache
def written_verbs() -> dict[str, str]:
    """Return the verbs of Diptych's own tasks and their help, read from the sources: importing tasks loads torch."""
    package = find_spec("diptych")
    assert package is not None
    assert package.origin is not None
    verbs = {}
    for path in sorted((Path(package.origin).parent / "tasks").glob("*.py")):
        text = text_of(path)
        if "interface.TaskInterface(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "interface.TaskInterface":
                given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
                verbs[str(given["verb"])] = str(given["help"])
    return verbs


def make_verb(name: str) -> Any:
    """The command of the task with this verb; None if no task has it."""
    from diptych.tasks import tasks_by_verb

    spec = tasks_by_verb().get(name)
    if spec is None or not spec.required_interface.pictured:
        return None
    single = Verbs(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, help=spec.required_interface.help)(_command(spec))
    return typer.main.get_command(single)


def _command(spec: TaskSpec) -> Callable[..., None]:
    """Return the function of a verb, with a parameter for each argument and option."""
    interface = spec.required_interface
    fields = {form.argument or form.option or name: (name, form) for name, form in interface.forms.items()}

    def verb(**given: Any) -> None:
        values = {name: given.pop(parameter) for parameter, (name, _) in fields.items()}
        pictures = given.pop("pictures", None) or [str(given.pop("picture"))]
        _ask(spec, pictures, _requests(interface, values), **given)

    made = [(form, _parameter(interface, parameter, name, form)) for parameter, (name, form) in fields.items()]
    arguments = any(form.argument for form, _ in made)
    shared: dict[str, Any] = {"model": MaybeModel, "server": Server, "as_json": AsJson}
    if not arguments or "box" in interface.response.model_fields:
        shared["out"] = Boxed if arguments else Lines
    last: dict[str, Any] = {"show": Show} if interface.explains else {}
    last |= {"features": Features, "device": Device, "precision": Precise}
    verb.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(parameter for form, parameter in made if form.argument and form.first),
            _given("picture", OnePicture) if arguments else _given("pictures", Pictures),
            *(parameter for form, parameter in made if form.argument and not form.first),
            *(_given(name, kind, USUAL.get(name)) for name, kind in shared.items()),
            *(parameter for form, parameter in made if not form.argument),
            *(_given(name, kind, USUAL.get(name)) for name, kind in last.items()),
        ]
    )
    return verb


def _given(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _parameter(interface: TaskInterface, parameter: str, name: str, form: Form) -> inspect.Parameter:
    """Make the argument or option of a request's field. Upper limits apply to services only, not to opened models."""
    of, listed = interface.request.model_fields[name], name in interface.list_fields
    kind, text = _plain(of.annotation), form.help or of.description
    if form.argument:
        return _given(parameter, Annotated[list[str] if listed or form.each else kind, Argument(help=text)])
    least = next((one.ge for one in of.metadata if hasattr(one, "ge")), None) if kind is int else None
    option = Option(f"--{parameter.replace('_', '-')}", help=text, min=least)
    if listed:
        return _given(parameter, Annotated[list[str] | None, option], None)
    return _given(parameter, Annotated[kind if of.default is not None else kind | None, option], of.default)


def _plain(annotation: Any) -> Any:
    """Return the type of an annotation, without None and limits."""
    parts = [one for one in get_args(annotation) if one is not type(None) and not hasattr(one, "ge") and one]
    return _plain(parts[0]) if parts else annotation


def _requests(interface: TaskInterface, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of each request: one, or one per value of an argument that may be repeated."""
    each = next((name for name, form in interface.forms.items() if form.each), None)
    given = {
        name: tuple(value or ()) if name in interface.list_fields else value
        for name, value in values.items()
        if name != each
    }
    return [given] if each is None else [{**given, each: value} for value in values[each]]


def _ask(
    spec: TaskSpec,
    names: list[str],
    fields: list[dict[str, Any]],
    *,
    model: str | None,
    server: str | None,
    as_json: bool,
    device: str,
    precision: str,
    features: Path | None = None,
    out: Path | None = None,
    show: Path | None = None,
) -> None:
    """Send the requests to a model or a service, and print or write the answers."""
    interface, refused = spec.required_interface, list[DataError]()
    refuse_unwritable(out)
    several = not any(form.argument for form in interface.forms.values())

    def refuse(_: object, error: DataError) -> None:
        if not several:
            raise error
        refused.append(error)
        print(f"diptych: {printable(str(error))}", file=sys.stderr)

    pictures = _find(names, refuse) if several else [Path(name) for name in names]
    if server is not None:
        if show is not None or features is not None:
            raise RecipeError("--show and --features need the model itself; leave out --server")
        if (device, precision) != ("auto", "auto"):
            raise RecipeError("--device and --precision are set by the service; leave them out, or leave out --server")
        answers = _from_server(interface, server, pictures, [{**one, "model": model} for one in fields], refuse)
    else:
        if model is None:
            raise RecipeError("Missing --model FOLDER (or --server URL of a running service)")
        from diptych.serving import load

        predictor = load(model, features, device=device, precision=precision)
        answers = _from_model(spec, predictor, pictures, fields, show, refuse)
    lines: list[str] = []
    if "box" in interface.response.model_fields:
        title = " ".join(map(str, fields[0].values()))
        answers = (_draw_box(answer, title, out) for answer in answers)
    for answer in answers:
        assert interface.lines is not None
        printed = [answer.line()] if as_json else list(map(printable, interface.lines(answer, len(fields) == 1)))
        lines += printed
        if out is None or not several:
            print("\n".join(printed), flush=True)
    if not lines:
        raise DataError(f"none of {len(refused)} images could be read; the reasons are above")
    if out is not None and several:
        write_atomically(out, "".join(f"{line}\n" for line in lines).encode())
        print(f"{len(lines)} lines in {out}")


def _from_model(
    spec: TaskSpec,
    predictor: Predictor,
    pictures: Sequence[Path],
    fields: Sequence[dict[str, Any]],
    show: Path | None,
    refuse: Refuse,
) -> Iterator[TaskAnswer]:
    """Yield answers of an opened model, in the order of the images."""
    from diptych.runtime.configs import derive
    from diptych.tasks.interface import Prediction, seed_sampling

    drawn, interface = ShownFolder(show), spec.required_interface
    requests = [interface.request.model_construct(**one) for one in fields]
    seed_sampling(requests[0])
    left = iter(pictures)
    while batch := list(islice(left, IN_FLIGHT)):
        records = predictor.extract(batch, refuse)
        pairs = [(record, request) for record in records for request in requests]
        for (record, request), answer in zip(pairs, predictor.answers(spec, pairs) if pairs else (), strict=True):
            message = interface.build_message(answer, request, str(record.image))
            try:
                shown = drawn.write(answer) if isinstance(answer, Prediction) else None
            except DataError as error:  # the regions were given, and there is no image to draw on
                refuse(answer, error)
                shown = None
            yield message if shown is None else derive(message, shown=shown)


def _from_server(
    interface: TaskInterface, url: str, pictures: Sequence[Path], fields: Sequence[dict[str, Any]], refuse: Refuse
) -> Iterator[TaskAnswer]:
    """Yield answers in the order of the images; several requests run at once, so that the service can batch them."""
    from concurrent.futures import Future, ThreadPoolExecutor

    from diptych.runtime.configs import validated
    from diptych.serving.client import Client

    client, requests = Client(url), [validated(interface.request, one, "options") for one in fields]
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        waiting: deque[tuple[Path, Future[TaskAnswer]]] = deque()
        left = ((picture, request) for picture in pictures for request in requests)
        try:
            while True:
                for picture, request in islice(left, IN_FLIGHT - len(waiting)):
                    waiting.append((picture, threads.submit(client.ask, interface, picture, request)))
                if not waiting:
                    return
                picture, future = waiting.popleft()
                try:
                    yield future.result()
                except DataError as error:
                    refuse(picture, error)
        finally:
            for _, future in waiting:
                future.cancel()


def _draw_box(answer: Any, title: str, out: Path | None) -> TaskAnswer:
    """Write the image with the box of an answer, and return the answer with the name of the file."""
    from diptych.runtime.configs import derive
    from diptych.serving.drawing import draw_box
    from diptych.vision.pictures import open_picture, write_png

    picture, drawn = open_picture(Path(answer.picture)), out or Path(f"{Path(answer.picture).stem}-found.png")
    (left, top, width, height), (_, tall, wide) = answer.box, picture.shape
    corners = left / wide, top / tall, (left + width) / wide, (top + height) / tall
    write_png(draw_box(picture, corners, title), drawn)
    shown: TaskAnswer = derive(answer, shown=str(drawn))
    return shown


class ShownFolder:
    """The folder of `--show`: a PNG per prediction, named after its image, with a number if the name is taken."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self._names = folder, set[str]()

    def write(self, prediction: Prediction) -> str | None:
        """Draw a prediction and return the file; None without a folder."""
        if self.folder is None:
            return None
        from diptych.serving.drawing import draw
        from diptych.vision.pictures import open_picture, write_png

        assert prediction.record.image is not None
        stem = prediction.record.image.stem
        name = next(n for n in chain([stem], (f"{stem}-{k}" for k in count(2))) if n not in self._names)
        self._names.add(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_png(draw(prediction, open_picture(prediction.record.image)), self.folder / f"{name}.png")
        return str(self.folder / f"{name}.png")


def _find(names: list[str], refuse: Refuse) -> list[Path]:
    """Return each image once, in the given order. Folders and patterns without images are passed to `refuse`."""
    from diptych.vision.pictures import ENDINGS, find_pictures

    paths: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            here = find_pictures(path)
        elif not path.exists() and glob.has_magic(name):
            here = [p for p in map(Path, sorted(glob.glob(name, recursive=True))) if p.suffix.lower() in ENDINGS]
        else:
            here = [path]
        if not here:
            refuse(name, DataError(f"no images in {name}"))
        paths |= dict.fromkeys(here)
    return list(paths)
