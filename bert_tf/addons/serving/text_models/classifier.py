"""Models that classify texts, or choose between them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.addons.serving.text_models.model import (
    NUM_LENGTHS,
    Prediction,
    Score,
    TextModel,
    Texts,
    ToExplain,
    is_empty,
)
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.weights import num_outputs
from bert_tf.records.batching import ExampleTable
from bert_tf.tasks.swag.choices import ChoiceExample, ChoiceFeaturizer
from bert_tf.tasks.tables import Example, Target
from bert_tf.tasks.text_records import TextFeaturizer
from bert_tf.text.wordpiece import list_of, pair_features, text_pairs, truncate_pair


def predictions_of(target: Target, logits: np.ndarray) -> list[Prediction]:
    """Returns each row of logits [N, C] as a prediction."""
    if target.kind == REGRESSION:
        return [
            Prediction(values[0] if len(values) == 1 else tuple(values), {})
            for values in logits.tolist()
        ]
    labels: Iterable[Any] = target.words(logits)
    if target.kind == MULTI_LABEL:
        labels = [
            tuple(itertools.compress(target.labels, row))
            for row in target.predictions(logits)
        ]
    return [
        Prediction(label, dict(zip(target.labels, row, strict=True)))
        for label, row in zip(
            labels, target.probabilities(logits).tolist(), strict=True
        )
    ]


class TextClassifier(TextModel):
    """A classifier of texts: `predict`, `explain` and `embed`.

    Examples:
        >>> model = bert_tf.load("classifier")
        >>> prediction = model.predict(["A good film"])[0]
        >>> prediction.label in model.labels
        True
    """

    head = "a classifier"
    methods = ("predict", "explain")
    head_name = names.CLASSIFIER

    def _prepare(self) -> None:
        source = self.source
        kind = source.classifier_problem_type()
        assert kind is not None
        number = num_outputs(source.weights, names.CLASSIFIER)
        labels = source.labels or tuple(map(str, range(number)))
        if kind == REGRESSION and number == 1:
            labels = ()
        self.target = Target(kind=kind, labels=tuple(labels))
        self.labels = self.target.labels

    def predict(
        self, texts: Texts, pairs: str | Sequence[str | None] | None = None
    ) -> list[Prediction]:
        """Returns the model's predictions for texts, or pairs, as run_classifier does.

        A text of more than `max_length` tokens is cut, with a warning, or read in
        windows if the run had --long_text=window. Unnamed labels are "0", "1", ...
        """
        if is_empty(texts):
            return []
        return predictions_of(self.target, self.logits(texts, pairs))

    def logits(
        self, texts: Texts, pairs: str | Sequence[str | None] | None = None
    ) -> np.ndarray:
        """Returns the outputs for texts, or pairs, float32 [N, C], N at least 1."""
        examples = [
            Example(text, pair, None, f"text {number}")
            for number, (text, pair) in enumerate(self._pairs(texts, pairs))
        ]
        featurizer = TextFeaturizer(
            self.tokenizer,
            max_seq_length=self.max_length,
            target=self.target,
            windows=self.reading.in_windows,
            doc_stride=self.reading.doc_stride,
            window_pooling=self.reading.window_pooling or "mean",
        )
        records = ExampleTable(featurizer.blocks(examples), featurizer.spec)
        if not featurizer.window_counts:
            self._warn_of_cut(featurizer.num_truncated, len(examples))
        batch_size = min(self._batch_size, len(records))
        return featurizer.logits(self._predict, records, batch_size, NUM_LENGTHS)

    def _to_explain(
        self, text: str | Sequence[str], pair: str | None, target: str | int | None
    ) -> Iterator[ToExplain]:
        """Yields the text, and the labels' logits, or the numbers, to explain."""
        if isinstance(text, list | tuple):
            raise InputError("`explain` takes one text: call it for each of a list.")
        ((first, second),) = self._pairs([text], [pair])
        encodings = [self.tokenizer.encode_with_offsets(one) for one in (first, second)]
        all_ids = [one.ids for one in encodings]
        room = self.max_length - (3 if all_ids[1] else 2)
        ids = truncate_pair(all_ids[0], all_ids[1], room)
        if sum(map(len, all_ids)) > room:
            if self.reading.in_windows:
                raise InputError(
                    f"A text of several windows cannot be explained: {room} tokens fit"
                    f" into one, and it has {sum(map(len, all_ids))}."
                )
            self._warn_of_cut(1, 1)
        encodings = [
            one.part(0, len(kept)) for one, kept in zip(encodings, ids, strict=True)
        ]
        length = sum(map(len, ids)) + self.max_length - room
        inputs = pair_features([ids], self.tokenizer.vocabulary, length)
        names = self.target.labels or ["0"]
        if target is None:
            label, shares = self.predict([first], [second])[0]
            wanted = names
            if self.target.kind != REGRESSION:
                wanted = label if isinstance(label, tuple) else [label]
                # The likeliest, if of several labels none is likely.
                wanted = wanted or [max(shares, key=lambda name: shares[name])]
        elif (known := str(target)) in names:
            wanted = [known]
        else:
            raise InputError(f"`target={target}`: the labels are {', '.join(names)}.")

        def score(number: int) -> Score:
            return lambda outputs: outputs["logits"][:, number]

        targets = {name: score(names.index(name)) for name in wanted}
        texts = [first, second][: 2 if second else 1]
        yield ToExplain(encodings[: len(texts)], texts, inputs, targets)


class ChoiceModel(TextModel):
    """A model of multiple choice: `choose` and `embed`.

    Examples:
        >>> model = bert_tf.load("swag_model")
        >>> prediction = model.choose("A film", ["is good.", "is a cat."])[0]
        >>> prediction.label in ("0", "1")
        True
    """

    head = "a model of choices"
    methods = ("choose",)
    head_name = names.MULTIPLE_CHOICE

    def choose(
        self, texts: Texts, choices: Sequence[str] | Sequence[Sequence[str]]
    ) -> list[Prediction]:
        """Returns the choice that goes best with each text, as run_swag does.

        `choices` has one list per text, all of the same length; for a single str, just
        the list. The labels are the run's, or else "0", "1", ...
        """
        if is_empty(texts):
            return []
        one = isinstance(texts, str)
        lists = [list_of(each) for each in ([choices] if one else list_of(choices))]
        if len(lists) != len(list_of(texts)) or any(
            len(each) != max(2, len(lists[0])) for each in lists
        ):
            raise InputError(
                "`choices` must have one list per text, all of the same length, with"
                " at least two choices."
            )
        self._check_segments(2)
        examples = []
        for number, ((text, _), each) in enumerate(
            zip(text_pairs(texts, None), lists, strict=True)
        ):
            endings = tuple(ending for ending, _ in text_pairs(each, None))
            examples.append(ChoiceExample(text, "", endings, None, f"text {number}"))
        count = len(lists[0])
        named = self.reading.labels or ()
        labels = tuple(named if len(named) == count else map(str, range(count)))
        target = Target(kind=SINGLE_LABEL, labels=labels)
        featurizer = ChoiceFeaturizer(
            self.tokenizer, max_seq_length=self.max_length, target=target
        )
        records = ExampleTable(featurizer.blocks(examples), featurizer.spec)
        self._warn_of_cut(featurizer.num_truncated, len(examples))
        batch_size = min(self._batch_size, len(records))
        logits = featurizer.logits(self._predict, records, batch_size, NUM_LENGTHS)
        return predictions_of(target, logits)
