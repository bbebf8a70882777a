"""Labelling words by a BiLSTM on frozen BERT's features (the paper's section 5.3).

The windows are those used to fine-tune a tagger (`sentence_windows`). A word has the
vector of its first piece, in the window with the most context around the word.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.base.errors import InputError
from bert_tf.conversion.loading import ModelFiles
from bert_tf.modeling.encoder import DictInputModel
from bert_tf.modeling.heads import HEAD_INITIALIZER_RANGE, HeadDropout, OutputProjection
from bert_tf.modeling.pooling import LayerMixture
from bert_tf.records.batching import EvaluationBatches, ExampleTable, Predict
from bert_tf.tasks.feature_extraction.feature_records import (
    FeatureInput,
    FeatureSettings,
)
from bert_tf.tasks.feature_extraction.features import FeatureExtractor, LayerSelection
from bert_tf.tasks.tagging.sentence_windows import SentenceFeatures, SentenceFeaturizer
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.tagging_options import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
    TaggingOptions,
)
from bert_tf.tasks.tagging.word_predictions import WordPredictions
from bert_tf.tasks.tagging.words import TaggingTask

HIDDEN_SIZE = 768
NUM_LAYERS = 2
DROPOUT = 0.1
# Adam changes a score by about the learning rate per step, here about 1e-3.
_MIXTURE_SCORE_SCALE = 1.0


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLstmTagger(DictInputModel):
    """A model that labels words by their own and their neighbours' features.

    BERT without fine-tuning (Devlin et al. 2018, section 5.3): word vectors from layers
    of BERT are the input of a two-layer 768-dimensional BiLSTM before the
    classification layer. The paper does not give the weights of its weighted sums; here
    they are learned, like ELMo's (`LayerMixture`).

    Inputs: features [B, S, num_vectors, width], and input_mask [B, S], 1 for words and
    0 for padding after them. Output, in float32: logits [B, S, C].
    """

    def __init__(
        self,
        num_vectors: int,
        width: int,
        num_labels: int,
        *,
        hidden_size: int = HIDDEN_SIZE,  # of both directions together
        num_layers: int = NUM_LAYERS,
        dropout: float = DROPOUT,
        dtype: Any = None,
        name: str = "bilstm_tagger",
        **kwargs: Any,
    ):
        # === Layers ===
        mixture = None
        if num_vectors > 1:
            mixture = LayerMixture(score_scale=_MIXTURE_SCORE_SCALE, dtype=dtype)
        dropouts = [
            HeadDropout(dropout, dtype=dtype, name=f"dropout_{number}")
            for number in range(num_layers + 1)
        ]
        recurrent = [
            keras.layers.Bidirectional(
                keras.layers.LSTM(
                    hidden_size // 2, return_sequences=True, dtype=dtype, name="lstm"
                ),
                dtype=dtype,
                name=f"bilstm_{number}",
            )
            for number in range(num_layers)
        ]
        projection = OutputProjection(
            num_labels, HEAD_INITIALIZER_RANGE, dtype=dtype, name="tagging"
        )

        # === Functional Model ===
        features = keras.Input((None, num_vectors, width), name="features")
        input_mask = keras.Input((None,), dtype="int32", name="input_mask")
        is_word = ops.cast(input_mask, "bool")
        vectors = [features[:, :, number] for number in range(num_vectors)]
        # The scope of all heads, for the weights' names in checkpoints.
        with keras.name_scope("cls"):
            x = mixture(vectors) if mixture else vectors[0]
            for dropped, layer in zip(dropouts, recurrent, strict=False):
                x = layer(dropped(x), mask=is_word)
            logits = projection(dropouts[-1](x))

        # === Config ===
        super().__init__(
            inputs={"features": features, "input_mask": input_mask},
            outputs={"logits": logits},
            name=name,
            **kwargs,
        )
        self._arguments = {
            "num_vectors": num_vectors,
            "width": width,
            "num_labels": num_labels,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "dropout": dropout,
        }

    def _constructor_arguments(self) -> dict[str, Any]:
        return {**self._arguments, "name": self.name}


def inputs_of_windows(windows: Sequence[SentenceFeatures]) -> list[FeatureInput]:
    """Returns the windows as inputs, with a vector for each word to predict."""
    return [
        FeatureInput(
            window.ids,
            [0] * len(window.ids),
            # Only the first piece has a vector: the word's end makes no difference.
            spans=[(place, place + 1) for place in window.places.tolist()],
        )
        for window in windows
    ]


# Records are tagging's (`sentence_windows`) with words instead of tokens: input_ids are
# the words' places in an array of vectors. So the code that writes, plans, shuffles and
# predicts records of tagging works here too, and a batch gets its vectors when it is
# read:
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
        self._settings = settings

    @property
    def settings(self) -> dict[str, Any]:
        """Returns the settings that decide the records, as JSON."""
        return {**self._featurizer.settings, **self._settings}

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[SentenceFeatures]:
        """Yields the windows of words."""
        first = 0
        for window in self._featurizer(sentences):
            count = len(window.words)
            ids = list(range(first, first + count))
            yield SentenceFeatures(ids, np.arange(count), window.words)
            first += count


def with_vectors(places: ExampleTable, vectors: np.ndarray) -> ExampleTable:
    """Returns records of words' places with their vectors [T, L, F] as `features`."""

    def features(batch: dict[str, Any], xp: Any) -> Any:
        ids, mask = batch["input_ids"], batch["input_mask"]
        if xp is np:
            return _gathered(ids, mask, vectors)
        # Read from disk on demand: they need not fit in memory.
        found = tf.numpy_function(
            lambda ids, mask: _gathered(ids, mask, vectors), [ids, mask], tf.float32
        )
        return tf.ensure_shape(found, [*ids.shape, *vectors.shape[1:]])

    return places.with_feature(FEATURES, features)


def _gathered(ids: np.ndarray, mask: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Returns vectors [B, S, L, F]: those at `ids`, zeros where `mask` is 0."""
    found = np.zeros([*ids.shape, *vectors.shape[1:]], np.float32)
    is_word = mask.astype(bool)
    found[is_word] = vectors[ids[is_word]]
    return found


class FeatureTask(TaggingTask):
    """Labelling words by a BiLSTM over the requested features of a frozen BERT."""

    is_restorable = False

    def __init__(
        self,
        options: TaggingOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        super().__init__(options, model_files, strategy)
        name = options.features or ""
        choice = FEATURE_CHOICES[name]
        if model_files.source is None:
            raise InputError(
                f"`features={name}` needs `init_checkpoint`, whose features are taken."
            )
        if (there := model_files.config.num_hidden_layers) < choice.num_layers:
            raise InputError(
                f"`features={name}` needs a model of {choice.num_layers} layers; this"
                f" one has {there}."
            )
        selection = LayerSelection(layers=choice.layers, num_hidden_layers=there)
        self._extractor = FeatureExtractor(
            dataclasses.replace(model_files.source, config=model_files.config),
            selection,
            strategy,
            FeatureSettings(
                batch_size=options.predict_batch_size,
                max_seq_length=options.max_seq_length,
                num_lengths=options.num_lengths,
                precision=options.precision,
                jit_compile=options.jit_compile,
            ),
        )
        self.features = {
            "features": name,
            "weights": self._extractor.settings["weights"],
            "precision": options.precision,
        }
        self._of_tokens, self._layers = self.featurizer, choice.layers
        self.featurizer = WordFeaturizer(self._of_tokens, self.features)
        # The vectors of a word, and the numbers in each.
        count, width = selection.vectors_shape(model_files.config.hidden_size)
        self._shape = (1, count * width) if choice.is_concatenated else (count, width)
        self._vectors: dict[str, np.ndarray] = {}

    def build_model(self) -> BiLstmTagger:
        """Returns a BiLSTM, to be trained from scratch."""
        return BiLstmTagger(
            *self._shape,
            len(self.labels),
            hidden_size=self._options.bilstm_size,
            dropout=self._options.bilstm_dropout,
        )

    def make_records(self, split: str) -> ExampleTable:
        """Returns the windows of a split, and the vectors of their words."""
        return with_vectors(super().make_records(split), self._vectors_of(split))

    def predict(self, split: str, outputs: Predict) -> WordPredictions:
        """Predicts the words of a split from their vectors."""

        def of_vectors(batches: EvaluationBatches, number: int) -> Any:
            table = with_vectors(batches.table, self._vectors_of(split))
            return outputs(batches.of_table(table), number)

        return super().predict(split, of_vectors)

    def _vectors_of(self, split: str) -> np.ndarray:
        """Returns a split's word vectors, [T, L, F], in the order of its windows."""
        if split not in self._vectors:
            options = self._options
            values = self._extractor.vectors(
                inputs_of_windows(list(self._of_tokens(self.splits[split]))),
                options.feature_dir or os.path.join(options.output_dir, "features"),
                # Two choices may use the same layers.
                "_".join((split, *self._layers)),
            )
            self._vectors[split] = values.reshape(len(values), *self._shape)
        return self._vectors[split]


def with_own_defaults(options: TaggingOptions) -> TaggingOptions:
    """Returns the options with the defaults of a BiLSTM trained from scratch."""
    own = {"learning_rate": BILSTM_LEARNING_RATE, "num_train_epochs": (BILSTM_EPOCHS,)}
    changes: dict[str, Any] = {
        name: value for name, value in own.items() if not options.is_given(name)
    }
    if options.pad == "max":
        # Several lengths: all texts may be shorter than a window.
        changes |= {"pad": "length", "length_buckets": 1}
    return options.with_defaults(**changes)
