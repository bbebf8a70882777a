"""How likely a pre-trained model finds sentences, and pairs of sentences.

A masked language model has no probability of a sentence. Salazar et al. 2020 ("Masked
Language Model Scoring", section 2) take the pseudo-log-likelihood instead: each token w
of a sentence W is masked in turn, and predicted from all the others,

    PLL(W) = sum over w in W of log P(w | W without w)

and from it the pseudo-perplexity exp(-PLL / N) of sentences of N tokens together. [CLS]
and [SEP] are neither masked nor counted.

The next sentence head says of a pair how probable it is that B follows A (Devlin et al.
2018, section 3.1).

Shapes: B sequences of a batch, S tokens of the longest of them.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.text.wordpiece import WordPieceTokenizer

# Lengths of batches are multiples of this, so that few are compiled.
_LENGTH_STEP = 16


class SentenceScore(NamedTuple):
    """What a model makes of a sentence.

    Attributes:
        tokens: its WordPieces.
        log_probabilities: of each of them, the natural logarithm of its probability
            where it alone is masked.
    """

    tokens: list[str]
    log_probabilities: list[float]

    @property
    def pseudo_log_likelihood(self) -> float:
        """PLL, in nats."""
        return math.fsum(self.log_probabilities)

    @property
    def pseudo_perplexity(self) -> float:
        """exp(-PLL / N)."""
        return corpus_pseudo_perplexity([self])


def corpus_pseudo_perplexity(scores: Sequence[SentenceScore]) -> float:
    """The pseudo-perplexity of sentences together, each token counting alike."""
    total = math.fsum(score.pseudo_log_likelihood for score in scores)
    try:
        return math.exp(-total / sum(len(score.tokens) for score in scores))
    except OverflowError:
        return math.inf


class SentenceScorer:
    """Scores sentences with a pre-trained model."""

    def __init__(
        self,
        model: BertPretrainer,
        tokenizer: WordPieceTokenizer,
        *,
        batch_size: int = 32,
    ) -> None:
        if model.bert_config.left_to_right:
            raise InputError(
                "The model reads from left to right (`left_to_right` in"
                " bert_config.json): it knows no [MASK], and has no pseudo-likelihood."
            )
        self._longest = model.bert_config.max_position_embeddings
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._has_pairs = "next_sentence_logits" in model.output

        @tf.function(reduce_retracing=True)
        def log_probabilities(
            inputs: dict[str, tf.Tensor], targets: tf.Tensor
        ) -> tf.Tensor:
            outputs = model(inputs, training=False)
            # Logits of what the vocabulary lacks, the rows of padding, are of no token.
            logits = outputs["masked_lm_logits"][:, 0, : len(tokenizer.vocabulary)]
            logits = tf.nn.log_softmax(tf.cast(logits, tf.float32))
            return tf.gather(logits, targets, batch_dims=1)

        @tf.function(reduce_retracing=True)
        def follows(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
            outputs = model(inputs, training=False)
            logits = tf.cast(outputs["next_sentence_logits"], tf.float32)
            return tf.nn.softmax(logits)[:, 0]

        self._log_probabilities = log_probabilities
        self._follows = follows

    def sentences(self, texts: Iterable[str]) -> Iterator[SentenceScore]:
        """Scores sentences, one after the other."""
        # Masked copies of many short sentences share a batch.
        for texts_at_once in _batched(texts, self._batch_size):
            encoded = [self._encoded(text) for text in texts_at_once]
            copies = [
                (ids, place) for ids in encoded for place in range(1, len(ids) - 1)
            ]
            scores = self._copies(copies)
            for ids in encoded:
                tokens = self._tokenizer.convert_ids_to_tokens(ids[1:-1])
                yield SentenceScore(tokens, list(itertools.islice(scores, len(tokens))))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """The probability of each pair that the second text follows the first one."""
        self._refuse_pairs_without_head()
        for some in _batched(pairs, self._batch_size):
            rows = [self._encoded(*pair) for pair in some]
            segments = [
                [0] * (row.index(self._sep) + 1)
                + [1] * (len(row) - row.index(self._sep) - 1)
                for row in rows
            ]
            inputs = self._inputs(rows, segments)
            inputs["masked_lm_positions"] = tf.zeros([len(rows), 1], tf.int32)
            yield from self._follows(inputs).numpy().tolist()

    def check(self, *texts: str) -> None:
        """Checks that a sentence, or a pair of two, can be scored."""
        if len(texts) > 1:
            self._refuse_pairs_without_head()
        self._encoded(*texts)

    def _refuse_pairs_without_head(self) -> None:
        if not self._has_pairs:
            raise InputError(
                "The checkpoint has no next sentence head: it was pre-trained without"
                " one. Give single sentences."
            )

    @property
    def _sep(self) -> int:
        return self._tokenizer.vocabulary.sep_id

    def _encoded(self, *texts: str) -> list[int]:
        """[CLS] text [SEP] ..., of each text its tokens."""
        ids = [self._tokenizer.vocabulary.cls_id]
        for text in texts:
            tokens = self._tokenizer.encode(text)
            if not tokens:
                raise InputError(
                    f"There is no token to score in {text!r}: leave it out."
                )
            # [SEP] written in a text is no special token; so the first one ends A.
            ids += [*tokens, self._sep]
        if len(ids) > self._longest:
            raise InputError(
                f"The text has {len(ids)} tokens with [CLS] and [SEP]; the model takes"
                f" {self._longest}: {texts[0][:60]!r}. Cut it, or leave it out."
            )
        return ids

    def _copies(self, copies: Sequence[tuple[list[int], int]]) -> Iterator[float]:
        """The log probability of the token at each place, masked there."""
        for some in _batched(copies, self._batch_size):
            inputs = self._inputs([ids for ids, _ in some])
            masked = inputs["input_ids"].numpy()
            places = np.array([place for _, place in some], np.int32)
            rows = np.arange(len(some))
            targets = masked[rows, places]
            masked[rows, places] = self._tokenizer.vocabulary.mask_id
            inputs["input_ids"] = tf.constant(masked)
            inputs["masked_lm_positions"] = tf.constant(places[:, None])
            scores = self._log_probabilities(inputs, tf.constant(targets))
            yield from scores.numpy().tolist()

    def _inputs(
        self, rows: Sequence[list[int]], segments: Sequence[list[int]] | None = None
    ) -> dict[str, tf.Tensor]:
        """The encoder's inputs, padded to the longest row or a little more."""
        longest = max(map(len, rows))
        length = min(self._longest, -(-longest // _LENGTH_STEP) * _LENGTH_STEP)
        shape = (len(rows), length)
        inputs = {
            name: np.zeros(shape, np.int32)
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        for number, row in enumerate(rows):
            inputs["input_ids"][number, : len(row)] = row
            inputs["input_mask"][number, : len(row)] = 1
            if segments is not None:
                inputs["segment_ids"][number, : len(row)] = segments[number]
        return {name: tf.constant(value) for name, value in inputs.items()}


def _batched(items: Iterable, size: int) -> Iterator[list]:
    remaining = iter(items)
    while some := list(itertools.islice(remaining, size)):
        yield some
