"""The verbs `mine ...`, which make records from web pages, and `storybook web`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from diptych.cli.app import LARGEST_SEED, AsJson, Verbs, console, hold
from diptych.cli.groups import grouped
from diptych.cli.outputs import OutFile, OutFolder
from diptych.runtime.errors import DataError, DiptychError, RecipeError, counted
from diptych.runtime.processes import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Callable

mine = Verbs(help="Make records of images and texts from web pages (ImageBERT's LAIT).")


@dataclass(frozen=True)
class RunOptions:
    """Options for the run: engine, stages and rules."""

    base: str | None = Option(None, help="Base address of a folder of .html, such as https://example.org/.")
    engine: str = Option("local", help="Engine that runs the shards: local or ray, with the same result.")
    processes: int = Option(PROCESSES, min=1, help="Shards that run at once.")
    until: str = Option("keep", help="Last stage to run: pages, fetch, decode, score or keep.")
    assignments: list[str] | None = Option(
        None, "--set", metavar="KEY=VALUE", help="Set a rule: rules.sides=400, rules.sides=off; repeatable."
    )
    offline: bool = Option(False, "--offline", help="Take only the images in the inputs, and fetch none.")
    retry_failed: bool = Option(False, "--retry-failed", help="Fetch again what failed temporarily, as by a timeout.")
    seed: int = Option(0, min=0, max=LARGEST_SEED, help="Seed of the random draws.")


@dataclass(frozen=True)
class JudgeOptions:
    """Options for the models that score pairs and images."""

    scorer: str = Option(
        "none",
        help="Scorer folder from `diptych mine scorer`, clip:ARCHITECTURE/WEIGHTS, or none to keep every pair.",
    )
    realism: str | None = Option(None, help="Judge of realism: folder, hub:ID or module:function; default: none.")
    nsfw: str | None = Option(
        None, help="Judge of unsafe images: folder, hub:ID, onnx:FILE or module:function; default: none."
    )
    skip_nsfw_check: bool = Option(
        False, "--skip-nsfw-check", help="Run without an NSFW judge; the report then shows «not judged»."
    )

    def judges(self) -> dict[str, str]:
        """Return the judge of each rule: `realism` or `nsfw` -> name of a judge.

        Raises DiptychError if neither --nsfw nor --skip-nsfw-check was given.
        """
        if self.nsfw is None and not self.skip_nsfw_check:
            way_out = "or skip this check with --skip-nsfw-check"
            raise DiptychError(f"Missing --nsfw: Diptych has no judge of unsafe images; pass --nsfw FOLDER, {way_out}")
        named = {"realism": self.realism, "nsfw": self.nsfw}
        return {place: name for place, name in named.items() if name is not None}


@dataclass(frozen=True)
class KeepOptions:
    """Options that decide which images and texts are kept."""

    license: str | None = Option(None, help="Keep only images of this licence (cc: Creative Commons); default: all.")
    texts: str | None = Option(
        None,
        metavar="KIND,...",
        help="Kinds of texts: figcaption, alt, title, caption, near; near counts by default only with --scorer.",
    )
    refuse: list[Path] | None = Option(None, help="File of hosts, addresses, sha256 or dHash to drop; repeatable.")
    exclude: list[Path] | None = Option(None, help="Store or data whose val and test images are dropped; repeatable.")
    words: Path | None = Option(None, help="File of bad words, one a line, in place of the short list.")
    vocab: Path | None = Option(None, help="Vocabulary that texts are held against, such as BERT's vocab.txt.")
    tars: Annotated[Path | None, OutFolder("tars")] = Option(
        None, help="Folder for WebDataset tars as well, named as img2dataset names them."
    )
    max_pairs_per_host: int | None = Option(None, min=1, help="Most pairs of one host; default: no limit.")

    def settings(self) -> dict[str, Any]:
        """Return these options as the section `keep` of the settings in mine.json."""
        kinds = [one.strip() for one in self.texts.split(",")] if self.texts is not None else None
        return {"licence": self.license, "kinds": kinds, "host_pairs": self.max_pairs_per_host}


@dataclass(frozen=True)
class FetchOptions:
    """Options for fetching images."""

    contact: str = Option("", help="Page or e-mail address by which hosts can reach you, sent in the user agent.")
    connections_per_host: int = Option(2, min=1, help="Requests to one host at once.")
    rate: float = Option(1.0, min=0.001, help="Requests a second to one host.")
    at_once: int = Option(64, min=1, help="Requests at once in one process.")
    allow: list[str] | None = Option(None, metavar="NETWORK", help="Private network to allow, such as 127.0.0.0/8.")
    port: list[int] | None = Option(None, help="Port to allow in addition to 80 and 443; repeatable.")
    resolve: list[str] | None = Option(
        None, metavar="NAME=ADDRESS:PORT", help="Address of a host, such as *.test=127.0.0.1:80."
    )

    def settings(self) -> dict[str, Any]:
        """Return these options as the section `fetch` of the mining settings."""
        values = vars(self) | {"allow": self.allow or (), "resolve": self.resolve or ()}
        return values | {"ports": (80, 443, *(values.pop("port") or ()))}


@mine.command("run")
@grouped
def mine_run(
    *,
    inputs: list[Path] = Argument(
        help="WARC or WAT files, folders of .html, lists of URLs (.tsv, .parquet), img2dataset tars or .jsonl files."
    ),
    out: Annotated[Path, OutFolder("mined")] = Option(
        ..., help="Folder to write to; the same command continues where it was interrupted."
    ),
    running: RunOptions,
    judging: JudgeOptions,
    keeping: KeepOptions,
    fetching: FetchOptions,
) -> None:
    """Make records from web pages: find images and texts, score the pairs, and keep the best pair of each image."""
    from diptych.runtime.progress import bar
    from diptych_mine.report import summary, why_empty, write_page
    from diptych_mine.run import Mine
    from diptych_mine.settings import changed, checked

    judges = judging.judges()
    values = {"keep": keeping.settings(), "fetch": fetching.settings()}
    settings = checked(values | {"offline": running.offline, "seed": running.seed})
    settings = changed(settings, running.assignments or [])  # --set is applied last, so that it overrides options
    hold(out, "mined", temporary=running.engine == "local")  # not with Ray, whose sockets need short paths
    with bar("shards") as progress:

        def started(stage: str, shards: int) -> Callable[[], None]:
            return partial(progress.advance, progress.add_task(stage, total=shards))

        counts = Mine(
            out, inputs, settings, base=running.base, engine=running.engine, workers=running.processes,
            until=running.until, retry_failed=running.retry_failed, words=keeping.words, vocabulary=keeping.vocab,
            judges=judges, refuse=keeping.refuse or [], tars=keeping.tars, exclude=_excluded(keeping.exclude or []),
            tell=lambda line: print(f"diptych: {line}"), write_page=write_page, progress=started,
            **_scorer(judging.scorer),
        ).run()  # fmt: skip
    if counts is None:
        print(f"{running.until} done in {out}; the same command with a later --until continues")
        return
    summary(counts, console(stderr=False))
    made = f"{counted(counts['kept'], 'records')} in {out / 'records'}, of {counted(counts['pictures'], 'pictures')}"
    print(f"{made}; why: {out / 'report.html'}")
    if not counts["kept"]:
        raise DataError(why_empty(counts))


@mine.command("report")
def mine_report(
    out: Annotated[Path, OutFolder("mined")] = Argument(help="Folder of a finished run."), as_json: AsJson = False
) -> None:
    """Print the funnel of a run again: how many images and texts each rule dropped."""
    from diptych.runtime.outputs import refuse_edited
    from diptych_mine import funnel
    from diptych_mine.layout import RunLayout
    from diptych_mine.report import summary, write_page

    layout = RunLayout.finished(out)
    refuse_edited(out, [layout.card, layout.report])
    counted, numbers = funnel.again(layout)
    write_page(layout, counted, numbers)
    if as_json:
        print(json.dumps(numbers))
    else:
        summary(numbers, console(stderr=False))


def _scorer(name: str) -> dict[str, Any]:
    if name == "none":
        print("diptych: no scorer: all pairs that pass the rules are kept")
        return {}
    from diptych_mine.judge.clip import CLIP, load_clip

    if name.startswith(CLIP):
        return {"scorer": name, "scorer_version": load_clip(name).version, "load_scorer": load_clip}
    from diptych_mine.scorer import load_scorer, scorer_version

    return {"scorer": name, "scorer_version": scorer_version(name), "load_scorer": load_scorer}


def _excluded(paths: list[Path]) -> list[tuple[str, bytes | None]]:
    if not paths:
        return []
    from diptych_mine.scorer import held_out_hashes

    return [one for path in paths for one in held_out_hashes(path)]


@mine.command("scorer")
def mine_scorer(
    labelled: list[Path] = Argument(help="Files from `diptych mine label` in which `true` is set."),
    out: Annotated[Path, OutFolder("scorer")] = Option(..., help="Scorer folder to write."),
    model: str | None = Option(None, help="Model that matches texts and images; default: no such feature."),
    detector: str | None = Option(None, help="Detector of the objects that texts name; default: no such feature."),
    precision: float = Option(0.9, min=0, max=1, help="Wanted share of true pairs among the kept, on held-out labels."),
) -> None:
    """Train a scorer of how well texts match their images, on a few labels."""
    from diptych_mine.scorer import train_scorer

    hold(out, "scorer", temporary=False)
    card = train_scorer(labelled, out, model, detector, precision)
    print(
        f"{card['labels']} labels of {card['pictures']} images; AUC on {card['held_out']} held-out pairs: "
        f"{card['auc']:.3f} ({card['interval'][0]:.3f} to {card['interval'][1]:.3f}); pairs that score "
        f"{card['least']:.3f} or more are kept; scorer: {out}"
    )
    if card["least"] >= 1:
        print(
            f"no threshold has a precision of {card['precision_wanted']} on the held-out pairs, so this scorer keeps "
            "no pairs; label more images, pass --model or --detector, or set a lower --precision"
        )


@mine.command("judge")
def mine_judge(
    folder: Path = Argument(help="Folder with one subfolder of images a class: natural or safe, and others."),
    out: Annotated[Path, OutFolder("judge")] = Option(..., help="Judge folder to write."),
    backbone: str | None = Option(None, help="Network of more features: resnet18, timm/NAME, open_clip/NAME, hf/NAME."),
    weights: Path | None = Option(None, help="Weight file of the backbone; default: downloaded."),
) -> None:
    """Train an image filter for --realism or --nsfw from a folder of examples."""
    from diptych_mine.judge.picture_judge import train_judge

    if weights is not None and backbone is None:
        raise RecipeError("--weights needs --backbone; pass the name of the backbone")
    hold(out, "judge", temporary=False)
    card = train_judge(folder, out, backbone=backbone, weights=weights)
    print(
        f"{sum(card['pictures'].values())} images; AUC on {card['held_out']} held-out images: {card['auc']:.3f} "
        f"({card['interval'][0]:.3f} to {card['interval'][1]:.3f}); images under {card['least']:.3f} are dropped; {out}"
    )


@mine.command("label")
def mine_label(
    run: Path = Argument(metavar="OUT", help="Folder of a finished run."),
    sample: int = Option(400, min=1, help="Pairs to draw, evenly over their scores."),
    out: Annotated[Path, OutFile((".html",), grows='"statement":')] = Option(
        Path("labels.jsonl"), help="File to write the lines to; verdicts in it are kept."
    ),
    seed: int = Option(0, min=0, max=LARGEST_SEED, help="Seed of the pairs that are drawn."),
) -> None:
    """Draw pairs of image and text to label, evenly over scores.

    Fill in the field `true` of each line; OUT.html shows the images.
    """
    from diptych_mine.judge.labelling import sample as draw
    from diptych_mine.report import write_sheet

    if out.suffix == ".html":
        raise RecipeError(f"--out {out} is the name of the page; pass a name for the lines, such as labels.jsonl")
    drawn = draw(run, sample, out, seed)
    write_sheet(out.with_suffix(".html"), out.parent, drawn)
    print(f"{counted(drawn, 'pairs')} in {out}, shown in {out.with_suffix('.html')}: set `true` to true or false")


@mine.command("forget")
def mine_forget(
    run: Annotated[Path, OutFolder("mined")] = Argument(metavar="OUT", help="Folder of a finished run."),
    hosts: list[Path] | None = Option(None, help="File of hosts, whose subdomains go too."),
    addresses: list[Path] | None = Option(None, help="File of addresses of images or pages."),
    images: list[Path] | None = Option(None, help="File of images as sha256 or dHash."),
    tars: Annotated[Path | None, OutFolder("tars")] = Option(
        None, help="Folder of the run's tars, to write them again without the images."
    ),
) -> None:
    """Remove images from a run, with their records and verdicts. Later runs into OUT refuse them."""
    from diptych_mine.forgetting import forget
    from diptych_mine.keep.tars import write_tars
    from diptych_mine.layout import RunLayout

    lists = [*(hosts or []), *(addresses or []), *(images or [])]
    if not lists:
        raise RecipeError("Missing --hosts, --addresses or --images: pass a file that lists what to remove")
    if not run.is_dir():
        raise RecipeError(f"no finished run in {run}; pass the folder that `diptych mine run` wrote (its --out)")
    if tars is not None and not tars.is_dir():
        raise RecipeError(f"no tars in {tars}; pass the folder that `diptych mine run` wrote (its --tars)")
    hold(run, "mined")
    count = forget(run, lists)
    print(f"{counted(count, 'images')} forgotten in {run}")
    if not count:
        print("diptych: no image of this run is on these lists; compare them with the page and address of its records")
    if tars is not None:
        write_tars(tars, RunLayout(run))
    else:
        print("diptych: if the run has tars, they still have these images; pass --tars FOLDER to write them again")
