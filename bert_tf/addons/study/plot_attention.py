"""Pictures of the attention between the tokens of a sentence."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Path, option
from bert_tf.base.pictures import picture
from bert_tf.base.shared_options import SourceOptions
from bert_tf.text.wordpiece import PAIR_SEPARATOR, WordPieceTokenizer

if TYPE_CHECKING:
    from bert_tf.modeling.encoder import BertEncoder


class AttentionOptions(SourceOptions, decides="nothing"):
    """The model, layers and heads to draw."""

    output_dir: str = option(REQUIRED, "Folder for the pictures.", path=Path.OUTPUT)
    layers: tuple[int, ...] = option(
        (),
        "The layers to draw, numbered from 0; negative numbers count from the last."
        " Default: all.",
    )
    heads: tuple[int, ...] = option(
        (),
        "The heads to draw, numbered from 0; negative numbers count from the last."
        " Default: all.",
    )


def attention_maps(
    encoder: "BertEncoder",
    tokenizer: WordPieceTokenizer,
    text_a: str,
    text_b: str | None = None,
) -> tuple[list[str], np.ndarray]:
    """Returns the tokens, with [CLS] and [SEP], and their attention [L, A, S, S]."""
    longest = encoder.bert_config.max_position_embeddings
    inputs = tokenizer([text_a], [text_b], max_length=longest)
    outputs = encoder(inputs, training=False)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    return tokens, np.concatenate(outputs["attention_probs"]).astype(np.float32)


def chosen(wanted: Sequence[int], count: int, what: str) -> list[int]:
    """Returns the numbers of some or all layers or heads; negative: from the end."""
    for number in wanted:
        if not -count <= number < count:
            raise InputError(
                f"There is no {what} {number}: the model has {count}, 0 to {count - 1}."
            )
    return [number % count for number in wanted] or list(range(count))


def attention_picture(
    tokens: Sequence[str],
    maps: np.ndarray,
    layers: Sequence[int],
    heads: Sequence[int],
    title: str,
) -> bytes:
    """Draws the maps of these layers and heads in one PNG; dark is high."""
    # Matplotlib would set text between dollar signs as a formula.
    tokens = [token.replace("$", r"\$") for token in tokens]
    size = min(6.0, 1.5 + 0.16 * len(tokens))  # inches

    def draw(figure: Any) -> None:
        figure.suptitle(title, parse_math=False)
        axes = figure.subplots(
            len(layers), len(heads), squeeze=False, sharex=True, sharey=True
        )
        for (row, column), axis in np.ndenumerate(axes):
            layer, head = layers[row], heads[column]
            image = axis.imshow(maps[layer, head], cmap="Blues", vmin=0.0, vmax=1.0)
            axis.set_title(f"layer {layer}, head {head}", fontsize=8)
            axis.set_yticks(range(len(tokens)), tokens, fontsize=7)
            axis.set_xticks(range(len(tokens)), tokens, fontsize=7, rotation=90)
        scale = figure.colorbar(image, ax=axes, format="{x:.0%}", aspect=40)
        scale.set_label("share of the row's attention")

    return picture(draw, (1.0 + size * len(heads), 1.0 + size * len(layers)))


def run(options: AttentionOptions) -> None:
    """Draws the text's attention."""
    if len(options.positional) != 1:
        raise InputError(
            "Give one text: python -m bert_tf.plot_attention --checkpoint=DIR"
            ' --output_dir=DIR "A text."'
        )
    (text,) = options.positional
    cli.import_tensorflow(options)
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_encoder
    from bert_tf.conversion.source import load_tokenizer

    source = source_of(options)
    tokens, maps = attention_maps(
        load_encoder(source, output_attentions=True),
        load_tokenizer(source),
        *text.split(PAIR_SEPARATOR, 1),
    )
    layers = chosen(options.layers, maps.shape[0], "layer")
    heads = chosen(options.heads, maps.shape[1], "head")
    content = attention_picture(tokens, maps, layers, heads, text)
    files.make_folder(options.output_dir)
    path = os.path.join(options.output_dir, "attention.png")
    files.write_atomically(path, content)
    logging.info("Wrote %s.", path)
