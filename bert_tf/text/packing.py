"""Text into packed ids: the tokenizer's ids as the bytes of an array.

No Python object is made for a token: the ids of a run without white space are kept as
bytes, and those of a text are its runs', joined.
"""

import numpy as np

from bert_tf.text.normalization import SPLITTING_CONTROLS
from bert_tf.text.wordpiece import Cache, WordPieceTokenizer


class PackedTokenizer:
    """The ids of `WordPieceTokenizer.encode`, packed."""

    def __init__(self, tokenizer: WordPieceTokenizer, dtype: type[np.integer]) -> None:
        if tokenizer.recognize_special_tokens:
            raise ValueError("`tokenizer` must take special tokens as ordinary text.")
        if len(tokenizer.vocabulary) - 1 > np.iinfo(dtype).max:
            raise ValueError(
                f"`dtype` must hold ids up to {len(tokenizer.vocabulary) - 1}. "
                f"Received: {np.dtype(dtype)}"
            )
        self._of_run: Cache[bytes] = Cache(
            lambda run: np.array(tokenizer.encode(run), dtype).tobytes()
        )
        self._run_ids = self._of_run.__getitem__

    def encode(self, text: str) -> bytes:
        """The bytes of a text's ids."""
        if SPLITTING_CONTROLS.search(text):
            text = SPLITTING_CONTROLS.sub("", text)
        return b"".join(map(self._run_ids, text.split()))
