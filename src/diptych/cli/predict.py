"""The verbs that apply a model to images, such as `caption` and `ask`.

They are made from the interfaces of the tasks.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer import Argument, Option

from diptych.cli.app import AsJson, Device, Features, MaybeModel, Precise, Revision, Verbs
from diptych.cli.groups import option, options_named
from diptych.cli.images import Failures, Refuse, ShownFolder, find_images
from diptych.cli.outputs import OutFile, OutFolder
from diptych.runtime.errors import DataError, RecipeError, UnfamiliarWarning, counted
from diptych.runtime.files import write_atomically
from diptych.runtime.outputs import refuse_inputs
from diptych.runtime.terminal import printable

if TYPE_CHECKING:
    from diptych.inference.predictor import Predictor
    from diptych.tasks import TaskSpec
    from diptych.tasks.interface import Form, TaskAnswer, TaskInterface, TaskRequest

IN_FLIGHT = 16  # at most this many requests to a service are open at once; also the number of images in a batch
IMAGE = "Image file, folder of images, or quoted pattern such as 'photos/*.jpg'."
Images = Annotated[list[str], Argument(metavar="IMAGE", help=IMAGE)]
OneImage = Annotated[str, Argument(metavar="IMAGE", help=IMAGE)]
Server = Annotated[str | None, Option(metavar="URL", help="Address of a service (diptych serve) to ask instead.")]
Show = Annotated[
    Path | None, OutFolder("drawings"), Option(help="Folder to write each image to, with what was found drawn into it.")
]
Lines = Annotated[Path | None, OutFile(), Option(help="File to write the answers to; default: print them.")]
NO_MODEL = "Missing --model FOLDER (or --server URL of a running service); `--model photos` comes with Diptych"
USUAL = {"as_json": False, "device": "auto", "precision": "auto"}


def make_verb(name: str) -> Any:
    """Return the command of the task with this verb; None if no task has this verb."""
    from diptych.tasks import tasks_by_verb

    spec = tasks_by_verb().get(name)
    if spec is None or not spec.required_interface.pictured:
        return None
    single = Verbs(no_args_is_help=False)
    single.command(name, help=spec.required_interface.help)(_command(spec))
    return typer.main.get_command(single)


def _command(spec: TaskSpec) -> Callable[..., None]:
    """Return the function of a task's verb, with a parameter for each argument and option."""
    interface = spec.required_interface
    fields = {form.argument or form.option or name: (name, form) for name, form in interface.forms.items()}

    def verb(**given: Any) -> None:
        values = {name: given.pop(parameter) for parameter, (name, _) in fields.items()}
        names = given.pop("image")
        _ask(spec, names if isinstance(names, list) else [names], _requests(interface, values), **given)

    made = [(form, _parameter(interface, parameter, name, form)) for parameter, (name, form) in fields.items()]
    arguments = any(form.argument for form, _ in made)
    shared: dict[str, Any] = {"model": MaybeModel, "server": Server, "as_json": AsJson, "out": Lines}
    last: dict[str, Any] = {"show": Show} if interface.explains or _has_box(interface) else {}
    last |= {"features": Features, "device": Device, "precision": Precise, "revision": Revision}
    verb.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            _given("image", OneImage if arguments else Images),
            *(parameter for form, parameter in made if form.argument),
            *(_given(name, kind, USUAL.get(name)) for name, kind in shared.items()),
            *(parameter for form, parameter in made if not form.argument),
            *(_given(name, kind, USUAL.get(name)) for name, kind in last.items()),
        ]
    )
    return verb


def _given(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _parameter(interface: TaskInterface, parameter: str, name: str, form: Form) -> inspect.Parameter:
    """Return the argument or option for a field of the request."""
    of, listed = interface.request.model_fields[name], name in interface.list_fields
    kind, text = _plain(of.annotation), form.help or of.description
    if form.argument:
        return _given(parameter, Annotated[list[str] if listed or form.each else kind, Argument(help=text)])
    given = Option(option(parameter), help=text)
    if listed:
        return _given(parameter, Annotated[list[str] | None, given], None)
    return _given(parameter, Annotated[kind if of.default is not None else kind | None, given], of.default)


def _plain(annotation: Any) -> Any:
    """Return the type in an annotation, without None and without limits."""
    parts = [one for one in get_args(annotation) if one is not type(None) and not hasattr(one, "ge") and one]
    return _plain(parts[0]) if parts else annotation


def _requests(interface: TaskInterface, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of each request. There is one request, or one per value of a repeatable argument."""
    each = next((name for name, form in interface.forms.items() if form.each), None)
    given = {
        name: tuple(value or ()) if name in interface.list_fields else value
        for name, value in values.items()
        if name != each
    }
    return [given] if each is None else [{**given, each: value} for value in values[each]]


def _ask(
    spec: TaskSpec, names: list[str], fields: list[dict[str, Any]], *, model: str | None, server: str | None,
    as_json: bool, device: str, precision: str, revision: str | None = None, features: Path | None = None,
    out: Path | None = None, show: Path | None = None,
) -> None:  # fmt: skip
    """Send the requests to a model or a service, and print the answers or write them to a file."""
    interface, refuse = spec.required_interface, Failures(names)
    boxed = _has_box(interface)
    requests = [_request(interface, {**one, "model": server and model}) for one in fields]
    pictures = find_images(names, refuse)
    refuse_inputs(out, pictures)
    if server is not None:
        shown = None if boxed else show
        refuse_with_server(show=shown, features=features, device=device, precision=precision, revision=revision)
        answers = _from_server(interface, server, pictures, requests, refuse)
    else:
        computing = {"device": device, "precision": precision, "revision": revision}
        predictor = _opened(spec, requests, model, features, computing)
        answers = _from_model(spec, predictor, pictures, requests, show if interface.explains else None, refuse)
    if show is not None and boxed:
        title, drawn = " ".join(interface.texts(requests[0])), ShownFolder(show)
        answers = (_draw_box(answer, title, drawn) for answer in answers)
    count = len(pictures) * len(fields)
    if count > 1 and not (out is None and sys.stdout.isatty()):  # on a terminal, the answers show the progress
        answers = _counted(answers, count)
    single, alone = len(fields) == 1, refuse.alone
    _write(
        ([one.line()] if as_json else _printed(interface, one, single, alone) for one in _with_warning(answers)), out
    )
    refuse.check(pictures)


def _request(interface: TaskInterface, fields: dict[str, Any]) -> TaskRequest:
    from diptych.runtime.configs import validated

    for value in fields.values():
        "".join(value if isinstance(value, str | tuple) else "").encode()  # raises an error for a lone surrogate
    return validated(interface.request, fields, interface.verb, named=partial(option_of, interface))


def _opened(
    spec: TaskSpec, requests: Sequence[TaskRequest], model: str | None, features: Path | None, computing: dict[str, Any]
) -> Predictor:
    """Open the model. Raise an error for a request that it cannot fulfil, before any image is read."""
    from diptych.api.model import load

    if model is None:
        raise RecipeError(NO_MODEL)
    predictor = load(model, features=features, **computing).predictor
    with options_named(partial(option_of, spec.required_interface)):
        for request in requests:
            predictor.check(spec, request)
    return predictor


def _write(answers: Iterable[list[str]], out: Path | None) -> None:
    """Print the lines of each answer as it comes, or write all of them to the file `out`."""
    if out is None:
        for lines in answers:
            print("\n".join(lines), flush=True)
    elif written := list(chain.from_iterable(answers)):
        write_atomically(out, "".join(f"{line}\n" for line in written).encode(errors="backslashreplace"))
        print(f"{counted(written, 'lines')} in {out}")


def _counted(answers: Iterable[TaskAnswer], count: int) -> Iterator[TaskAnswer]:
    from diptych.runtime.progress import advancing

    with advancing("predicting", count, "answers") as advance:
        for answer in answers:
            yield answer
            advance(1)


def refuse_with_server(**given: object) -> None:
    """Raise RecipeError, with the option's name, for a given option that does not work with --server."""
    if named := [option(name) for name, value in given.items() if value not in (None, "auto")]:
        need = "needs" if len(named) == 1 else "need"
        raise RecipeError(f"{' and '.join(named)} {need} the model itself; pass --model instead of --server")


def _with_warning(answers: Iterable[TaskAnswer]) -> Iterator[TaskAnswer]:
    """Yield the answers. Then print warnings: images unlike the training images, and texts that were not read."""
    unfamiliar, unread = dict[str, None](), dict[str, None]()
    for answer in answers:
        if answer.familiar is False:
            unfamiliar[answer.picture] = None
        if answer.unread is not None:
            unread[answer.unread] = None
        yield answer
    for note in unread:
        print(f"diptych: {printable(note)}", file=sys.stderr)
    if unfamiliar:
        print(f"diptych: {printable(str(UnfamiliarWarning.of(list(unfamiliar))))}", file=sys.stderr)


def _printed(interface: TaskInterface, answer: TaskAnswer, single: bool, alone: bool) -> list[str]:
    """Format an answer for the terminal. With several images, an answer is one line that begins with the image."""
    assert interface.lines is not None
    lines = list(map(printable, interface.lines(answer, single)))
    if alone or not any(form.argument for form in interface.forms.values()):
        return lines
    return [f"{printable(answer.picture)}: {'; '.join(lines)}"]


def _from_model(
    spec: TaskSpec, predictor: Predictor, pictures: Sequence[Path], requests: Sequence[TaskRequest],
    show: Path | None, refuse: Refuse,
) -> Iterator[TaskAnswer]:  # fmt: skip
    """Yield the answers of an opened model, in the order of the images."""
    from diptych.runtime.configs import derive
    from diptych.tasks.interface import GroundedText, seed_sampling

    drawn = ShownFolder(show)
    seed_sampling(requests[0])
    left = iter(pictures)
    while batch := list(islice(left, IN_FLIGHT)):
        records = predictor.extract(batch, refuse)
        pairs = [(record, request) for record in records for request in requests]
        for (record, request), answer in zip(pairs, predictor.answers(spec, pairs) if pairs else (), strict=True):
            message = predictor.message(spec, answer, request, record, str(record.image))
            try:
                shown = drawn.write(answer) if isinstance(answer, GroundedText) else None
            except DataError as error:  # the image's regions are in a store, but there is no image file to draw on
                refuse(answer, error)
                shown = None
            yield message if shown is None else derive(message, shown=shown)


def _from_server(
    interface: TaskInterface, url: str, pictures: Sequence[Path], requests: Sequence[TaskRequest], refuse: Refuse
) -> Iterator[TaskAnswer]:
    """Yield the answers of a service, in the order of the images.

    Requests are sent concurrently, so that the service can batch them.
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    from diptych.inference.client import Client

    client = Client(url)
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
                    with options_named(partial(option_of, interface)):
                        yield future.result()
                except DataError as error:
                    refuse(picture, error)
        finally:
            for _, future in waiting:
                future.cancel()


def option_of(interface: TaskInterface, field: str) -> str:
    """Return the argument or option for a field of the request, as written on the command line."""
    form = interface.forms.get(field)
    if form is not None and form.argument:
        return form.argument.upper()
    return option(form.option if form is not None and form.option else field)


def _has_box(interface: TaskInterface) -> bool:
    return "box" in interface.response.model_fields


def _draw_box(answer: Any, title: str, folder: ShownFolder) -> TaskAnswer:
    """Draw the box of an answer on the image, and return the answer with the name of the file."""
    from diptych.inference.drawing import draw_box
    from diptych.runtime.configs import derive
    from diptych.vision.pictures import open_picture

    picture = open_picture(Path(answer.picture))
    (left, top, width, height), (_, tall, wide) = answer.box, picture.shape
    corners = left / wide, top / tall, (left + width) / wide, (top + height) / tall
    file = folder.save(Path(answer.picture).stem, draw_box(picture, corners, title))
    shown: TaskAnswer = derive(answer, shown=file)
    return shown
