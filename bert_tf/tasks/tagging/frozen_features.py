"""Labelling words by a BiLSTM on frozen BERT's features (the paper's section 5.3).

The windows are those used to fine-tune a tagger (`bert_tf.tasks.tagging.words`). A
word's vector is that of its first piece, in the window with most context of the word.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.conversion.loading import ModelFiles
from bert_tf.errors import InputError
from bert_tf.features import (
    FeatureExtractor,
    FeatureInput,
    FeatureOptions,
    LayerSelection,
)
from bert_tf.modeling.heads import BiLstmTagger
from bert_tf.modeling.objectives import TAGGING
from bert_tf.pictures import drawing, png
from bert_tf.records.batching import EvaluationBatches, ExampleTable, SplitRecords
from bert_tf.records.pipeline import ALL_ROWS, PREFETCHED_BATCHES, Batch, InputShard
from bert_tf.tasks.finetuning import FineTuningTask, Outputs
from bert_tf.tasks.selection import figure, table
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.tagging_options import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
    PAPER_DEV_F1,
    TaggingOptions,
)
from bert_tf.tasks.tagging.words import (
    FEATURES_NAME,
    TRAIN,
    SentenceFeatures,
    SentenceFeaturizer,
    WordPredictions,
    Words,
    common_parts,
    read_features,
    read_splits,
)
from bert_tf.training.checkpoints import STATE_NAME


def inputs_of_windows(windows: Sequence[SentenceFeatures]) -> list[FeatureInput]:
    """The windows of all sentences as inputs, with vectors for the words to predict."""
    return [
        FeatureInput(
            window.ids,
            [0] * len(window.ids),
            # Only of the first piece: a word's end makes no difference.
            spans=[(place, place + 1) for place in window.places.tolist()],
        )
        for window in windows
    ]


def words_of_vectors(windows: Sequence[SentenceFeatures]) -> np.ndarray:
    """The word of each vector: [T], counted over all sentences."""
    return np.concatenate([np.zeros([0], np.int64), *(one.words for one in windows)])


# Batches of words' vectors: records give their places in an array that holds them.
#
# The records are those of tagging (`bert_tf.tasks.tagging.words`) with words for
# tokens: input_ids are the words' places in the array. So the code that writes, plans,
# shuffles and predicts records of tagging works here too, and a batch gets its vectors
# when it is read:
#
#     features  [B, S, L, F] float32, zeros behind the words
#
# Shapes: B batch, S words, L vectors per word, F their width, T words of all windows.


FEATURES = "features"


class WordFeaturizer(SentenceFeaturizer):
    """Converts sentences to windows of words, whose ids are their vectors' places."""

    def __init__(
        self, featurizer: SentenceFeaturizer, settings: Mapping[str, Any]
    ) -> None:
        self.max_seq_length = featurizer.max_seq_length
        self._featurizer = featurizer
        self._settings = dict(settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All that records depend on in addition to the sentences, as JSON."""
        return {**self._featurizer.settings, **self._settings}

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[SentenceFeatures]:
        """Yields the windows of words."""
        first = 0
        for window in self._featurizer(sentences):
            count = len(window.words)
            ids = list(range(first, first + count))
            yield SentenceFeatures(ids, np.arange(count), window.words)
            first += count


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
            ids, mask = np.asarray(batch["input_ids"]), np.asarray(batch["input_mask"])
            features = tf.constant(_gathered(ids, mask, self._vectors))
            yield {**batch, FEATURES: features}


class VectorTable(ExampleTable):
    """Records of words' places whose batches for training have features."""

    def __init__(self, places: ExampleTable, vectors: np.ndarray) -> None:
        vars(self).update(vars(places))
        self.vectors = vectors  # [T, L, F]

    def batches(
        self, rows: np.ndarray, length: int, *, shard: InputShard = ALL_ROWS
    ) -> tf.data.Dataset:
        """As `ExampleTable.batches`, with `features`."""

        def gather(batch: Batch) -> Batch:
            ids = batch["input_ids"]
            # Read from the disk on demand: they need not fit in memory.
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


def _gathered(ids: np.ndarray, mask: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The vectors of the places `ids` where `mask` is 1, else zeros; [B, S, L, F]."""
    found = np.zeros([*ids.shape, *vectors.shape[1:]], np.float32)
    is_word = mask.astype(bool)
    found[is_word] = vectors[ids[is_word]]
    return found


def feature_task(
    options: TaggingOptions, found: ModelFiles, strategy: tf.distribute.Strategy
) -> FineTuningTask[WordPredictions]:
    """The task of labelling words by a BiLSTM over the requested features."""
    words = Words(options, found, read_splits(options))
    frozen = _FrozenWords(options, found, words, strategy)

    def records() -> SplitRecords:
        places = words.records
        table = VectorTable(places.table, frozen.vectors(TRAIN))
        return dataclasses.replace(places, table=table)

    return FineTuningTask(
        name="tagging",
        objective=TAGGING,
        build_model=lambda: BiLstmTagger(
            *frozen.shape,
            len(words.labels.names),
            hidden_size=options.bilstm_size,
            dropout=options.bilstm_dropout,
        ),
        records=records,
        predict=frozen.predict,
        refuse_folder=frozen.refuse_folder,
        side_files={FEATURES_NAME: json.dumps(frozen.settings, indent=1) + "\n"},
        is_restorable=False,
        **common_parts(words),
    )


def check_features(name: str, found: ModelFiles) -> None:
    """Raises InputError unless the model has the layers of a choice of features."""
    if found.source is None:
        raise InputError(
            f"`features={name}` needs `init_checkpoint`: the model whose features are"
            " taken."
        )
    num_layers, needed = (
        found.config.num_hidden_layers,
        FEATURE_CHOICES[name].num_layers,
    )
    if num_layers < needed:
        raise InputError(
            f"`features={name}` needs a model of {needed} layers; this one has"
            f" {num_layers}."
        )


class _FrozenWords:
    """The vectors of each split's words, computed once.

    They are kept in a folder of the run, or in one that several runs share.
    """

    def __init__(
        self,
        options: TaggingOptions,
        found: ModelFiles,
        words: Words,
        strategy: tf.distribute.Strategy,
    ) -> None:
        name = options.features or ""
        self._choice = choice = FEATURE_CHOICES[name]
        num_layers = found.config.num_hidden_layers
        check_features(name, found)
        assert found.source is not None
        selection = LayerSelection.parse(choice.layers, num_layers)
        self._extractor = FeatureExtractor(
            dataclasses.replace(found.source, config=found.config),
            selection,
            strategy,
            FeatureOptions(
                batch_size=options.predict_batch_size,
                max_seq_length=options.max_seq_length,
                max_lengths=options.max_lengths,
                precision=options.precision,
                jit_compile=options.jit_compile,
            ),
        )
        self.settings = {  # what the vectors depend on
            "features": name,
            "weights": self._extractor.settings["weights"],
            "precision": options.precision,
        }
        self._words = words
        self._of_tokens = words.featurizer
        words.featurizer = WordFeaturizer(self._of_tokens, self.settings)
        own_folder = os.path.join(options.output_dir, "features")
        self._folder = options.feature_dir or own_folder
        self._vectors: dict[str, np.ndarray] = {}
        vectors, width = selection.vectors_shape(found.config.hidden_size)
        # The vectors of a word, and the numbers in each.
        is_one = choice.is_concatenated
        self.shape = (1, vectors * width) if is_one else (vectors, width)

    def predict(self, split: str, outputs: Outputs) -> WordPredictions:
        """Predicts the words of a split."""
        vectors = self.vectors(split)
        return self._words.predict(
            split,
            lambda batches, number: outputs(VectorBatches(batches, vectors), number),
        )

    def vectors(self, split: str) -> np.ndarray:
        """The vectors of a split's words, [T, L, F], in the order of its windows."""
        if split not in self._vectors:
            windows = list(self._of_tokens(self._words.splits[split]))
            # Two choices may use the same layers.
            name = "_".join((split, *self._choice.layers))
            vectors = self._extractor.vectors(
                inputs_of_windows(windows), self._folder, name
            )
            self._vectors[split] = vectors.reshape(len(vectors), *self.shape)
        return self._vectors[split]

    def refuse_folder(self, folder: str) -> None:
        """Raises InputError if a folder's run uses other features."""
        if not files.exists(os.path.join(folder, STATE_NAME)):
            return
        path = os.path.join(folder, FEATURES_NAME)
        there = read_features(path) if files.exists(path) else None
        if there != self.settings:
            raise InputError(
                f"--output_dir={folder} holds a run with"
                f" {there or 'a fine-tuned BERT'}; this one has {self.settings}. Give"
                " another folder."
            )


# Ways to use BERT for tagging, compared: the paper's Table 7, and ours.


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
    with drawing():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(8.0, 1.5 + 0.6 * len(ways)), layout="constrained")
        axes = drawn.add_subplot()
        for label, values, shift in (
            (f"{_OURS}, {metric}", ours, -0.2),
            (f"{_THEIRS}, f1", theirs, 0.2),
        ):
            places = [place + shift for place in range(len(ways))]
            bars = axes.barh(places, values, 0.4, label=label)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        axes.set_yticks(range(len(ways)), ways)
        axes.invert_yaxis()
        # The ways differ by a few hundredths: bars from 0 on would all look alike.
        axes.set_xlim(max(0.0, np.nanmin([*ours, *theirs]) - 5.0), 101.0)
        axes.set_xlabel("per cent, development set; the axis does not begin at 0")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
        return png(drawn)


def with_own_defaults(options: TaggingOptions) -> TaggingOptions:
    """The options with the defaults of a BiLSTM, which is trained from scratch.

    Its batches have several lengths, so that all may be shorter than a window.
    """
    own = {"learning_rate": BILSTM_LEARNING_RATE, "num_train_epochs": (BILSTM_EPOCHS,)}
    changes: dict[str, Any] = {
        name: value for name, value in own.items() if not options.is_given(name)
    }
    if options.pad == "max":
        changes |= {"pad": "length", "length_buckets": 1}
    return dataclasses.replace(options, **changes)
