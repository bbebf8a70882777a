"""A classifier's texts as records."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.base.parallel import grouped
from bert_tf.records.batching import ExampleTable, Predict
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.long_texts import ATTENTION, pooled_windows, windows_of_pair
from bert_tf.tasks.tables import Target
from bert_tf.text.wordpiece import (
    Tokens,
    WordPieceTokenizer,
    pair_features,
    truncate_pair,
)

_EXAMPLES_AT_ONCE = 1024


@dataclasses.dataclass(eq=False)
class TextFeaturizer:
    """Converts examples to records: tokenized, cut or in windows, padded."""

    # Each window is a record with the example's label, so a training text of k windows
    # weighs k times as much as a short one. With attention to windows, a record has all
    # windows of an example, [N, S].

    tokenizer: WordPieceTokenizer
    _: dataclasses.KW_ONLY
    max_seq_length: int
    target: Target
    windows: bool = False
    doc_stride: int | None = None
    window_pooling: str = "mean"

    def __post_init__(self) -> None:
        self.num_truncated = 0  # examples of the latest call that lost tokens
        self.window_counts: list[int] = []  # one per example; empty without windows

    @property
    def spec(self) -> RecordSpec:
        """The features of a record."""
        target = self.target
        return RecordSpec.classification(
            self.max_seq_length, target.label_dtype, target.label_length
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the records depend on besides the examples, for JSON."""
        return {
            **self.tokenizer.settings,
            "max_seq_length": self.max_seq_length,
            "target": [self.target.kind, self.target.labels, self.target.separator],
            "windows": self.windows,
            "doc_stride": self.doc_stride if self.windows else None,
            **(
                {"windows_of_a_record": "all"}
                if self.window_pooling == ATTENTION
                else {}
            ),
        }

    def blocks(self, examples: Iterable[Any]) -> Iterator[dict[str, np.ndarray]]:
        """Yields the records of many examples at once, as in `spec`."""
        self.num_truncated = 0
        self.window_counts = []
        yield from map(self._block, grouped(examples, _EXAMPLES_AT_ONCE))

    def _block(self, examples: Sequence[Any]) -> dict[str, np.ndarray]:
        pairs, labels, counts = [], [], []
        for example in examples:
            label = self.target.encode(example.label, example.source)
            texts = self._texts(example)
            pairs += texts
            counts.append(len(texts))
            labels += [label] * (1 if self.window_pooling == ATTENTION else len(texts))
        features = pair_features(pairs, self.tokenizer.vocabulary, self.max_seq_length)
        if self.window_pooling == ATTENTION:
            is_there = np.arange(max(counts)) < np.array(counts)[:, None]
            for name, values in features.items():
                shape = (*is_there.shape, values.shape[-1])
                features[name] = np.zeros(shape, values.dtype)
                features[name][is_there] = values
        return {
            **features,
            "label_ids": np.array(labels, self.target.label_dtype),
            "is_real_example": np.ones((len(labels), 1), np.int64),
        }

    def _texts(self, example: Any) -> list[tuple[Tokens, Tokens]]:
        """Returns the tokens of an example's records, for both texts."""
        tokens_a = self.tokenizer.encode(example.text_a)
        tokens_b = self.tokenizer.encode(example.text_b) if example.text_b else []
        room = self.max_seq_length - (3 if tokens_b else 2)
        if self.windows:
            pairs, is_cut = windows_of_pair(tokens_a, tokens_b, room, self.doc_stride)
            self.window_counts.append(len(pairs))
        else:
            pairs = [truncate_pair(tokens_a, tokens_b, room)]
            is_cut = len(tokens_a) + len(tokens_b) > room
        self.num_truncated += is_cut
        return pairs

    def logits(
        self,
        outputs: Predict,
        records: ExampleTable,
        batch_size: int,
        num_lengths: int | None,
    ) -> np.ndarray:
        """Returns the outputs [N, C] of the examples that `blocks` last read."""
        shape = (self.target.num_outputs,)
        logits = records.predicted("logits", shape, outputs, batch_size, num_lengths)
        return pooled_windows(logits, self.window_counts, self.window_pooling)
