"""What a run of pre-training reads: the records of its phases and its evaluation.

One phase, or several (--phases): each reads the records of its length.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import keras
import tensorflow as tf

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records.pretraining_input import PretrainingRecords, files_by_length
from bert_tf.records.writing import record_files
from bert_tf.tasks.pretraining import Majority
from bert_tf.training.config import Phase, PhaseSpec, TrainingConfig, TrainingData
from bert_tf.training.evaluation import Evaluator
from bert_tf.training.run_folder import RunData
from bert_tf.training.task import Task


class OpenRecords(Protocol):
    """Opens record files."""

    def __call__(
        self, paths: Sequence[str], flag: str, max_seq_length: int | None = None
    ) -> PretrainingRecords:
        """The records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingData:
    """What a run trains and evaluates on.

    Attributes:
        phases: what is asked for, each with its records.
        held_out: the records to evaluate a phase on.
    """

    phases: Sequence[tuple[PhaseSpec, PretrainingRecords]]
    held_out: Sequence[PretrainingRecords]

    @classmethod
    def open(
        cls,
        open_records: OpenRecords,
        specs: Sequence[PhaseSpec] | None,
        *,
        input_file: str,
        eval_input_file: str | None,
        num_train_steps: int,
        train_batch_size: int,
    ) -> "PretrainingData":
        """Finds the records of each phase, and checks that they go together."""
        phases: list[tuple[PhaseSpec, PretrainingRecords]]
        if specs is None:
            records = open_records(record_files(input_file, "input_file"), "input_file")
            phases = [
                (
                    PhaseSpec(
                        records.max_seq_length, num_train_steps, train_batch_size
                    ),
                    records,
                )
            ]
        else:
            opened = _open_by_length(open_records, specs, input_file, "input_file")
            phases = [(spec, opened[spec.max_seq_length]) for spec in specs]
        held_out = [records for _, records in phases]
        if eval_input_file:
            if specs is None:
                paths = record_files(eval_input_file, "eval_input_file")
                held_out = [open_records(paths, "eval_input_file")]
            else:
                opened = _open_by_length(
                    open_records, specs, eval_input_file, "eval_input_file"
                )
                held_out = [opened[spec.max_seq_length] for spec in specs]
        first = phases[0][1]
        for other in (*[records for _, records in phases[1:]], *held_out):
            first.refuse_other_vocabulary(other)
            first.refuse_other_pairs(other)
        return cls(phases=phases, held_out=held_out)

    @property
    def records(self) -> PretrainingRecords:
        """The first phase's records: what they have in common with all others."""
        return self.phases[0][1]

    @property
    def every_records(self) -> list[PretrainingRecords]:
        """Those of all phases, then those to evaluate on."""
        return [*[records for _, records in self.phases], *self.held_out]

    @property
    def is_packed(self) -> bool:
        """Whether some records are packed: the others then look like rows of one."""
        return any(records.is_packed for records in self.every_records)

    @property
    def num_train_steps(self) -> int:
        """The steps of all phases."""
        return sum(spec.num_steps for spec, _ in self.phases)

    def described(self, input_file: str) -> RunData:
        """The records of all phases, as a run's folder records them."""
        ids = [
            fingerprint(records.paths, records.counts, records.max_seq_length)
            for _, records in self.phases
        ]
        return RunData(input_file, files.sha256(repr(ids).encode()))

    def training_phases(
        self,
        task: Task,
        config: TrainingConfig,
        strategy: tf.distribute.Strategy,
        *,
        vocab_size: int,
        eval_batch_size: int,
        max_eval_steps: int,
    ) -> list[Phase]:
        """The phases as the engine takes them."""
        phases = []
        end_step = 0
        for (spec, records), held_out in zip(self.phases, self.held_out, strict=True):
            end_step += spec.num_steps
            phases.append(
                Phase(
                    end_step=end_step,
                    batch_size=spec.batch_size,
                    streams=[
                        _training_data(
                            records,
                            spec,
                            config.random_seed,
                            vocab_size,
                            self.is_packed,
                        )
                    ],
                    data_id=fingerprint(
                        records.paths, records.counts, records.max_seq_length
                    ),
                    evaluate=evaluation_of(
                        task,
                        held_out,
                        strategy,
                        vocab_size=vocab_size,
                        batch_size=eval_batch_size,
                        num_batches=max_eval_steps,
                        packed=self.is_packed,
                        jit_compile=config.jit_compile,
                    ),
                    evaluation_id=fingerprint(
                        held_out.paths,
                        # Evaluation takes the first so many of them.
                        [0] * len(held_out.paths),
                        held_out.max_seq_length,
                    ),
                    name=f"the records of length {spec.max_seq_length}",
                )
            )
        return phases


def _open_by_length(
    open_records: OpenRecords, specs: Sequence[PhaseSpec], patterns: str, flag: str
) -> dict[int, PretrainingRecords]:
    """The records of each phase's length, opened once."""
    lengths = files_by_length(record_files(patterns, flag))
    opened = {}
    for spec in specs:
        length = spec.max_seq_length
        if length not in lengths:
            raise InputError(
                f"--phases asks for records of length {length}; those of --{flag} have"
                f" {', '.join(map(str, sorted(lengths))) or 'no records'}."
            )
        if length not in opened:
            opened[length] = open_records(lengths[length], flag, length)
    return opened


def _training_data(
    records: PretrainingRecords,
    spec: PhaseSpec,
    seed: int,
    vocab_size: int,
    packed: bool,
) -> TrainingData:
    return lambda position, shard: records.training_dataset(
        spec.batch_size,
        seed=seed,
        start=position,
        shard=shard,
        vocab_size=vocab_size,
        packed=packed,
    )


def evaluation_of(
    task: Task,
    records: PretrainingRecords,
    strategy: tf.distribute.Strategy,
    *,
    vocab_size: int,
    batch_size: int,
    num_batches: int,
    packed: bool = False,
    jit_compile: bool = False,
) -> Callable[[keras.Model], Mapping[str, float]]:
    """Evaluates a model on the first batches of some records, repeated if few."""
    evaluators: dict[int, Evaluator] = {}

    def evaluate(model: keras.Model) -> Mapping[str, float]:
        if id(model) not in evaluators:
            evaluators[id(model)] = Evaluator(
                task, model, strategy, jit_compile=jit_compile
            )
        majority = Majority(task)
        results = evaluators[id(model)].run(
            records.evaluation_dataset(
                batch_size, repeat=True, vocab_size=vocab_size, packed=packed
            ),
            num_batches=num_batches,
            observe=majority.add,
        )
        return results | majority.scores()

    return evaluate


def fingerprint(
    paths: Sequence[str], counts: Sequence[int], max_seq_length: int
) -> int:
    """Identifies record sets: their files' names, numbers and record lengths."""
    lines = f"{max_seq_length}\n" + "".join(
        f"{os.path.basename(path)} {count}\n"
        for path, count in zip(paths, counts, strict=True)
    )
    digest = hashlib.sha256(lines.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1
