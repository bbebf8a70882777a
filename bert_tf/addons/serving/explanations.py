"""Explanations of predictions by the words' contributions, as text and as HTML."""

import html
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base import keras_backend
from bert_tf.base.parallel import grouped
from bert_tf.text.normalization import Span
from bert_tf.text.wordpiece import Encoding

_LONGEST_BAR = 30  # characters
_LITTLE_DIFFERENCE = 0.05  # of a score, such as a logit
_LITTLE = "The text without its words has nearly the same score: they hardly matter."


class Piece(NamedTuple):
    """A token and its contribution to a score."""

    token: str
    attribution: float


class Word(NamedTuple):
    """A word and its contribution, the sum of its pieces."""

    text: str  # as written
    attribution: float
    span: Span  # its characters in its text, half open
    part: int  # 0: in the first text; 1: in the second
    pieces: tuple[Piece, ...]


class Explanation(NamedTuple):
    """The contribution of each word to a prediction's score.

    Attributes:
        target: the label, the answer, or the word and its label that is explained.
        texts: the text, or the two of a pair.
        words: the contributions of each word and its pieces: integrated gradients of
            the word embeddings (Sundararajan et al. 2017). [CLS] and [SEP] have no
            share.
        score: the target's score: a label's logit, the number of a regression, or the
            sum of the logits of an answer's start and end.
        baseline_score: the score of the baseline, the text with a neutral token in
            place of each token. The attributions sum to the difference.
        gap: the relative error of that sum.
        steps: the number of points from which the integral was computed.

    Examples:
        >>> explanation = bert_tf.load("classifier").explain("A good film")[0]
        >>> [word.text for word in explanation.words]
        ['A', 'good', 'film']
        >>> difference = explanation.score - explanation.baseline_score
        >>> total = sum(word.attribution for word in explanation.words)
        >>> abs(total - difference) <= 1e-3 + explanation.gap * abs(difference)
        True
    """

    target: str
    texts: tuple[str, ...]
    words: tuple[Word, ...]
    score: float
    baseline_score: float
    gap: float
    steps: int

    @property
    def tokens(self) -> tuple[Piece, ...]:
        """The pieces of all words."""
        return tuple(itertools.chain.from_iterable(word.pieces for word in self.words))

    @property
    def summary(self) -> str:
        """The scores, and the completeness of the attributions."""
        total = sum(word.attribution for word in self.words)
        return (
            f"score {self.score:.4f}, of the baseline {self.baseline_score:.4f};"
            f" attributions sum to {total:.4f}, {self.gap:.2%} from the difference"
            f" ({self.steps} steps)"
        )

    @property
    def depends_little(self) -> bool:
        """Whether the text without its words has nearly the same score."""
        return abs(self.score - self.baseline_score) < _LITTLE_DIFFERENCE

    def __str__(self) -> str:
        """Returns each word with a bar, and the pieces of words that have several."""
        lines = [self.target, f"  {self.summary}"]
        if self.depends_little:
            lines.append(f"  {_LITTLE}")
        most = _largest(self.words)
        part = 0
        for word in self.words:
            if word.part != part:
                lines.append("")
            part = word.part
            length = round(_LONGEST_BAR * abs(word.attribution) / most)
            bar = ("+" if word.attribution > 0 else "-") * length
            lines.append(f"  {word.attribution:+9.4f}  {word.text}  {bar}".rstrip())
            if len(word.pieces) > 1:
                lines += [f"    {a:+9.4f}  {token}" for token, a in word.pieces]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Returns the explanation for a notebook."""
        return f"<style>{_STYLE}</style>{_section(self)}"


def words_of(
    encodings: Sequence[Encoding],
    texts: Sequence[str],
    attributions: Iterable[float],
    starts: Sequence[bool],
) -> tuple[Word, ...]:
    """Groups a model's tokens into words; `starts` marks the first token of each."""
    read = [
        (token, span, part)
        for part, one in enumerate(encodings)
        for token, span in zip(one.tokens, one.offsets, strict=True)
    ]
    words: list[Word] = []
    for (token, (begin, end), part), is_start, value in zip(
        read, starts, attributions, strict=True
    ):
        pieces: tuple[Piece, ...] = ()
        if words and not is_start:
            before = words.pop()
            begin, pieces = before.span[0], before.pieces
        pieces = (*pieces, Piece(token, value))
        total = sum(piece.attribution for piece in pieces)
        words.append(Word(texts[part][begin:end], total, (begin, end), part, pieces))
    return tuple(words)


def _largest(words: Sequence[Word]) -> float:
    return max((abs(word.attribution) for word in words), default=0.0) or 1.0


# The page needs no other files: no scripts, fonts or addresses.

_STYLE = """
.explained { font: 16px/1.9 sans-serif; max-width: 60em; margin: 1.5em auto }
.explained span { border-radius: .2em; padding: .1em 0 }
.explained .pieces span { display: inline-block; margin: .2em; padding: .1em .4em;
  text-align: center; line-height: 1.3 }
.explained small { color: #555 }
.explained span small, .explained small span { color: #000 }
"""
# Blue is for the target, orange against it: people who do not see red and green
# can tell them apart.
_FOR, _AGAINST = "33,102,172", "224,130,20"


def page(explanations: Iterable[Explanation], title: str) -> str:
    """Returns a page of explanations, in one file."""
    body = "\n".join(map(_section, explanations))
    return (
        '<!DOCTYPE html>\n<html lang="">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _section(one: Explanation) -> str:
    most = _largest(one.words)
    most_of_piece = max((abs(piece.attribution) for piece in one.tokens), default=most)
    lines = [f'<div class="explained"><h3>{html.escape(one.target)}</h3>']
    for part, text in enumerate(one.texts):
        place, cells = 0, []
        for word in (word for word in one.words if word.part == part):
            begin, end = word.span
            begin = max(begin, place)  # two words may share a character
            cells.append(_unread(text[place:begin]))
            cells.append(_shaded(text[begin:end], word.attribution, most))
            place = end
        cells.append(_unread(text[place:]))
        lines.append(f'<p dir="auto">{"".join(cells)}</p>')
    pieces = "".join(
        _shaded(token, value, most_of_piece or 1.0, f"<br><small>{value:+.3f}</small>")
        for token, value in one.tokens
    )
    lines.append(f'<p class="pieces">{pieces}</p>')
    lines.append(
        f"<p><small>{_shaded('for', most, most)} and"
        f" {_shaded('against', -most, most)} {html.escape(one.target)}:"
        f" {html.escape(one.summary)}."
        f"{' ' + html.escape(_LITTLE) if one.depends_little else ''}</small></p></div>"
    )
    return "\n".join(lines)


def _unread(text: str) -> str:
    """Greys a text out, unless it is white space."""
    return f"<small>{html.escape(text)}</small>" if text.strip() else text


def _shaded(text: str, value: float, most: float, more: str = "") -> str:
    colour = _FOR if value > 0 else _AGAINST
    strength = min(1.0, abs(value) / most) * 0.75
    return (
        f'<span style="background:rgba({colour},{strength:.2f})" title="{value:+.4f}">'
        f"{html.escape(text)}{more}</span>"
    )


# Integrated gradients: what each token contributes to a score.
#
# For a score F, a text's word embeddings x, and the embeddings x' of a baseline with a
# neutral token in place of each token (Sundararajan et al. 2017, equation 1),
#
#     a_i = sum over e of (x_ie - x'_ie) * integral from 0 to 1 of
#           dF/dx_ie (x' + t (x - x')) dt
#
# and the attributions sum to F(x) - F(x') (completeness). They are the integral of the
# gradient with respect to gates g between the two, x' + g_i (x_i - x'_i), at g = t: one
# gradient per token is needed, whatever the width of the embeddings. The integral is
# computed by Gauss-Legendre quadrature, with twice the points until completeness holds.
#
# Shapes: S tokens, P points.

# 1 % of a smaller difference would be within the rounding of float32 scores.
_LEAST_DIFFERENCE = 1e-2
COMPLETE = 0.01


class Attributions(NamedTuple):
    """The attributions of a text's tokens, and how complete they are."""

    values: np.ndarray  # float64 [S]
    score: float  # F(x)
    baseline_score: float  # F(x')
    steps: int  # P

    @property
    def gap(self) -> float:
        """Relative error of the completeness check."""
        difference = self.score - self.baseline_score
        missed = abs(float(self.values.sum()) - difference)
        return missed / max(abs(difference), _LEAST_DIFFERENCE)


def integrated_gradients(
    model: Any,
    inputs: Mapping[str, np.ndarray],
    baseline_ids: np.ndarray,
    score: Callable[[Mapping[str, Any]], Any],
    *,
    batch_size: int = 32,
    tolerance: float = COMPLETE,
    steps: int = 16,
    max_steps: int = 1024,
) -> Attributions:
    """Returns the attributions of one text, a batch of one; `score` of outputs: [B]."""
    from keras import ops

    from bert_tf.modeling.layers import observing

    keras_backend.refuse_fork()

    def embedded(record: Mapping[str, np.ndarray]) -> tuple[list[Any], float]:
        words: list[Any] = []  # one per encoder, if there are two

        def note(point: str, x: Any) -> Any:
            if point == "words":
                words.append(x)
            return x

        with observing(note):
            found = score(model(record, training=False))
        return words, float(ops.convert_to_numpy(found)[0])

    ends, there = embedded(inputs)
    starts, here = embedded({**inputs, "input_ids": baseline_ids})

    def total(gates: Any) -> Any:
        """Returns the sum of the scores of rows with these gates, [rows, S]."""
        places = iter(zip(starts, ends, strict=True))

        def between(point: str, x: Any) -> Any:
            if point != "words":
                return x
            start, end = next(places)
            return start + gates[:, :, None] * (end - start)

        rows = {name: np.repeat(x, gates.shape[0], 0) for name, x in inputs.items()}
        with observing(between):
            return ops.sum(score(model(rows, training=False)))

    length = inputs["input_ids"].shape[-1]
    while True:
        points, weights = np.polynomial.legendre.leggauss(steps)
        values = np.zeros(length)
        for rows in grouped(range(steps), batch_size):
            gates = np.repeat((points[rows, None] + 1.0) / 2.0, length, axis=1)
            gradient = keras_backend.gradient(
                total, ops.convert_to_tensor(gates.astype(np.float32))
            )
            slopes = ops.convert_to_numpy(gradient).astype(np.float64)
            values += (weights[rows] / 2.0) @ slopes
        found = Attributions(values, there, here, steps)
        if found.gap <= tolerance or 2 * steps > max_steps:
            return found
        steps *= 2
