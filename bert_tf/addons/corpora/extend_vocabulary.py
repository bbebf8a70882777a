"""The command `extend_vocabulary`."""

from collections.abc import Iterator

from absl import logging

from bert_tf.base import cli
from bert_tf.base.options import REQUIRED, option, with_default
from bert_tf.records.vocabulary_options import (
    WrittenVocabularyOptions,
    check_output_file,
    count_words,
    write,
)
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.training.training_options import ModelOptions

# So many of the new words are shown.
_SHOWN = 10


class ExtensionOptions(WrittenVocabularyOptions, decides="numbers"):
    """The vocabulary to extend, how far, and the text."""

    init_checkpoint: str = with_default(
        ModelOptions,
        "init_checkpoint",
        REQUIRED,
        help="The checkpoint whose vocabulary is extended: an output_dir of bert_tf, a"
        " released TF1 checkpoint (.../bert_model.ckpt), a Hugging Face folder, or a"
        " KerasHub preset.",
    )
    num_new_tokens: int | None = option(
        None,
        "Number of words to add. The words that save the most tokens are chosen.",
        least=1,
    )
    tokens_per_word: float | None = option(
        None,
        "Instead of --num_new_tokens: add words until the text has at most this many"
        " tokens per word, where [UNK] counts as one token per character.",
        least=1.0,
    )
    min_frequency: int = option(5, "How often a word must occur to be added.", least=1)
    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    segmenter: str = with_default(
        WrittenVocabularyOptions,
        "segmenter",
        NO_SEGMENTER,
        help="What separates the words of scripts without spaces, as in"
        " learn_vocabulary. Default: the checkpoint's.",
    )

    def problems(self) -> Iterator[str]:
        """Exactly one of `num_new_tokens` and `tokens_per_word`."""
        yield from super().problems()
        yield from self.need_one_given("num_new_tokens", "tokens_per_word")
        yield from self.refuse_together("num_new_tokens", "tokens_per_word")


def run(options: ExtensionOptions) -> None:
    """Extends the vocabulary as the flags ask, and writes it."""
    cli.import_tensorflow(options)
    from bert_tf.addons.corpora.extension import extend_vocabulary, is_extension
    from bert_tf.conversion.loading import checked_casing, checked_segmenter
    from bert_tf.conversion.source import load_tokenizer, open_source

    source = open_source(options.init_checkpoint)
    given = options.value_if_given("segmenter")
    segmenter = checked_segmenter(source, given, "Received:")
    tokenizer = load_tokenizer(source, segmenter=segmenter)
    vocabulary = tokenizer.vocabulary
    path = source.tokenizer.path or source.path
    given = options.value_if_given("do_lower_case")
    do_lower_case = checked_casing(source, vocabulary, given, path)
    check_output_file(options, lambda content: is_extension(vocabulary, content))
    counts = count_words(options, do_lower_case, segmenter, passed_over=[path])
    extension = extend_vocabulary(
        vocabulary,
        counts.words,
        num_new_tokens=options.num_new_tokens,
        tokens_per_word=options.tokens_per_word,
        min_frequency=options.min_frequency,
        fewer_tokens=options.fewer_tokens,
    )
    words = extension.new_words
    appended = len(extension.vocabulary) - len(vocabulary)
    logging.info(
        "Added %d words, %d of them in place of [unused] tokens: %s",
        *(len(words), len(words) - appended, ", ".join(words[:_SHOWN])),
    )
    logging.info(
        "Tokens per word: %.4f, before: %.4f. Words that become [UNK]: %d, before: %d",
        *(*reversed(extension.tokens_per_word), *reversed(extension.unknown)),
    )
    write(extension.vocabulary, options)
