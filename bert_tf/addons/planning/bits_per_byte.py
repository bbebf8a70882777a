"""Bits per byte: how well a model predicts text, whatever its vocabulary.

A loss per token depends on the vocabulary. So words are predicted here, and their bits
are divided by their bytes. A masked language model gives no
probability of text; Salazar et al. 2020 (arXiv:1910.14659) add up the log-likelihoods
of its tokens, each masked in turn. That makes words of several pieces look likely, as a
piece is easy to guess from the others of its word; Kauf and Ivanova 2023
(arXiv:2305.10588, PLL-word-l2r) mask the word's later pieces too. So

    log P(word) = sum over its pieces i of log P(piece i | its pieces before i, context)

    bits per byte = -sum over words of log2 P(word) / sum over words of bytes(word)

The words are 15 % of each record's, at least one, drawn by the record's number. The
context is the record without the words that are drawn. Step i of a record predicts the
i-th piece of each drawn word that has as many, with its earlier pieces in place; other
drawn words are masked as a whole. So there are as many steps as the longest word has
pieces. Masks are [MASK] always.

The unigrams' bits per byte are the figure of a model that knows only the frequency of
each token in the text for training: P(piece i | ...) = its share of that text's tokens.

bytes(word) is the length of its pieces in UTF-8, without "##": the tokenizer's
lower-cased text without white space. Two vocabularies of the same casing cut a text
into the same words, hence the same bytes. Words that are [UNK], whose bytes are
unknown, are not drawn, nor are words whose beginning was cut off with the segment
before.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.training.events import Callback, Evaluation

if TYPE_CHECKING:
    from bert_tf.tasks.pretraining import PretrainingRun
    from bert_tf.training.task import Task

# The metrics.
BITS_PER_BYTE = "bits_per_byte"
UNIGRAM_BITS = "unigram_bits_per_byte"
_SHARE = 0.15
# An estimate: the pieces of a record's longest masked word.
_MASKED_ROWS = 4

# Shapes: S tokens of a record, P predictions.

Arrays = Mapping[str, np.ndarray]


class MaskedWords:
    """The first of some records with masked words, in whole batches.

    Iterating over it counts the predictions; `vocab_size` is the model's.
    """

    def __init__(
        self,
        batches: Callable[[], Iterable[Arrays]],
        vocabulary: Vocabulary,
        *,
        vocab_size: int,
        mask_token: str,
        batch_size: int,
        max_batches: int,  # 0: all of the records
    ) -> None:
        self._batches = batches
        self._masker = _Masker(vocabulary, vocab_size, mask_token)
        self._batch_size = batch_size
        self._most = batch_size * max_batches or math.inf  # rows
        self.num_predictions = self.num_bytes = 0
        self._label_counts = np.zeros(vocab_size)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        self.num_predictions = self.num_bytes = num_rows = 0
        self._label_counts[:] = 0.0
        rows: list[Arrays] = []
        for number, record in enumerate(_records(self._batches())):
            steps, num_bytes = self._masker.steps(record, number)
            num_rows += len(steps)
            if num_rows > self._most and self.num_bytes:
                break
            for row in steps:
                labels = row["masked_lm_ids"][row["masked_lm_weights"] > 0]
                self.num_predictions += len(labels)
                np.add.at(self._label_counts, labels, 1.0)
            self.num_bytes += num_bytes
            rows += steps
            while len(rows) >= self._batch_size:
                yield _stacked(rows[: self._batch_size])
                rows = rows[self._batch_size :]
        if rows:
            # Rows that predict nothing fill the last batch.
            nothing = np.zeros_like(rows[-1]["masked_lm_weights"])
            filler = {**rows[-1], "masked_lm_weights": nothing}
            yield _stacked(rows + [filler] * (self._batch_size - len(rows)))

    def bits_per_byte(self, masked_lm_loss: float) -> float:
        """Returns bits per byte, from the mean loss of all predictions in nats."""
        bits = masked_lm_loss * self.num_predictions / math.log(2.0)
        return bits / self.num_bytes

    def unigram_bits_per_byte(self, frequencies: np.ndarray) -> float:
        """Returns the unigrams' bits per byte, from the frequency [V] of each token."""
        return _unigram_bits(self._label_counts, frequencies) / self.num_bytes


def unigram_bits_per_byte(
    ids: np.ndarray, seen: np.ndarray, vocabulary: Vocabulary
) -> float:
    """Returns the unigrams' bits per byte of a text, with another text's frequencies.

    Both are tokens' ids; 0 if the first has no known ones.
    """
    counts = np.bincount(ids, minlength=len(vocabulary))
    counts[vocabulary.unk_id] = 0
    frequencies = smoothed(np.bincount(seen, minlength=len(vocabulary)))
    num_bytes = counts @ _num_bytes(vocabulary)
    return _unigram_bits(counts, frequencies) / max(num_bytes, 1)


def smoothed(counts: np.ndarray) -> np.ndarray:
    """Returns frequencies; half a count is added to each, as some counts are 0."""
    return (counts + 0.5) / (counts + 0.5).sum()


def _unigram_bits(counts: np.ndarray, frequencies: np.ndarray) -> float:
    return float(counts @ -np.log2(frequencies))


def _num_bytes(tokens: Iterable[str]) -> np.ndarray:
    return np.array(
        [len(token.removeprefix(CONTINUATION).encode()) for token in tokens]
    )


def _stacked(rows: list[Arrays]) -> dict[str, np.ndarray]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _records(batches: Iterable[Arrays]) -> Iterator[Arrays]:
    for batch in batches:
        for row in range(len(batch["input_ids"])):
            yield {name: values[row] for name, values in batch.items()}


class _Masker:
    """Draws a record's words, and masks them step by step."""

    def __init__(
        self, vocabulary: Vocabulary, vocab_size: int, mask_token: str
    ) -> None:
        self._mask_id = vocabulary.ids[mask_token]
        tokens = [*vocabulary.tokens, *[UNK] * (vocab_size - len(vocabulary))]
        starts = [not token.startswith(CONTINUATION) for token in tokens]
        self._is_start = np.array(starts)
        self._is_text = np.array(
            [token not in (PAD, UNK, CLS, SEP, MASK) for token in tokens]
        )
        self._num_bytes = _num_bytes(tokens)

    def steps(self, record: Arrays, number: int) -> tuple[list[Arrays], int]:
        """Yields a row per piece of the longest drawn word, and all words' bytes."""
        ids = record["input_ids"].copy()
        is_masked = record["masked_lm_weights"] > 0
        ids[record["masked_lm_positions"][is_masked]] = record["masked_lm_ids"][
            is_masked
        ]
        is_text = (record["input_mask"] > 0) & self._is_text[ids]
        starts = np.flatnonzero(is_text & self._is_start[ids])
        if not len(starts):
            return [], 0
        # A word ends where the text ends or another word begins.
        ends = np.flatnonzero(np.append(~is_text | self._is_start[ids], True))
        ends = ends[np.searchsorted(ends, starts, side="right")]
        slots = len(is_masked)
        count = min(max(1, round(_SHARE * len(starts))), slots)
        drawn = np.random.default_rng(number).choice(len(starts), count, replace=False)
        drawn.sort()
        starts, ends = starts[drawn], ends[drawn]
        words = [np.arange(*word) for word in zip(starts, ends, strict=True)]
        rows: list[Arrays] = []
        for step in range(int((ends - starts).max())):
            some = [word for word in words if len(word) > step]
            masked = ids.copy()
            for word in words:
                masked[word[step if len(word) > step else 0 :]] = self._mask_id
            positions = np.zeros_like(record["masked_lm_positions"])
            labels = np.zeros_like(record["masked_lm_ids"])
            weights = np.zeros_like(record["masked_lm_weights"])
            positions[: len(some)] = [word[step] for word in some]
            labels[: len(some)] = ids[positions[: len(some)]]
            weights[: len(some)] = 1.0
            rows.append(
                {
                    **record,
                    "input_ids": masked,
                    "masked_lm_positions": positions,
                    "masked_lm_ids": labels,
                    "masked_lm_weights": weights,
                }
            )
        return rows, int(self._num_bytes[ids[np.concatenate(words)]].sum())


# The scores of models that know less, for comparison.

# Metric -> labels and their weights in a batch; without weights all are 1.
_LABELS = {
    "masked_lm_majority": ("masked_lm_ids", "masked_lm_weights"),
    "next_sentence_majority": ("next_sentence_labels", "next_sentence_weights"),
}


UNIGRAM_LOSS = "masked_lm_unigram_loss"
# The largest distance of a loss that still counts as equal.
_AT_THE_UNIGRAMS = 0.03
# The number of training records that are read for the frequencies, at most.
_COUNTED = 25_600


class Majority:
    """The scores on the batches seen, for models that know only the label counts."""

    # Next sentence labels may be far from balanced, so their accuracy means nothing
    # without.

    def __init__(self, task: "Task", frequencies: np.ndarray) -> None:
        self._frequencies = frequencies  # per token, [V]
        self._counts = {
            name: np.zeros(0)
            for name in _LABELS
            if name.replace("majority", "accuracy") in task.objective.metrics
        }

    def add(self, batch: Mapping[str, Any]) -> None:
        """Counts a batch's labels."""
        for name, counts in self._counts.items():
            labels_key, weights_key = _LABELS[name]
            labels = np.asarray(batch[labels_key]).ravel()
            weights = np.asarray(batch.get(weights_key, np.ones_like(labels))).ravel()
            more = np.bincount(labels, weights, len(counts)).astype(np.float64)
            more[: len(counts)] += counts
            self._counts[name] = more

    def scores(self) -> dict[str, float]:
        """Returns the share of the most frequent label, and the unigrams' loss."""
        # The loss is -sum over labels of log q(label) / their number, in nats, where q
        # is each token's frequency in the training records.
        scores = {
            name: float(counts.max() / counts.sum()) if counts.any() else 0.0
            for name, counts in self._counts.items()
        }
        counts = self._counts["masked_lm_majority"]
        losses = -np.log(self._frequencies[: len(counts)])
        return scores | {UNIGRAM_LOSS: float(counts @ losses / max(counts.sum(), 1.0))}


def warn_of_unigrams(results: Mapping[str, float]) -> None:
    """Warns if a masked LM has learned only the frequencies of the tokens."""
    # Most runs have such a loss for some time at their beginning.
    loss, unigrams = results["masked_lm_loss"], results[UNIGRAM_LOSS]
    if abs(loss - unigrams) >= _AT_THE_UNIGRAMS * unigrams:
        return
    logging.warning(
        "The masked LM's loss, %.2f, is about the unigram entropy, %.2f, which a model"
        " reaches by the frequencies of the tokens: the model does not use the context"
        " yet. This is normal for the first thousands of steps. If it stays, give a"
        " higher `learning_rate` or smaller batches, as `recipe=budget` has,"
        " `num_warmup_steps` of at most a tenth of the steps, or a narrow model an"
        " initializer_range of 0.08 in its bert_config.json.",
        *(loss, unigrams),
    )


class BitsPerByte(Callback):
    """Adds bits per byte, and the scores of models that know less, to evaluations."""

    def __init__(self, pretraining: "PretrainingRun") -> None:
        self._of = pretraining
        self._majority: Majority | None = None
        # Words can be masked, but not where each token predicts the next one.
        self._masks_words = (
            pretraining.vocabulary is not None
            and pretraining.electra is None
            and pretraining.config.is_bidirectional
        )
        if self._masks_words:
            self.metrics = (BITS_PER_BYTE,)
            # As many masked rows as records, or all: see MaskedWords.
            self.passes = 1 if pretraining.options.max_eval_steps else _MASKED_ROWS

    def observe(self, batch: Mapping[str, Any]) -> None:
        """Counts a batch's labels."""
        if self._majority is None:
            self._majority = Majority(self._of.task, self._frequencies)
        self._majority.add(batch)

    def scores(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Returns the scores; warns of a masked LM that knows only the unigrams."""
        assert self._majority is not None
        scores = self._majority.scores()
        self._majority = None
        warn_of_unigrams({**evaluation.results, **scores})
        if self._masks_words:
            scores |= self._of_words(evaluation)
        return scores

    def _of_words(self, evaluation: Evaluation) -> dict[str, float]:
        import tensorflow as tf

        options = self._of.options
        assert self._of.vocabulary is not None
        words = MaskedWords(
            lambda: evaluation.dataset(False).as_numpy_iterator(),
            self._of.vocabulary,
            vocab_size=self._of.config.vocab_size,
            mask_token=options.mask_token,
            batch_size=options.eval_batch_size,
            max_batches=options.max_eval_steps,
        )
        if next(iter(words), None) is None:  # no record has a word
            return {}
        spec = evaluation.dataset(True).element_spec
        batches = tf.data.Dataset.from_generator(lambda: words, output_signature=spec)
        loss = evaluation.measure(batches)["masked_lm_loss"]
        return {
            BITS_PER_BYTE: words.bits_per_byte(loss),
            UNIGRAM_BITS: words.unigram_bits_per_byte(self._frequencies),
        }

    @functools.cached_property
    def _frequencies(self) -> np.ndarray:
        """Returns each token's frequency [V] at the records' predicted positions."""
        counts = np.zeros(self._of.config.vocab_size)
        dataset = self._of.records[0].evaluation_dataset(_COUNTED // 100)
        for batch in dataset.take(100).as_numpy_iterator():
            labels = batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]
            counts += np.bincount(labels, minlength=len(counts))
        return smoothed(counts)
