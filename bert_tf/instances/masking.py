"""The masked language model: which tokens are predicted, and what replaces them.

Devlin et al. 2018, section 3.1 "Task #1" and appendix A.1: 15 % of the tokens are
chosen; of these 80 % become [MASK], 10 % a random token, 10 % stay. Record-for-record
equality with the original depends on its order of random draws, which the
docstrings give.
"""

import numpy as np
from absl import logging

from bert_tf.instances.random_stream import compiled, random, random_below, shuffle
from bert_tf.instances.settings import MASK_RATE

# Of those that do not become [MASK], half stay, half become a random token.
KEEP_RATE_OF_REST = 0.5


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
            "`max_predictions_per_seq=%d` is few for `max_seq_length=%d`: a full"
            " sequence needs %d for `masked_lm_prob=%g`.",
            max_predictions,
            max_tokens,
            full,
            masked_lm_prob,
        )


@compiled
def mask(sequence, recipe, stream, positions, labels):
    """Masks one sequence in place; returns how many tokens are to be predicted."""
    members, starts = _candidates(sequence, recipe)
    candidates = np.arange(len(starts) - 1)
    shuffle(stream, candidates)
    limit = num_predictions(
        len(sequence), recipe.masked_lm_prob, recipe.max_predictions_per_seq
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
            replacements[position] = _replacement(sequence[position], recipe, stream)
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
def _candidates(sequence, recipe):
    """The units of masking, in the sequence's order."""
    members = np.empty(len(sequence), np.int64)
    starts = np.empty(len(sequence) + 1, np.int64)
    num_members = num_candidates = 0
    for position in range(len(sequence)):
        token = sequence[position]
        if token == recipe.cls_id or token == recipe.sep_id:
            continue
        if num_candidates == 0 or not recipe.joins[token]:
            starts[num_candidates] = num_members
            num_candidates += 1
        members[num_members] = position
        num_members += 1
    starts[num_candidates] = num_members
    return members[:num_members], starts[: num_candidates + 1]


@compiled
def _replacement(token, recipe, stream):
    if random(stream) < MASK_RATE:
        return recipe.mask_id
    if random(stream) < KEEP_RATE_OF_REST:
        return token
    return recipe.word_ids[random_below(stream, len(recipe.word_ids))]
