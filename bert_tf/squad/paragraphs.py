"""A paragraph's tokens, and the words and characters that they come from."""

import dataclasses

from bert_tf.text.alignment import Span


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenizedParagraph:
    """A paragraph's tokens.

    Attributes:
        context: the text.
        ids: its tokens.
        word_of_token: each token's word. Words are what stands between blanks, tabs,
            ends of lines and U+202F: the original's doc_tokens.
        words: each word's place in the text, in characters, half open.
    """

    context: str
    ids: list[int]
    word_of_token: list[int]
    words: list[Span]
