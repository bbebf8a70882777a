r"""Draws the attention between the tokens of a sentence.

    python -m bert_tf.plot_attention --checkpoint=/tmp/pretraining_output \
        --output_dir=/tmp/attention --layers=0,-1 "The cat sat because it was tired."

It writes attention.png, with one row per layer and one column per head. Two texts
separated by " ||| " are a pair of sentences.
"""

import dataclasses
import os

from absl import logging

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.options import REQUIRED, Path, SourceOptions, option
from bert_tf.score import SEPARATOR


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionOptions(SourceOptions):
    """Which model's attention is drawn."""

    output_dir: str = option(REQUIRED, "Folder for the pictures.", path=Path.OUTPUT)
    layers: tuple[str, ...] = option(
        (),
        "The layers to draw, numbered from 0; negative ones from the last."
        " Default: all.",
    )
    heads: tuple[str, ...] = option(
        (),
        "The heads to draw, numbered from 0; negative ones from the last."
        " Default: all.",
    )


def run(options: AttentionOptions) -> None:
    """Draws the text's attention."""
    if len(options.positional) != 1:
        raise InputError(
            'Give one text: plot_attention --checkpoint=DIR --output_dir=DIR "A text."'
        )
    (text,) = options.positional
    try:
        layers, heads = (
            [int(part) for part in given] for given in (options.layers, options.heads)
        )
    except ValueError as error:
        raise InputError(
            f"--layers and --heads must be whole numbers, such as 0,5,-1: {error}."
        ) from error
    cli.import_tensorflow()
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_encoder, load_tokenizer
    from bert_tf.study import attention_maps, attention_picture

    source = source_of(options)
    maps = attention_maps(
        load_encoder(source, output_attentions=True),
        load_tokenizer(source),
        *text.split(SEPARATOR, 1),
    ).of(layers, heads)
    files.make_folder(options.output_dir)
    path = os.path.join(options.output_dir, "attention.png")
    files.write_atomically(path, attention_picture(maps, text))
    logging.info("Wrote %s.", path)


def main() -> None:
    """The command line."""
    cli.main(run, arguments="text")


if __name__ == "__main__":
    main()
