"""`load` and `Model`: apply a model from Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from diptych.api import results
from diptych.api.arguments import check_features, check_whole, python_errors, texts_of
from diptych.api.forms import OneImage, Vectors, per_image, per_text
from diptych.api.images import batches, is_one, name_of
from diptych.api.mapped import Mapped
from diptych.api.results import Answer, Caption, ChosenAnswer, Explained, Found, Hits, Judgement
from diptych.core import Record
from diptych.inference.open import open_folder
from diptych.inference.predictor import Predictor
from diptych.runtime.arguments import check_type, path_of
from diptych.runtime.configs import validated
from diptych.runtime.devices import torch_unchanged
from diptych.runtime.errors import RecipeError, UnsupportedError, counted
from diptych.tasks import CAPTION, NLVR, REFERRING, VCR, VQA, find_task
from diptych.tasks.caption import explain_caption
from diptych.tasks.retrieval import can_search, has_towers
from diptych.tasks.two_towers import TowerGallery, embed_sentences

TOWERS = "tden/small/retrieval"
SHORTLIST = 10  # for each hit, `rerank` scores this number of images


@torch_unchanged()
def load(
    source: str | os.PathLike[str], *, revision: str | None = None, device: str = "auto", precision: str = "auto",
    features: str | os.PathLike[str] | None = None,
) -> Model:  # fmt: skip
    """Open a model folder, a run folder, a model on the Hugging Face hub (`user/name`), or the packaged `sample`.

    Args:
        source: path of the folder, or name on the hub.
        revision: branch, tag or commit on the hub; by default the newest.
        device: auto (a GPU if there is one), cpu, cuda, cuda:N or mps.
        precision: fp32, bf16, or auto (bf16 if it is faster on the device; $DIPTYCH_PRECISION overrides it).
        features: file or folder of precomputed region features, for a model that was trained on such features; or a
            store: images that it has are not extracted again.

    Raises CheckpointError if there is no such model.
    """
    check_features(features)
    folder = open_folder(source, "source", revision=revision, device=device, precision=precision)
    return Model(Predictor(folder, None if features is None else path_of(features)))


class Model(Mapped):
    """An opened model with its detector. Thread-safe, unless the model is being trained.

    The first argument of a method is one image or several. An image is a path, an http(s) URL, bytes, an open file, a
    Pillow image, an array or tensor, or a dict {"bytes", "path"} of the package `datasets`. Arrays and tensors are (H,
    W, 3) or (3, H, W), uint8 or floats from 0 to 1. One image gives one result, a list gives a list, and an iterator
    gives an iterator. An image that cannot be read raises a DataError with its index.
    """

    @property
    def examples(self) -> list[Path]:
        """Images in the model's folder, on which to try it. The packaged `sample` has three."""
        return sorted(self.predictor.folder.folder.glob("*.png"))

    def __repr__(self) -> str:
        from diptych.inference.model_facts import model_facts, offered_tasks

        folder, model = self.predictor.folder, self.predictor.folder.model
        facts = model_facts("", folder, offered_tasks(folder))
        device, can = next(model.parameters()).device, ", ".join(facts.tasks)[:100] or "do nothing yet"
        size = f"{facts.parameters / 1e6:.1f} M parameters"
        name = folder.name[-120:]
        return f"<diptych.Model {name}: {facts.system}, {size}, can {can}; on {device}, {facts.precision}>"

    @per_image(Caption)
    def caption(
        self, images: Any, /, *, captions: int = 1, beams: int | None = None, min_words: int | None = None,
        max_words: int | None = None, length_bonus: float | None = None, length_penalty: float | None = None,
        no_repeat_ngram: int | None = None, sample: bool = False, temperature: float | None = None,
        top_k: int | None = None, top_p: float | None = None, seed: int | None = None,
    ) -> Any:  # fmt: skip
        """Caption images. Return a Caption, or a list or iterator of Captions.

        Args:
            images: one or several images, in any form.
            captions: number of captions per image, 1 to 16. `.others` has all captions but the most probable.
            beams: number of beams, 1 to 16; 1 is greedy. At least `captions` are used. None: as in the model's recipe.
            min_words, max_words: limits of a caption's length in words, including one for its end.
            length_bonus: added to a beam's score for each word.
            length_penalty: a beam's score is divided by its length to this power.
            no_repeat_ngram: no sequence of this number of words occurs twice in a caption.
            sample: draw words at random. It is also on if `temperature`, `top_k` or `top_p` is given.
            seed: seed for drawing words, for each image alone. None: use torch's generator.

        Raises UnsupportedError for a model that cannot caption, DataError for an unreadable image.

        >>> caption = model.caption("photo.png", beams=3, max_words=8)
        >>> caption.isprintable(), caption.score < 0, len(caption.boxes) == len(caption.labels)
        (True, True, True)
        >>> [type(each).__name__ for each in model.caption(["photo.png", Image.open("photo.png")])]
        ['Caption', 'Caption']
        """
        given: dict[str, Any] = {"captions": captions, "beams": beams, "min_words": min_words, "max_words": max_words}
        given |= {"length_bonus": length_bonus, "length_penalty": length_penalty, "no_repeat_ngram": no_repeat_ngram}
        given |= {"sample": sample, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        request = validated(CAPTION.required_interface.request, given, "caption")
        self.predictor.check(CAPTION, request)

        def made(answer: Any, _: object, fields: dict[str, Any]) -> Caption:
            return Caption.of(answer.text, score=answer.score, others=answer.others, **fields)

        return self._requested(CAPTION, images, request, made)

    def explain(self, image: OneImage, caption: str) -> Explained:
        """Return the influence of each region on each word of a caption.

        This takes a forward pass per region. `weights[word][region]` is the drop of the word's log-probability without
        the region, in nats. Regions that overlap strongly are removed together. `regions[region].box` is the left, the
        top, the width and the height in pixels.

        >>> len(model.explain("photo.png", "a red kite").weights)
        3
        """
        check_type("caption", caption, str, "a text, such as a Caption", RecipeError)
        if not is_one(image):
            raise RecipeError("image: found several images, expected one; explain each by itself")
        ((record, fields),) = self._seen([(None, image)])
        shown = explain_caption(self.predictor.task_model(CAPTION), record, caption)
        return Explained(**dict(shown)).of(fields["image"], caption)

    @per_text(Answer)
    def ask(self, images: Any, questions: Any, /) -> Any:
        """Answer questions about images.

        Return an Answer, with its probability, whether it is sure, and the next most probable answers, or a list. Pass
        one image with several questions, several images with one question, or as many images as questions.

        >>> [0 <= answer.score <= 1 for answer in model.ask("photo.png", ["what colour is the dog?", "is it red?"])]
        [True, True]
        """

        def made(answer: Any, _: object, fields: dict[str, Any]) -> Answer:
            return Answer.of(answer.text, score=answer.score, others=answer.others, sure=answer.sure, **fields)

        return self._asked(VQA, images, questions, made)

    @per_text(Found)
    def ground(self, images: Any, expressions: Any, /) -> Any:
        """Find the region to which an expression refers.

        Return a Found: the region's label, with `.box` in pixels and `.score`.

        >>> crop = Image.open("photo.png").crop(model.ground("photo.png", "the dog").box)
        """

        def made(answer: Any, _: object, fields: dict[str, Any]) -> Found:
            label = fields["labels"][answer.region] if fields["labels"] else "region"
            return Found.of(label, score=answer.score, box=fields["boxes"][answer.region], **fields)

        return self._asked(REFERRING, images, expressions, made)

    @per_text(Judgement)
    def verify(self, images: Any, statements: Any, /) -> Any:
        """Decide whether a statement about an image is true.

        Return 1 or 0 as a Judgement, with the probability of this result.

        >>> model.verify("photo.png", "there is a dog") in (True, False)
        True
        """

        def made(answer: Any, _: object, fields: dict[str, Any]) -> Judgement:
            return Judgement.of(answer.true, score=answer.score, **fields)

        return self._asked(NLVR, images, statements, made)

    @per_image(ChosenAnswer)
    def choose(self, images: Any, /, question: str, answers: Sequence[str], rationales: Sequence[str] = ()) -> Any:
        """Return the best of several answers to a question, and the best of several rationales for it.

        In a text, `[0]` is the first region (or the first object of a record), and `[1]` the second.

        >>> model.choose("photo.png", "what is [0]?", ["a dog", "a bird"]) in ("a dog", "a bird")
        True
        """
        check_type("question", question, str, "a text", RecipeError)
        answers, rationales = texts_of("answers", answers), texts_of("rationales", rationales)
        results.warn_unread(self.predictor.unread(VCR, [question, *answers, *rationales]))
        request = VCR.required_interface.request.model_construct(
            question=question, answers=tuple(answers), rationales=tuple(rationales)
        )

        def best(texts: Sequence[str], scores: Sequence[float], number: int, **fields: Any) -> ChosenAnswer:
            others = tuple(pair for at, pair in enumerate(zip(texts, scores, strict=True)) if at != number)
            return ChosenAnswer.of(texts[number], score=scores[number], others=others, **fields)

        def made(answer: Any, _: object, fields: dict[str, Any]) -> ChosenAnswer:
            reason = None if answer.rationale is None else best(rationales, answer.rationales, answer.rationale)
            return best(answers, answer.answers, answer.answer, rationale=reason, **fields)

        return self._requested(VCR, images, request, made)

    def predict(self, task: str, images: Any, **request: Any) -> Any:
        """Return the answer of any task, in the form in which the service sends it: `predict("vqa", image,
        question="...")`."""
        spec = find_task(task)
        message = validated(spec.required_interface.request, request, task)
        self.predictor.check(spec, message)

        def made(answer: Any, record: Record, _: object) -> Any:
            return self.predictor.message(spec, answer, message, record, record.key)

        return self._requested(spec, images, message, made)

    @python_errors
    def search(self, query: str, images: Any, *, top_k: int = 12, rerank: Model | None = None) -> Hits:
        """Rank images by how well they match a text, best first.

        Args:
            query: a text that describes the images to find.
            images: a folder (its regions and vectors are cached), or images in any form. An image without a
                path is named by its index.
            top_k: the largest number of hits.
            rerank: a model that encodes image and text jointly. It ranks the best images of this two-tower model again.

        Raises UnsupportedError if the model was not trained to match images and texts, DataError if no image can be
        read.

        >>> path, score = model.search("a red kite", ".", top_k=3)[0]
        """
        from diptych.inference.search import Hit, check_search

        check_type("query", query, str, "a text", RecipeError)
        check_whole("top_k", top_k, 1)
        check_type("rerank", rerank, (Model, type(None)), "a loaded model", RecipeError)
        self.need_matching()
        ranker, by = (self.predictor, None) if rerank is None else (rerank.predictor, self.predictor)
        shortlist = None if by is None else SHORTLIST * top_k
        check_search(ranker, query, shortlist, by)
        if isinstance(images, str | os.PathLike) and not path_of(images).is_file():
            self.queries(query)
            searched = ranker.search(query, path_of(images), shortlist=shortlist, by=by, most=top_k)
            hits, refused = searched.hits, searched.refused
            if refused:
                first = next(iter(refused.values()))
                warnings.warn(f"the search leaves out {counted(refused, 'images')}; the first: {first}", stacklevel=2)
        else:
            items = [images] if is_one(images) else list(images)
            scores = self.match(items, [query])[:, 0]
            if rerank is not None:
                order = np.argsort(-scores, kind="stable")[:shortlist]
                again = rerank.match([items[at] for at in order], [query])[:, 0]
                scores = np.full_like(scores, -np.inf)
                scores[order] = again
            order = np.argsort(-scores, kind="stable")
            hits = tuple(Hit(name_of(items[at], int(at)), float(scores[at])) for at in order)
            refused = {}
        made = Hits(hits[:top_k])
        made.query, made.refused = query, refused
        return made

    @overload
    def encode_image(self, images: OneImage | Sequence[Any]) -> Vectors: ...
    @overload
    def encode_image(self, images: Iterator[Any]) -> Iterator[Vectors]: ...  # type: ignore[overload-overlap]
    @overload
    def encode_image(self, images: Iterable[Any]) -> Vectors: ...
    def encode_image(self, images: Any) -> Any:
        """Return the unit vector (D,) float32 of one image, or (N, D) for several.

        For an iterator, yield vectors. Raises UnsupportedError for a model that encodes image and text jointly, because
        this gives no separate vectors.
        """
        self._need_towers()

        def encode(items: Sequence[Record], _: object) -> Sequence[Vectors]:
            return list(TowerGallery.of_pictures(self.predictor.folder.model, items).vectors.numpy())

        made = self._mapped(None, images, None, encode, lambda vector, _, __: vector)
        return self._stacked(made) if isinstance(made, list) else made

    def encode_text(self, texts: str | Iterable[str]) -> Vectors:
        """Return the unit vector (D,) float32 of one text, or (N, D) for several.

        At most the first 30 tokens of a text are used, with a warning. Raises ServingError for an empty text.
        """
        from diptych.inference.search import query_words

        self._need_towers()
        checked, most = self.queries(texts), query_words(self.predictor)
        model, tokens = self.predictor.folder.model, self.predictor.tokens
        vectors = [np.asarray(embed_sentences(model, tokens, [text], most)[0]) for text in checked]
        return vectors[0] if isinstance(texts, str) else self._stacked(vectors)

    def match(self, images: Any, texts: str | Iterable[str]) -> Vectors:
        """Return how well P images match T texts, (P, T) float32.

        A two-tower model gives the product of its vectors, -1 to 1. A model that encodes pairs jointly gives the
        probability of a match.

        >>> model.match("photo.png", ["a dog", "a red kite"]).shape
        (1, 2)
        """
        from diptych.inference.search import pair_scores

        self.need_matching()
        images = [images] if is_one(images) else list(images)
        if has_towers(self.predictor.folder.model):
            of_texts = np.atleast_2d(self.encode_text(texts))
            scores: Vectors = self.encode_image(images) @ of_texts.T
            return scores
        texts = self.queries(texts)
        records = [record for batch in batches(enumerate(images)) for record, _ in self._seen(batch)]
        return pair_scores(self.predictor, records, texts)

    @python_errors
    def push_to_hub(
        self, repository: str, *, license: str | None = None, private: bool = False,
        dry_run: str | os.PathLike[str] | None = None,
    ) -> str:  # fmt: skip
        """Upload the model with its card to the Hugging Face hub as `user/name`, and return the URL.

        `license`: licence of the weights in the hub's form, such as apache-2.0. `dry_run`: a folder to write to,
        instead of uploading; its path is returned. If the recipe contains paths of this machine, a warning lists them.
        Raises RecipeError without a token, CheckpointError for damaged files.
        """
        from diptych.inference import hub
        from diptych.inference.card import Publisher, model_card

        check_type("license", license, (str, type(None)), "the name of a licence, such as 'mit'", RecipeError)
        hub.check_repository(repository)
        folder = self.predictor.folder
        for line in hub.private_paths(folder):
            warnings.warn(f"recipe.json names a path of this machine, which will be public: {line}", stacklevel=2)
        card = model_card(folder, repository, Publisher(license))
        if dry_run is None:
            return hub.push(folder, repository, card, private)
        hub.write(folder, path_of(dry_run), card)
        return str(path_of(dry_run))

    def _stacked(self, vectors: list[Vectors]) -> Vectors:
        return np.stack(vectors) if vectors else np.empty((0, len(self.encode_text("."))), np.float32)

    def need_matching(self) -> None:
        """Raise UnsupportedError if the model cannot match images and texts, with the command that trains one."""
        name = self.predictor.folder.name
        if not can_search(self.predictor.folder.model):
            raise UnsupportedError(
                f"{name} was not trained to match images and texts; this command trains it: diptych "
                f"finetune retrieval --data DATA --model {name} --out RUN, or in Python "
                f'diptych.finetune("retrieval", data, "{name}").model'
            )

    def _need_towers(self) -> None:
        folder = self.predictor.folder
        if not has_towers(folder.model):
            reads = "; it scores pairs: model.match(images, texts)" * can_search(folder.model)
            raise UnsupportedError(
                f"{folder.name} ({folder.architecture.system}) cannot encode images and texts as vectors{reads}; train "
                f"a model that can: diptych finetune retrieval --from-scratch --recipe {TOWERS} --data STORE "
                f'--out RUN, or in Python diptych.finetune("retrieval", store, recipe="{TOWERS}").model'
            )
