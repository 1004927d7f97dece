"""The verbs of mining: from web pages to records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.app import AsJson, Seed, app, console, hold, storybook
from diptych.runtime.errors import RecipeError
from diptych.runtime.processes import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from diptych.mining.settings import Settings

mine = typer.Typer(
    help="Make records of pictures and texts from web pages (ImageBERT's LAIT).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(mine, name="mine")


Inputs = Annotated[
    list[Path],
    typer.Argument(help="WARC files, folders of .html, lists of addresses, img2dataset tars or .jsonl to read."),
]
Base = Annotated[str | None, typer.Option(help="Base address of a folder of .html, such as https://example.org/.")]
Engine = Annotated[str, typer.Option(help="Engine that runs the shards: local, daft or ray, with the same result.")]
Processes = Annotated[int, typer.Option(min=1, help="Shards that run at once.")]
Until = Annotated[str, typer.Option(help="Last stage to run: pages, fetch, decode, score or keep.")]
Rule = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a rule, such as rules.sides=400 or rules.sides=off; may be given several times.",
    ),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="Take only the pictures that the inputs hold, and fetch none.")
]
Retry = Annotated[
    bool, typer.Option("--retry-failed", help="Fetch again what failed for a passing reason, such as a timeout.")
]
Chance = Annotated[int, typer.Option("--seed", help="Seed of the random draws.")]
ScorerName = Annotated[
    str, typer.Option("--scorer", help="Scorer folder from `diptych mine scorer`, or none to keep every pair.")
]
Realism = Annotated[
    str | None, typer.Option(help="Judge of realism: a judge folder, hub:ID or module:function; default: none.")
]
Nsfw = Annotated[
    str | None, typer.Option(help="Judge of unsafe pictures: a judge folder, hub:ID or module:function; default: none.")
]
NoNsfw = Annotated[
    bool, typer.Option("--no-nsfw", help="Run without an NSFW judge; run and report then say «not judged».")
]
Contact = Annotated[
    str, typer.Option(help="Page or e-mail address by which hosts can reach you, sent in the user agent.")
]
Licence = Annotated[
    str | None, typer.Option(help="Keep only pictures of this licence; cc is any of Creative Commons; default: all.")
]
Refuse = Annotated[
    list[Path] | None,
    typer.Option(help="File of hosts, addresses, sha256 or dHash to drop; may be given several times."),
]
Exclude = Annotated[
    list[Path] | None,
    typer.Option(help="Store or data whose val and test pictures are dropped; may be given several times."),
]
Words = Annotated[Path | None, typer.Option(help="File of bad words, one a line, in place of the short list.")]
Vocab = Annotated[Path | None, typer.Option(help="Vocabulary that texts are held against, such as BERT's vocab.txt.")]
Tars = Annotated[
    Path | None, typer.Option(help="Folder to write WebDataset tars to as well, named as img2dataset names them.")
]
PerHost = Annotated[
    int | None, typer.Option("--max-pairs-per-host", min=1, help="Pairs of one host at most; default: no limit.")
]
Connections = Annotated[
    int, typer.Option("--connections-per-host", min=1, help="Requests to one host that run at once.")
]
Rate = Annotated[float, typer.Option(min=0.001, help="Requests a second to one host.")]
AtOnce = Annotated[int, typer.Option(min=1, help="Requests that run at once in one process.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="NETWORK", help="Network to allow though it is not public, such as 127.0.0.0/8."),
]
Port = Annotated[list[int] | None, typer.Option(help="Port to allow besides 80 and 443; may be given several times.")]
Resolve = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=ADDRESS:PORT", help="Address of a host name, such as *.test=127.0.0.1:8080 for many."),
]


@mine.command("run")
def mine_run(
    inputs: Inputs,
    out: Annotated[Path, typer.Option(help="Folder to write to; the same command continues where it was interrupted.")],
    base: Base = None,
    engine: Engine = "local",
    processes: Processes = PROCESSES,
    until: Until = "keep",
    assignments: Rule = None,
    offline: Offline = False,
    retry_failed: Retry = False,
    seed: Chance = 0,
    scorer: ScorerName = "none",
    realism: Realism = None,
    nsfw: Nsfw = None,
    no_nsfw: NoNsfw = False,
    contact: Contact = "",
    licence: Licence = None,
    refuse: Refuse = None,
    exclude: Exclude = None,
    words: Words = None,
    vocab: Vocab = None,
    tars: Tars = None,
    max_pairs_per_host: PerHost = None,
    connections_per_host: Connections = 2,
    rate: Rate = 1.0,
    at_once: AtOnce = 64,
    allow: Allow = None,
    port: Port = None,
    resolve: Resolve = None,
) -> None:
    """Make records from web pages: texts, pictures, scores, and the best pair of each picture."""
    from diptych.mining.report import write_page
    from diptych.mining.run import Mine, not_judged
    from diptych.mining.settings import Settings, changed, checked

    judges = {place: name for place, name in (("realism", realism), ("nsfw", nsfw)) if name is not None}
    not_judged(no_nsfw, judges)
    values = changed(Settings(), assignments or []).model_dump()
    values |= {"offline": offline, "seed": seed}
    values["fetch"] |= {
        "contact": contact, "connections_per_host": connections_per_host, "rate": rate, "at_once": at_once,
        "allow": tuple(allow or ()), "ports": (80, 443, *(port or ())), "resolve": tuple(resolve or ()),
    }  # fmt: skip
    values["keep"] |= {"licence": licence} | ({"host_pairs": max_pairs_per_host} if max_pairs_per_host else {})
    settings: Settings = checked(values)
    hold(out, temporary=engine == "local")  # Ray's sockets have no room for a long path
    with _progress() as progress:
        job = Mine(
            out, inputs, settings, base=base, engine=engine, workers=processes, until=until, retry_failed=retry_failed,
            words=words, vocabulary=vocab, judges=judges, refuse=refuse or [], tars=tars,
            exclude=_excluded(exclude or []),
            tell=lambda line: print(f"diptych: {line}"), write_page=write_page, progress=progress, **_scorer(scorer),
        )  # fmt: skip
        counts = job.run()
    _tell(counts, until, out)


def _tell(counts: dict[str, Any] | None, until: str, out: Path) -> None:
    from diptych.mining.report import summary

    if counts is None:
        print(f"{until} done in {out}; the same command with a later --until goes on")
        return
    summary(counts, console(stderr=False))
    print(
        f"{counts['kept']} records in {out / 'records'}, of {counts['pictures']} pictures; why: {out / 'report.html'}"
    )


@mine.command("report")
def mine_report(
    out: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    as_json: AsJson = False,
) -> None:
    """Print the funnel of a run again, from its decisions on disk."""
    from diptych.mining import funnel
    from diptych.mining.layout import Layout
    from diptych.mining.report import summary, write_page
    from diptych.mining.saved import Counted, read_json

    layout = Layout.finished(out)
    before = read_json(layout.funnel, Counted)
    found = funnel.of(layout)
    numbers = found.as_json(before.inputs, before.about.model_dump())
    write_page(layout, found, numbers)
    if as_json:
        print(json.dumps(numbers))
    else:
        summary(numbers, console(stderr=False))


def _scorer(name: str) -> dict[str, Any]:
    if name == "none":
        print("diptych: no scorer: every pair is kept that the rules let through")
        return {}
    from diptych.mining.scorer import load_scorer, scorer_version

    return {"scorer": name, "scorer_version": scorer_version(name), "load_scorer": load_scorer}


def _excluded(paths: list[Path]) -> list[tuple[str, int | None]]:
    if not paths:
        return []
    from diptych.mining.scorer import held_out_hashes

    return [one for path in paths for one in held_out_hashes(path)]


def _progress() -> Any:
    from contextlib import contextmanager

    from diptych.runtime.progress import bar

    @contextmanager
    def shown() -> Any:
        with bar("shards") as progress:

            def stage(name: str, shards: int) -> Callable[[], None]:
                task = progress.add_task(name, total=shards)
                return lambda: progress.advance(task)

            yield stage

    return shown()


@storybook.command("web")
def storybook_web(
    folder: Annotated[Path, typer.Argument(help="Folder to write the test web to.")],
    pages: Annotated[
        int, typer.Option(min=1, help="Pages to write; a folder that has them already is left as it is.")
    ] = 5000,
    serve: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Port of 127.0.0.1 on which to serve all its hosts; default: only write."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that draw; the pages are the same for any number.")
    ] = PROCESSES,
    seed: Seed = 0,
) -> None:
    """Write a web to try mining on: drawn scenes on pages of made-up hosts, with the truth of each page."""
    from diptych.runtime.progress import bar
    from diptych.storybook import web

    if not (folder / "truth.jsonl").exists():
        hold(folder)
        with bar("pages") as progress:
            writing = progress.add_task("writing", total=pages)
            web.write(folder, pages, seed, processes, lambda done: progress.advance(writing, done))
        print(f"{pages} pages in {folder}")
    if serve is not None:
        web.serve(folder, serve)


@mine.command("scorer")
def mine_scorer(
    labelled: Annotated[list[Path], typer.Argument(help="Files from `diptych mine label` in which `true` is set.")],
    out: Annotated[Path, typer.Option(help="Scorer folder to write.")],
    model: Annotated[
        str | None, typer.Option(help="Model that matches texts and pictures; default: no such feature.")
    ] = None,
    detector: Annotated[
        str | None, typer.Option(help="Detector of the objects that texts name; default: no such feature.")
    ] = None,
    precision: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the pairs kept that should be true, on labels held out.")
    ] = 0.9,
) -> None:
    """Train the weak semantic model, which tells texts that are about their pictures, on a few labels."""
    from diptych.mining.scorer import train_scorer

    hold(out)
    card = train_scorer(labelled, out, model, detector, precision)
    print(
        f"{card['labels']} labels of {card['pictures']} pictures; AUC on {card['held_out']} held out "
        f"{card['auc']:.3f} ({card['interval'][0]:.3f} to {card['interval'][1]:.3f}); pairs from {card['least']:.3f} "
        f"on are kept; in {out}"
    )
    if card["least"] >= 1:
        print(
            f"no score reaches a precision of {card['precision_wanted']} on the pairs held out, so this scorer keeps "
            "none: label more pictures, give --model or --detector, or take a lower --precision"
        )


@mine.command("judge")
def mine_judge(
    folder: Annotated[
        Path, typer.Argument(help="Folder with one subfolder of pictures a class: natural or safe, and others.")
    ],
    out: Annotated[Path, typer.Option(help="Judge folder to write.")],
    backbone: Annotated[
        str | None,
        typer.Option(help="Network whose features it learns on too: resnet18, timm/NAME, open_clip/NAME or hf/NAME."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="File with the backbone's weights, not to download them.")
    ] = None,
) -> None:
    """Train a picture filter for --realism or --nsfw from a folder of examples."""
    from diptych.mining.judge.picture_judge import train_judge

    if weights is not None and backbone is None:
        raise RecipeError("--weights are those of a --backbone; name it")
    hold(out)
    card = train_judge(folder, out, backbone=backbone, weights=weights)
    print(
        f"{sum(card['pictures'].values())} pictures; AUC on {card['held_out']} held out {card['auc']:.3f} "
        f"({card['interval'][0]:.3f} to {card['interval'][1]:.3f}); under {card['least']:.3f} is dropped; in {out}"
    )


@mine.command("label")
def mine_label(
    run: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of a finished run.")],
    sample: Annotated[int, typer.Option(min=1, help="Pairs to draw, evenly over their scores.")] = 400,
    out: Annotated[Path, typer.Option(help="File to write the lines to; verdicts that it has are kept.")] = Path(
        "labels.jsonl"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the pairs that are drawn.")] = 0,
) -> None:
    """Pairs for people to judge, drawn evenly over scores: set each line's `true`; OUT.html shows the pictures."""
    from diptych.mining.judge.labelling import sample as draw
    from diptych.mining.report import write_sheet

    drawn = draw(run, sample, out, seed)
    write_sheet(out.with_suffix(".html"), out.parent, drawn)
    print(f"{len(drawn)} pairs in {out}, shown in {out.with_suffix('.html')}: set `true` to true or false")


@mine.command("forget")
def mine_forget(
    run: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of a finished run.")],
    hosts: Annotated[list[Path] | None, typer.Option(help="File of hosts, whose subdomains go too.")] = None,
    addresses: Annotated[list[Path] | None, typer.Option(help="File of addresses of pictures or pages.")] = None,
    pictures: Annotated[list[Path] | None, typer.Option(help="File of pictures as sha256 or dHash.")] = None,
) -> None:
    """Take pictures out of a run, with their lines and verdicts; no later run into OUT brings them back."""
    from diptych.mining.forgetting import forget

    lists = [*(hosts or []), *(addresses or []), *(pictures or [])]
    if not lists:
        raise RecipeError("nothing to forget was named: give --hosts, --addresses or --pictures, each a file")
    if not run.is_dir():
        raise RecipeError(f"no finished run in {run}; give the --out of `diptych mine run`")
    hold(run)
    print(f"{forget(run, lists)} pictures forgotten in {run}")
