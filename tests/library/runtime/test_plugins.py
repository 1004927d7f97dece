"""Packages from outside add to Diptych by their entry points, through the command line as a user runs it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.core import TaskItem
from diptych.testing import EIGHT
from diptych.testing.runs import toy_store
from tests.support.outside import SYSTEM, diptych, package, python


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return package(tmp_path / "installed", SYSTEM)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return package(tmp_path / "broken", "def register():\n    raise KeyError('colour')\n", "broken", "1.3")


def test_what_a_package_adds_is_listed(tiny: Path) -> None:
    done = diptych("plugins", "--json", path=tiny)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["package"], found["version"], found["error"]) == ("tiny", "0.2", None)
    added = {word: names for word, names in found["adds"].items() if names}
    assert "tiny/small/pretrain" in added.pop("recipes")
    assert added == {"systems": ["tiny"], "objectives": ["tiny"], "formats": ["tiny"]}
    shown = diptych("recipes", "--system", "tiny", path=tiny)
    assert "tiny/small/pretrain" in shown.stdout, shown.stderr


FAILED = (
    "failed: KeyError('colour'); uninstall it (pip uninstall broken), leave it out of DIPTYCH_PLUGINS, or report "
    "this to its authors\n"
)


def test_a_package_that_fails_stops_only_what_needs_it(broken: Path, tmp_path: Path) -> None:
    """It is left out with a line; a name that may be its, of a recipe, task, format or verb, ends with its error."""
    done = diptych("recipes", "xgpt/small/*", path=broken)
    assert (done.returncode, done.stderr) == (0, f"diptych: plugin broken 1.3 {FAILED}")
    assert "xgpt/small/caption" in done.stdout
    (tmp_path / "mine.odd").write_text("words")
    store = toy_store(tmp_path / "store")
    model = tmp_path / "model"
    for given, about in (
        (("pretrain", "odd/small/pretrain", "--data", store, "--out", tmp_path / "out"), "no recipe 'odd/small"),
        (("finetune", "odd", "--data", store, "--model", model, "--out", tmp_path / "out"), "'odd' is not a task"),
        (("extract", tmp_path / "mine.odd", "--detector", "grid", "--out", tmp_path / "out"), "is not data that Dip"),
        (("odd", "a.png"), "No such command 'odd'"),
    ):
        done = diptych(*given, path=broken)
        assert done.returncode == 1, given
        assert about in done.stderr
        assert done.stderr.endswith(f"; the cause may be that plugin broken 1.3 {FAILED}")


def test_a_package_that_fails_is_named_without_a_traceback(broken: Path) -> None:
    listed = diptych("plugins", path=package(broken, SYSTEM))
    assert listed.returncode == 1
    assert "broken 1.3\n  failed: KeyError: 'colour'\n" in listed.stdout
    assert "tiny 0.2\n  systems: tiny\n" in listed.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["recipes", "--help"]])
def test_help_works_whatever_is_installed(broken: Path, arguments: list[str]) -> None:
    done = diptych(*arguments, path=broken)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    code = "def register():\n    from diptych.plugin import SYSTEMS\n    SYSTEMS['xgpt'] = SYSTEMS['tden']\n"
    done = diptych("plugins", path=package(tmp_path, code))
    assert done.returncode == 1
    assert "plugin tiny 0.2 failed: it adds the name xgpt to systems, but this name belongs to Diptych" in done.stderr


def test_two_packages_of_one_name_are_both_named(tiny: Path) -> None:
    done = diptych("plugins", path=package(tiny, SYSTEM, "twin", "3"))
    assert done.returncode == 1
    assert "plugin twin 3 failed: twin adds the name tiny to systems, but this name belongs to tiny" in done.stderr


DIRECTLY = """if True:
    from dataclasses import replace
    import tiny
    from diptych.plugin import SYSTEMS, TASKS, add_system, add_task

    def said(add, entry):
        try:
            return add(entry)
        except Exception as error:
            return f"{type(error).__name__}: {error}".removesuffix(": choose another name")

    mine = replace(TASKS["nlvr"], name="mine", interface=None)
    print([said(add_task, mine), said(add_task, replace(mine, title="Mine")), TASKS["mine"].title])
    tiny.register()
    tiny.register()
    print(said(tiny.add_task, mine))
    print(said(add_task, replace(TASKS["vqa"], title="Mine")))
    print(said(add_system, replace(SYSTEMS["tiny"], title="Mine")))
    print(said(add_system, replace(SYSTEMS["tiny"], name="other")), "other" in SYSTEMS)
    print(said(add_system, replace(SYSTEMS["xgpt"], name="other")))
    print(said(add_system, replace(SYSTEMS["tiny"], name="caption", recipes=())))
    print(TASKS["vqa"].title, SYSTEMS["tiny"].title)
"""


def test_a_name_that_is_taken_is_refused_to_who_adds_directly(tmp_path: Path) -> None:
    """With both owners; the same module may add its own again, as a cell of a notebook does that is run twice."""
    code = f"{SYSTEM}\n\ndef add_task(task):\n    from diptych.plugin import add_task\n    add_task(task)\n"
    said = python(DIRECTLY, package(tmp_path, code)).splitlines()
    assert said == [
        "[None, None, 'Mine']",
        "RecipeError: tiny 0.2 adds the name mine to tasks, but this name belongs to __main__",
        "RecipeError: __main__ adds the name vqa to tasks, but this name belongs to Diptych",
        "RecipeError: __main__ adds the name tiny to systems, but this name belongs to tiny 0.2",
        "RecipeError: __main__ adds the name tiny/small/pretrain to recipes, but this name belongs to tiny 0.2 False",
        "RecipeError: __main__ adds the name xgpt/text to recipes, but this name belongs to Diptych",
        "RecipeError: __main__ adds the name caption to objectives, but this name belongs to Diptych",
        "Questions Tiny",
    ]


# A package whose task has a verb that is taken.
VERB = """
def register():
    from dataclasses import replace
    from diptych.plugin import TASKS, add_task
    vqa = TASKS["vqa"]
    add_task(replace(vqa, name="mine", interface=replace(vqa.interface, verb={verb!r})))
"""


@pytest.mark.parametrize(
    ("verb", "owner"), [("ask", "Diptych (task vqa)"), ("plugins", "Diptych"), ("data", "Diptych")]
)
def test_a_verb_that_is_taken_is_refused(verb: str, owner: str, tmp_path: Path) -> None:
    done = diptych("plugins", path=package(tmp_path, VERB.format(verb=verb)))
    assert done.returncode == 1
    assert f"its task mine has the verb {verb}, which belongs to {owner}: choose another" in done.stderr


@pytest.fixture
def with_verb(tmp_path: Path) -> Path:
    path = package(tmp_path / "verbs", VERB.format(verb="sort"))
    with (path / "tiny-0.2.dist-info" / "entry_points.txt").open("a") as points:
        points.write("\n[diptych.verbs]\nsort = tiny:register\nabsent = tiny:register\n")
    return path


def test_a_verb_in_the_metadata_is_listed_and_the_package_is_not_imported(with_verb: Path) -> None:
    registered = (with_verb / "tiny.py").read_text()
    (with_verb / "tiny.py").write_text("raise SystemExit('imported')")
    done = diptych("--help", path=with_verb)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sort" in done.stdout
    assert "A verb of the package tiny 0.2." in done.stdout
    (with_verb / "tiny.py").write_text(registered)
    done = diptych("sort", "--help", path=with_verb)
    assert done.returncode == 0, done.stderr
    assert "{questions}" in done.stdout
    done = diptych("absent", "a.png", path=with_verb)
    assert done.returncode == 2
    assert "the package tiny 0.2 has the verb absent, but not its task" in done.stderr


CLASSIFIER = """
from diptych.plugin import ACCURACY, Metric, add_task, classifier

ODD = Metric("odd", lambda chances, right: float((right % 2).mean()))
MOOD = classifier(
    "mood", title="Moods", learns="name a mood", verb="mood", help="Name a mood.", does="names a mood",
    metrics=(ACCURACY, ODD),
)

def register():
    add_task(MOOD)
"""


@pytest.mark.thorough
def test_a_classifier_of_a_package_goes_the_whole_way(tmp_path: Path) -> None:
    """Labels of the data, a metric of its own, a model that knows the task's list of labels."""
    path, out = package(tmp_path / "installed", CLASSIFIER), tmp_path / "out"
    moods = [
        replace(one, more={"mood": (TaskItem(one.key, "how is it", (("Sad", "A/B")[n % 2],)),)})
        for n, one in enumerate(EIGHT)
    ]
    store = toy_store(tmp_path / "store", [*moods[:6], replace(moods[6], key="last")])
    settings = ("training.steps=2", "training.batch=4", "training.validate_every=2", "training.checkpoint_every=2")
    given = [word for one in settings for word in ("--set", one)]
    recipe = ("--recipe", "image-bert/small/mood", "--from-scratch")
    done = diptych("finetune", "mood", *recipe, "--data", store, "--out", out, *given, path=path)
    assert done.returncode == 0, done.stderr
    kept = json.loads((out / "model" / "answers.json").read_text())
    assert (kept["names"], kept["task"]) == (["A/B", "Sad"], "mood")
    done = diptych("evaluate", "--model", out, "--data", store, "--split", "val", "--json", path=path)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)["scores"]
    assert {"accuracy", "odd", "accuracy above blind"} == set(scores)
    assert {"value", "interval", "blind"} == set(scores["odd"])
    assert scores["odd"]["value"] == 100, "its only item has the second of the labels"


def test_what_register_prints_is_no_output(tmp_path: Path) -> None:
    code = SYSTEM.replace("def register() -> None:\n", "def register() -> None:\n    print('loading')\n")
    done = diptych("plugins", "--json", path=package(tmp_path, code))
    assert json.loads(done.stdout)["package"] == "tiny"
    assert "loading" in done.stderr


def test_packages_are_chosen_by_the_environment(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = package(broken, SYSTEM)
    monkeypatch.setenv("DIPTYCH_PLUGINS", "tiny")
    done = diptych("plugins", "--json", path=path)
    assert (done.returncode, json.loads(done.stdout)["package"]) == (0, "tiny")
    monkeypatch.setenv("DIPTYCH_PLUGINS", "")
    assert "no installed package extends" in diptych("plugins", path=path).stdout
    monkeypatch.setenv("DIPTYCH_PLUGINS", "tini")
    done = diptych("plugins", path=path)
    assert done.returncode == 2
    assert "DIPTYCH_PLUGINS=tini: tini is not an installed plugin; did you mean tiny?" in done.stderr


def test_formats_of_a_package_are_tried_first(tmp_path: Path) -> None:
    """A file that `lines` would read, too."""
    code = SYSTEM.replace(".tiny", ".jsonl").replace("\n    add_system(", "\n    str(")
    (tmp_path / "mine.jsonl").write_text('{"image": "nothing.png", "captions": ["a kite"]}\n')
    script = f"""if True:
        from pathlib import Path
        from diptych.data.formats.table import read
        from diptych.runtime.plugins import load_plugins
        load_plugins()
        print([record.key for record in read(Path({str(tmp_path / "mine.jsonl")!r}))])
    """
    assert python(script, package(tmp_path / "installed", code)) == "['one']\n"


def test_an_error_in_its_code_is_its_authors(tmp_path: Path) -> None:
    code = SYSTEM.replace('lambda source: source.path.suffix == ".tiny"', "lambda source: source.colour")
    (tmp_path / "mine.tiny").write_text("")
    given = ("extract", tmp_path / "mine.tiny", "--out", tmp_path / "store", "--detector", "grid")
    done = diptych(*given, path=package(tmp_path / "installed", code))
    assert done.returncode == 1
    assert "AttributeError" in done.stderr
    assert "this was raised in code of tiny 0.2: please report it to the authors of that package" in done.stderr


def test_a_model_says_which_package_made_it(tiny: Path, tmp_path: Path) -> None:
    """Trained by the package's recipe, with processes that load, and then opened where it is not installed."""
    store, out = toy_store(tmp_path / "store"), tmp_path / "out"
    settings = ("--set", "training.loading_processes=1")
    done = diptych("pretrain", "tiny/small/pretrain", "--data", store, "--out", out, *settings, path=tiny)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "model" / "config.json").read_text())["packages"] == {"tiny": "0.2"}
    card = f"""if True:
        import diptych
        from diptych.inference.card import Publisher, model_card
        print(model_card(diptych.load({str(out)!r}).predictor.folder, "me/tiny", Publisher()))
    """
    assert "pip install tiny==0.2" in python(card, tiny)
    done = diptych("evaluate", "--model", out, "--data", store)
    assert done.returncode == 1
    assert done.stderr == (f"diptych: {out / 'model'} was made with tiny 0.2, which is missing; run pip install tiny\n")
    failing = package(tmp_path / "failing", "def register():\n    raise KeyError('colour')\n")
    done = diptych("evaluate", "--model", out, "--data", store, path=failing)
    assert done.returncode == 1
    assert f"{out / 'model'} was made with tiny 0.2; the cause may be that plugin tiny 0.2 failed: " in done.stderr
    renamed = SYSTEM.replace(
        "def register",
        """
class Config(SYSTEMS["image-bert"].resolved):
    breadth: int


def register""",
    ).replace('"tables": None,', '"tables": None, "resolved": Config,')
    done = diptych(
        "evaluate", "--model", out, "--data", store, path=package(tmp_path / "later", renamed, "tiny", "0.3")
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"; {out / 'model'} was made with tiny 0.2, but tiny 0.3 is installed; run pip install tiny==0.2\n"
    )
    assert "config.breadth" in done.stderr


# Code of a package whose model, objective or task goes wrong, by what it does.
FAULTS = {
    "vector": (
        """
from dataclasses import dataclass
from diptych.plugin import MaskedLanguage, weighed

@dataclass(frozen=True)
class Vector(MaskedLanguage):
    def loss(self, model, states, batch):
        return super().loss(model, states, batch).expand(3)

TinyObjectives.schedule = lambda self, vocabulary: weighed((Vector(vocabulary), 1.0))
""",
        "tiny 0.2: Vector.loss (objective masked_language) returned a tensor of shape (3,), expected a scalar",
    ),
    "states": (
        """
class Short(SYSTEMS["image-bert"].model):
    def forward(self, batch):
        states = super().forward(batch)
        return replace(states, text=states.text[:, :-1])

MODEL = Short
""",
        "tiny 0.2: Short.forward returned text (12, 3, 16), expected (12, 4, 16)",
    ),
    "values": (
        """
from diptych.plugin import MaskedLanguage, weighed

class Headless(MaskedLanguage):
    heads = None

TinyObjectives.schedule = lambda self, vocabulary: weighed((Headless(vocabulary), 1.0))
""",
        "this was raised while tiny 0.2 was in use: please report it to the authors of that package first",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_what_a_package_returns_is_checked_and_it_is_named(kind: str, tmp_path: Path) -> None:
    more, said = FAULTS[kind]
    before, after = SYSTEM.split("\ndef register")
    code = f"{before}\nMODEL = None\n{more}\ndef register{after}"
    code = code.replace('"recipes": (smallest,)}', '"recipes": (smallest,)} | ({"model": MODEL} if MODEL else {})')
    path, store = package(tmp_path / "installed", code), toy_store(tmp_path / "store")
    done = diptych("pretrain", "tiny/small/pretrain", "--data", store, "--out", tmp_path / "out", path=path)
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert "a fault of Diptych" not in done.stderr


@pytest.mark.parametrize("read", ["[1, 2]", "None"])
def test_what_a_format_reads_is_checked_and_its_package_is_named(read: str, tmp_path: Path) -> None:
    path = package(tmp_path / "installed", SYSTEM.replace('[Record("one", "train")]', read))
    (tmp_path / "a.tiny").touch()
    done = diptych("check", tmp_path / "a.tiny", path=path)
    assert done.returncode == 1, done.stderr
    assert "was raised while tiny 0.2 was in use: please report it to the authors" in done.stderr
