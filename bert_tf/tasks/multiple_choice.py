"""Multiple choice as a task: which of several endings goes with a premise.

Devlin et al. 2018, section 4.4: of each ending a sequence of its own, [CLS] premise
[SEP] ending [SEP]; the product of its [CLS]'s output and one vector is the ending's
score, and the softmax is over the endings. As in the paper, what all endings go on from
stands before each of them. Here [CLS]'s output has gone through the pooler, as in the
original's classifier.

Shapes: R records, N choices, L tokens of a sequence.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertMultipleChoice
from bert_tf.modeling.objectives import CLASSIFICATION
from bert_tf.records.spec import RecordSchema, multiple_choice_schema
from bert_tf.tasks.choices import ChoiceExample
from bert_tf.tasks.targets import Target
from bert_tf.text.wordpiece import WordPieceTokenizer, pair_features, truncate_pair
from bert_tf.training.task import Task
from bert_tf.training.throughput import multiple_choice_flops

_EXAMPLES_AT_ONCE = 256


def task(
    config: BertConfig, *, name: str = "swag", recompute: bool = False, **options: Any
) -> Task:
    """The task of choosing."""
    return Task(
        name=name,
        build_model=lambda: BertMultipleChoice(config, recompute=recompute, **options),
        objective=CLASSIFICATION,
        training_flops=functools.partial(multiple_choice_flops, config),
    )


def schema(target: Target, max_seq_length: int) -> RecordSchema:
    """What a record of a target holds."""
    return multiple_choice_schema(max_seq_length, target.num_outputs)


class Featurizer:
    """Makes examples into records: tokenized, cut, padded.

    A premise is tokenized once for all its endings.

    Attributes:
        num_truncated: how many of the examples seen last have lost tokens, in one
            choice or several.
    """

    def __init__(
        self, tokenizer: WordPieceTokenizer, *, max_seq_length: int, target: Target
    ) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._target = target
        self.num_truncated = 0

    @property
    def settings(self) -> dict[str, Any]:
        """All that the records depend on beside the examples, as JSON has it."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self._max_seq_length,
            "labels": self._target.labels,
        }

    def blocks(
        self, examples: Iterable[ChoiceExample]
    ) -> Iterator[dict[str, np.ndarray]]:
        """The records of examples, many at once, as `schema` has them."""
        self.num_truncated = 0
        remaining = iter(examples)
        while block := list(itertools.islice(remaining, _EXAMPLES_AT_ONCE)):
            yield self._block(block)

    def _block(self, examples: Sequence[ChoiceExample]) -> dict[str, np.ndarray]:
        num_choices = self._target.num_outputs
        labels = [self._target.encode(each.label, each.source) for each in examples]
        pairs = [pair for example in examples for pair in self._pairs(example)]
        assert len(pairs) == len(examples) * num_choices
        sequences = pair_features(
            pairs, self._tokenizer.vocabulary, self._max_seq_length
        )
        return {
            **{
                name: value.reshape(len(examples), num_choices, self._max_seq_length)
                for name, value in sequences.items()
            },
            "label_ids": np.array(labels, np.int64),
            "is_real_example": np.ones((len(examples), 1), np.int64),
        }

    def _pairs(self, example: ChoiceExample) -> list[tuple[list[int], list[int]]]:
        """The tokens of an example's choices: of the premise, and of the ending."""
        premise = self._tokenizer.encode(example.premise)
        room = self._max_seq_length - 3
        pairs, is_cut = [], False
        for choice in example.choices:
            ending = self._tokenizer.encode(choice)
            pairs.append(truncate_pair(premise, ending, room))
            is_cut = is_cut or len(premise) + len(ending) > room
        self.num_truncated += is_cut
        return pairs
