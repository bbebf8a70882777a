"""What the runs on any task share: the model's files, and a step from batch to outputs.

A task's own session knows its examples and their records, and what outputs mean.

Shapes: R records, C outputs.
"""

from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import flags as shared_flags
from bert_tf.config import BertConfig
from bert_tf.conversion.loading import model_files
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.records.batching import ROWS, EvaluationBatches, SplitRecords
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.evaluation import Predictor
from bert_tf.training.initialization import restore_or_initialize
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import is_chief
from bert_tf.training.task import Task

Arrays = Mapping[str, np.ndarray]


class TaskSession:
    """The runs on one task.

    Attributes:
        strategy: the devices.
        config: the model's architecture.
        tokenizer: of its vocabulary and casing.
        source: the opened --init_checkpoint, where there is one.
        task: what to train; set by the task's own session.
        head: its model's head, of `bert_tf.conversion.names.HEADS`; likewise.
    """

    task: Task
    head: str

    @property
    def trains_task(self) -> str | None:
        """The name of the task whose run a folder must hold."""
        return self.task.name

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        output_dir: str,
    ) -> None:
        self.strategy = strategy
        self._flags = flag_values
        found = model_files(
            flag_values.init_checkpoint,
            bert_config_file=flag_values.bert_config_file,
            vocab_file=flag_values.vocab_file,
            do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
            output_dir=output_dir,
        )
        self.config: BertConfig = found.config
        self.source: Source | None = found.source
        self.config.check_sequence_length(flag_values.max_seq_length)
        self.tokenizer = WordPieceTokenizer(
            found.vocabulary, do_lower_case=found.do_lower_case
        )
        self._predictor: tuple[keras.Model, Predictor] | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return is_chief(self.strategy)

    @property
    def max_lengths(self) -> int | None:
        """How many lengths batches may have; None for max_seq_length alone."""
        return None if self._flags.pad == "max" else self._flags.length_buckets

    def prepare(self, folder: str, data: RunData | None = None) -> None:
        """Makes a run's folder, with all that its checkpoints need beside them."""
        run_folder.prepare(
            folder,
            self.config,
            self.tokenizer.vocabulary,
            self.tokenizer.do_lower_case,
            self._flags,
            head=self.head,
            task=self.trains_task,
            data=data,
        )

    def restore(self, folder: str) -> tuple[keras.Model, int]:
        """The model of a folder's last checkpoint, or else of --init_checkpoint."""
        self.prepare(folder)
        adapter = "init_adapter"
        return restore_or_initialize(
            self.task,
            folder,
            self._flags.init_checkpoint,
            self._flags.precision,
            self.strategy,
            init_adapter=self._flags[adapter].value if adapter in self._flags else None,
        )

    def outputs(
        self, model: keras.Model, batches: EvaluationBatches, num_batches: int
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields (batch, outputs) as arrays, batch by batch."""
        if self._predictor is None or self._predictor[0] is not model:
            self._predictor = (
                model,
                Predictor(
                    self.task, model, self.strategy, jit_compile=self._flags.jit_compile
                ),
            )
        return self._predictor[1].run(batches, total_batches=num_batches)

    def logits_of(
        self,
        model: keras.Model,
        records: SplitRecords,
        *,
        batch_size: int,
        num_outputs: int,
    ) -> np.ndarray:
        """What the model says of records, [R, C] float32, in their order."""
        logits = np.zeros([records.num_records, num_outputs], np.float32)
        for batch, outputs in self.outputs(
            model,
            records.batches(batch_size, self.max_lengths),
            records.num_batches(batch_size),
        ):
            is_real = batch[ROWS] >= 0
            logits[batch[ROWS][is_real]] = outputs["logits"][is_real]
        return logits

    def refuse_other_metrics(self, there: Sequence[str]) -> None:
        """Raises InputError now for what would come out at the first evaluation."""
        name = self._flags.best_metric
        if name and name not in there:
            raise InputError(
                f"--best_metric={name} is none of the evaluation's metrics:"
                f" {', '.join(there)}."
            )

    def forget_model(self) -> None:
        """Lets go of the model that predicted last, so that its memory can be freed."""
        self._predictor = None
