"""Pre-training instances: documents into masked sentence pairs, many times over.

The original's procedure (google-research/bert, create_pretraining_data): all documents
are one pool with one random stream. They are shuffled; in each of `dupe_factor` passes
every document is cut into pairs and each pair masked, with fresh draws; at last all
instances are shuffled.
"""

import dataclasses
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from bert_tf.instances.masking import Masking
from bert_tf.instances.pairs import MIN_SEQ_LENGTH, Document, document_pairs
from bert_tf.instances.token_ids import TokenIds


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """What the instances depend on beside the text, under the original's flag names.

    Attributes:
        max_seq_length: tokens of a sequence, [CLS], [SEP] and padding included.
        max_predictions_per_seq: masked-LM slots of a sequence.
        masked_lm_prob: share of a sequence's tokens to predict.
        short_seq_prob: the chance that a document's pairs aim at a shorter length.
        dupe_factor: passes over the documents, each with other pairs and masks.
        do_whole_word_mask: mask all pieces of a word or none.
        random_seed: of the one random stream.

    Raises:
        ValueError: a value is out of its range.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    dupe_factor: int = 10
    do_whole_word_mask: bool = False
    random_seed: int = 12345

    def __post_init__(self) -> None:
        for name, least in (
            ("max_seq_length", MIN_SEQ_LENGTH),
            ("max_predictions_per_seq", 1),
            ("dupe_factor", 1),
        ):
            value = getattr(self, name)
            if value < least:
                raise ValueError(
                    f"`{name}` must be at least {least}. Received: {value}"
                )
        if not 0.0 < self.masked_lm_prob <= 1.0:
            raise ValueError(
                f"`masked_lm_prob` must be in (0, 1]. Received: {self.masked_lm_prob}"
            )
        if not 0.0 <= self.short_seq_prob <= 1.0:
            raise ValueError(
                f"`short_seq_prob` must be in [0, 1]. Received: {self.short_seq_prob}"
            )


class PretrainingInstance(NamedTuple):
    """One sequence, before padding.

    Attributes:
        input_ids: [CLS] A [SEP] B [SEP], masked.
        num_first: tokens up to and with the first [SEP]: those of segment id 0.
        is_random_next: whether B does not follow A.
        masked_lm_positions: the tokens to predict, ascending.
        masked_lm_ids: the ids that stood there.
    """

    input_ids: list[int]
    num_first: int
    is_random_next: bool
    masked_lm_positions: list[int]
    masked_lm_ids: list[int]

    def features(self, settings: InstanceSettings) -> dict[str, list]:
        """The values of a record, by the names of `records.schema`, padded with 0."""
        num_tokens = len(self.input_ids)
        num_predictions = len(self.masked_lm_ids)
        padding = [0] * (settings.max_seq_length - num_tokens)
        no_predictions = [0] * (settings.max_predictions_per_seq - num_predictions)
        return {
            "input_ids": self.input_ids + padding,
            "input_mask": [1] * num_tokens + padding,
            "segment_ids": [0] * self.num_first
            + [1] * (num_tokens - self.num_first)
            + padding,
            "masked_lm_positions": self.masked_lm_positions + no_predictions,
            "masked_lm_ids": self.masked_lm_ids + no_predictions,
            "masked_lm_weights": [1.0] * num_predictions + no_predictions,
            "next_sentence_labels": [int(self.is_random_next)],
        }


def create_instances(
    documents: Sequence[Document],
    ids: TokenIds,
    settings: InstanceSettings,
    progress: Callable[[int], object] = lambda _: None,
) -> list[PretrainingInstance]:
    """The instances of a corpus, in the order in which they are written.

    Args:
        documents: token ids by sentence and document; no sentence or document is empty.
        ids: those of the documents' vocabulary.
        settings: lengths, rates and seed.
        progress: called with 1 after each document of each pass.

    Raises:
        ValueError: there is no document.
    """
    if not documents:
        raise ValueError("`documents` must have at least one document. Received: none")
    rng = Random(settings.random_seed)
    documents = list(documents)
    rng.shuffle(documents)
    mask = Masking(
        ids,
        masked_lm_prob=settings.masked_lm_prob,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        whole_word=settings.do_whole_word_mask,
    )
    instances = []
    for _ in range(settings.dupe_factor):
        for document_index in range(len(documents)):
            for first, second, is_random_next in document_pairs(
                documents,
                document_index,
                max_seq_length=settings.max_seq_length,
                short_seq_prob=settings.short_seq_prob,
                rng=rng,
            ):
                token_ids = [ids.cls_id, *first, ids.sep_id, *second, ids.sep_id]
                masked = mask(token_ids, rng)
                instances.append(
                    PretrainingInstance(
                        input_ids=masked.input_ids,
                        num_first=len(first) + 2,
                        is_random_next=is_random_next,
                        masked_lm_positions=masked.positions,
                        masked_lm_ids=masked.labels,
                    )
                )
            progress(1)
    rng.shuffle(instances)
    return instances
