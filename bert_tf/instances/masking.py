"""The masked language model: which tokens are predicted, and what takes their place.

Devlin et al. 2018, section 3.1 "Task #1" and appendix A.1: 15 % of the tokens are
chosen; of these 80 % become [MASK], 10 % a random token, 10 % stay. Equality with the
original, record for record, needs its order of draws from the random stream, which the
docstrings tell.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from bert_tf.instances.token_ids import TokenIds

MASK_RATE = 0.8
KEEP_RATE_OF_REST = 0.5


class MaskedTokens(NamedTuple):
    """A sequence with some tokens replaced, and what stood there.

    Attributes:
        input_ids: the sequence as the model sees it.
        positions: the chosen positions, ascending.
        labels: the ids that stood at `positions`.
    """

    input_ids: list[int]
    positions: list[int]
    labels: list[int]


def num_predictions(
    num_tokens: int, masked_lm_prob: float, max_predictions_per_seq: int
) -> int:
    """How many tokens of a sequence are chosen: at least one.

    The share is of all tokens, [CLS] and [SEP] included, and rounded half to even, as
    Python 3 rounds.
    """
    return min(max_predictions_per_seq, max(1, round(num_tokens * masked_lm_prob)))


class Masking:
    """How sequences are masked, for one vocabulary.

    Args:
        ids: the vocabulary's ids.
        masked_lm_prob: share of a sequence's tokens to choose.
        max_predictions_per_seq: at most this many.
        whole_word: choose all pieces of a word or none.
    """

    def __init__(
        self,
        ids: TokenIds,
        *,
        masked_lm_prob: float,
        max_predictions_per_seq: int,
        whole_word: bool = False,
    ) -> None:
        self._masked_lm_prob = masked_lm_prob
        self._max_predictions_per_seq = max_predictions_per_seq
        self._mask_id = ids.mask_id
        self._separators = (ids.cls_id, ids.sep_id)
        self._word_ids = ids.word_ids
        self._continuations = ids.continuation_ids if whole_word else None

    def __call__(self, token_ids: Sequence[int], rng: Random) -> MaskedTokens:
        """Masks one sequence.

        Args:
            token_ids: [CLS] A [SEP] B [SEP].
            rng: the random stream. Draws: one shuffle of the candidates; then for each
                chosen token one `random()`, another unless it becomes [MASK], and one
                number below the vocabulary's size if it becomes a random token.
        """
        candidates = self._candidates(token_ids)
        rng.shuffle(candidates)
        limit = num_predictions(
            len(token_ids), self._masked_lm_prob, self._max_predictions_per_seq
        )
        masked_ids = list(token_ids)
        chosen: list[int] = []
        for group in candidates:
            if len(chosen) >= limit:
                break
            if len(chosen) + len(group) > limit:
                continue  # a long word that no longer fits; a shorter one may
            for position in group:
                # A draw for each piece, even of one word.
                masked_ids[position] = self._replacement(token_ids[position], rng)
            chosen += group
        chosen.sort()
        return MaskedTokens(
            masked_ids, chosen, [token_ids[position] for position in chosen]
        )

    def _candidates(self, token_ids: Sequence[int]) -> list[list[int]]:
        """The positions that are chosen together, in the sequence's order.

        A piece with ## joins the group before it, even over a [SEP]: a second segment
        that was cut in front may begin within a word.
        """
        candidates: list[list[int]] = []
        continuations = self._continuations
        separators = self._separators
        for position, token_id in enumerate(token_ids):
            if token_id in separators:
                continue
            if continuations is not None and candidates and token_id in continuations:
                candidates[-1].append(position)
            else:
                candidates.append([position])
        return candidates

    def _replacement(self, token_id: int, rng: Random) -> int:
        if rng.random() < MASK_RATE:
            return self._mask_id
        if rng.random() < KEEP_RATE_OF_REST:
            return token_id
        return self._word_ids[rng.randrange(len(self._word_ids))]
