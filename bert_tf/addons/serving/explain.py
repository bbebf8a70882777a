"""Explanations of predictions, as text or as a page."""

from absl import logging

from bert_tf.base import cli, files, options
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Options, Path, option
from bert_tf.base.shared_options import SourceOptions
from bert_tf.text.wordpiece import PAIR_SEPARATOR


class ExplainOptions(Options, title=options.TASK, decides="nothing"):
    """The model, and the texts to explain."""

    backend: str | None = options.with_default(SourceOptions, "backend", None)
    checkpoint: str = options.with_default(SourceOptions, "checkpoint", REQUIRED)
    output_file: str | None = option(None, "The HTML page to write.", path=Path.OUTPUT)
    target: str | None = option(
        None,
        "What to explain: a label for a classifier, the number of a word, from 0, for a"
        " tagger. Default: what the model predicts; for a tagger, each word with a"
        " label other than O.",
    )
    baseline: str = option(
        "[MASK]",
        "The token that replaces each token of the text in the baseline, such as [MASK]"
        " or [PAD].",
        decides="numbers",
    )
    max_seq_length: int | None = option(
        None,
        "Maximum length in WordPieces. Default: the run's.",
        least=5,
        decides="reading",
    )
    batch_size: int = option(32, "Points of the integral per batch.", least=1)


def run(options: ExplainOptions) -> None:
    """Prints the explanations of each text, and writes them as a page if asked to."""
    if not options.positional:
        raise InputError(
            'Give a text: python -m bert_tf.explain --checkpoint=DIR "A text."'
        )
    cli.import_tensorflow(options)
    from bert_tf.addons.serving.explanations import page
    from bert_tf.addons.serving.text_models.model import load

    model = load(
        options.checkpoint,
        max_length=options.max_seq_length,
        batch_size=options.batch_size,
    )
    explained = []
    for text in options.positional:
        first, separator, second = text.partition(PAIR_SEPARATOR)
        found = model.explain(
            first,
            second if separator else None,
            target=options.target,
            baseline=options.baseline,
        )
        shown = "\n".join(map(str, found))
        print(shown or f"{text}: no word has a label other than O.", flush=True)
        explained += found
    if options.output_file is not None:
        title = f"{options.checkpoint}: why"
        files.write_atomically(options.output_file, page(explained, title))
        logging.info("Wrote %s.", options.output_file)
