"""`load`, and what all models of texts have in common."""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.addons.serving import onnx_graph
from bert_tf.addons.serving.explanations import (
    COMPLETE,
    Explanation,
    integrated_gradients,
    words_of,
)
from bert_tf.addons.serving.fill_mask import Guess
from bert_tf.addons.serving.onnx_files import OnnxModel
from bert_tf.base import keras_backend
from bert_tf.base.errors import InputError
from bert_tf.base.progress import with_bar
from bert_tf.conversion import names
from bert_tf.conversion.source import (
    ONNX_NAME,
    Format,
    Source,
    load_tokenizer,
    open_source,
)
from bert_tf.records.batching import Predict
from bert_tf.tasks.feature_extraction.feature_records import (
    CLS,
    MAX_OF_TOKENS,
    MEAN_OF_TOKENS,
    POOLED,
    SENTENCE_VECTORS,
    FeatureReader,
    Features,
    FeatureSettings,
    Line,
    extract,
)
from bert_tf.text.normalization import Span
from bert_tf.text.vocabulary import CONTINUATION, MASK
from bert_tf.text.wordpiece import Encoding, text_pairs

# The commands' defaults where neither a flag nor a run gives a value.
_LENGTH, SPAN_LENGTH = 128, 384
NUM_LENGTHS = 12
_MOST_LABELS = 6  # shown by `__repr__`
_AUTO, _KERAS, _ONNX = RUNTIMES = ("auto", "keras", "onnxruntime")

Texts = str | Sequence[str]
# A model's outputs -> the score that is explained, [B].
Score = Callable[[Mapping[str, Any]], Any]


class Prediction(NamedTuple):
    """A classifier's prediction for a text."""

    # The label's name; of a multi-label classifier, the tuple of all labels likelier
    # than not; of a regression, the number, or the tuple of numbers.
    label: Any
    probabilities: dict[str, float]  # by label; empty for a regression


class Answer(NamedTuple):
    """An answer to a question about a text: "" and no span for "no answer"."""

    text: str
    probability: float  # among the best answers
    span: tuple[int, int] | None  # characters of the text, half open


class TaggedEntity(NamedTuple):
    """Words that name one thing."""

    text: str
    type: str  # such as PER
    span: tuple[int, int]  # numbers of the words, half open
    characters: Span  # characters of the text, half open


class TaggedText(NamedTuple):
    """A text's words and their labels."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    entities: tuple[TaggedEntity, ...]  # none if the labels mark no entities
    # The words' characters in the text, half open; given words are joined by blanks.
    spans: tuple[Span, ...] = ()


class ToExplain(NamedTuple):
    """A record [1, S] of a text's tokens, and the scores to explain."""

    encodings: Sequence[Encoding]
    texts: Sequence[str]
    inputs: Mapping[str, np.ndarray]
    targets: Mapping[str, Score]  # by the target's name
    starts: Sequence[bool] | None = None  # whether tokens begin words; None: by ##


@keras_backend.packages_of_training()
def load(
    path: str,
    *,
    max_length: int | None = None,
    batch_size: int = 32,
    runtime: str = _AUTO,
) -> "TextModel":
    """Opens a checkpoint for predictions on texts.

    Args:
        path: as for `open_source`: a run's output_dir, a checkpoint in it, a TF1
            release, a Hugging Face folder, or a KerasHub preset.
        max_length: maximum tokens in a sequence, or in a window. Default: the run's;
            else 128, or 384 for a SQuAD model, but at most the model's positions.
        batch_size: number of texts, or windows, per batch.
        runtime: "keras", or "onnxruntime" to run the model on the CPU as an ONNX graph.
            "auto": "onnxruntime" for an ONNX export, or if it is installed, there is no
            GPU or TPU, and ONNX can express the model; else "keras".

    Returns:
        A TextClassifier, MaskFiller, QuestionAnswerer, ChoiceModel or WordTagger,
        depending on the checkpoint's head; a TextModel if it has none of these.

    Raises:
        InputError: there is no checkpoint or no vocabulary, they do not match,
            `max_length` exceeds the model's positions, or the runtime is not installed
            or cannot run the model.

    Examples:
        >>> model = bert_tf.load("classifier")
        >>> model.predict("A good film")[0].label in ("bad", "good")
        True
    """
    if batch_size < 1:
        raise InputError(f"`batch_size` must be at least 1. Received: {batch_size}")
    if runtime not in RUNTIMES:
        raise InputError(f"`runtime={runtime}` must be one of {', '.join(RUNTIMES)}.")
    source = open_source(path)
    heads = [names.HEADS[head] for head in names.heads_of(source.weights)]
    # The last head: that of a task stands after those of pre-training.
    kinds = [head for head in heads if head.text_model]
    unknown = [n for n in source.weights if n.startswith(names.FOREIGN)]
    if unknown and not kinds:
        logging.warning(
            "%s is read as an encoder, without %s.", path, ", ".join(unknown)
        )
    kind: type[TextModel] = kinds[-1].code("text_model") if kinds else TextModel
    return kind(source, max_length=max_length, batch_size=batch_size, runtime=runtime)


def _checked_runtime(runtime: str, source: Source) -> str:
    """Returns the runtime to use; raises InputError if the one given cannot be used."""
    if runtime == _KERAS:
        return runtime
    if source.format == Format.ONNX:
        runtime = _ONNX
    try:
        for package in ("onnx", _ONNX):
            if importlib.util.find_spec(package) is None:
                raise InputError(
                    f"`runtime={_ONNX}` needs {package}, which is not installed:"
                    " pip install 'bert-tf[serve]'"
                )
        if names.WINDOWS in names.heads_of(source.weights):
            raise InputError(
                f"{source.path} attends to several windows of a text, which ONNX files"
                f" do not have. Give `runtime={_KERAS}`."
            )
        onnx_graph.refuse_unknown_parts(source)
    except InputError:
        if runtime == _ONNX:
            raise
        return _KERAS
    if runtime == _ONNX or importlib.util.find_spec("tensorflow") is None:
        return _ONNX
    from bert_tf.training.strategy import has_accelerator

    return _KERAS if has_accelerator() else _ONNX


def _by_batches(what: str, step: Callable[..., Any]) -> Predict:
    """Returns a prediction of batches by a step that needs no devices."""

    def predict(batches: Any, total: int) -> Iterator[tuple[Any, Any]]:
        for batch in with_bar(batches, total, unit="batch", label=f"predict {what}"):
            yield batch, step(batch)

    return predict


def pooled_states(
    model: Callable[..., Any], options: FeatureSettings, batch: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Returns the vectors of texts, [B, H], from an ONNX file's outputs."""
    outputs = model(batch)
    states = outputs["sequence_output"]
    mask = np.asarray(batch["input_mask"])[..., None]
    vectors = {
        CLS: states[:, 0],
        MEAN_OF_TOKENS: (states * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1),
        MAX_OF_TOKENS: np.where(mask > 0, states, -1e9).max(axis=1),
    }
    if POOLED in options.sentence_vectors:
        vectors[POOLED] = outputs["pooled_output"]
    return {name: x.astype(np.float32) for name, x in vectors.items()}


def is_empty(texts: Any) -> bool:
    """Whether the argument is an empty list of texts."""
    return not isinstance(texts, str) and isinstance(texts, Sequence) and not texts


class TextModel:
    """A checkpoint that reads texts: what `load` returns.

    Methods raise InputError if the checkpoint has no head for them, or if an input is
    not a text.

    Attributes:
        head_name: the head's name in `names.HEADS`; None without a head.
        labels: the labels, in the order of the outputs; () if there are none.
        tokenizer: the WordPieceTokenizer.
        model: the Keras model, or an `OnnxModel`; None without a head.
        max_length: maximum tokens in a sequence, or in a window.
        reading: how texts are read: lengths, windows, thresholds.
        runtime: "keras" or "onnxruntime".
        source: the checkpoint.

    Examples:
        >>> model = bert_tf.load("classifier")
        >>> model.labels
        ('bad', 'good')
        >>> model.embed(["A film", "A cat"]).shape
        (2, 8)
    """

    head = "an encoder"
    methods: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    target: Any = None  # a classifier's
    _default_length = _LENGTH
    head_name: str | None = None  # of `names`
    _has_positions = False  # whether the predicted positions are an input
    _counts: list[int] | None = None  # of texts that were cut, and of all

    def __init__(
        self,
        source: Source,
        *,
        max_length: int | None,
        batch_size: int,
        runtime: str = _AUTO,
    ) -> None:
        positions = source.require_config().max_position_embeddings
        if max_length is not None and not 5 <= max_length <= positions:
            raise InputError(
                f"`max_length` must be between 5 and the model's {positions} positions."
                f" Received: {max_length}"
            )
        self.source = source
        self._max_length = max_length
        self.reading = source.reading
        if max_length is not None:
            self.reading = dataclasses.replace(self.reading, max_seq_length=max_length)
        # A pre-training run may have the length of its records, not of its flag.
        self.max_length: int = self.reading.length(positions, self._default_length)
        self._batch_size = batch_size
        self._given_runtime = runtime
        self.runtime = _checked_runtime(runtime, source)
        self.tokenizer = load_tokenizer(source)
        # A Keras model or an `OnnxModel`; None if there is only an encoder.
        self.model: Any = None
        if self.head_name is not None:
            self.model, self._step, self._predict = self._opened_model(self.head_name)
        self._prepare()

    def _opened_model(self, head: str) -> tuple[Any, Callable[..., Any], Predict]:
        """Returns a head's model, its step: batch -> outputs, and its `Predict`."""
        if self.runtime == _ONNX:
            found = self._onnx_model([head], at_positions=self._has_positions)
            return found, found, _by_batches("texts", found)
        # Imports Keras, and with it TensorFlow, only where it computes.
        from bert_tf.conversion.loading import load_model
        from bert_tf.training.evaluation import Predictor
        from bert_tf.training.step import on_devices
        from bert_tf.training.strategy import create_strategy

        model = load_model(self.source, head)
        step = on_devices().prediction_step(model, create_strategy(), by_pieces=False)
        return model, step, Predictor("texts", step).run

    def _onnx_model(self, heads: Sequence[str], **options: Any) -> OnnxModel:
        """Returns a model with these heads as an ONNX graph, built in memory."""
        weights = self.source.weights.with_heads(heads)
        source = dataclasses.replace(self.source, weights=weights)
        if heads and source.format == Format.ONNX:
            return OnnxModel(self._onnx_path(), source.require_config())
        content = onnx_graph.build(source, **options).SerializeToString()
        return OnnxModel(content, source.require_config())

    def _onnx_path(self) -> str:
        return os.path.join(self.source.folder, ONNX_NAME)

    def _prepare(self) -> None:
        """Prepares what the methods need besides the model."""

    def __reduce__(self) -> Any:
        """Pickles and copies by opening the path again."""
        options: dict[str, Any] = {
            "max_length": self._max_length,
            "batch_size": self._batch_size,
            "runtime": self._given_runtime,
        }
        return functools.partial(load, self.source.path, **options), ()

    def __repr__(self) -> str:
        shown = [repr(self.source.path)]
        if self.labels:
            more = ", ..." * (len(self.labels) > _MOST_LABELS)
            shown.append(f"labels=[{', '.join(self.labels[:_MOST_LABELS])}{more}]")
        shown += [f"max_length={self.max_length}", f"runtime={self.runtime!r}"]
        return f"{type(self).__name__}({', '.join(shown)})"

    def predict(
        self, texts: Texts, pairs: str | Sequence[str | None] | None = None
    ) -> list[Prediction]:
        """Classifies texts, or pairs: see `TextClassifier`."""
        raise self._cannot("predict")

    def fill(self, texts: Texts, *, top_k: int = 5) -> list[list[list[Guess]]]:
        """Returns tokens for each [MASK]: see `MaskFiller`."""
        raise self._cannot("fill")

    def answer(
        self, questions: Texts, contexts: Texts, *, top_k: int = 1
    ) -> list[list[Answer]]:
        """Returns answers to questions about texts: see `QuestionAnswerer`."""
        raise self._cannot("answer")

    def choose(
        self, texts: Texts, choices: Sequence[str] | Sequence[Sequence[str]]
    ) -> list[Prediction]:
        """Returns the choice that goes with each text: see `ChoiceModel`."""
        raise self._cannot("choose")

    def tag(self, texts: Texts | Sequence[Sequence[str]]) -> list[TaggedText]:
        """Returns a label for each word: see `WordTagger`."""
        raise self._cannot("tag")

    def explain(
        self,
        text: str | Sequence[str],
        pair: str | None = None,
        *,
        target: str | int | None = None,
        baseline: str = MASK,
    ) -> list[Explanation]:
        """Explains a prediction by the contribution of each word.

        Args:
            text: a text; for a model of SQuAD, the question; a tagger also takes words.
            pair: the second text of a pair, or the text that answers the question.
            target: a classifier's label, or the number of a tagger's word, from 0.
                Default: the prediction: the label, each of several labels, the best
                answer, or each word with a label other than O.
            baseline: the token that stands for "no word".

        Returns:
            One explanation per target, to be printed or shown in a notebook.

        Raises:
            InputError: the model is none of these, there is no such target, the text
                has no token, or a classifier would read it in several windows.
        """
        return [
            one
            for part in self._to_explain(text, pair, target)
            for one in self._explanations(part, baseline)
        ]

    def _to_explain(
        self, text: str | Sequence[str], pair: str | None, target: str | int | None
    ) -> Iterator[ToExplain]:
        raise self._cannot("explain")

    @functools.cached_property
    def _keras_model(self) -> Any:
        """The Keras model, which has gradients."""
        if self.runtime == _KERAS:
            return self.model
        from bert_tf.conversion.loading import load_model

        return load_model(self.source, self.head_name or "")

    def _explanations(self, part: ToExplain, baseline: str) -> list[Explanation]:
        if self.source.format == Format.ONNX:
            raise InputError(
                f"{self.source.path} is an ONNX file, which has no gradients: explain"
                " the checkpoint that it was exported from."
            )
        encodings, texts, inputs, targets, starts = part
        lengths = [len(one.ids) for one in encodings]
        if not sum(lengths):
            raise InputError("The text to explain has no token.")
        vocabulary = self.tokenizer.vocabulary
        if baseline not in vocabulary:
            raise InputError(
                f"`baseline={baseline}` must be a token of the vocabulary."
            )
        places = [*range(1, 1 + lengths[0])]
        places += [2 + lengths[0] + number for number in range(sum(lengths[1:]))]
        model = self._keras_model
        inputs = {name: inputs[name].astype(np.int32) for name in model.input}
        ids = inputs["input_ids"].copy()
        ids[:, places] = vocabulary.ids[baseline]
        if len(model.input["input_ids"].shape) == 3:  # windows: here just one
            inputs = {name: value[:, None] for name, value in inputs.items()}
            ids = ids[:, None]
        if starts is None:
            tokens = itertools.chain.from_iterable(one.tokens for one in encodings)
            starts = [not token.startswith(CONTINUATION) for token in tokens]
        explained = []
        for name, score in targets.items():
            found = integrated_gradients(
                model, inputs, ids, score, batch_size=self._batch_size
            )
            if found.gap > COMPLETE:
                logging.warning(
                    "%s: attributions miss the difference of the scores by %.1f %%.",
                    *(name, 100 * found.gap),
                )
            words = words_of(encodings, texts, found.values[places].tolist(), starts)
            explained.append(
                Explanation(
                    target=name,
                    texts=tuple(texts),
                    words=words,
                    score=found.score,
                    baseline_score=found.baseline_score,
                    gap=found.gap,
                    steps=found.steps,
                )
            )
        return explained

    def embed(
        self,
        texts: Texts,
        pairs: str | Sequence[str | None] | None = None,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
    ) -> np.ndarray:
        """Returns a vector for each text, or pair, float32 [N, H].

        `pooling` is "mean" or "max", over the last layer's tokens, [CLS] and [SEP]
        included; "cls", the last layer's output at [CLS]; or "pooled", the pooler's
        output. With `normalize` each vector is divided by its length, so that dot
        products are cosines. Texts are cut to `max_length` tokens, with a warning. The
        defaults are those of a run of run_embeddings or a folder of
        sentence-transformers; for other checkpoints "mean", not normalized.
        """
        reading = self.reading.of_vectors()
        pooling = pooling or reading.pooling or "mean"
        if pooling not in SENTENCE_VECTORS:
            raise ValueError(
                f"`pooling={pooling}` must be one of {', '.join(SENTENCE_VECTORS)}."
            )
        if pooling == POOLED and not self._has_pooler:
            raise InputError(
                f"{self.source.path} has no pooler: `pooling` must not be {POOLED!r}."
            )
        if is_empty(texts):
            width = self.source.require_config().hidden_size
            return np.zeros([0, width], np.float32)
        reader = FeatureReader(self.tokenizer, max_seq_length=self.max_length)
        inputs = list(reader(Line(*pair) for pair in self._pairs(texts, pairs)))
        self._warn_of_cut(sum(one.is_cut for one in inputs), len(inputs))
        size = min(self._batch_size, len(inputs))
        found = self._extract(inputs, len(inputs), size)
        vectors = np.stack([one.sentence[pooling].reshape(-1) for one in found])
        if reading.normalize if normalize is None else normalize:
            norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
            vectors /= np.maximum(norms, 1e-12)
        return vectors

    @property
    def _has_pooler(self) -> bool:
        return names.POOLER[0].original in self.source.weights

    @functools.cached_property
    def _extract(self) -> Callable[..., Iterator[Features]]:
        """Computes vectors of whole texts: (inputs, their number, batch size)."""
        options = FeatureSettings(
            max_seq_length=self.max_length,
            token_vectors=False,
            sentence_vectors=(
                *(CLS, MEAN_OF_TOKENS, MAX_OF_TOKENS),
                *[POOLED] * self._has_pooler,
            ),
        )
        if self.runtime == _KERAS:
            from bert_tf.tasks.feature_extraction.features import (
                FeatureExtractor,
                LayerSelection,
            )
            from bert_tf.training.strategy import create_strategy

            number = self.source.require_config().num_hidden_layers
            last = LayerSelection(layers=(-1,), num_hidden_layers=number)
            return FeatureExtractor(
                self.source, last, create_strategy(), options, by_pieces=False
            ).extract
        step: Callable[..., Any]
        if self.source.format == Format.ONNX and self.head_name is None:
            file = OnnxModel(self._onnx_path())
            step = functools.partial(pooled_states, file, options)
        else:
            step = self._onnx_model((), sentence_vectors=options.sentence_vectors)
        predict = _by_batches("features", step)
        return lambda inputs, number, size: extract(
            inputs,
            predict,
            dataclasses.replace(options, batch_size=size),
            values_per_token=0,
            num_inputs=number,
        )

    def _pairs(self, texts: Any, pairs: Any) -> list[tuple[str, str]]:
        """Returns texts with their second ones, as far as the model can read them."""
        found = text_pairs(texts, pairs)
        self._check_segments(1 + any(second for _, second in found))
        return found

    def _check_segments(self, num_segments: int) -> None:
        self.source.require_config().check_sequences(self.max_length, num_segments)

    def _cannot(self, method: str) -> InputError:
        methods = [f"`{name}`" for name in (*self.methods, "embed")]
        known = " and ".join(filter(None, [", ".join(methods[:-1]), methods[-1]]))
        return InputError(
            f"{self.source.path} is {self.head}: it has {known}, not `{method}`."
        )

    @contextlib.contextmanager
    def one_warning(self) -> Iterator[None]:
        """Warns once of all texts that calls in its body cut."""
        self._counts = [0, 0]
        yield
        counts, self._counts = self._counts, None
        self._warn_of_cut(*counts)

    def _warn_of_cut(self, count: int, number: int) -> None:
        if self._counts is not None:
            self._counts = [self._counts[0] + count, self._counts[1] + number]
        elif count:
            logging.warning(
                "%d of %d texts have more than %d tokens, and were cut (`max_length`).",
                count,
                number,
                self.max_length,
            )
