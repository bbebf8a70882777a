"""The runs on tagged words with BERT as it is, and a BiLSTM on top that is trained.

Devlin et al. 2018, section 5.3. The vectors of a split's words are computed once, and
lie in a folder beside the run, or in one that several runs share.
"""

import copy
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import files
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.features import FeatureExtractor, FeatureOptions, LayerSelection
from bert_tf.finetuning.tagging_prediction import WordPredictions
from bert_tf.finetuning.tagging_session import (
    FEATURES_NAME,
    TRAIN,
    TaggingSession,
    read_features,
)
from bert_tf.finetuning.word_vectors import (
    VectorBatches,
    VectorRecords,
    WordFeaturizer,
    inputs_of_windows,
)
from bert_tf.modeling.heads import BiLstmTagger
from bert_tf.modeling.objectives import TAGGING
from bert_tf.records.batching import EvaluationBatches
from bert_tf.tagging.feature_choices import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
)
from bert_tf.tagging.sentences import Sentence
from bert_tf.training.finetuning import finetune
from bert_tf.training.initialization import restore_or_initialize
from bert_tf.training.run_folder import RunData
from bert_tf.training.task import Task

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
        self._extractor = FeatureExtractor(
            dataclasses.replace(self.source, config=self.config),
            selection,
            strategy,
            FeatureOptions(
                batch_size=flag_values.predict_batch_size,
                max_seq_length=flag_values.max_seq_length,
                max_lengths=super().max_lengths,
                precision=flag_values.precision,
                jit_compile=flag_values.jit_compile,
            ),
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
            vectors = self._extractor.vectors(
                inputs_of_windows(windows), self._folder, name
            )
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
