"""A paragraph's tokens, and the words and characters that they come from."""

import dataclasses
import functools
import re
from collections import OrderedDict
from itertools import chain

import numpy as np

from bert_tf.squad.examples import Paragraph
from bert_tf.text.normalization import Span
from bert_tf.text.wordpiece import Cache, WordPieceTokenizer

# The original's doc_tokens. U+00A0 and the other spaces do not separate them; so a word
# can be several of the tokenizer's, and one of spaces alone has no token.
WORD = re.compile("[^ \t\r\n\u202f]+")

# Questions of one paragraph come one after the other, seldom mixed with another's.
_PARAGRAPHS_KEPT = 4


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedParagraph:
    """A paragraph's tokens.

    Attributes:
        context: the text.
        ids: its tokens.
        word_of_token: each token's word, ascending. Words are what stands between
            blanks, tabs, ends of lines and U+202F: the original's doc_tokens.
        words: each word's place in the text, in characters, half open.
        tokenizer: what made the tokens.
    """

    context: str
    ids: list[int]
    word_of_token: list[int]
    words: list[Span]
    tokenizer: WordPieceTokenizer = dataclasses.field(repr=False)

    @functools.cached_property
    def id_array(self) -> np.ndarray:
        """`ids` as int32, to be copied a window at a time."""
        return np.array(self.ids, np.int32)

    @functools.cached_property
    def offsets(self) -> list[Span]:
        """Each token's place in the text, in characters, half open."""
        encoding = self.tokenizer.encode_with_offsets(self.context)
        assert encoding.ids == self.ids
        return encoding.offsets


class ParagraphTokenizer:
    """Tokenizes each paragraph once, for as long as questions are about it.

    It may be pickled; a copy begins without paragraphs.
    """

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        self.tokenizer = tokenizer
        self._ids_of_word: Cache[tuple[int, ...]] = Cache(self._encode_word)
        self._kept: OrderedDict[str, TokenizedParagraph] = OrderedDict()

    def __call__(self, paragraph: Paragraph) -> TokenizedParagraph:
        """The paragraph's tokens."""
        context = paragraph.context
        tokenized = self._kept.get(context)
        if tokenized is None:
            tokenized = self._tokenize(context)
            if len(self._kept) >= _PARAGRAPHS_KEPT:
                self._kept.popitem(last=False)
            self._kept[context] = tokenized
        return tokenized

    def _tokenize(self, context: str) -> TokenizedParagraph:
        # Words end at white space, and no rule of the tokenizer looks past that: their
        # tokens one after another are the text's.
        ids_of_words = list(map(self._ids_of_word.__getitem__, WORD.findall(context)))
        counts = list(map(len, ids_of_words))
        return TokenizedParagraph(
            context=context,
            ids=list(chain.from_iterable(ids_of_words)),
            word_of_token=np.repeat(np.arange(len(counts)), counts).tolist(),
            words=[match.span() for match in WORD.finditer(context)],
            tokenizer=self.tokenizer,
        )

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(word))

    def __reduce__(self) -> tuple:
        return ParagraphTokenizer, (self.tokenizer,)
