"""What the tokens of a sentence look at: attention as pictures, and as a page.

Row i, column j of a map is the share of its attention that token i pays to token j
(softmax(Q K^T / sqrt(d)); Vaswani et al. 2017, Devlin et al. 2018, section 3).

Shapes: L layers, A heads, S tokens.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.pictures import drawing, png
from bert_tf.text.wordpiece import WordPieceTokenizer

# Tokens of a map whose names can still be read, in a picture of many maps.
_MOST_NAMED = 40


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttentionMaps:
    """The attention of a sentence, or of a pair.

    Attributes:
        tokens: S of them, [CLS] and [SEP] among them.
        probabilities: [L, A, S, S] float32.
        layers: the number of each of the L layers, from 0.
        heads: the number of each of the A heads, from 0.
    """

    tokens: list[str]
    probabilities: np.ndarray
    layers: tuple[int, ...]
    heads: tuple[int, ...]

    def of(self, layers: Sequence[int], heads: Sequence[int]) -> "AttentionMaps":
        """Some layers and heads of these; negative numbers count from the last one."""
        rows = _chosen(layers, self.layers, "layer")
        columns = _chosen(heads, self.heads, "head")
        return AttentionMaps(
            tokens=self.tokens,
            probabilities=self.probabilities[rows][:, columns],
            layers=tuple(self.layers[row] for row in rows),
            heads=tuple(self.heads[column] for column in columns),
        )


def attention_maps(
    encoder: BertEncoder,
    tokenizer: WordPieceTokenizer,
    text_a: str,
    text_b: str | None = None,
) -> AttentionMaps:
    """The attention of all layers and heads, without dropout."""
    vocabulary = tokenizer.vocabulary
    ids = [vocabulary.cls_id, *tokenizer.encode(text_a), vocabulary.sep_id]
    first = len(ids)
    if text_b is not None:
        ids += [*tokenizer.encode(text_b), vocabulary.sep_id]
    longest = encoder.bert_config.max_position_embeddings
    if len(ids) > longest:
        raise InputError(
            f"The text has {len(ids)} tokens with [CLS] and [SEP]; the model takes"
            f" {longest}. Cut it."
        )
    segments = np.arange(len(ids)) >= first
    outputs = encoder(
        {
            "input_ids": np.array([ids], np.int32),
            "input_mask": np.ones([1, len(ids)], np.int32),
            "segment_ids": segments.astype(np.int32)[None],
        },
        training=False,
    )
    probabilities = np.stack(
        [np.asarray(layer, np.float32)[0] for layer in outputs["attention_probs"]]
    )
    return AttentionMaps(
        tokens=tokenizer.convert_ids_to_tokens(ids),
        probabilities=probabilities,
        layers=tuple(range(len(probabilities))),
        heads=tuple(range(probabilities.shape[1])),
    )


def attention_picture(maps: AttentionMaps, title: str) -> bytes:
    """All maps in one PNG: a row a layer, a column a head; dark is much attention."""
    tokens = [_shown(token) for token in maps.tokens]
    count, has_names = len(tokens), len(tokens) <= _MOST_NAMED
    rows, columns = maps.probabilities.shape[:2]
    # Inches: of a map, and of the names beside the outermost ones.
    size = min(4.0, 0.6 + 0.16 * count) if rows * columns > 1 else 1.5 + 0.25 * count
    size = min(size, 12.0)
    margin = 0.4 + 0.09 * max(map(len, tokens)) if has_names else 0.4
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(
            figsize=(1.0 + margin + size * columns, 0.8 + margin + size * rows),
            layout="constrained",
        )
        figure.suptitle(title, parse_math=False)
        axes = []
        for row, column in np.ndindex(rows, columns):
            axis = figure.add_subplot(rows, columns, row * columns + column + 1)
            axes.append(axis)
            image = axis.imshow(
                maps.probabilities[row, column], cmap="Blues", vmin=0.0, vmax=1.0
            )
            axis.set_title(
                f"layer {maps.layers[row]}, head {maps.heads[column]}", fontsize=8
            )
            axis.set_xticks([])
            axis.set_yticks([])
            if has_names and column == 0:
                axis.set_yticks(range(count), tokens, fontsize=7)
            if has_names and row == rows - 1:
                axis.set_xticks(range(count), tokens, fontsize=7, rotation=90)
        scale = figure.colorbar(image, ax=axes, format="{x:.0%}", aspect=40)
        scale.set_label("share of the row's attention")
        return png(figure)


def _chosen(wanted: Sequence[int], there: Sequence[int], what: str) -> list[int]:
    """The places of the wanted numbers."""
    for number in wanted:
        if not -len(there) <= number < len(there):
            raise InputError(
                f"There is no {what} {number}: the model has {len(there)}, 0 to"
                f" {len(there) - 1}."
            )
    return [number % len(there) for number in wanted] or list(range(len(there)))


def _shown(token: str) -> str:
    # What stands between dollars would be set as a formula.
    return token.replace("$", r"\$")
