"""The ids that making instances needs to know of a vocabulary."""

import dataclasses
from collections.abc import Mapping

CLS = "[CLS]"
SEP = "[SEP]"
MASK = "[MASK]"
CONTINUATION = "##"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenIds:
    """Which ids have a meaning of their own.

    Attributes:
        cls_id: of [CLS], in front of a sequence.
        sep_id: of [SEP], after each segment.
        mask_id: of [MASK], in the place of a hidden token.
        word_ids: the ids that a random token is drawn from, in this order.
        continuation_ids: of the pieces that go on with a word ("##ing").
    """

    cls_id: int
    sep_id: int
    mask_id: int
    word_ids: tuple[int, ...]
    continuation_ids: frozenset[int]

    @classmethod
    def from_vocabulary(cls, ids: Mapping[str, int]) -> "TokenIds":
        """The ids of a vocabulary.

        A random token is any token, special ones included; one that stands twice in the
        vocabulary file counts once, at its first place and with its last id, as in the
        original's dictionary.
        """
        missing = [token for token in (CLS, SEP, MASK) if token not in ids]
        if missing:
            raise ValueError(
                f"`ids` must have [CLS], [SEP] and [MASK]. Missing: {missing}"
            )
        return cls(
            cls_id=ids[CLS],
            sep_id=ids[SEP],
            mask_id=ids[MASK],
            word_ids=tuple(ids.values()),
            continuation_ids=frozenset(
                token_id
                for token, token_id in ids.items()
                if token.startswith(CONTINUATION)
            ),
        )
