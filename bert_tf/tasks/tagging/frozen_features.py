"""Labelling words from frozen BERT features (the paper's section 5.3)."""

import copy
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import files
from bert_tf import flags as shared_flags
from bert_tf.conversion import names
from bert_tf.conversion.loading import load_encoder
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.features import extraction
from bert_tf.features.cache import FeatureArrays, cached, digest_of
from bert_tf.features.choices import FIRST_PIECE, FLOAT32, POOLED
from bert_tf.features.extraction import Group
from bert_tf.features.formats import format_of
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.layers import LayerSelection
from bert_tf.features.model import feature_model, weights_digest
from bert_tf.features.writing import write_features
from bert_tf.modeling.heads import BiLstmTagger
from bert_tf.modeling.objectives import TAGGING, Objective
from bert_tf.pictures import drawing, png
from bert_tf.records.batching import EvaluationBatches, ExampleTable, SplitRecords
from bert_tf.records.pipeline import ALL_ROWS, PREFETCHED_BATCHES, Batch, InputShard
from bert_tf.tasks.finetuning import finetune
from bert_tf.tasks.selection import figure, table
from bert_tf.tasks.tagging.feature_choices import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
    PAPER_DEV_F1,
)
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.words import (
    FEATURES_NAME,
    TRAIN,
    Features,
    Featurizer,
    TaggingSession,
    WordPredictions,
    read_features,
)
from bert_tf.training.checkpoints import restore_or_initialize
from bert_tf.training.evaluation import Predictor
from bert_tf.training.run_folder import RunData
from bert_tf.training.step import computing_in
from bert_tf.training.strategy import Agreement, is_chief, num_workers
from bert_tf.training.task import Task

# Tagged words as the feature model reads them: a vector for each word.
#
# Windows are those that a tagger is fine-tuned on (`bert_tf.tasks.tagging.words`),
# and a
# word's vector is that of its first piece, in the window that shows the word best.


def inputs_of_windows(windows: Sequence[Features]) -> list[FeatureInput]:
    """The windows as inputs, of which the words that are predicted have vectors.

    Args:
        windows: of all sentences.
    """
    return [
        FeatureInput(
            window.ids,
            [0] * len(window.ids),
            # Of the first piece alone: where a word ends makes no difference.
            spans=[(place, place + 1) for place in window.places.tolist()],
        )
        for window in windows
    ]


def words_of_vectors(windows: Sequence[Features]) -> np.ndarray:
    """Which word each vector is of: [T], counted over all sentences.

    Args:
        windows: of all sentences.
    """
    if not windows:
        return np.zeros([0], np.int64)
    return np.concatenate([window.words for window in windows])


# Ways to use BERT for tagging, side by side: the paper's Table 7, and ours.


_OURS, _THEIRS = "ours", "BERT-BASE, CoNLL-2003 (Devlin et al. 2018)"


def feature_table(scores: Mapping[str, float], metric: str) -> str:
    """The table, in Markdown."""
    return table(
        ["features", f"{_OURS}, {metric}", f"{_THEIRS}, f1"],
        [
            [way, figure(score, 100, 2), figure(PAPER_DEV_F1[way], digits=1)]
            for way, score in scores.items()
        ],
    )


def feature_picture(scores: Mapping[str, float], metric: str) -> bytes:
    """Bars of the same scores, as a PNG."""
    ways = list(scores)
    ours = [100 * score for score in scores.values()]
    theirs = [PAPER_DEV_F1[way] for way in ways]
    # The ways differ by a few hundredths: from 0 on all bars would look alike.
    least = min(value for value in (*ours, *theirs) if not math.isnan(value))
    with drawing():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(8.0, 1.5 + 0.6 * len(ways)), layout="constrained")
        axes = drawn.add_subplot()
        for label, values, shift, colour in (
            (f"{_OURS}, {metric}", ours, -0.2, "tab:blue"),
            (f"{_THEIRS}, f1", theirs, 0.2, "0.65"),
        ):
            places = [place + shift for place in range(len(ways))]
            bars = axes.barh(places, values, 0.4, label=label, color=colour)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        axes.set_yticks(range(len(ways)), ways)
        axes.invert_yaxis()
        axes.set_xlim(max(0.0, math.floor(least) - 5.0), 101.0)
        drawn.suptitle("Tagging with BERT's features", fontsize="medium")
        axes.set_xlabel("per cent, development set; the axis does not begin at 0")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
        return png(drawn)


# Batches of words' vectors: records say where they are, and an array holds them.
#
# The records are those of tagging (`bert_tf.tasks.tagging.words`) of "windows" whose
# tokens
# are
# words: input_ids are the words' places in the array. So all that knows how to write,
# plan, shuffle and predict records of tagging does so here, and a batch gets its
# vectors
# when it is handed out:
#
#     features  [B, S, L, F] float32, zeros behind the words
#
# Shapes: B batch, S words, L vectors a word, F their width, T words of all windows.


FEATURES = "features"


def words_of_windows(windows: Iterable[Features]) -> Iterator[Features]:
    """Windows of words instead of tokens, whose ids are their vectors' places."""
    first = 0
    for window in windows:
        count = len(window.words)
        yield Features(
            list(range(first, first + count)), np.arange(count), window.words
        )
        first += count


class WordFeaturizer(Featurizer):
    """Makes sentences into windows of words."""

    def __init__(self, featurizer: Featurizer, settings: Mapping[str, Any]) -> None:
        self.max_seq_length = featurizer.max_seq_length
        self._featurizer = featurizer
        self._settings = dict(settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All that records depend on beside the sentences, as JSON has it."""
        return {**self._featurizer.settings, **self._settings}

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[Features]:
        """Yields the windows of words."""
        return words_of_windows(self._featurizer(sentences))


def with_vectors(batch: Mapping[str, Any], vectors: np.ndarray) -> dict[str, Any]:
    """A batch with its features."""
    found = _gathered(
        np.asarray(batch["input_ids"]), np.asarray(batch["input_mask"]), vectors
    )
    return {**batch, FEATURES: tf.constant(found)}


class VectorBatches(EvaluationBatches):
    """Batches for evaluation with their features."""

    def __init__(self, batches: EvaluationBatches, vectors: np.ndarray) -> None:
        self._batches = batches
        self._vectors = vectors
        rows = batches.element_spec["input_ids"].shape[0]
        features = tf.TensorSpec([rows, None, *vectors.shape[1:]], tf.float32)
        self.element_spec = {**batches.element_spec, FEATURES: features}

    def __len__(self) -> int:
        """Their number."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """The batches."""
        for batch in self._batches:
            yield with_vectors(batch, self._vectors)


class VectorTable(ExampleTable):
    """Records in memory whose batches for training have features.

    Attributes:
        vectors: [T, L, F]; set by whoever makes the table.
    """

    vectors: np.ndarray

    def batches(
        self, rows: np.ndarray, length: int, *, shard: InputShard = ALL_ROWS
    ) -> tf.data.Dataset:
        """As `ExampleTable.batches`, with `features`."""

        def gather(batch: Batch) -> Batch:
            ids = batch["input_ids"]
            # Read from the disk as they are asked for: they need not fit in memory.
            features = tf.numpy_function(
                lambda ids, mask: _gathered(ids, mask, self.vectors),
                [ids, batch["input_mask"]],
                tf.float32,
            )
            features.set_shape([*ids.shape, *self.vectors.shape[1:]])
            return {**batch, FEATURES: features}

        return (
            super()
            .batches(rows, length, shard=shard)
            .map(gather, num_parallel_calls=2, deterministic=True)
            .prefetch(PREFETCHED_BATCHES)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorRecords(SplitRecords):
    """Records to train on, with their words' vectors.

    Attributes:
        vectors: [T, L, F].
    """

    vectors: np.ndarray

    @classmethod
    def of(cls, records: SplitRecords, vectors: np.ndarray) -> "VectorRecords":
        """Records of places, and what is there."""
        values = {
            field.name: getattr(records, field.name)
            for field in dataclasses.fields(records)
        }
        return cls(**values, vectors=vectors)

    @functools.cached_property
    def table(self) -> VectorTable:
        """The records in memory."""
        table = VectorTable.read(self.path, self.schema)
        assert isinstance(table, VectorTable)
        table.vectors = self.vectors
        return table


def _gathered(ids: np.ndarray, mask: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The vectors of the places `ids` where `mask` is 1, else zeros; [B, S, L, F]."""
    found = np.zeros([*ids.shape, *vectors.shape[1:]], np.float32)
    is_word = mask.astype(bool)
    found[is_word] = vectors[ids[is_word]]
    return found


# A checkpoint's features, on any strategy: the model, and the step that runs it.


_OF_TRAINING_ALONE = {
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
}


class FeatureSession:
    """Extracts features with one model."""

    def __init__(
        self,
        source: Source,
        selection: LayerSelection,
        strategy: tf.distribute.Strategy,
        *,
        batch_size: int = 32,
        max_seq_length: int = 128,
        max_lengths: int | None = 12,
        token_vectors: bool = True,
        sentence_vectors: Sequence[str] = (),
        word_vectors: str = FIRST_PIECE,
        precision: str = "float32",
        jit_compile: bool = False,
    ) -> None:
        use_pooler = POOLED in sentence_vectors
        if use_pooler and names.POOLER[0].original not in source.weights:
            raise InputError(
                f"{source.path} has no pooler: leave `{POOLED}` out of"
                " --sentence_vectors."
            )
        config = source.require_config()
        config.check_sequence_length(max_seq_length)
        with strategy.scope(), computing_in(precision):
            encoder = load_encoder(
                source, output_hidden_states=True, use_pooler=use_pooler
            )
            self.model = feature_model(
                encoder,
                selection,
                token_vectors=token_vectors,
                sentence_vectors=sentence_vectors,
            )
        self.selection = selection
        self._strategy = strategy
        task = Task(
            name="features", build_model=lambda: self.model, objective=Objective({})
        )
        self._predictor = Predictor(task, self.model, strategy, jit_compile=jit_compile)
        vectors, width = selection.vectors_shape(config.hidden_size)
        self._extraction: dict[str, Any] = {
            "values_per_token": vectors * width if token_vectors else 0,
            "batch_size": batch_size,
            "max_seq_length": max_seq_length,
            "max_lengths": max_lengths,
            "word_vectors": word_vectors,
        }
        # All that an input's features hang on, and how a killed run is cut into parts.
        described = config.to_dict()
        self.settings: dict[str, Any] = {
            "config": {
                name: described[name]
                for name in sorted(described.keys() - _OF_TRAINING_ALONE)
            },
            "inputs_at_once": extraction.INPUTS_AT_ONCE,
            "values_at_once": extraction.VALUES_AT_ONCE,
            "weights": weights_digest(self.model),
            "layers": list(selection.layers),
            "combine": selection.combine,
            "layer_weights": list(selection.weights),
            "token_vectors": token_vectors,
            "sentence_vectors": list(sentence_vectors),
            "word_vectors": word_vectors,
            "precision": precision,
            "batch_size": batch_size,
            "max_seq_length": max_seq_length,
            "max_lengths": max_lengths,
        }

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return is_chief(self._strategy)

    def extract(
        self,
        inputs: Iterable[FeatureInput],
        *,
        num_inputs: int | None = None,
        is_done: Callable[[int], bool] = lambda number: False,
    ) -> Iterator[Group]:
        """Yields groups of features, in the inputs' order: `extraction.extract`."""
        return extraction.extract(
            inputs,
            lambda batches, total: self._predictor.run(batches, total_batches=total),
            num_inputs=num_inputs,
            is_done=is_done,
            **self._extraction,
        )

    def write(
        self,
        inputs: Iterable[FeatureInput],
        output: str,
        format_name: str,
        *,
        made_from: dict[str, Any],
        vector_type: str = FLOAT32,
        num_inputs: int | None = None,
    ) -> None:
        """Writes the features of inputs; killed and called again, it goes on."""
        settings = self.settings | made_from
        settings |= {"format": format_name, "vector_type": vector_type}
        write_features(
            inputs,
            lambda inputs, is_done: self.extract(
                inputs, num_inputs=num_inputs, is_done=is_done
            ),
            output,
            format_of(format_name, self.selection.labels, settings, vector_type),
            settings,
            is_chief=self.is_chief,
        )
        self._all_workers(True)  # none goes on before the file is there

    def cached(
        self,
        inputs: Sequence[FeatureInput],
        folder: str,
        *,
        vector_type: str = FLOAT32,
    ) -> FeatureArrays:
        """The features of inputs as arrays: computed once, then read from a folder."""
        made_from = {"inputs": digest_of(inputs)}
        settings = self.settings | made_from
        settings |= {"format": "npy", "vector_type": vector_type}
        return cached(
            folder,
            settings,
            lambda: self.write(
                inputs,
                folder,
                "npy",
                made_from=made_from,
                vector_type=vector_type,
                num_inputs=len(inputs),
            ),
            self._all_workers,
        )

    def _all_workers(self, here: bool) -> bool:
        """Whether something is so for all workers, who all must ask."""
        count = Agreement(self._strategy, 1).sum([float(here)])[0]
        return bool(count == num_workers(self._strategy))


# The runs on tagged words with BERT as it is, and a BiLSTM on top that is trained.
#
# Devlin et al. 2018, section 5.3. The vectors of a split's words are computed once,
# and
# lie in a folder beside the run, or in one that several runs share.


Arrays = Mapping[str, np.ndarray]


class FeatureTaggingSession(TaggingSession):
    """The runs on tagged words with a BiLSTM over features."""

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        splits: Mapping[str, Sequence[Sentence]],
        output_dir: str,
    ) -> None:
        flag_values = _with_own_defaults(flag_values)
        super().__init__(flag_values, strategy, splits=splits, output_dir=output_dir)
        name = flag_values.features
        if self.source is None:
            raise InputError(
                f"--features={name} needs --init_checkpoint: the model whose features"
                " are taken."
            )
        choice = FEATURE_CHOICES[name]
        num_layers = self.config.num_hidden_layers
        if num_layers < choice.num_layers:
            raise InputError(
                f"--features={name} needs a model of {choice.num_layers} layers; this"
                f" one has {num_layers}."
            )
        self._choice = choice
        selection = LayerSelection.parse(choice.layers, num_layers)
        self._extractor = FeatureSession(
            dataclasses.replace(self.source, config=self.config),
            selection,
            strategy,
            batch_size=flag_values.predict_batch_size,
            max_seq_length=flag_values.max_seq_length,
            max_lengths=super().max_lengths,
            precision=flag_values.precision,
            jit_compile=flag_values.jit_compile,
        )
        self._token_featurizer = self._featurizer
        self._settings = {
            "features": name,
            "weights": self._extractor.settings["weights"],
            "precision": flag_values.precision,
        }
        self._featurizer = WordFeaturizer(self._featurizer, self._settings)
        self._folder = flag_values.feature_dir or os.path.join(output_dir, "features")
        self._vectors: dict[str, np.ndarray] = {}
        self._split = TRAIN
        vectors, width = selection.vectors_shape(self.config.hidden_size)
        if choice.is_concatenated:
            vectors, width = 1, vectors * width
        self.task = Task(
            name="tagging",
            build_model=lambda: BiLstmTagger(
                vectors,
                width,
                len(self.labels.names),
                hidden_size=flag_values.bilstm_size,
                dropout=flag_values.bilstm_dropout,
            ),
            objective=TAGGING,
        )

    @property
    def max_lengths(self) -> int:
        """How many lengths batches may have: of words, so that all may be shorter."""
        return super().max_lengths or 1

    def fine_tune(self, folder: str) -> tuple[keras.Model, int]:
        """Trains the BiLSTM in a folder, from where that stands."""
        data = self._run_data()
        self.prepare(folder, data)
        own = copy.deepcopy(self._flags)
        own["init_checkpoint"].value = None  # its features are there; no weights are
        return finetune(
            self.task,
            VectorRecords.of(self._records(folder), self.vectors(TRAIN)),
            own,
            self.strategy,
            folder=folder,
            data=data,
            num_train_epochs=own.num_train_epochs,
            max_lengths=self.max_lengths,
            evaluate=self._evaluate if own.eval_steps else None,
            best_metric=own.best_metric or self._metrics[-1],
        )

    def prepare(self, folder: str, data: RunData | None = None) -> None:
        """Makes a run's folder, and records whose features it is trained on."""
        super().prepare(folder, data)
        files.write_atomically(
            os.path.join(folder, FEATURES_NAME),
            json.dumps(self._settings, indent=1) + "\n",
        )

    def _refuse_other_features(self, folder: str) -> None:
        """Raises InputError if a folder's run is not on the same features."""
        path = os.path.join(folder, FEATURES_NAME)
        there = read_features(path) if files.exists(path) else None
        if there == self._settings:
            return
        said = "a fine-tuned BERT"
        if there is not None:
            said = f"a run with --features={there['features']}"
            if there["features"] == self._settings["features"]:
                said += ", of other weights or in another --precision"
        raise InputError(
            f"--output_dir={folder} holds {said}; this one has"
            f" --features={self._settings['features']}. Give another folder."
        )

    def restore(self, folder: str) -> tuple[keras.Model, int]:
        """The model of a folder's last checkpoint."""
        if not files.exists(os.path.join(folder, "checkpoint")):
            raise InputError(
                f"Nothing to evaluate: --output_dir={folder} has no BiLSTM. Train first"
                " (--do_train)."
            )
        self.prepare(folder)
        return restore_or_initialize(
            self.task, folder, None, self._flags.precision, self.strategy
        )

    def predict(self, model: keras.Model, split: str) -> WordPredictions:
        """Predicts the words of a split."""
        self._split = split
        return super().predict(model, split)

    def outputs(
        self, model: keras.Model, batches: EvaluationBatches, num_batches: int
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields (batch, outputs) as arrays, batch by batch."""
        batches = VectorBatches(batches, self.vectors(self._split))
        return super().outputs(model, batches, num_batches)

    def vectors(self, split: str) -> np.ndarray:
        """The vectors of a split's words, [T, L, F], in the order of its windows."""
        if split not in self._vectors:
            windows = list(self._token_featurizer(self.splits[split]))
            # Two choices may take the same layers.
            name = "_".join((split, *self._choice.layers))
            vectors = self._extractor.cached(
                inputs_of_windows(windows), os.path.join(self._folder, name)
            ).vectors
            if self._choice.is_concatenated:
                vectors = vectors.reshape(len(vectors), 1, -1)
            self._vectors[split] = vectors
        return self._vectors[split]


def _with_own_defaults(flag_values: flags.FlagValues) -> flags.FlagValues:
    """The flags with the defaults of a BiLSTM, which begins anew, for BERT's."""
    own = copy.deepcopy(flag_values)
    for name, value in (
        ("learning_rate", BILSTM_LEARNING_RATE),
        ("num_train_epochs", BILSTM_EPOCHS),
    ):
        if shared_flags.given(own, name) is None:
            own[name].value = value
    return own
