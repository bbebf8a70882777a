"""The runs on tagged words: sentences in, a label for each word out."""

import itertools
import os
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf
from absl import flags, logging

from bert_tf import files, strict_json
from bert_tf.config import SINGLE_LABEL
from bert_tf.conversion import names
from bert_tf.errors import InputError
from bert_tf.finetuning.tagging_evaluation import (
    accuracy,
    majority,
    metric_names,
    report,
    scores,
)
from bert_tf.finetuning.tagging_labels import (
    find_file_schemes,
    find_labels,
    label_ids,
    respelt_unless,
)
from bert_tf.finetuning.tagging_prediction import WordPredictions, predict_words
from bert_tf.finetuning.task_session import TaskSession
from bert_tf.metrics.entities import Labels
from bert_tf.records.batching import SplitRecords
from bert_tf.tagging.features import Features, Featurizer
from bert_tf.tagging.schemes import NO_SCHEME
from bert_tf.tagging.sentences import Sentence, digest
from bert_tf.tasks import tagging
from bert_tf.training import run_folder
from bert_tf.training.checkpoint_files import STATE_NAME
from bert_tf.training.finetuning import finetune
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers

RECORDS_NAME = "train.tf_record"
# In the folder of a run on features: whose they are.
FEATURES_NAME = "features.json"

TRAIN = "train"


class TaggingSession(TaskSession):
    """The runs on tagged words.

    Attributes:
        splits: as given.
        labels: what the model predicts.
    """

    head = names.TAGGING

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        splits: Mapping[str, Sequence[Sentence]],
        output_dir: str,
    ) -> None:
        super().__init__(flag_values, strategy, output_dir=output_dir)
        self.splits = splits
        self._file_schemes = find_file_schemes(splits, flag_values.tag_scheme)
        self.labels = find_labels(
            flag_values,
            splits.get(TRAIN),
            self._file_schemes.get(TRAIN, NO_SCHEME),
            recorded=run_folder.recorded_labels(output_dir),
            source=self.source,
        )
        self._featurizer = Featurizer(
            self.tokenizer,
            max_seq_length=flag_values.max_seq_length,
            doc_stride=flag_values.doc_stride,
            document_context=flag_values.document_context,
        )
        self._golds = {
            split: [
                respelt_unless(
                    one.labels, self._file_schemes[split], self.labels.scheme
                )
                for one in sentences
                if one.labels is not None
            ]
            for split, sentences in splits.items()
        }
        self._label_ids = {
            split: label_ids(
                split,
                sentences,
                self._golds[split],
                self.labels.names,
                must_be_known=split == TRAIN,
            )
            for split, sentences in splits.items()
        }
        self._features: dict[str, list[Features]] = {}
        self.refuse_other_metrics(self._metrics)
        self.task = tagging.task(
            self.config, len(self.labels.names), recompute=flag_values.recompute
        )

    def fine_tune(self, folder: str) -> tuple[keras.Model, int]:
        """Trains in a folder, from where that stands."""
        data = self._run_data()
        self.prepare(folder, data)
        return finetune(
            self.task,
            self._records(folder),
            self._flags,
            self.strategy,
            folder=folder,
            data=data,
            num_train_epochs=self._flags.num_train_epochs,
            max_lengths=self.max_lengths,
            evaluate=self._evaluate if self._flags.eval_steps else None,
            best_metric=self._flags.best_metric or self._metrics[-1],
        )

    def prepare(self, folder: str, data: RunData | None = None) -> None:
        """Makes a run's folder, and records its labels there."""
        path = os.path.join(folder, FEATURES_NAME)
        if files.exists(os.path.join(folder, STATE_NAME)):
            self._refuse_other_features(folder)
        elif self.is_chief and files.exists(path):
            files.remove(path)  # of a start that failed before its first checkpoint
        described = self.labels.names, SINGLE_LABEL
        run_folder.refuse_other_labels(folder, *described)
        super().prepare(folder, data)
        run_folder.check_labels(folder, *described)

    def has_labels(self, split: str) -> bool:
        """Whether the words of a split have labels."""
        return bool(self._golds[split])

    def predict(self, model: keras.Model, split: str) -> WordPredictions:
        """Predicts the words of a split."""
        if split not in self._features:
            self._features[split] = list(self._featurizer(self.splits[split]))
        return predict_words(
            self._features[split],
            self._label_ids[split],
            lambda batches, number: self.outputs(model, batches, number),
            batch_size=(
                self._flags.eval_batch_size
                if split == "dev"
                else self._flags.predict_batch_size
            ),
            max_seq_length=self._flags.max_seq_length,
            max_lengths=self.max_lengths,
        )

    def predicted_labels(self, split: str, found: WordPredictions) -> list[list[str]]:
        """What is predicted, as the files spell it."""
        return [
            respelt_unless(labels, self.labels.scheme, self._file_schemes[split])
            for labels in self._by_sentence(split, found)
        ]

    def scores(self, split: str, found: WordPredictions) -> dict[str, float]:
        """What predictions are worth: see `bert_tf.finetuning.tagging_evaluation`."""
        as_written = self._as_written(split, found)
        return scores(
            self._golds[split],
            self._by_sentence(split, found),
            self.labels.scheme,
            losses=found.losses[self._label_ids[split] != tagging.NO_LABEL],
            accuracy=accuracy(*as_written),
            majority=majority(as_written[0]),
        )

    def report(self, split: str, found: WordPredictions) -> str:
        """The scores by type in the official scorer's format; "" without entities."""
        if self.labels.scheme == NO_SCHEME:
            return ""
        return report(*self._as_written(split, found))

    def _as_written(
        self, split: str, found: WordPredictions
    ) -> tuple[Sequence[Labels], Sequence[Labels]]:
        """The true labels and the predicted ones, as a scorer of the files sees them.

        In another scheme an entity that is right may have a word that is not.
        """
        golds = [one.labels for one in self.splits[split] if one.labels is not None]
        return golds, self.predicted_labels(split, found)

    def _by_sentence(self, split: str, found: WordPredictions) -> list[list[str]]:
        """The predicted labels of each sentence, as the model spells them."""
        words = iter(found.label_ids.tolist())
        return [
            [
                self.labels.names[number]
                for number in itertools.islice(words, len(one.words))
            ]
            for one in self.splits[split]
        ]

    @property
    def _metrics(self) -> list[str]:
        return metric_names(self.labels.scheme)

    def _refuse_other_features(self, folder: str) -> None:
        """Raises InputError if a folder's run is not on the same features, or none."""
        path = os.path.join(folder, FEATURES_NAME)
        if files.exists(path):
            raise InputError(
                f"--output_dir={folder} holds a BiLSTM on BERT's features; give"
                f" --features={read_features(path)['features']} too, or another"
                " folder."
            )

    def _run_data(self) -> RunData:
        """The training set, as a run's folder records it."""
        where = self._flags.tfds_name or self._flags.train_file
        sentences = self.splits[TRAIN]
        return RunData(f"{len(sentences)} sentences of {where}", digest(sentences))

    def _evaluate(self, model: keras.Model) -> Mapping[str, float]:
        return self.scores("dev", self.predict(model, "dev"))

    def _records(self, folder: str) -> SplitRecords:
        """The windows to train on, made once."""
        sentences = self.splits[TRAIN]
        records = SplitRecords.prepare(
            os.path.join(folder, RECORDS_NAME),
            tagging.schema(self._flags.max_seq_length),
            {
                **self._featurizer.settings,
                "labels": self.labels.names,
                "scheme": self.labels.scheme,
                "file_scheme": self._file_schemes[TRAIN],
                "sentences": digest(sentences),
            },
            tagging.blocks(
                self._featurizer(sentences),
                self._label_ids[TRAIN],
                self._flags.max_seq_length,
            ),
            is_alone=num_workers(self.strategy) == 1,
        )
        logging.info(
            "%d sentences, %d words, %d labels: %d windows.",
            len(sentences),
            len(self._label_ids[TRAIN]),
            len(self.labels.names),
            records.num_records,
        )
        return records


def read_features(path: str) -> dict[str, str]:
    """What a run's features.json says."""
    found = strict_json.checked(dict[str, str], files.read_json(path), path, "features")
    if "features" not in found:
        raise InputError(f'{path}: it must have "features". Give another --output_dir.')
    return found
