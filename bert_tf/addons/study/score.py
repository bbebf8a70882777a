"""Scores of sentences and sentence pairs by a pre-trained model."""

import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import Path, option
from bert_tf.base.parallel import grouped
from bert_tf.base.shared_options import SourceOptions
from bert_tf.text.wordpiece import PAIR_SEPARATOR, WordPieceTokenizer, pair_features

if TYPE_CHECKING:
    from bert_tf.modeling.heads import BertPretrainer


class ScoreOptions(SourceOptions, decides="nothing"):
    """The model, and the sentences to score."""

    input_file: str | None = option(
        None,
        "Sentences or pairs, one per line; empty lines are skipped.",
        path=Path.FILE,
    )
    batch_size: int = option(
        32, "Sequences per batch; a sentence needs one sequence per token.", least=1
    )
    tokens: bool = option(False, "Print each token's log probability too.")
    json: bool = option(False, "Print one JSON object per line.")


# The likelihood of sentences, and of pairs of sentences, to a pre-trained model.
#
# A masked language model gives no probability of a sentence. Salazar et al. 2020
# ("Masked Language Model Scoring", section 2) use the pseudo-log-likelihood instead:
# each token w of a sentence W is masked in turn, and predicted from all the others,
#
#     PLL(W) = sum over w in W of log P(w | W without w)
#
# and the pseudo-perplexity of sentences with N tokens in all is exp(-PLL / N). [CLS]
# and [SEP] are neither masked nor counted.
#
# For a pair, the next sentence head gives the probability that B follows A (Devlin et
# al. 2018, section 3.1).
#
# Shapes: B sequences of a batch, S tokens of the longest of them.

# Lengths of batches are multiples of this, so that few are compiled.
_LENGTH_STEP = 16

Pair = tuple[list[int], list[int]]  # the tokens of a text, and of a second one or none


class SentenceScore(NamedTuple):
    """A model's scores of a sentence."""

    tokens: list[str]  # its WordPieces
    log_probabilities: list[float]  # one per token, in nats, when it alone is masked

    @property
    def pseudo_log_likelihood(self) -> float:
        """PLL, in nats."""
        return math.fsum(self.log_probabilities)

    @property
    def pseudo_perplexity(self) -> float:
        """exp(-PLL / N)."""
        return corpus_pseudo_perplexity([self])


def corpus_pseudo_perplexity(scores: Sequence[SentenceScore]) -> float:
    """Returns the pseudo-perplexity of all sentences together, by token."""
    total = math.fsum(score.pseudo_log_likelihood for score in scores)
    with np.errstate(over="ignore"):
        return float(np.exp(-total / sum(len(score.tokens) for score in scores)))


class SentenceScorer:
    """Scores sentences with a pre-trained model."""

    def __init__(
        self,
        model: "BertPretrainer",
        tokenizer: WordPieceTokenizer,
        *,
        batch_size: int = 32,
    ) -> None:
        from bert_tf.training.step import on_devices
        from bert_tf.training.strategy import create_strategy

        if not model.bert_config.is_bidirectional:
            raise InputError(
                "The model reads in one direction (see its bert_config.json): it knows"
                " no [MASK], and has no pseudo-likelihood."
            )
        self._longest = model.bert_config.max_position_embeddings
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._has_pairs = "next_sentence_logits" in model.output
        self._outputs = on_devices().prediction_step(
            model, create_strategy(), by_pieces=False
        )

    def sentences(self, texts: Iterable[str]) -> Iterator[SentenceScore]:
        """Yields the scores of sentences, in order."""
        # Masked copies of many short sentences share a batch.
        for some in grouped(texts, self._batch_size):
            rows = [self.encoded(text)[0] for text in some]
            scores = self._copies([(row, i) for row in rows for i in range(len(row))])
            for row in rows:
                tokens = self._tokenizer.convert_ids_to_tokens(row)
                yield SentenceScore(tokens, list(itertools.islice(scores, len(tokens))))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Yields each pair's probability that the second text follows the first one."""
        from keras import ops

        for some in grouped(pairs, self._batch_size):
            rows = [self.encoded(*pair) for pair in some]
            inputs = self._inputs(rows)
            inputs["masked_lm_positions"] = np.zeros([len(rows), 1], np.int32)
            logits = self._outputs(inputs)["next_sentence_logits"]
            scores = ops.softmax(ops.cast(logits, "float32"))
            yield from ops.convert_to_numpy(scores)[:, 0].tolist()

    def encoded(self, *texts: str) -> Pair:
        """Returns the tokens of a text, or of two; InputError if they have no score."""
        if len(texts) > 1 and not self._has_pairs:
            raise InputError(
                "The checkpoint has no next sentence head: it was pre-trained without"
                " one. Give single sentences."
            )
        found = [self._tokenizer.encode(text) for text in texts]
        for text, tokens in zip(texts, found, strict=True):
            if not tokens:
                raise InputError(
                    f"There is no token to score in {text!r}: leave it out."
                )
        pair = found[0], found[1] if len(found) > 1 else []
        if _length(pair) > self._longest:
            raise InputError(
                f"The text has {_length(pair)} tokens with [CLS] and [SEP]; the model"
                f" takes {self._longest}: {texts[0][:60]!r}. Cut it, or leave it out."
            )
        return pair

    def _copies(self, copies: Sequence[tuple[list[int], int]]) -> Iterator[float]:
        """Returns the log probability of each masked token."""
        from keras import ops

        for some in grouped(copies, self._batch_size):
            inputs = self._inputs([(row, []) for row, _ in some])
            places = np.array([1 + place for _, place in some], np.int32)
            rows = np.arange(len(some))
            targets = inputs["input_ids"][rows, places]
            inputs["input_ids"][rows, places] = self._tokenizer.vocabulary.mask_id
            inputs["masked_lm_positions"] = places[:, None]
            logits = self._outputs(inputs)["masked_lm_logits"][:, 0]
            # Rows of padding, beyond the vocabulary, have logits for no token.
            logits = logits[:, : len(self._tokenizer.vocabulary)]
            scores = ops.convert_to_numpy(ops.log_softmax(ops.cast(logits, "float32")))
            yield from scores[rows, targets].tolist()

    def _inputs(self, rows: Sequence[Pair]) -> dict[str, np.ndarray]:
        """Returns the encoder's inputs, padded to the longest row or a little more."""
        longest = -(-max(map(_length, rows)) // _LENGTH_STEP) * _LENGTH_STEP
        length = min(self._longest, longest)
        found = pair_features(rows, self._tokenizer.vocabulary, length)
        return {name: values.astype(np.int32) for name, values in found.items()}


def _length(pair: Pair) -> int:
    """Returns the length with [CLS] and [SEP]."""
    return len(pair[0]) + len(pair[1]) + (3 if pair[1] else 2)


def _texts(options: ScoreOptions) -> list[tuple[str, str]]:
    """Yields the texts with their places for messages: arguments, then lines."""
    texts = [(argument, "") for argument in options.positional]
    path = options.input_file
    if path:
        content = files.read_text(path, "file of sentences").removeprefix("\ufeff")
        files.num_joined_by_returns(content, path)
        texts += [
            (line.rstrip("\r\n"), f"{path}:{number}: ")
            for number, line in enumerate(files.lines(content), start=1)
            if line.strip()
        ]
    if not texts:
        raise InputError(
            "Give a sentence, or --input_file: python -m bert_tf.score --checkpoint=DIR"
            ' "A sentence."'
        )
    return texts


def _lines(options: ScoreOptions, texts: list[tuple[str, str]]) -> Iterator[str]:
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_pretrainer
    from bert_tf.conversion.source import load_tokenizer

    source = source_of(options)
    scorer = SentenceScorer(
        load_pretrainer(source), load_tokenizer(source), batch_size=options.batch_size
    )
    split = [text.split(PAIR_SEPARATOR, 1) for text, _ in texts]
    for parts, (_, place) in zip(split, texts, strict=True):
        try:
            scorer.encoded(*parts)
        except InputError as error:
            raise InputError(f"{place}{error}") from error
    of_pairs = scorer.pairs((one[0], one[1]) for one in split if len(one) > 1)
    of_sentences = scorer.sentences(one[0] for one in split if len(one) == 1)
    scores = []
    for (text, _), parts in zip(texts, split, strict=True):
        values: dict[str, Any] = {"text": text}
        if len(parts) > 1:
            values["next_sentence_probability"] = probability = next(of_pairs)
            shown = f"{probability:12.2%}  {text}"
        else:
            score = next(of_sentences)
            scores.append(score)
            values["pseudo_perplexity"] = score.pseudo_perplexity
            values["pseudo_log_likelihood"] = score.pseudo_log_likelihood
            values["num_tokens"] = len(score.tokens)
            shown = f"{score.pseudo_perplexity:12.3f}  {text}"
            if options.tokens:
                values |= score._asdict()
                for token, value in zip(*score, strict=True):
                    shown += f"\n{'':12}  {value:9.3f}  {token}"
        yield json.dumps(values, ensure_ascii=False) if options.json else shown
    if len(scores) > 1:
        count, together = len(scores), corpus_pseudo_perplexity(scores)
        values = {"num_sentences": count, "pseudo_perplexity": together}
        shown = f"{together:12.3f}  all {count} sentences together"
        yield json.dumps(values) if options.json else shown


def run(options: ScoreOptions) -> None:
    """Prints a line for each text, in order."""
    texts = _texts(options)
    cli.import_tensorflow(options)
    for line in _lines(options, texts):
        print(line)
        sys.stdout.flush()
