"""Chunks of text into ids: what comes of a chunk's lines, as compact arrays."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from bert_tf.text.documents import TextLine

# Which exact repetitions are dropped.
NO_DEDUPLICATION = "none"
DOCUMENTS = "documents"
PARAGRAPHS = "paragraphs"
DEDUPLICATION = (NO_DEDUPLICATION, DOCUMENTS, PARAGRAPHS)

# 128 bits: two different texts have the same digest never, for all that is likely.
DIGEST_BYTES = 16

NO_TOKEN = "sentences without a token (control characters, say)"


class TokenizedPart:
    """Some documents of a chunk, one after another.

    Attributes:
        tokens: packed ids of all sentences.
        sentence_lengths: tokens of each sentence; none is 0.
        paragraph_lengths: sentences of each paragraph; none is 0.
        document_lengths: sentences of each document; none is 0.
        paragraph_digests: of each paragraph's text; empty unless asked for.
        document_digests: of each document's text; empty unless asked for.
    """

    def __init__(self) -> None:
        self.tokens = bytearray()
        self.sentence_lengths = array("i")
        self.paragraph_lengths = array("i")
        self.document_lengths = array("i")
        self.paragraph_digests = bytearray()
        self.document_digests = bytearray()


class ChunkTokenizer:
    """Tokenizes the lines of one chunk, part by part.

    Attributes:
        begins_with_end: whether a document ends before the first sentence.
        ends_with_end: whether one ends after the last sentence.
        dropped: what was left out, by reason.
    """

    def __init__(
        self,
        encode: Callable[[str], bytes],
        dtype: type[np.integer],
        *,
        digest_paragraphs: bool = False,
        digest_documents: bool = False,
    ) -> None:
        self._encode = encode
        self._token_bytes = np.dtype(dtype).itemsize
        self._digest_paragraphs = digest_paragraphs
        self._digest_documents = digest_documents
        self.begins_with_end = False
        self.ends_with_end = False
        self.dropped: Counter[str] = Counter()

    def parts(
        self, lines: Iterable[TextLine], max_bytes: int = 16 << 20
    ) -> Iterator[TokenizedPart]:
        """Yields the lines' documents, as many at a time as fit into some memory."""
        part = TokenizedPart()
        tokens, sentence_lengths = part.tokens, part.sentence_lengths
        encode, token_bytes = self._encode, self._token_bytes
        is_first, num_sentences = True, 0
        document = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for line in lines:
            if not line.sentences:
                self.begins_with_end |= is_first
                self.ends_with_end = True
                if num_sentences:
                    self._end_document(part, num_sentences, document)
                    num_sentences = 0
                    document = hashlib.blake2b(digest_size=DIGEST_BYTES)
                    if len(tokens) >= max_bytes:
                        yield part
                        part = TokenizedPart()
                        tokens, sentence_lengths = part.tokens, part.sentence_lengths
                continue
            before = len(sentence_lengths)
            for sentence in line.sentences:
                ids = encode(sentence)
                if ids:
                    tokens += ids
                    sentence_lengths.append(len(ids) // token_bytes)
                else:
                    self.dropped[NO_TOKEN] += 1
            added = len(sentence_lengths) - before
            if not added:
                continue
            is_first = self.ends_with_end = False
            num_sentences += added
            if self._digest_paragraphs:
                part.paragraph_lengths.append(added)
                part.paragraph_digests += hashlib.blake2b(
                    line.text.encode("utf-8"), digest_size=DIGEST_BYTES
                ).digest()
            if self._digest_documents:
                document.update(line.text.encode("utf-8") + b"\n")
        if num_sentences:
            self._end_document(part, num_sentences, document)
        yield part

    def _end_document(
        self, part: TokenizedPart, num_sentences: int, document: "hashlib.blake2b"
    ) -> None:
        part.document_lengths.append(num_sentences)
        if self._digest_documents:
            part.document_digests += document.digest()
