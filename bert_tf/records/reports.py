"""What a run read, dropped and wrote: for people, and for the manifest."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.instances.masking import num_predictions
from bert_tf.instances.settings import NEXT_SENTENCE, STATIC_MASKING, InstanceSettings
from bert_tf.records.generation import ShardResult
from bert_tf.records.statistics import RecordStatistics
from bert_tf.records.tokenized_chunks import TokenizedChunk

LONE_TOKENS = "documents' last sentences of a single token, of which no pair is made"

# No sentence is as long; a document that is one line may be.
_LONG_SENTENCE = 10_000


def read_report(chunks: Sequence[TokenizedChunk]) -> dict[str, int]:
    """What was read, in numbers."""
    return {
        "documents": sum(chunk.num_documents for chunk in chunks),
        "sentences": sum(chunk.num_sentences for chunk in chunks),
        "tokens": sum(chunk.num_tokens for chunk in chunks),
    }


def dropped_counts(chunks: Iterable[TokenizedChunk]) -> Counter[str]:
    """What the readers left out, by reason."""
    dropped: Counter[str] = Counter()
    for chunk in chunks:
        dropped.update(chunk.dropped)
    return dropped


def final_report(
    read: Mapping[str, int],
    dropped: Counter[str],
    results: Sequence[ShardResult],
) -> dict[str, Any]:
    """The manifest's `report`."""
    statistics = merged_statistics(results)
    left_out = sum(result.num_left_out for result in results)
    if left_out:
        dropped = dropped + Counter({LONE_TOKENS: left_out})
    return {
        "read": dict(read),
        "dropped": dict(sorted(dropped.items())),
        "used_documents": sum(result.num_documents for result in results),
        "records": statistics.figures(),
    }


def merged_statistics(results: Sequence[ShardResult]) -> RecordStatistics:
    """The statistics of all shards."""
    first, *others = [
        RecordStatistics.from_values(result.statistics) for result in results
    ]
    for other in others:
        first.merge(other)
    return first


def log_report(report: Mapping[str, Any], results: Sequence[ShardResult]) -> None:
    """Says what was read, dropped and written."""
    read = report["read"]
    logging.info(
        "Read %s documents, %s sentences, %s tokens",
        *(f"{read[name]:,}" for name in ("documents", "sentences", "tokens")),
    )
    if not report["dropped"]:
        logging.info("Dropped nothing")
    for reason, count in report["dropped"].items():
        logging.info("Dropped %s: %s", f"{count:,}", reason)
    for line in merged_statistics(results).lines():
        logging.info("%s", line)


def warn_of_lengths(
    chunks: Sequence[TokenizedChunk], settings: InstanceSettings
) -> None:
    """Says which lengths are seldom meant, before records are made of them."""
    length = settings.max_seq_length
    longest = max(chunk.longest_sentence for chunk in chunks)
    if longest > max(_LONG_SENTENCE, length):
        logging.warning(
            "One line, or sentence, has %s tokens, and a record holds %d of it at most:"
            " the rest is cut off. In plain text a line is a sentence;"
            " --split_sentences splits lines.",
            f"{longest:,}",
            length,
        )
    full = num_predictions(length, settings.masked_lm_prob, length)
    # The usual 20 of 128 tokens are one more than there can be.
    if (
        settings.masking == STATIC_MASKING
        and settings.max_predictions_per_seq > full + 1
    ):
        logging.warning(
            "--max_predictions_per_seq=%d is more than --max_seq_length=%d has use for:"
            " --masked_lm_prob=%g of it are %d. The others stay empty.",
            settings.max_predictions_per_seq,
            length,
            settings.masked_lm_prob,
            full,
        )


def warn_of_oddities(
    results: Sequence[ShardResult], settings: InstanceSettings
) -> None:
    """Says what the original accepts in silence and is seldom meant, with counts."""
    figures = merged_statistics(results)
    num_records = figures.lengths.count
    lone = [result for result in results if result.num_documents == 1]
    if settings.pairs == NEXT_SENTENCE and lone:
        own = sum(merged_statistics([result]).num_random_next for result in lone)
        if len(results) == 1:
            logging.warning(
                "There is one document only: the %d random next sentences of %d "
                "instances come from itself. Put a blank line between documents.",
                own,
                num_records,
            )
        else:
            logging.warning(
                "%d of %d shards were made of one document: their %d random next "
                "sentences come from itself. Give a smaller --num_shards.",
                len(lone),
                len(results),
                own,
            )
    elif settings.pairs == NEXT_SENTENCE and figures.num_random_next == num_records:
        logging.warning(
            "All %d instances have a random next sentence: no document has two "
            "sentences that fit together. Documents are separated by blank lines, "
            "sentences by line ends alone.",
            num_records,
        )
    limit = settings.max_predictions_per_seq
    num_short = sum(result.num_short_of_predictions for result in results)
    full = num_predictions(
        settings.max_seq_length, settings.masked_lm_prob, settings.max_seq_length
    )
    if settings.masking == STATIC_MASKING and num_short and limit < full:
        logging.warning(
            "--max_predictions_per_seq=%d is few for --max_seq_length=%d: %d of %d "
            "instances mask less than --masked_lm_prob=%g of their tokens. A full one "
            "needs %d.",
            limit,
            settings.max_seq_length,
            num_short,
            num_records,
            settings.masked_lm_prob,
            full,
        )
