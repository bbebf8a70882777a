"""The masked language model: which tokens are predicted, and what replaces them.

Devlin et al. 2018, section 3.1 "Task #1" and appendix A.1: 15 % of the tokens are
chosen; of these 80 % become [MASK], 10 % a random token, 10 % stay. Record-for-record
equality with the original depends on its order of random draws, which the
docstrings give.
"""

from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.instances.random_stream import compiled, random, random_below, shuffle
from bert_tf.instances.settings import MASK_RATE

# Of those that do not become [MASK], half stay, half become a random token.
KEEP_RATE_OF_REST = 0.5


class Masking(NamedTuple):
    """How sequences are masked, for one vocabulary."""

    masked_lm_prob: float  # share of a sequence's tokens to choose
    max_predictions_per_seq: int  # at most this many
    mask_id: int  # of [MASK]
    cls_id: int  # of [CLS], which is never chosen
    sep_id: int  # of [SEP], which is never chosen
    word_ids: np.ndarray  # int32 [num_words], what a random token is drawn from
    # bool [vocab_size], which ids belong to the word before them; all false where
    # pieces are masked one by one.
    joins: np.ndarray


@compiled
def num_predictions(num_tokens, masked_lm_prob, max_predictions_per_seq):
    """How many tokens of a sequence are chosen: at least one."""
    share = int(np.rint(num_tokens * masked_lm_prob))
    return min(max_predictions_per_seq, max(1, share))


def warn_if_few(max_predictions: int, max_tokens: int, masked_lm_prob: float) -> None:
    """Warns if a full sequence has fewer slots than tokens to predict."""
    full = num_predictions(max_tokens, masked_lm_prob, max_tokens)
    if max_predictions < full:
        logging.warning(
            "--max_predictions_per_seq=%d is few for --max_seq_length=%d: a full"
            " sequence needs %d for --masked_lm_prob=%g.",
            max_predictions,
            max_tokens,
            full,
            masked_lm_prob,
        )


@compiled
def mask(
    sequence: np.ndarray,
    masking: Masking,
    stream: np.ndarray,
    positions: np.ndarray,
    labels: np.ndarray,
) -> int:
    """Masks one sequence in place."""
    members, starts = _candidates(sequence, masking)
    candidates = np.arange(len(starts) - 1)
    shuffle(stream, candidates)
    limit = num_predictions(
        len(sequence), masking.masked_lm_prob, masking.max_predictions_per_seq
    )
    count = 0
    chosen = np.zeros(len(sequence), np.bool_)
    replacements = np.empty(len(sequence), sequence.dtype)
    for candidate in candidates:
        if count >= limit:
            break
        start, stop = starts[candidate], starts[candidate + 1]
        if count + stop - start > limit:
            continue  # a long word that no longer fits; a shorter one may
        for position in members[start:stop]:
            # A draw for each piece, even of one word.
            chosen[position] = True
            replacements[position] = _replacement(sequence[position], masking, stream)
        count += stop - start
    count = 0
    for position in range(len(sequence)):
        if chosen[position]:
            positions[count] = position
            labels[count] = sequence[position]
            sequence[position] = replacements[position]
            count += 1
    return count


@compiled
def _candidates(sequence, masking):
    """The units of masking, in the sequence's order."""
    members = np.empty(len(sequence), np.int64)
    starts = np.empty(len(sequence) + 1, np.int64)
    num_members = num_candidates = 0
    for position in range(len(sequence)):
        token = sequence[position]
        if token == masking.cls_id or token == masking.sep_id:
            continue
        if num_candidates == 0 or not masking.joins[token]:
            starts[num_candidates] = num_members
            num_candidates += 1
        members[num_members] = position
        num_members += 1
    starts[num_candidates] = num_members
    return members[:num_members], starts[: num_candidates + 1]


@compiled
def _replacement(token, masking, stream):
    if random(stream) < MASK_RATE:
        return masking.mask_id
    if random(stream) < KEEP_RATE_OF_REST:
        return token
    return masking.word_ids[random_below(stream, len(masking.word_ids))]
