r"""Draws what the tokens of a sentence look at: PNG, and a page to explore.

    python -m bert_tf.plot_attention --checkpoint=/tmp/pretraining_output \
        --output_dir=/tmp/attention --layers=0,-1 "The cat sat because it was tired."

writes attention.png, a row a layer and a column a head, and attention.html, where
pointing at a token shows what it looks at. Of two texts with " ||| " between the second
one is the pair's other sentence.
"""

import os

from absl import flags, logging

from bert_tf import cli, files, path_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.path_flags import Path
from bert_tf.score import SEPARATOR


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    path_flags.define(
        "checkpoint",
        None,
        "A run's output_dir, a checkpoint in it, a TF1 release, a Hugging Face folder,"
        " or a KerasHub preset: with its vocabulary.",
        Path.CHECKPOINT,
        flag_values=flag_values,
    )
    path_flags.define(
        "output_dir",
        None,
        "Folder for the pictures.",
        Path.OUTPUT,
        flag_values=flag_values,
    )
    for name in ("layers", "heads"):
        flags.DEFINE_list(
            name,
            [],
            f"The {name} to draw, numbered from 0; negative ones from the last."
            " Default: all.",
            flag_values=flag_values,
        )
    shared_flags.define(flag_values, "bert_config_file", "vocab_file")
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "Whether to lower-case the text. Default: as the checkpoint says, or its"
        " vocabulary; else true.",
        flag_values=flag_values,
    )
    for name in ("checkpoint", "output_dir"):
        flags.mark_flag_as_required(name, flag_values)


def _numbers(flag_values: flags.FlagValues, name: str) -> list[int]:
    given = getattr(flag_values, name)
    try:
        return [int(part) for part in given]
    except ValueError as error:
        raise InputError(
            f"--{name}={','.join(given)}: give whole numbers, such as 0,5,-1."
        ) from error


def run(flag_values: flags.FlagValues) -> None:
    """Draws the text's attention."""
    if len(flag_values.positional) != 1:
        raise InputError(
            'Give one text: plot_attention --checkpoint=DIR --output_dir=DIR "A text."'
        )
    (text,) = flag_values.positional
    layers, heads = _numbers(flag_values, "layers"), _numbers(flag_values, "heads")
    cli.import_tensorflow()
    from bert_tf.conversion.export import source_from_flags
    from bert_tf.conversion.loading import load_encoder, load_tokenizer
    from bert_tf.study import attention_maps, attention_page, attention_picture

    source = source_from_flags(flag_values)
    maps = attention_maps(
        load_encoder(source, output_attentions=True),
        load_tokenizer(source),
        *text.split(SEPARATOR, 1),
    ).of(layers, heads)
    files.make_folder(flag_values.output_dir)
    for name, content in (
        ("attention.png", attention_picture(maps, text)),
        ("attention.html", attention_page(maps, text)),
    ):
        path = os.path.join(flag_values.output_dir, name)
        files.write_atomically(path, content)
        logging.info("Wrote %s.", path)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run, arguments="text")


if __name__ == "__main__":
    main()
